// Which operands may lie where a result lies: a table of kernels that may and of near misses that may not.
#include "compile-service/ir/in_place.h"

#include <gtest/gtest.h>

#include "tests/support/spec_builder.h"

namespace kiln::ir {
namespace {

using kiln::testing::Consts;
using kiln::testing::ProgramBuilder;
using kiln::testing::ReduceStage;
using kiln::testing::StoreStage;

constexpr auto kFull = Stage::Domain::kFull, kInner = Stage::Domain::kInner, kRow = Stage::Domain::kRow;

// y = tanh(x) over 6 x 8; pointer 0 is x, 1 is y.
LoopNestSpec Chain() {
  ProgramBuilder program;
  const int32_t result = program.Op(ScalarOp::kTanh, program.Load(0));
  LoopNestSpec nest;
  nest.outer = Consts({6});
  nest.inner = SpecInt::Const(8);
  nest.accesses = {{0, DType::kF32, Consts({8, 1})}, {1, DType::kF32, Consts({8, 1})}};
  nest.stages = {StoreStage(kInner, {{1, result}})};
  nest.body = program.Take();
  return nest;
}

// Softmax over the inner dim: maximum of x, exponentials kept in y, their sum, quotient in y.
LoopNestSpec Softmax() {
  ProgramBuilder program;
  const int32_t x = program.Load(0), most = program.StageResult(0);
  const int32_t exponential = program.Op(ScalarOp::kExp, program.Op(ScalarOp::kSub, x, most));
  const int32_t kept = program.Load(1);
  const int32_t quotient = program.Op(ScalarOp::kDiv, kept, program.StageResult(2));
  LoopNestSpec nest = Chain();
  nest.reduce_inner = true;
  nest.stages = {ReduceStage(Combine::kMax, x), StoreStage(kFull, {{1, exponential}}), ReduceStage(Combine::kSum, kept),
                 StoreStage(kFull, {{1, quotient}})};
  nest.body = program.Take();
  return nest;
}

std::vector<InPlaceOperand> Of(const LoopNestSpec& nest, int32_t pointers = 2, int32_t dims = 4) {
  const KernelSpec spec{nest, pointers, dims};
  EXPECT_TRUE(VerifySpec(spec).has_value()) << PrintSpec(spec);
  return InPlaceOperands(spec);
}

using Pairs = std::vector<InPlaceOperand>;

TEST(InPlace, AChainMayLieWhereItsOperandLies) {
  EXPECT_EQ(Of(Chain()), (Pairs{{1, 0, {}}}));
}

TEST(InPlace, WhatARowReadsBeforeItIsWrittenMayLieThere) {
  EXPECT_EQ(Of(Softmax()), (Pairs{{1, 0, {}}}));
}

TEST(InPlace, StridesThatAreArgumentsMustBeEqual) {
  LoopNestSpec nest = Chain();
  nest.accesses[0].strides[0] = SpecInt::Argument(2);
  nest.accesses[1].strides[0] = SpecInt::Argument(3);
  EXPECT_EQ(Of(nest), (Pairs{{1, 0, {{3, 2}}}}));
  const KernelSpec spec{nest, 2, 4};
  const int64_t equal[] = {0, 0, 8, 8}, other[] = {0, 0, 9, 8};
  EXPECT_EQ(InPlaceAt(spec, equal).size(), 1u);
  EXPECT_TRUE(InPlaceAt(spec, other).empty());
}

TEST(InPlace, EveryPointerIsTakenOnce) {
  LoopNestSpec nest = Chain();  // y = x + z
  ProgramBuilder program;
  const int32_t sum = program.Op(ScalarOp::kAdd, program.Load(0), program.Load(2));
  nest.body = program.Take();
  nest.accesses.push_back({2, DType::kI32, Consts({8, 1})});
  nest.stages = {StoreStage(kInner, {{1, sum}})};
  EXPECT_EQ(Of(nest, 3), (Pairs{{1, 0, {}}, {1, 2, {}}}));
  EXPECT_EQ(InPlaceAt({nest, 3, 0}, {}), (Pairs{{1, 0, {}}}));
}

TEST(InPlace, OtherMapsTypesAndOrdersMayNot) {
  const std::pair<const char*, void (*)(LoopNestSpec&)> misses[] = {
      {"another stride", [](LoopNestSpec& nest) { nest.accesses[0].strides[0] = SpecInt::Const(16); }},
      {"a row for all", [](LoopNestSpec& nest) { nest.accesses[0].strides[0] = SpecInt::Const(0); }},
      {"transposed", [](LoopNestSpec& nest) { nest.accesses[0].strides = Consts({1, 6}); }},
      {"an argument against a constant",
       [](LoopNestSpec& nest) { nest.accesses[0].strides[0] = SpecInt::Argument(1); }},
      {"elements of another size", [](LoopNestSpec& nest) { nest.accesses[0].storage = DType::kF16; }},
      {"broadcast on both sides",
       [](LoopNestSpec& nest) { nest.accesses[0].strides[0] = nest.accesses[1].strides[0] = SpecInt::Const(0); }},
      {"read in another way as well",
       [](LoopNestSpec& nest) {
         nest.accesses.push_back({0, DType::kF32, Consts({0, 1})});
         nest.body.push_back({ScalarOp::kLoad, DType::kF32, -1, -1, -1, 2});
         nest.body.push_back({ScalarOp::kAdd, DType::kF32, 1, 2});
         nest.stages[0].stores[0].node = 3;
       }},
      {"the result is an operand itself",
       [](LoopNestSpec& nest) {
         nest.body.push_back({ScalarOp::kLoad, DType::kF32, -1, -1, -1, 1});
         nest.body.push_back({ScalarOp::kAdd, DType::kF32, 1, 2});
         nest.stages[0].stores[0].node = 3;
       }},
      {"nobody reads it", [](LoopNestSpec& nest) {
         nest.body.push_back({ScalarOp::kConstant});
         nest.stages[0].stores[0].node = 2;
       }}};
  for (const auto& [name, change] : misses) {
    LoopNestSpec nest = Chain();
    change(nest);
    EXPECT_TRUE(Of(nest).empty()) << name;
  }
}

TEST(InPlace, AReductionDoesNotLieWhereItsOperandLies) {
  LoopNestSpec row = Chain();
  row.reduce_inner = true;
  ProgramBuilder program;
  const int32_t x = program.Load(0);
  const int32_t sum = program.StageResult(0);
  row.body = program.Take();
  row.accesses[1].strides = Consts({8, 0});
  row.stages = {ReduceStage(Combine::kSum, x), StoreStage(kRow, {{1, sum}})};
  EXPECT_TRUE(Of(row).empty());
  row.accesses[1].strides = Consts({8, 1});  // the same map, and still one element a row
  EXPECT_TRUE(Of(row).empty());
  LoopNestSpec columns = row;  // over a dim of its own, stored where that dim is 0
  columns.reduce_inner = false;
  columns.reduce = Consts({4});
  columns.accesses = {{0, DType::kF32, Consts({32, 8, 1})}, {1, DType::kF32, Consts({32, 8, 1})}};
  columns.stages[1].domain = kInner;
  EXPECT_TRUE(Of(columns).empty());
}

TEST(InPlace, WhatALaterStageReadsIsNotOverwritten) {
  LoopNestSpec nest = Softmax();
  const auto x_again = static_cast<int32_t>(nest.body.size());
  nest.body.push_back({ScalarOp::kAdd, DType::kF32, 0, nest.stages[3].stores[0].node});
  nest.stages[3].stores[0].node = x_again;  // quotient + x
  EXPECT_TRUE(Of(nest).empty());
}

// C = A B + r; pointers a 0, b 1, r 2, c 3.
ContractionSpec Residual() {
  ContractionSpec product;
  product.m = SpecInt::Argument(0);
  product.n = product.k = SpecInt::Const(16);
  product.a = {0, DType::kF32, Consts({16, 1})};
  product.b = {1, DType::kF32, Consts({16})};
  product.b_layout = BLayout::kRows;
  product.accesses = {{2, DType::kF32, Consts({16, 1})}, {3, DType::kF32, Consts({16, 1})}};
  product.epilogue = {{ScalarOp::kAccumulator, DType::kF32},
                      {ScalarOp::kLoad, DType::kF32, -1, -1, -1, 0},
                      {ScalarOp::kAdd, DType::kF32, 0, 1}};
  product.stores = {{1, 2}};
  return product;
}

std::vector<InPlaceOperand> Of(const ContractionSpec& product) {
  const KernelSpec spec{product, 4, 1};
  EXPECT_TRUE(VerifySpec(spec).has_value()) << ToString(VerifySpec(spec).error());
  return InPlaceOperands(spec);
}

TEST(InPlace, AProductMayLieWhereItsResidualLiesButNotInAFactor) {
  EXPECT_EQ(Of(Residual()), (Pairs{{3, 2, {}}}));
  ContractionSpec factor = Residual();
  factor.accesses[0].pointer = 0;  // A B + A
  EXPECT_TRUE(Of(factor).empty());
  ContractionSpec bias = Residual();
  bias.accesses[0].strides = Consts({0, 1});
  EXPECT_TRUE(Of(bias).empty());
}

}  // namespace
}  // namespace kiln::ir
