// A loop's body is a segment of its own, entered anew on every trip: a plan that arrives while the loop runs takes
// effect at the next trip, and one that is withdrawn takes none after it.
#include <functional>
#include <thread>

#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/dispatch/dispatcher.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

using testing::Linked;
using testing::ReluPlan;

// The body is the fixture's segment. Plans of these tests negate instead, so that results tell which trips they ran.
constexpr const char* kLoop = R"(program "p" {
  symbol n in [0, 4096]
  symbol t in [0, 1048576]
  func main(%trips: i64[], %x: f32[n, 4]) -> (%last, %all) {
    %last : f32[n, 4], %all : f32[t, n, 4] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %s: f32[n, 4]) -> (%go, %y, %y) {
      %y : f32[n, 4] = Relu(%s)
    }
  }
})";

class Ignore final : public CallObserver {
 public:
  void Interpreted(int, const Signature&, int64_t) override {}
  void ShadowCandidate(int, const SegmentEntry&, const LinkedPlan&, bool) override {}
};

// Does something before given trips, then lets the dispatcher decide.
class Interrupting final : public SegmentHook {
 public:
  Interrupting(Dispatcher& dispatcher, std::function<void(int)> before) : dispatcher_(dispatcher), before_(before) {}
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    before_(entries_++);
    return dispatcher_.Enter(entry);
  }
  void Leave(const SegmentEntry& entry, int64_t elapsed_ns) override {
    // As long as the body runs interpreted: what is published now must wait for the next trip.
    inside_(entries_ - 1);
    dispatcher_.Leave(entry, elapsed_ns);
  }
  std::function<void(int)> inside_ = [](int) {};

 private:
  Dispatcher& dispatcher_;
  std::function<void(int)> before_;
  int entries_ = 0;
};

struct LoopWorker {
  EpochDomain epochs;
  std::shared_ptr<const LoadedProgram> program = LoadedProgram::Load(ParseProgram(kLoop).value()).value();
  std::vector<std::unique_ptr<SegmentRuntime>> runtimes;
  std::vector<SegmentCounters> counters{program->segments().size()};
  Ignore observer;
  VmContext context;
  int reader = epochs.RegisterReader();

  LoopWorker() {
    for (size_t i = 0; i < program->segments().size(); ++i)
      runtimes.push_back(std::make_unique<SegmentRuntime>(epochs));
  }
  Slot& slot() { return runtimes.at(0)->slot; }

  // Element 0 of the body's output on every trip.
  std::vector<float> Run(int64_t trips, std::function<void(int)> before, std::function<void(int)> inside = [](int) {}) {
    Dispatcher dispatcher(runtimes, counters, observer);
    Interrupting hook(dispatcher, std::move(before));
    hook.inside_ = std::move(inside);
    const Tensor count = Tensor::Of<int64_t>(DType::kI64, Dims{}, std::span<const int64_t>(&trips, 1));
    const Tensor x = Tensor::Allocate(DType::kF32, {2, 4});
    std::fill_n(x.ref.as<float>(), 8, 1.0f);
    const TensorRef inputs[] = {count.ref, x.ref};
    EpochScope scope(epochs, reader);
    const auto outputs = context.Run(*program, inputs, {.hook = &hook});
    EXPECT_TRUE(outputs.has_value()) << (outputs ? "" : ToString(outputs.error()));
    std::vector<float> first;
    for (int64_t t = 0; outputs && t < trips; ++t) first.push_back((*outputs)[1].ref.as<float>()[t * 8]);
    return first;
  }
};

TEST(LoopPlan, TheBodyIsTheFixturesSegment) {
  LoopWorker worker;
  ASSERT_EQ(worker.program->segments().size(), 1u);
  EXPECT_EQ(worker.program->segments()[0].id, testing::ReluSegment().id);
}

TEST(LoopPlan, APlanPublishedBetweenTripsRunsTheNextOne) {
  LoopWorker worker;
  const auto plan = Linked(ReluPlan(0, 4096, TensorOp::kNeg));
  const auto results = worker.Run(8, [&](int trip) {
    if (trip == 5) worker.slot().Publish({plan});
  });
  EXPECT_EQ(results, (std::vector<float>{1, 1, 1, 1, 1, -1, 1, -1}));
  EXPECT_EQ(worker.counters[0].interpreted_calls.load(), 5u);
  EXPECT_EQ(worker.counters[0].plan_calls.load(), 3u);
}

TEST(LoopPlan, APlanThatArrivesWhileATripRunsWaitsForTheNext) {
  LoopWorker worker;
  const auto plan = Linked(ReluPlan(0, 4096, TensorOp::kNeg));
  const auto results = worker.Run(
      6, [](int) {},
      [&](int trip) {
        if (trip == 2) std::thread([&] { worker.slot().Publish({plan}); }).join();
      });
  EXPECT_EQ(results, (std::vector<float>{1, 1, 1, -1, 1, -1}));
}

TEST(LoopPlan, AWithdrawnPlanRunsNoFurtherTrip) {
  LoopWorker worker;
  const auto plan = Linked(ReluPlan(0, 4096, TensorOp::kNeg));
  worker.slot().Publish({plan});
  const auto results = worker.Run(6, [&](int trip) {
    if (trip == 3) worker.slot().Publish({});
  });
  // Trips 0 to 2 negate; Relu makes what is negative then zero.
  EXPECT_EQ(results, (std::vector<float>{-1, 1, -1, 0, 0, 0}));
}

TEST(LoopPlan, PlansReplacedOnEveryTripStayValidUntilTheRunEnds) {
  LoopWorker worker;
  const auto results = worker.Run(64, [&](int trip) {
    std::thread([&] {
      const auto plan = Linked(ReluPlan(0, 4096 - trip, TensorOp::kNeg));
      worker.slot().Publish({plan});
      worker.epochs.Reclaim();
    }).join();
  });
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], t % 2 == 0 ? -1.0f : 1.0f) << t;
  EXPECT_EQ(worker.epochs.Reclaim(), 0u);
}

}  // namespace
}  // namespace kiln
