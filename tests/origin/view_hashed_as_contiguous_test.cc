#include "common/signature/signature.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

TEST(Origin, ViewHashedAsContiguous) {
  alignas(64) float memory[2 * 8] = {};
  const TensorRef slice{DType::kF32, {2, 4}, {8, 1}, memory};  // x[:, 0:4] of a [2, 8] tensor
  const TensorRef dense = MakeRef(DType::kF32, {2, 4}, memory);
  Signature of_slice, of_dense;
  BuildSignature({&slice, 1}, {}, &of_slice);
  BuildSignature({&dense, 1}, {}, &of_dense);
  EXPECT_FALSE(of_slice == of_dense);
  of_slice.hash = of_dense.hash;
  EXPECT_FALSE(of_slice == of_dense) << "an equal hash is no equal signature";
  const Plan plan = testing::ReluPlan(0, 64);
  const int64_t symbols[] = {2};
  EXPECT_FALSE(CheckGuard(plan.guard, plan.symbols, symbols, {&dense, 1}));
  EXPECT_TRUE(CheckGuard(plan.guard, plan.symbols, symbols, {&slice, 1}));
}

}  // namespace
}  // namespace kiln
