#include "compile-service/jobs/job_codec.h"

#include <gtest/gtest.h>

#include <random>

namespace kiln {
namespace {

LowerAnswer Answer() {
  LowerAnswer answer;
  answer.codegen_id.bytes[3] = 9;
  answer.plan = {1, 2, 3};
  answer.kernels = {{{}, {4, 5}, {{1, 2}, {3}}}, {{}, {}, {}}};
  answer.generated_nodes = 7;
  answer.tunable = {{{{{}, {1}, "tile 8x3"}, {{}, {2}, "tile 6x4"}}, {{{64, 3}, 2}}}};
  return answer;
}

TEST(JobCodec, RoundTripKeepsEverything) {
  const LowerAnswer back = LowerAnswerFrom(ToFrame(Answer())).value();
  EXPECT_EQ(back.codegen_id, Answer().codegen_id);
  EXPECT_EQ(back.plan, Answer().plan);
  ASSERT_EQ(back.kernels.size(), 2u);
  EXPECT_EQ(back.kernels[0].trial_dims, Answer().kernels[0].trial_dims);
  EXPECT_EQ(back.generated_nodes, 7u);
  ASSERT_EQ(back.tunable.size(), 1u);
  EXPECT_EQ(back.tunable[0].forms.at(1).what, "tile 6x4");
  EXPECT_EQ(back.tunable[0].calls.at(0).uses, 2);
  const TimeJob time{Target::kX86V4, {{{1}, {2}}, {{3}, {4}}}, {{{7}, 9}}, 100};
  const TimeJob time_back = TimeJobFrom(ToFrame(time)).value();
  EXPECT_EQ(time_back.forms.at(1).code, time.forms[1].code);
  EXPECT_EQ(time_back.calls.at(0).dims, time.calls[0].dims);
  EXPECT_EQ(TimeAnswerFrom(ToFrame(TimeAnswer{{5, 6}})).value().ns, (std::vector<int64_t>{5, 6}));
  const LowerTunedJob tuned = LowerTunedJobFrom(LowerTunedFrame({1, 2}, {0, 3})).value();
  EXPECT_EQ(tuned.request, (std::vector<uint8_t>{1, 2}));
  EXPECT_EQ(tuned.chosen, (std::vector<uint32_t>{0, 3}));
  const ValidateJob job{Target::kX86V3, {1}, {2, 3}, {{4}}, 5, 600};
  const ValidateJob job_back = ValidateJobFrom(ToFrame(job)).value();
  EXPECT_EQ(job_back.target, Target::kX86V3);
  EXPECT_EQ(job_back.code, job.code);
  EXPECT_EQ(job_back.seed, 5u);
  EXPECT_EQ(job_back.deadline_ms, 600u);
}

TEST(JobCodec, AccusedPlansAndVerdictsRoundTrip) {
  const TryPlanJob job{{1, 2}, {3}, {{4}, {5, 6}}, {{7, 8}, {}}, {9}, 10, 11, 12};
  const TryPlanJob back = TryPlanJobFrom(ToFrame(job)).value();
  EXPECT_EQ(back.segment, job.segment);
  EXPECT_EQ(back.plan, job.plan);
  EXPECT_EQ(back.code, job.code);
  EXPECT_EQ(back.inputs, job.inputs);
  EXPECT_EQ(back.parameters, job.parameters);
  EXPECT_EQ(back.seed, 10u);
  EXPECT_EQ(back.own_seed, 11u);
  EXPECT_EQ(back.deadline_ms, 12u);
  const Frame good = ToFrame(job);
  for (size_t cut = 0; cut < good.payload.size(); ++cut) {
    Frame damaged = good;
    damaged.payload.resize(cut);
    EXPECT_FALSE(TryPlanJobFrom(damaged).has_value()) << cut;
  }
  Frame verdict = ToFrame(ReproduceVerdict{ReproduceOutcome::kFault, "signal 11"});
  EXPECT_EQ(ReproduceVerdictFrom(verdict)->outcome, ReproduceOutcome::kFault);
  EXPECT_EQ(ReproduceVerdictFrom(verdict)->detail, "signal 11");
  verdict.payload[0] = 99;
  EXPECT_FALSE(ReproduceVerdictFrom(verdict).has_value());
}

TEST(JobCodec, AFailureCarriesItsCodeAndMessage) {
  const auto answer = CompileKernelAnswerFrom(FailedFrame({ErrorCode::kUnsupported, "no such thing", {}}));
  EXPECT_EQ(answer.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(answer.error().message, "no such thing");
}

TEST(JobCodec, DamagedFramesAreErrors) {
  const Frame good = ToFrame(Answer());
  for (size_t cut = 0; cut < good.payload.size(); ++cut) {
    Frame damaged = good;
    damaged.payload.resize(cut);
    EXPECT_FALSE(LowerAnswerFrom(damaged).has_value()) << cut;
  }
  std::mt19937_64 random(20260102);
  for (int i = 0; i < 3000; ++i) {
    Frame damaged = good;
    damaged.payload[random() % damaged.payload.size()] = static_cast<uint8_t>(random());
    (void)LowerAnswerFrom(damaged).has_value();  // any result, but no crash and no huge allocation
  }
  EXPECT_FALSE(LowerAnswerFrom({200, good.payload}).has_value());
}

}  // namespace
}  // namespace kiln
