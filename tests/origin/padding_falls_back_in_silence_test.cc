#include <gmock/gmock.h>

#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/explain/explain_model.h"
#include "vm-worker/explain/remedies.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

// A padded row makes the input a view: the plan still answers, and the copy it takes is counted and told.
TEST(Origin, PaddingFallsBackInSilence) {
  EpochDomain epochs;
  TierController tiers(epochs, nullptr, nullptr, {});
  const auto program = LoadedProgram::Load(testing::ReluProgram()).value();
  const auto model = std::make_shared<Model>("m", program, epochs);
  tiers.AddModel(model);
  model->runtime(0).slot.Publish({testing::Linked(testing::ReluPlan(0, 4096))});
  ModelThread& thread = model->AddThread();
  const auto observer = tiers.MakeObserver(model, thread);
  Dispatcher dispatcher(model->runtimes(), thread.counters, *observer);
  alignas(64) float memory[2 * 16] = {};
  memory[16] = 5;  // the second row starts behind the padding
  const TensorRef padded{DType::kF32, {2, 4}, {16, 1}, memory};
  VmContext context;
  RunOptions options;
  options.hook = &dispatcher;
  const auto outputs = context.Run(*program, {&padded, 1}, options);
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  EXPECT_EQ((*outputs)[0].ref.as<float>()[4], 5.0f);
  const ExplainReply reply = ExplainModel(*model, tiers, {"m", "", "", false}).value();
  EXPECT_EQ(reply.segments.at(0).plan_calls, 1u);
  EXPECT_EQ(reply.segments.at(0).input_copies, 1u);
  EXPECT_THAT(reply.segments.at(0).remedies, ::testing::Contains(::testing::HasSubstr("copied together")));
}

}  // namespace
}  // namespace kiln
