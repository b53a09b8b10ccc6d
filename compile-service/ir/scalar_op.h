// The operations of the scalar language of kernel specs: one append-only table (scalar_ops.def).
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::ir {

enum class ScalarOp : uint8_t {
#define KILN_SCALAR_OP(value, name, operands, format, doc) k##name = value,
#include "compile-service/ir/scalar_ops.def"
#undef KILN_SCALAR_OP
};

// What the `index` of a node names, and which types the node and its operands have.
enum class ScalarFormat : uint8_t {
  kConstant,    // no operands; any type
  kAccess,      // names an access; any type
  kStage,       // names a stage with a result; the type of what it reduces or scans
  kSum,         // names a finished sum; its type
  kDim,         // names a loop dim; i64
  kArgument,    // names a dims argument; i64
  kPosition,    // names an access; any type; i64 position, extent and stride, the last two known before the loops
  kNumbers,     // one numeric type
  kFloats,      // one float type
  kF32,         // f32
  kFunction,    // f32: an elementary function, tens of instructions
  kOrder,       // bool of two operands of one numeric type
  kEquality,    // bool of two operands of one type
  kTruths,      // bool
  kFloatTest,   // bool of a float
  kChoice,      // a bool and two operands of the node's type
  kConversion,  // any type of any type
};

struct ScalarOpInfo {
  std::string_view name;
  int operands = 0;
  ScalarFormat format{};
};
// nullptr: no row has this number.
const ScalarOpInfo* FindScalarOp(ScalarOp op);

std::string_view ScalarOpName(ScalarOp op);  // "?" where there is no row
// Whether a node's value comes from the loop or the memory around its program.
bool IsLeaf(ScalarOp op);
// Whether an operation is an elementary function: tens of instructions.
bool IsFunction(ScalarOp op);

}  // namespace kiln::ir
