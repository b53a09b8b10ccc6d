// What the control thread logs when something goes wrong says of what: model, segment, and the plan where there is one.
#include "tests/support/captured_log.h"
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

using testing::ReluPlan;
using testing::ReluSegment;
using testing::SteppedWorker;

struct Trouble {
  const char* what;
  void (*arise)(SteppedWorker&);
  bool of_a_plan;
};

const Trouble kTroubles[] = {
    {"services that are away", [](SteppedWorker& worker) { worker.fleet.down = true; }, false},
    {"a compilation that failed", [](SteppedWorker& worker) { worker.fleet.compile_fails = ErrorCode::kCompileFailed; },
     false},
    {"a plan that the store quarantined",
     [](SteppedWorker& worker) {
       worker.Live(2'000);
       worker.fleet.can_compile = false;
       const PlanKey key = worker.fleet.plans.begin()->first;
       worker.fleet.quarantined.insert(key);
       worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
     },
     true},
    {"a plan that is wrong here",
     [](SteppedWorker& worker) { worker.fleet.Publish(ReluPlan(0, 4096, TensorOp::kAbs)); }, true},
    {"a record by nobody who is believed",
     [](SteppedWorker& worker) {
       worker.fleet.can_compile = false;
       worker.fleet.revoked = SignPublicKey{};
       worker.fleet.Publish(ReluPlan(0, 4096));
     },
     true},
};

TEST(Log, WhatGoesWrongIsSaidWithModelSegmentAndPlan) {
  for (const Trouble& trouble : kTroubles) {
    SCOPED_TRACE(trouble.what);
    SteppedWorker worker;
    const testing::CapturedLog log;
    trouble.arise(worker);
    worker.Live(20'000);
    const std::vector<std::string> warnings = log.Lines("warning"), errors = log.Lines("error");
    EXPECT_FALSE(warnings.empty());
    EXPECT_TRUE(errors.empty()) << errors.front();
    bool plan = false;
    for (const std::string& line : warnings) {
      EXPECT_TRUE(line.starts_with("warning model m: segment " + ReluSegment().id.ShortHex() + ": ")) << line;
      for (const auto& [key, stored] : worker.fleet.plans) plan |= line.contains("plan " + key.ShortHex());
    }
    EXPECT_EQ(plan, trouble.of_a_plan);
  }
}

}  // namespace
}  // namespace kiln
