// What a dispatcher tells its observer of calls that plans answer.
#include "vm-worker/dispatch/dispatcher.h"

#include <map>

#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

using testing::Linked;
using testing::ReluPlan;

// Every reading takes `reading_ns`: so does a call by plan.
struct ReadingClock final : Clock {
  int64_t NowNs() const override { return now_ns += reading_ns; }
  int64_t WallMs() const override { return 0; }
  mutable int64_t now_ns = 0;
  int64_t reading_ns = 1000;
};

struct Recorder final : CallObserver {
  struct Told {
    uint64_t calls = 0, exact_calls = 0;
    int64_t ns = 0;
  };
  void Interpreted(int, const Signature&, int64_t) override { ++interpreted; }
  void Answered(int, const Signature& signature, bool exact, uint64_t calls, int64_t elapsed_ns) override {
    Told& told = answered[signature.words];
    (exact ? told.exact_calls : told.calls) += calls;
    told.ns += elapsed_ns;
    ++tellings;
  }
  void ShadowCandidate(int, const SegmentEntry&, const LinkedPlan& plan, bool by_plan) override {
    shadowed.push_back(&plan);
    answered_by_plan.push_back(by_plan);
  }
  int interpreted = 0, tellings = 0;
  std::map<decltype(Signature::words), Told> answered;
  std::vector<const LinkedPlan*> shadowed;
  std::vector<bool> answered_by_plan;
};

class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest() {
    runtimes_.push_back(std::make_unique<SegmentRuntime>(epochs_));
    dispatcher_.emplace(runtimes_, counters_, observer_, DispatcherOptions{.instances_max = 8, .clock = &clock_});
  }
  float Run(int64_t rows) {
    Tensor x = Tensor::Allocate(DType::kF32, {rows, 4});
    std::fill_n(x.ref.as<float>(), rows * 4, 1.0f);
    const TensorRef inputs[] = {x.ref};
    EpochScope scope(epochs_, reader_);
    const auto outputs = context_.Run(*program_, inputs, {.hook = &*dispatcher_});
    EXPECT_TRUE(outputs.has_value()) << (outputs ? "" : ToString(outputs.error()));
    return outputs->at(0).ref.as<float>()[0];
  }

  EpochDomain epochs_;
  std::shared_ptr<const LoadedProgram> program_ = LoadedProgram::Load(ParseProgram(R"(program "p" {
    symbol n in [0, 4096]
    func main(%x: f32[n, 4]) -> (%y) {
      %y : f32[n, 4] = Relu(%x)
    }
  })")
                                                                          .value())
                                                      .value();
  std::vector<std::unique_ptr<SegmentRuntime>> runtimes_;
  std::vector<SegmentCounters> counters_{1};
  Recorder observer_;
  ReadingClock clock_;
  std::optional<Dispatcher> dispatcher_;
  VmContext context_;
  int reader_ = epochs_.RegisterReader();
};

TEST_F(DispatcherTest, ShortCallsByPlanAreToldPerShapeInBundles) {
  runtimes_[0]->slot.Publish({Linked(ReluPlan(0, 4096))});
  clock_.reading_ns = 100;
  for (uint64_t i = 0; i < 2 * kToldCalls; ++i) Run(2);
  for (uint64_t i = 0; i < kToldCalls; ++i) Run(3);
  ASSERT_EQ(observer_.answered.size(), 2u);
  EXPECT_EQ(observer_.tellings, 3);
  uint64_t calls = 0;
  for (const auto& [shape, told] : observer_.answered) {
    calls += told.calls;
    EXPECT_EQ(told.ns, static_cast<int64_t>(told.calls) * 100);
    EXPECT_EQ(told.exact_calls, 0u);
  }
  EXPECT_EQ(calls, 3 * kToldCalls);
  EXPECT_EQ(observer_.interpreted, 0);
}

TEST_F(DispatcherTest, ALongCallByPlanIsToldAtOnce) {
  runtimes_[0]->slot.Publish({Linked(ReluPlan(0, 4096)), Linked(ReluPlan(2, 2))});
  clock_.reading_ns = kToldNs;
  Run(2);
  Run(3);
  ASSERT_EQ(observer_.answered.size(), 2u);
  uint64_t general = 0, exact = 0;
  for (const auto& [shape, told] : observer_.answered) {
    general += told.calls;
    exact += told.exact_calls;
    EXPECT_EQ(told.ns, kToldNs);
  }
  EXPECT_EQ(general, 1u);
  EXPECT_EQ(exact, 1u);
}

TEST_F(DispatcherTest, WhatAPlanAnsweredIsToldBeforeAnotherTakesOver) {
  runtimes_[0]->slot.Publish({Linked(ReluPlan(0, 4096))});
  for (int i = 0; i < 5; ++i) Run(2);
  EXPECT_EQ(observer_.tellings, 0);
  runtimes_[0]->slot.Publish({Linked(ReluPlan(0, 4096)), Linked(ReluPlan(2, 2))});
  Run(2);
  ASSERT_EQ(observer_.answered.size(), 1u);
  EXPECT_EQ(observer_.answered.begin()->second.calls, 5u);
  EXPECT_EQ(observer_.answered.begin()->second.exact_calls, 0u);
}

TEST_F(DispatcherTest, NoCallIsLostWhenMoreShapesComeThanAreRemembered) {
  runtimes_[0]->slot.Publish({Linked(ReluPlan(0, 4096))});
  for (int round = 0; round < 3; ++round)
    for (int64_t rows = 1; rows <= 20; ++rows) Run(rows);
  uint64_t calls = 0;
  for (const auto& [shape, told] : observer_.answered) calls += told.calls;
  EXPECT_GE(calls, 60u - 8u) << "all but those of the shapes that are still remembered";
}

// An exact plan arrives beside one that answers: requests keep their speed while it is checked.
// Eight memos; shapes that come again and again beside shapes that come once keep theirs.
TEST_F(DispatcherTest, TheMemosOfShapesThatComeAgainOutliveThoseOfShapesThatCameOnce) {
  auto plan = Linked(ReluPlan(0, 4096));
  runtimes_[0]->slot.Publish({plan});
  for (int64_t once = 100; once < 400; ++once) {
    for (int64_t again = 1; again <= 4; ++again) Run(again);
    Run(once);
  }
  const int64_t resolved = dispatcher_->resolved();
  for (int64_t again = 1; again <= 4; ++again) Run(again);
  EXPECT_EQ(dispatcher_->resolved(), resolved);
  EXPECT_EQ(resolved, 304) << "each signature's first call, and none again";
}

TEST_F(DispatcherTest, APlanIsShadowedBesideThePublishedOneWithoutInterpreting) {
  const auto fresh = Linked(ReluPlan(0, 2));
  runtimes_[0]->slot.Publish({Linked(ReluPlan(0, 4096, TensorOp::kNeg))});
  runtimes_[0]->shadowed.store(fresh.get());
  runtimes_[0]->shadow_wanted.store(3);
  EXPECT_EQ(Run(2), -1.0f) << "the published plan answers";
  EXPECT_EQ(observer_.interpreted, 0);
  EXPECT_EQ(observer_.shadowed, (std::vector<const LinkedPlan*>{fresh.get()}));
  Run(3);
  EXPECT_EQ(observer_.shadowed.size(), 1u) << "the plan does not admit this call";
  runtimes_[0]->slot.Publish({});
  EXPECT_EQ(Run(2), 1.0f) << "without a published plan the interpreter answers";
  EXPECT_EQ(observer_.interpreted, 1);
  EXPECT_EQ(observer_.answered_by_plan, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace kiln
