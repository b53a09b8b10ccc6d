// Compile requests as bytes: what a worker asks arrives, and what nobody may ask is refused before it is copied.
#include "common/compile_api/compile_api.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/base/limits.h"
#include "common/compile_api/reproduce.h"

namespace kiln {
namespace {

CompileRequest Sample() {
  CompileRequest request;
  request.segment = {1, 2, 3};
  request.target = "x86-64-v3";
  request.numeric_mode = NumericMode::kFast;
  request.tier = PlanTier::kExact;
  request.priority = 7;
  request.symbols = {{1, 1, 1}, {0, 4096, 8}};
  request.hints = {1, -1};
  request.weights = WeightForm::kAsGiven;
  return request;
}

TEST(CompileApi, ARequestRoundTrips) {
  const CompileRequest sample = Sample();
  const CompileRequest decoded = DecodeCompileRequest(EncodeCompileRequest(sample)).value();
  EXPECT_EQ(decoded.Key(), sample.Key());
  EXPECT_EQ(decoded.priority, sample.priority);
  EXPECT_EQ(decoded.weights, sample.weights);
}

TEST(CompileApi, AnAccusationAndItsAnswerRoundTrip) {
  ReproduceRequest request;
  request.segment = {1, 2, 3};
  request.plan_key = HashBytes(request.segment);
  request.contents = HashBytes({});
  request.inputs = {{2, 3}, {}, {4}};
  request.parameters = {5};
  request.seed = 6;
  const ReproduceRequest decoded = DecodeReproduceRequest(EncodeReproduceRequest(request)).value();
  EXPECT_EQ(decoded.Key(), request.Key());
  EXPECT_EQ(decoded.inputs, request.inputs);
  EXPECT_EQ(decoded.seed, 6u);
  ReproduceRequest other = request;
  other.inputs[0] = {3, 2};
  EXPECT_NE(other.Key(), request.Key());
  const ReproduceReply reply{{ReproduceOutcome::kMismatch, "output 0 differs"}, true};
  const ReproduceReply back = DecodeReproduceReply(EncodeReproduceReply(reply)).value();
  EXPECT_EQ(back.verdict.outcome, reply.verdict.outcome);
  EXPECT_EQ(back.verdict.detail, reply.verdict.detail);
  EXPECT_TRUE(back.quarantined);
}

TEST(CompileApi, AnAccusationOfImpossibleCasesIsRefused) {
  EXPECT_FALSE(DecodeReproduceRequest({}).has_value());
  ReproduceRequest request;
  request.inputs.assign(limits::kGuardInputsMax + 1, Dims{1});
  EXPECT_FALSE(DecodeReproduceRequest(EncodeReproduceRequest(request)).has_value());
  EXPECT_FALSE(
      DecodeReproduceReply(EncodeReproduceReply({{static_cast<ReproduceOutcome>(77), ""}, false})).has_value());
}

// The key is what single flight and the memory of failures go by.
TEST(CompileApi, TheKeyDependsOnAllThatDecidesThePlanAndOnNothingElse) {
  const std::function<void(CompileRequest&)> changes[] = {
      [](CompileRequest& r) { r.segment.push_back(4); },
      [](CompileRequest& r) { r.target = "x86-64-v4"; },
      [](CompileRequest& r) { r.numeric_mode = NumericMode::kStrict; },
      [](CompileRequest& r) { r.tier = PlanTier::kGeneric; },
      [](CompileRequest& r) { r.symbols[1].divisor = 4; },
      [](CompileRequest& r) { r.symbols.pop_back(); },
      [](CompileRequest& r) { r.hints[0] = 2; },
      [](CompileRequest& r) { r.weights = WeightForm::kPacked; },
  };
  for (const auto& change : changes) {
    CompileRequest other = Sample();
    change(other);
    EXPECT_NE(other.Key(), Sample().Key());
  }
  CompileRequest urgent = Sample();
  urgent.priority = 8;
  EXPECT_EQ(urgent.Key(), Sample().Key());
}

TEST(CompileApi, ListsBeyondTheirBoundsAreRefused) {
  const std::function<void(CompileRequest&)> changes[] = {
      [](CompileRequest& r) { r.target.assign(limits::kTargetBytesMax + 1, 'x'); },
      [](CompileRequest& r) { r.symbols.resize(limits::kGuardSymbolsMax + 1, {1, 1, 1}); },
      [](CompileRequest& r) { r.hints.resize(limits::kGuardSymbolsMax + 1); },
  };
  for (const auto& change : changes) {
    CompileRequest large = Sample();
    change(large);
    EXPECT_EQ(DecodeCompileRequest(EncodeCompileRequest(large)).error().code, ErrorCode::kLimitExceeded);
  }
  CompileRequest formless = Sample();
  formless.weights = static_cast<WeightForm>(77);
  EXPECT_EQ(DecodeCompileRequest(EncodeCompileRequest(formless)).error().code, ErrorCode::kMalformed);
  CompileRequest impossible = Sample();
  impossible.symbols[0] = {2, 1, 1};
  EXPECT_EQ(DecodeCompileRequest(EncodeCompileRequest(impossible)).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
