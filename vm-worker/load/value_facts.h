// What is known of the values of one function before it runs: which are constants, and the integer contents that follow
// from constants and input dims. One node at a time; the importer and the load passes share it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/bytecode/program.h"
#include "common/shape/tensor_desc.h"

namespace kiln {

// Indexed by ValueId. Value type.
struct ValueFacts {
  std::vector<ConstantId> constant;  // -1: not a constant
  std::vector<std::optional<KnownValues>> known;

  void Resize(size_t values);
  ConstantId ConstantOf(ValueId value) const { return value < 0 ? -1 : constant[static_cast<size_t>(value)]; }
};

// Contents of an integer or bool tensor as constant Dims (bool: 0 or 1); nullopt for other dtypes and long tensors.
std::optional<KnownValues> KnownOfTensor(const Tensor& tensor);

// The inverse for all-constant contents: a tensor of an integer or bool dtype; nullopt when an element is not constant
// or does not fit. Precondition: dims have as many elements as there are contents.
std::optional<Tensor> TensorOfKnown(const KnownValues& known, DType dtype, const Dims& dims);

// Whether the smallest tensor of these dims is within the limits, as the verifier wants it.
bool IsPossible(const SymbolTable& symbols, DType dtype, const std::vector<Dim>& dims);

// What the shape rule says of one node's outputs.
struct NodeFacts {
  std::vector<TensorDesc> outputs;
  std::vector<std::optional<KnownValues>> known;
};

// Applies the shape rule of a node without regions. `facts` must cover the node's inputs; fresh symbols go into the
// program's table. Does not change the function.
Result<NodeFacts> InferNode(Program& program, const Function& function, const Node& node, const ValueFacts& facts);

// What a rule is shown of a node's inputs, one entry per input; nullptr: absent.
struct InputFacts {
  std::vector<const TensorDesc*> descs;
  std::function<std::optional<KnownValues>(int)> known;
  std::function<std::optional<std::vector<double>>(int)> known_floats;
};
// Refers to all of its arguments.
InputFacts InputFactsOf(const Program& program, const Function& function, const Node& node, const ValueFacts& facts);
// The rule of the same node over inputs that the caller states, whose dims belong to `symbols`.
Result<NodeFacts> InferNode(const Program& program, SymbolTable& symbols, const Node& node, InputFacts inputs);

}  // namespace kiln
