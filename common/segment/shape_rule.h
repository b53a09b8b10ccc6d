// Runs a node's shape rule on tensors that exist: every dim a constant.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/ops/infer.h"

namespace kiln {

// What one call of a rule needs, kept to save allocations. Not thread-safe.
class ShapeRule {
 public:
  // Of which op; must outlive the call.
  struct Question {
    Question(const Program& program, const Node& node)
        : op(node.op), attributes(node.attributes), constants(program.constants), outputs(node.outputs.size()) {}
    Question(TensorOp op, const Attributes& attributes, size_t outputs)
        : op(op), attributes(attributes), outputs(outputs) {}
    TensorOp op;
    const Attributes& attributes;
    std::span<const Constant> constants;
    size_t outputs;
  };
  using KnownFunction = std::function<std::optional<KnownValues>(int)>;
  using KnownFloatsFunction = std::function<std::optional<std::vector<double>>(int)>;

  // `inputs`: nullptr where absent. The error is the rule's. Afterwards outputs() are descriptions whose dims are
  // constants, except where only the kernel can tell.
  Status Run(const Question& question, std::span<const TensorRef* const> inputs, KnownFunction known,
             KnownFloatsFunction known_floats, bool want_known);
  // The same where contents are those of the inputs themselves, as far as their `data` is not null.
  Status RunOnContents(const Question& question, std::span<const TensorRef* const> inputs);
  std::span<TensorDesc> outputs() { return outputs_; }
  std::span<const TensorDesc> outputs() const { return outputs_; }
  std::optional<KnownValues>* known_output(size_t i) {
    return i < known_outputs_.size() ? &known_outputs_[i] : nullptr;
  }
  const SymbolTable& symbols() const { return symbols_; }  // of the outputs' dims
  // Dims of output i, or nullopt when they are not all constants.
  std::optional<Dims> OutputDims(size_t i) const;

 private:
  SymbolTable symbols_;  // rules make fresh symbols for what they cannot tell
  std::vector<TensorDesc> descs_;
  std::vector<const TensorDesc*> inputs_;
  std::vector<TensorDesc> outputs_;
  std::vector<std::optional<KnownValues>> known_outputs_;
};

// Value of a dim for a shape frame in which unbound symbols are negative; nullopt when one of its symbols is unbound.
Result<std::optional<int64_t>> EvaluateInFrame(const SymbolTable& symbols, Dim dim, std::span<const int64_t> frame);

}  // namespace kiln
