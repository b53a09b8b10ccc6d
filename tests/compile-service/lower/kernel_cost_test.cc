// What a worker shares kernels among threads by: work, and the memory that little work needs.
#include "compile-service/lower/kernel_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/compile-service/lower/check_program.h"
#include "vm-worker/dispatch/plan_instance.h"

namespace kiln::testing {
namespace {

constexpr int64_t kBytes = lower::kOperationsPerByte;

struct Case {
  const char* name;
  const char* program;
  int64_t cost;  // of the only kernel, or of the largest
};

class KernelCost : public ::testing::TestWithParam<Case> {};

TEST_P(KernelCost, IsTheWorkAndTheTraffic) {
  const Segment segment = SegmentOf(GetParam().program);
  const std::vector<int64_t> symbols;
  const lower::LowerRequest request{segment, Target::kX86V4, NumericMode::kDefault, symbols, {}};
  const Result<lower::LoweredSegment> lowered = lower::LowerSegment(request);
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  int64_t largest = 0;
  for (const PlanStep& step : lowered->plan.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step.step))
      largest = std::max(largest, *lowered->plan.symbols.Evaluate(kernel->cost, symbols));
  EXPECT_EQ(largest, GetParam().cost);
}

const Case kCases[] = {
    {"OneRow", R"(program "p" { constant w : f32[768, 768] = splat 0.5
func main(%x: f32[1, 768]) -> (%y) {
%w : f32[768, 768] = Constant() {value = @w}
%y : f32[*] = MatMul(%x, %w)
} })",
     2 * 768 * 768 + kBytes * 4 * 768 * 768},
    {"EveryMatrixOfABatchIsRead", R"(program "p" { func main(%x: f32[12, 1, 64], %w: f32[12, 64, 128]) -> (%y) {
%y : f32[*] = MatMul(%x, %w)
} })",
     2 * 12 * 64 * 128 + kBytes * 4 * 12 * 64 * 128},
    {"ABroadcastOperandIsNoTraffic", R"(program "p" { func main(%x: f32[256, 512], %b: f32[512]) -> (%y) {
%y : f32[*] = Add(%x, %b)
} })",
     (1 + 2 * kBytes * 4) * 256 * 512},
    {"ASmallerTypeIsLessTraffic", R"(program "p" { func main(%x: f16[256, 512]) -> (%y) {
%y : f32[*] = Cast(%x) {to = 1}
} })",
     (1 + kBytes * (2 + 4)) * 256 * 512},
};

INSTANTIATE_TEST_SUITE_P(Table, KernelCost, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// 2.4 MB of weights take 100 us and more from memory, whatever the arithmetic on them.
TEST(KernelCost, OneRowOfALayerIsWorthAHelper) {
  EXPECT_GE(kCases[0].cost, kPooledOperationsMin);
  EXPECT_LT(kCases[0].cost - kBytes * 4 * 768 * 768, kPooledOperationsMin);
}

}  // namespace
}  // namespace kiln::testing
