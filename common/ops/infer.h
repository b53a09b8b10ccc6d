// Shape rules: one function per tensor op, used at load (symbolic), by the compile service (bound or generic) and by
// the interpreter (constants only). There is no second set of rules.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/shape/tensor_desc.h"

namespace kiln {

// What to do when a rule depends on a fact about symbols that is not proven (is dim a equal to dim b, or 1?).
enum class UnprovenPolicy : uint8_t {
  kFreshSymbol,  // load: the output dim becomes a fresh symbol, bound when the node has run
  kAssume,  // compile service: decide by the hint values and record the decision as a Constraint (part of the guard)
};

// One call of a shape rule. The rule reads inputs and attributes and fills `outputs`.
struct InferContext {
  SymbolTable& symbols;
  TensorOp op;
  const Attributes& attributes;
  std::span<const Constant> constants;        // of the program, for attributes that name one
  std::span<const TensorDesc* const> inputs;  // nullptr: absent
  // Contents of integer input i as Dims, row-major, or nullopt when they are not known (now). May be called lazily; at
  // run time it reads the tensor.
  std::function<std::optional<KnownValues>(int)> known;
  // Contents of float input i (Resize's scales), row-major, or nullopt. May be empty: then no float contents are known.
  std::function<std::optional<std::vector<double>>(int)> known_floats;
  // Whether the caller uses `known_outputs`. The interpreter, which has the tensors, sets it to false and saves the
  // work.
  bool want_known = true;
  UnprovenPolicy policy = UnprovenPolicy::kFreshSymbol;
  std::span<const int64_t> hints;  // value per symbol, for kAssume
  // Where to put what must hold between sizes for the node to run: a call for which one of these is false is refused by
  // this rule once its sizes are known, or by the kernel. nullptr: nobody asks.
  std::vector<Constraint>* required = nullptr;

  // --- results ---
  std::vector<TensorDesc> outputs;                        // preset to the wanted count; the rule sets dtype and dims
  std::vector<std::optional<KnownValues>> known_outputs;  // contents, where the rule can tell (shape arithmetic)
  std::vector<Constraint> assumed;                        // facts that kAssume took for granted
  bool data_dependent = false;                            // set when an output dim follows from tensor contents

  // Does a equal b? Proven answers come from the table; else the policy decides: kAssume uses the hints and records the
  // constraint, kFreshSymbol returns nullopt.
  std::optional<bool> Equal(Dim a, Dim b);
  // Notes a constraint for whoever asks; what is proven is left out. One that cannot hold is noted like any other:
  // SymbolTable::FindContradiction, over all that a program requires, tells it.
  void Require(ConstraintKind kind, Dim left, Dim right) const;
  // Broadcast of two dims under NumPy rules, ShapeMismatch when proven impossible; may be a fresh symbol under
  // kFreshSymbol.
  Result<Dim> Broadcast(Dim a, Dim b);
};

// Fills `context.outputs` and `known_outputs`. Errors name the dim and the value; the caller adds the node.
Status InferShapes(InferContext& context);

}  // namespace kiln
