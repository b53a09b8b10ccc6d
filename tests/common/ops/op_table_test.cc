// Every row of the op table has a shape rule and, where one is due, a kernel.
#include <gtest/gtest.h>

#include "tests/common/ops/op_runner.h"

namespace kiln {
namespace {

bool HasKernelFor(TensorOp op) {
  for (const DType dtype : {DType::kF32, DType::kI64, DType::kBool, DType::kU8, DType::kU32}) {
    if (FindReferenceKernel(op, dtype)) return true;
  }
  return false;
}

// Rows are appended, and none is changed: that would part this build from its peers and from programs on disk.
TEST(OpTable, WhatPeersHashOfItsRowsStays) {
  EXPECT_EQ(TensorOpTablePrefix(170).Hex(), "2df5fbeba8c5126a17d1e9e0f7a5dac120cb2917fe4c8ea80320bb1ba9b8b37c");
}

TEST(OpTable, EveryComputingRowHasAKernel) {
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    const bool due = row.family != OpFamily::kView && row.family != OpFamily::kControl &&
                     row.family != OpFamily::kConstant && row.op != TensorOp::kShapeVector;
    EXPECT_EQ(HasKernelFor(row.op), due) << row.name;
  }
}

TEST(OpTable, EveryRowWithoutRegionsHasAShapeRule) {
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    SymbolTable symbols;
    const Attributes attributes;
    // Unknown ranks: a rule may refuse attributes or arity, but must neither crash nor invent dims of inputs it lacks.
    TensorDesc unknown;
    unknown.dtype = DType::kF32;
    const std::vector<const TensorDesc*> inputs(static_cast<size_t>(std::max(row.min_inputs, 0)), &unknown);
    InferContext context{.symbols = symbols, .op = row.op, .attributes = attributes, .inputs = inputs};
    context.outputs.resize(static_cast<size_t>(row.min_outputs));
    const Status status = InferShapes(context);
    if (row.family == OpFamily::kControl) {
      EXPECT_FALSE(status) << row.name;
    } else if (!status) {
      EXPECT_EQ(status.error().message.find("regions"), std::string::npos) << row.name;
    }
  }
}

TEST(OpTable, MissingInputIsAnErrorThatNamesTheOp) {
  SymbolTable symbols;
  const Attributes attributes;
  InferContext context{.symbols = symbols, .op = TensorOp::kAdd, .attributes = attributes};
  context.outputs.resize(1);
  const Status status = InferShapes(context);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("Add"), std::string::npos);
}

}  // namespace
}  // namespace kiln
