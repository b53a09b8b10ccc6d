// Shapes while a program runs: what is kept of a node's last ones, and whether they are what the program states.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/bytecode/compact.h"
#include "common/segment/shape_rule.h"

namespace kiln {

// What the shape rule of one node gave in the run before, and for which inputs: their dtypes and dims, and the contents
// of those that the rule read. A node that meets the same again needs no rule. Not thread-safe.
class LastShapes {
 public:
  struct Output {
    DType dtype;
    std::optional<Dims> dims;  // none: only the kernel can tell
  };
  const std::vector<Output>& outputs() const { return outputs_; }
  // Whether outputs() are those for these inputs; nullptr: absent.
  bool AreFor(std::span<const TensorRef* const> inputs) const;
  // Takes outputs() from the rule. `read[i]`: it asked for the contents of input i.
  void Remember(const ShapeRule& rule, std::span<const TensorRef* const> inputs, const std::vector<bool>& read);

 private:
  struct Input {
    bool present = false, read = false;
    DType dtype{};
    Dims dims;
    std::vector<uint8_t> contents;
  };
  bool usable_ = false;  // not where the rule read what is not contiguous
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

// The dtype that the program states must be so, since kernels are chosen by it, and so must sizes that it states as
// constants: static instructions rest on them. Other sizes are held to BIND_SHAPE where no rule proves them. `dtype`
// and `dims` are those that the output has in this call.
Status CheckClaim(const Program& program, const NodePlace& place, size_t output, DType dtype, const Dims& dims);

// Whether a constraint of the program holds, where every symbol of it has a value. The error names each with its value,
// and the input and dim that shows it.
Status CheckConstraint(const Program& program, const Constraint& constraint, std::span<const int64_t> frame);

// BIND_SHAPE: checks dims against the description of `value` and writes the symbols that it defines into the frame;
// then the constraints that these complete. The error names value, dim, and both sizes.
Status BindShape(const Program& program, const ShapeBinding& binding, const Dims& dims, std::span<int64_t> frame);

}  // namespace kiln
