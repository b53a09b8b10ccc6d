// Whole plans beside the ops: what is wrong is found, and nothing else is called wrong.
#include "compile-service/validate/try_plan.h"

#include <gtest/gtest.h>

#include "common/artifact/kernel_blob.h"
#include "common/bytecode/program_text.h"
#include "tests/compile-service/validate/compiled_plan.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

using testing::CompiledPlan;

constexpr int64_t kBudgetMs = 20'000;
using Inputs = std::vector<Dims>;

Segment SegmentOf(const std::string& text) {
  const Program program = ParseProgram(text).value();
  return CanonicalSegment(program, FindSegments(program).at(0)).value();
}

// A chain over rows of 64.
Segment Chain(const std::string& op) {
  return SegmentOf(R"(program "p" {
      symbol n in [1, 4096]
      func main(%x: f32[n, 64]) -> (%y) {
        %r : f32[n, 64] = Relu(%x)
        %y : f32[n, 64] = )" +
                   op + R"((%r)
      }
    })");
}

CompiledPlan Compiled(const Segment& segment, std::vector<int64_t> hints) {
  auto compiled = testing::CompilePlan(segment, std::move(hints), HostTargets().front());
  EXPECT_TRUE(compiled.has_value()) << ToString(compiled.error());
  return compiled.value_or(CompiledPlan{});
}

ReproduceVerdict Try(const Segment& segment, const CompiledPlan& compiled, const Inputs& inputs) {
  EXPECT_TRUE(VerifyPlan(compiled.plan, segment).has_value());
  const auto verdict = TryPlan({.plan = compiled.plan,
                                .segment = segment,
                                .code = compiled.code,
                                .inputs = inputs,
                                .seed = 7,
                                .own_seed = 11,
                                .budget_ms = kBudgetMs});
  EXPECT_TRUE(verdict.has_value()) << ToString(verdict.error());
  return verdict.value_or(ReproduceVerdict{});
}

TEST(TryPlan, ARightPlanAgrees) {
  const Segment segment = Chain("Tanh");
  const ReproduceVerdict verdict = Try(segment, Compiled(segment, {64}), {{5, 64}});
  EXPECT_EQ(verdict.outcome, ReproduceOutcome::kAgrees) << verdict.detail;
}

TEST(TryPlan, WeightsAreDrawnAndPacked) {
  const Segment segment = SegmentOf(R"(program "p" {
      symbol n in [1, 4096]
      constant w : f32[64, 40] = splat 0.5
      constant b : f32[40] = splat 0.25
      func main(%x: f32[n, 64]) -> (%y) {
        %w : f32[64, 40] = Constant() {value = @w}
        %b : f32[40] = Constant() {value = @b}
        %a : f32[n, 40] = MatMul(%x, %w)
        %c : f32[n, 40] = Add(%a, %b)
        %y : f32[n, 40] = Softmax(%c)
      }
    })");
  ASSERT_EQ(segment.weight_count(), 2);
  const CompiledPlan compiled = Compiled(segment, {64});
  EXPECT_FALSE(compiled.plan.recipes.empty());
  EXPECT_EQ(Try(segment, compiled, {{5, 64}}).outcome, ReproduceOutcome::kAgrees);
}

TEST(TryPlan, TheCodeOfAnotherOpIsAMismatch) {
  const Segment segment = Chain("Neg");
  CompiledPlan wrong = Compiled(segment, {64});
  const CompiledPlan other = Compiled(Chain("Exp"), {64});
  ASSERT_EQ(wrong.code.size(), other.code.size());
  wrong.code = other.code;
  wrong.plan.kernels = other.plan.kernels;
  const ReproduceVerdict verdict = Try(segment, wrong, {{5, 64}});
  EXPECT_EQ(verdict.outcome, ReproduceOutcome::kMismatch) << verdict.detail;
  EXPECT_NE(verdict.detail.find("output 0"), std::string::npos) << verdict.detail;
}

// Of one row: about every fourth draw shows nothing, since few sums are negative.
TEST(TryPlan, AMismatchThatFewValuesShowIsFoundInASmallCase) {
  const auto layer = [](const std::string& op) {
    return SegmentOf(R"(program "p" {
      symbol n in [1, 4096]
      constant w : f32[8, 24] = splat 0.5
      constant b : f32[24] = splat 0.25
      func main(%x: f32[n, 8]) -> (%y) {
        %w : f32[8, 24] = Constant() {value = @w}
        %b : f32[24] = Constant() {value = @b}
        %a : f32[n, 24] = MatMul(%x, %w)
        %c : f32[n, 24] = Add(%a, %b)
        %r : f32[n, 24] = )" +
                     op + R"((%c)
        %y : f32[n, 24] = Softmax(%r)
      }
    })");
  };
  const Segment segment = layer("Relu");
  const CompiledPlan right = Compiled(segment, {64}), other = Compiled(layer("Abs"), {64});
  CompiledPlan wrong = right;
  ASSERT_EQ(wrong.code.size(), other.code.size());
  wrong.code = other.code;
  wrong.plan.kernels = other.plan.kernels;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const auto outcome = [&](const CompiledPlan& compiled) {
      return TryPlan({.plan = compiled.plan,
                      .segment = segment,
                      .code = compiled.code,
                      .inputs = {{1, 8}},
                      .seed = 1000 + seed,
                      .own_seed = seed,
                      .budget_ms = kBudgetMs})
          .value_or(ReproduceVerdict{});
    };
    const ReproduceVerdict verdict = outcome(wrong);
    EXPECT_EQ(verdict.outcome, ReproduceOutcome::kMismatch) << seed << ": " << verdict.detail;
    if (seed % 10 != 0) continue;
    EXPECT_EQ(outcome(right).outcome, ReproduceOutcome::kAgrees) << seed;
  }
}

TEST(TryPlan, AnErrorOfAPlanIsFoundWhereItsKernelsAreRight) {
  const Segment segment = testing::ReluSegment();
  const CompiledPlan wrong{testing::ReluPlan(0, 4096, TensorOp::kAbs), {}};
  EXPECT_EQ(Try(segment, wrong, {{5, 4}}).outcome, ReproduceOutcome::kMismatch);
  const CompiledPlan right{testing::ReluPlan(0, 4096), {}};
  EXPECT_EQ(Try(segment, right, {{5, 4}}).outcome, ReproduceOutcome::kAgrees);
}

TEST(TryPlan, WhatCannotBeTriedIsUndecided) {
  const Segment segment = testing::ReluSegment();
  const CompiledPlan narrow{testing::ReluPlan(1, 8), {}};
  EXPECT_EQ(Try(segment, narrow, {{9, 4}}).outcome, ReproduceOutcome::kUndecided) << "not admitted";
  CompiledPlan foreign{testing::ReluPlan(1, 8), {}};
  foreign.plan.target = "aarch64";
  EXPECT_EQ(Try(segment, foreign, {{8, 4}}).outcome, ReproduceOutcome::kUndecided) << "another processor";
  const Segment logs = Chain("Log");  // of Relu: of zeros
  EXPECT_NE(Try(logs, Compiled(logs, {64}), {{5, 64}}).outcome, ReproduceOutcome::kMismatch);
  const Segment large = SegmentOf(R"(program "p" {
      symbol n in [1, 1000000000]
      func main(%x: f32[n, 4]) -> (%y) { %y : f32[n, 4] = Relu(%x) }
    })");
  EXPECT_EQ(Try(large, Compiled(large, {64}), {{500'000'000, 4}}).outcome, ReproduceOutcome::kUndecided) << "too large";
}

// Moves on by a step whenever it is read.
struct SteppingClock final : Clock {
  explicit SteppingClock(int64_t ms) : step_ns(ms * 1'000'000) {}
  int64_t NowNs() const override { return now_ns += step_ns; }
  int64_t WallMs() const override { return now_ns / 1'000'000; }
  const int64_t step_ns;
  mutable int64_t now_ns = 0;
};

Result<ReproduceVerdict> TryFor(int64_t step_ms, bool busy) {
  const SteppingClock clock(step_ms);
  const Plan wrong = testing::ReluPlan(0, 4096, TensorOp::kAbs);
  return TryPlan({.plan = wrong,
                  .segment = testing::ReluSegment(),
                  .code = {},
                  .inputs = {{5, 4}},
                  .seed = 7,
                  .own_seed = 11,
                  .budget_ms = kBudgetMs,
                  .clock = clock,
                  .processor_ns = [&] { return busy ? 0 : clock.now_ns; }});
}

// A verdict that was not reached for want of time is none where others had that time: who asks again may have it.
TEST(TryPlan, WhatABusyHostHadNoTimeForIsTriedAgain) {
  EXPECT_EQ(TryFor(1, true)->outcome, ReproduceOutcome::kMismatch) << "there was time";
  // For one draw of the two that it takes, and for none.
  for (const int64_t step_ms : {6'000, 19'000}) {
    const auto verdict = TryFor(step_ms, true);
    ASSERT_FALSE(verdict.has_value()) << step_ms;
    EXPECT_EQ(verdict.error().code, ErrorCode::kBusy) << ToString(verdict.error());
    const auto slow = TryFor(step_ms, false);
    ASSERT_TRUE(slow.has_value()) << ToString(slow.error());
    EXPECT_EQ(slow->outcome, ReproduceOutcome::kUndecided) << step_ms;
  }
}

TEST(TryPlan, ProcessorTimeIsThatOfTheProcessAndItsChildren) {
  const int64_t before = ProcessorNs();
  for (volatile int64_t i = 0; ProcessorNs() == before;) i = i + 1;
  EXPECT_GT(ProcessorNs(), before);
  EXPECT_TRUE(HostWasBusy(1'000, 499));
  EXPECT_FALSE(HostWasBusy(1'000, 500));
}

TEST(TryPlan, ACaseOfAnotherSegmentIsRefused) {
  const Segment& segment = testing::ReluSegment();
  const CompiledPlan right{testing::ReluPlan(0, 4096), {}};
  for (const Inputs& inputs : {Inputs{}, Inputs{{5, 5}}, Inputs{{5}}, Inputs{{-1, 4}}, Inputs{{5, 4}, {5, 4}}}) {
    const auto verdict = TryPlan({.plan = right.plan, .segment = segment, .code = {}, .inputs = inputs});
    EXPECT_FALSE(verdict.has_value());
  }
}

// Positions that no op has refused are drawn within what it reads.
TEST(TryPlan, IndicesFindTheirTable) {
  const Segment segment = SegmentOf(R"(program "p" {
      symbol n in [1, 4096]
      constant t : f32[3, 32] = splat 0.5
      func main(%i: i64[n]) -> (%y) {
        %t : f32[3, 32] = Constant() {value = @t}
        %g : f32[n, 32] = Gather(%t, %i)
        %y : f32[n, 32] = Relu(%g)
      }
    })");
  const ReproduceVerdict verdict = Try(segment, Compiled(segment, {16}), {{9}});
  EXPECT_EQ(verdict.outcome, ReproduceOutcome::kAgrees) << verdict.detail;
}

#ifdef __x86_64__
// One kernel step over x and y, with this code.
CompiledPlan WithCode(const std::vector<uint8_t>& code) {
  CompiledPlan compiled{testing::ReluPlan(0, 4096), {BuildKernelBlob(HostTargets().front(), 0, code)}};
  compiled.plan.kernels = {KernelIdOf(compiled.code[0])};
  compiled.plan.steps = {
      {KernelStep{0, {0, 1}, {compiled.plan.symbols.SymbolDim(0)}, Dim::Const(1), Dim::Const(1), Dim::Const(0)},
       {0},
       "kernel"}};
  return compiled;
}

// mov rax, [rdi]; mov rax, [rax + 8 * pointer]; mov byte [rax + offset], 0; ret
std::vector<uint8_t> StoresAt(uint8_t pointer, int32_t offset) {
  const auto at = static_cast<uint32_t>(offset);
  return {0x48,
          0x8b,
          0x07,
          0x48,
          0x8b,
          0x40,
          static_cast<uint8_t>(8 * pointer),
          0xc6,
          0x80,
          static_cast<uint8_t>(at),
          static_cast<uint8_t>(at >> 8),
          static_cast<uint8_t>(at >> 16),
          static_cast<uint8_t>(at >> 24),
          0x00,
          0xc3};
}

TEST(TryPlan, AWildStoreAFaultAndALoopWithoutEndAreFaults) {
  const struct {
    const char* what;
    std::vector<uint8_t> code;
  } cases[] = {
      {"behind the output", StoresAt(1, 80 + 64)},
      {"far before the output", StoresAt(1, -8192)},
      {"just before the output", StoresAt(1, -1)},
      {"into an input", StoresAt(0, 0)},
      {"no instruction", {0x0f, 0x0b}},
      {"jmp to itself", {0xeb, 0xfe}},
  };
  for (const auto& [what, code] : cases) {
    const ReproduceVerdict verdict = Try(testing::ReluSegment(), WithCode(code), {{5, 4}});
    EXPECT_EQ(verdict.outcome, ReproduceOutcome::kFault) << what << ": " << verdict.detail;
  }
}

TEST(TryPlan, WhatIsNeverWrittenDiffers) {
  EXPECT_EQ(Try(testing::ReluSegment(), WithCode({0xc3}), {{5, 4}}).outcome, ReproduceOutcome::kMismatch);
}
#endif

}  // namespace
}  // namespace kiln
