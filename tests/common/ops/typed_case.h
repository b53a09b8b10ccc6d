// The cases of cases.txt in other element types, and as programs of one node: what the page of supported types and the
// comparison of plans on special values are made from.
#pragma once

#include <vector>

#include "common/bytecode/program.h"
#include "tests/common/ops/case_file.h"

namespace kiln::testing {

// The input that decides an op's element type.
size_t TypedInput(TensorOp op);

// The case with its data in another element type: the deciding input alone, or all that share its type. Other inputs
// (indices, axes, conditions) stay.
struct TypedCase {
  OpCase op;
  std::vector<Tensor> owned;
};
TypedCase InType(const FileCase& original, DType type, bool alone);

// Whether the interpreter runs it.
bool Runs(const TypedCase& typed);

// What an input becomes in a program of the node: data are inputs, or behind the deciding one weights; small integers
// behind it are immediates.
enum class InputRole : uint8_t { kAbsent, kRunTime, kWeight, kImmediate };
InputRole RoleOf(const TypedCase& typed, size_t input, bool weights);

// A program of the one node, with `outputs` as the shape rule describes them.
Program OneNode(const TypedCase& typed, const std::vector<TensorDesc>& outputs, bool weights);

}  // namespace kiln::testing
