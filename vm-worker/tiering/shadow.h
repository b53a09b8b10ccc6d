// Shadow checks: a plan beside the interpreter, in the background. Before a plan answers anybody, it is run on inputs
// that were answered without it, in a process of its own; a plan that another worker has proven answers at once, and
// the interpreter is run on some of what it answered.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "vm-worker/device/device_lane.h"
#include "vm-worker/dispatch/linked_plan.h"

namespace kiln {

// Who answered the call that a sample is of.
enum class SampleAnswer : uint8_t {
  kInterpreter,
  kThisPlan,   // the plan that is checked
  kOtherPlan,  // another plan: its answer is not kept, the interpreter is run as well
};

// One call: copies of its run-time inputs, and of its outputs unless another plan answered.
struct ShadowSample {
  std::shared_ptr<const LinkedPlan> plan;
  std::vector<Tensor> inputs;
  std::vector<int64_t> parameters;
  std::vector<Tensor> outputs;
  SampleAnswer answer = SampleAnswer::kInterpreter;
  std::shared_ptr<const void> keep_alive;  // what segment and weights of the plan belong to
  MemoryCharge charge;                     // of the copies
};

enum class ShadowOutcome : uint8_t {
  kClean,
  kMismatch,   // differs from the interpreter
  kFault,      // ended its process
  kUndecided,  // neither clean nor wrong: differs only behind a decision on inexact floats, or there was no memory or
               // no process for the run; another sample must tell
};

struct ShadowVerdict {
  std::shared_ptr<const LinkedPlan> plan;
  ShadowOutcome outcome = ShadowOutcome::kUndecided;
  std::string detail;             // the first difference: output, index, size; or what went wrong
  bool answered_by_plan = false;  // it answers already: SampleAnswer::kThisPlan
  // How the call looked; no values.
  std::vector<Dims> inputs = {};
  std::vector<int64_t> parameters = {};
};

// Runs what did not answer the sample: the plan, in a forked child (RunContained), inputs, outputs and temporaries at
// guard pages and inputs write-protected; the interpreter; or both. A device's plan runs in this process, on `lane`
// (null: undecided): memory there has no guard pages, so what lies between its buffers is written before and looked at
// after the run, and what it has not written itself reads as no number; a fault loses the device for this process.
// Compares integers and bool exactly, floats within
// what the plan's numeric mode allows the ops before each output (common/numeric). A difference in an output behind a
// decision (common/segment/decisions.h) leaves it undecided.
// Once `stop` is set (it may be null), a run is ended and undecided.
ShadowVerdict CheckShadow(const ShadowSample& sample, const std::atomic<bool>* stop = nullptr,
                          DeviceLane* lane = nullptr);

// A background thread with a small bounded queue and a duty cycle. Thread-safe.
class ShadowRunner {
 public:
  struct Options {
    size_t queue_max = 4;
    double core_share_max = 0.05;
    bool own_thread = true;  // false: samples wait for Step
    const Clock* clock = &SystemClock();
    MemoryBudget* budget = nullptr;  // where samples are booked; outlives the runner
    CudaDevice* device = nullptr;    // where plans of devices are checked; outlives the runner
  };
  MemoryBudget* budget() const { return options_.budget; }
  ShadowRunner(Options options, std::function<void(ShadowVerdict)> report);  // `report` runs on the shadow thread
  ~ShadowRunner();
  // False when the queue is full: the sample is dropped, another will come.
  bool Offer(ShadowSample sample);
  bool HasRoom() const { return waiting_.load(std::memory_order_relaxed) < options_.queue_max; }
  // Checks the oldest sample on the calling thread; false: none waits. Only without a thread of its own.
  bool Step();

 private:
  void Run();
  // Of the runner's own; null: there is none to be had.
  DeviceLane* Lane();
  const Options options_;
  const std::function<void(ShadowVerdict)> report_;
  std::unique_ptr<DeviceLane> lane_;  // opened with the first sample that needs it
  std::atomic<size_t> waiting_{0};    // queue_.size(), for HasRoom
  std::mutex mutex_;                  // guards what follows
  std::condition_variable wake_;
  std::deque<ShadowSample> queue_;
  bool stopping_ = false;
  std::atomic<bool> stop_{false};  // the same, for the run in work
  std::thread thread_;
};

}  // namespace kiln
