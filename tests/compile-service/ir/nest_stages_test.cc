// Scatters and scans: what they compute, and which specs of them are refused.
#include "compile-service/ir/nest_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile-service/ir/in_place.h"
#include "tests/support/spec_builder.h"

namespace kiln {
namespace {

using ir::KernelSpec;
using ir::LoopNestSpec;
using ir::ScalarOp;
using ir::SpecInt;
using ir::Stage;
using testing::Consts;
using testing::ProgramBuilder;

// table[positions[i]][j] += updates[i][j] for i in turn: a table of dims[0] rows of 3.
LoopNestSpec AddRows() {
  LoopNestSpec nest;
  nest.reduce = {SpecInt::Argument(1)};
  nest.inner = SpecInt::Const(3);
  nest.accesses = {
      {0, DType::kF32, Consts({0, 1})}, {1, DType::kI64, Consts({1, 0})}, {2, DType::kF32, Consts({3, 1})}};
  ProgramBuilder p;
  const int32_t position = p.Load(1, DType::kI64), update = p.Load(2);
  const int32_t place = p.LoadAt(0, position, p.Argument(0), p.Integer(3));
  const int32_t sum = p.Op(ScalarOp::kAdd, place, update);
  nest.body = p.Take();
  Stage stage = testing::StoreStage(Stage::Domain::kFull, {{0, sum}});
  stage.kind = Stage::Kind::kScatter;
  stage.node = place;
  nest.stages = {stage};
  return nest;
}

// out[i] = the product of x[0..i), and 1 at first.
LoopNestSpec ProductsBefore() {
  LoopNestSpec nest;
  nest.reduce = {SpecInt::Const(4)};
  nest.inner = SpecInt::Const(1);
  nest.accesses = {{0, DType::kF32, Consts({1, 0})}, {1, DType::kF32, Consts({1, 0})}};
  ProgramBuilder p;
  const int32_t running = p.StageResult(0), next = p.Op(ScalarOp::kMul, running, p.Load(0));
  nest.body = p.Take();
  Stage stage = testing::StoreStage(Stage::Domain::kFull, {{1, running}});
  stage.kind = Stage::Kind::kScan;
  stage.combine = ir::Combine::kProduct;
  stage.node = next;
  nest.stages = {stage};
  return nest;
}

TEST(Scatter, RowsThatMeetAreAddedInTurn) {
  float table[] = {0, 0, 0, 1, 1, 1};
  const int64_t positions[] = {1, 0, 1, INT64_MIN};  // what is outside is brought into the table
  const float updates[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  void* pointers[] = {table, const_cast<int64_t*>(positions), const_cast<float*>(updates)};
  const int64_t dims[] = {2, 4};
  ASSERT_TRUE(ir::EvaluateSpec({AddRows(), 3, 2}, pointers, dims, 8, 0, 1).has_value());
  EXPECT_THAT(table, ::testing::ElementsAre(14, 16, 18, 9, 11, 13));
}

TEST(Scan, BeginsWithWhatItCombinesFrom) {
  const float x[] = {2, 3, 4, 5};
  float out[4] = {};
  void* pointers[] = {const_cast<float*>(x), out};
  ASSERT_TRUE(ir::EvaluateSpec({ProductsBefore(), 2, 0}, pointers, {}, 8, 0, 1).has_value());
  EXPECT_THAT(out, ::testing::ElementsAre(1, 2, 6, 24));
  // The result of a position may lie where its operand lies.
  void* in_place[] = {out, out};
  std::ranges::copy(x, out);
  ASSERT_TRUE(ir::EvaluateSpec({ProductsBefore(), 2, 0}, in_place, {}, 8, 0, 1).has_value());
  EXPECT_THAT(out, ::testing::ElementsAre(1, 2, 6, 24));
}

TEST(Scatter, NothingLiesWhereItStores) {
  EXPECT_TRUE(ir::InPlaceOperands({AddRows(), 3, 2}).empty());
  LoopNestSpec set = AddRows();  // no longer reads the table
  set.stages[0].stores[0].node = 1;
  ASSERT_TRUE(ir::VerifySpec({set, 3, 2}).has_value());
  EXPECT_TRUE(ir::InPlaceOperands({set, 3, 2}).empty());
}

struct BadCase {
  const char* name;
  LoopNestSpec (*good)();
  void (*spoil)(LoopNestSpec& nest);
};
const BadCase kBadCases[] = {
    {"reduced inner dim", AddRows, [](LoopNestSpec& n) { n.reduce_inner = true; }},
    {"domain", AddRows, [](LoopNestSpec& n) { n.stages[0].domain = Stage::Domain::kInner; }},
    {"place that is none", AddRows, [](LoopNestSpec& n) { n.stages[0].node = 1; }},
    {"place out of range", AddRows, [](LoopNestSpec& n) { n.stages[0].node = 99; }},
    {"another access", AddRows, [](LoopNestSpec& n) { n.stages[0].stores[0].access = 2; }},
    {"two stores", AddRows, [](LoopNestSpec& n) { n.stages[0].stores.push_back({0, 1}); }},
    {"lanes that meet", AddRows, [](LoopNestSpec& n) { n.accesses[0].strides[1] = SpecInt::Const(0); }},
    {"loads beside the place", AddRows, [](LoopNestSpec& n) { n.accesses[2] = n.accesses[0]; }},
    {"read by another stage", AddRows,
     [](LoopNestSpec& n) {
       n.accesses.push_back({3, DType::kF32, Consts({3, 1})});
       n.stages.push_back(testing::StoreStage(Stage::Domain::kFull, {{3, n.stages[0].node}}));
     }},
    {"stored to by another stage", AddRows,
     [](LoopNestSpec& n) { n.stages.push_back(testing::StoreStage(Stage::Domain::kFull, {{0, 1}})); }},
    {"scan over a reduced inner dim", ProductsBefore, [](LoopNestSpec& n) { n.reduce_inner = true; }},
    {"scan without a store", ProductsBefore, [](LoopNestSpec& n) { n.stages[0].stores.clear(); }},
    {"way to combine", ProductsBefore, [](LoopNestSpec& n) { n.stages[0].combine = static_cast<ir::Combine>(9); }},
    {"running value of another type", ProductsBefore, [](LoopNestSpec& n) { n.body[0].type = DType::kF64; }},
    {"running value read behind the scan", ProductsBefore,
     [](LoopNestSpec& n) {
       n.accesses.push_back({2, DType::kF32, Consts({0, 0})});
       n.stages.push_back(testing::StoreStage(Stage::Domain::kInner, {{2, 0}}));
     }},
};

TEST(OrderedStages, VerifySpecRefusesWhatHasNoOrder) {
  for (const BadCase& bad : kBadCases) {
    LoopNestSpec nest = bad.good();
    ASSERT_TRUE(ir::VerifySpec({nest, 4, 2}).has_value());
    bad.spoil(nest);
    EXPECT_FALSE(ir::VerifySpec({nest, 4, 2}).has_value()) << bad.name;
  }
}

}  // namespace
}  // namespace kiln
