// The arithmetic of LSTM, GRU and RNN cells as stages of a recurrent kernel.
#pragma once

#include <vector>

#include "common/ops/activation.h"
#include "compile-service/ir/graph.h"
#include "compile-service/ir/kernel_spec.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

// What a node asks for, with its sizes.
struct RecurrentCell {
  TensorOp op{};
  Dim time, rows;  // of the batch
  int64_t directions = 0, units = 0, gates = 0, features = 0;
  bool batch_first = false, reverse_only = false, linear_before_reset = false, coupled = false;
  bool has_lengths = false;
  std::optional<double> clip;
  ActivationList activations;  // per direction, one after another

  // Whether the reset gate scales the state's bias too, so that it does not belong to the inputs.
  bool BiasesState() const { return op == TensorOp::kGRU && linear_before_reset; }
  // Whether the reset gate scales the state before its product.
  bool IsTwoProducts() const { return op == TensorOp::kGRU && !linear_before_reset; }
};

// Fails for what only the reference kernel does: other dtypes, weights that are not packed, unknown activations.
Result<RecurrentCell> CellOf(const ir::Graph& graph, const ir::GraphNode& node);

// Accesses by index; -1 absent.
struct CellAccesses {
  std::vector<int32_t> x;  // per gate: the inputs' part, biases included
  int32_t h = -1, c = -1, h0 = -1, c0 = -1, y = -1;
  int32_t work = -1;            // the next h while products read this one; the scaled h of two products
  int32_t update = -1;          // of two products
  int32_t candidate_bias = -1;  // of the state, where the reset gate scales it
  std::vector<int32_t> peepholes;
};

// `vectors` and `panels` are the caller's; products take the gates of R in the order of the stages.
struct CellStages {
  std::vector<ir::RecurrentStage> before, steps, after;
};
CellStages StagesOf(const RecurrentCell& cell, const CellAccesses& at, int64_t direction);

}  // namespace kiln::lower
