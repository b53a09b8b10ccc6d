// The tensor operators: one append-only table (tensor_ops.def). Semantics are those of the newest ONNX form; the
// importer rewrites older forms (attribute inputs, opset-6 broadcasting, Softmax below 13) into it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/base/hash.h"

namespace kiln {

enum class TensorOp : uint16_t {
#define KILN_TENSOR_OP(value, name, min_in, max_in, min_out, max_out, dtype_rule, effects, family, doc) k##name = value,
#include "common/ops/tensor_ops.def"
#undef KILN_TENSOR_OP
};

// What an op may do beyond computing its outputs from its inputs; passes ask this, not the op.
enum class OpEffects : uint8_t {
  kPure = 0,       // outputs and their shapes follow from input shapes, immediates and attributes
  kDecision = 1,   // pure, and its result jumps with tiny input differences (ArgMax, Cast to integer, comparisons…)
  kDataShape = 2,  // output shapes depend on tensor contents: ends a segment
  kControl = 3,    // owns regions: ends a segment
  kRandom = 4,     // not a function of its inputs: ends a segment
};

// Which generic code path treats the op (importer, lowering, explain); families are disjoint.
enum class OpFamily : uint8_t {
  kElementwise,
  kMovement,
  kView,
  kReduction,
  kContraction,
  kConvolution,
  kPooling,
  kNormalization,
  kRecurrent,
  kIndexing,
  kShape,
  kSelection,
  kQuantization,
  kControl,
  kConstant,
  kOther,
};

inline constexpr int kVariadic = 0x7fff;

struct TensorOpInfo {
  TensorOp op;
  std::string_view name;
  int min_inputs, max_inputs;  // max may be kVariadic
  int min_outputs, max_outputs;
  std::string_view dtype_rule;  // see the head of tensor_ops.def
  OpEffects effects;
  OpFamily family;
  bool plan_check;  // plans run it for its errors alone: it checks what the kernels behind it believe
  std::string_view doc;
};

const TensorOpInfo& OpInfo(TensorOp op);
std::optional<TensorOp> TensorOpFromNumber(int number);
std::optional<TensorOp> TensorOpFromName(std::string_view name);
// Number of rows, for loops over the table; row i in table order.
int TensorOpCount();
const TensorOpInfo& TensorOpRow(int index);
// Types of node attributes; the alternatives of AttributeValue (common/bytecode/program.h), in their order.
enum class AttributeType : uint8_t { kInt, kFloat, kText, kInts, kFloats, kTexts, kConstant, kDims };

struct OpAttributeInfo {
  TensorOp op;
  std::string_view name;
  AttributeType type;
};
// The attributes an op knows (op_attributes.def), and one of them by name (nullptr: it has no such attribute).
std::span<const OpAttributeInfo> OpAttributes(TensorOp op);
const OpAttributeInfo* FindOpAttribute(TensorOp op, std::string_view name);

// Hash of what the first `rows` rows say to peers, which are compatible when one table is a prefix of the other's: all
// columns but `plan_check` and `doc`.
Digest TensorOpTablePrefix(int rows);

}  // namespace kiln
