// Shadow checks: before a plan answers anybody, it is re-run in the background on inputs that the interpreter has
// answered.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "vm-worker/dispatch/linked_plan.h"

namespace kiln {

// A call that the interpreter answered: copies of its run-time inputs and outputs.
struct ShadowSample {
  std::shared_ptr<const LinkedPlan> plan;
  std::vector<Tensor> inputs;
  std::vector<int64_t> parameters;
  std::vector<Tensor> outputs;
};

struct ShadowVerdict {
  std::shared_ptr<const LinkedPlan> plan;
  bool clean = false;
  bool undecided =
      false;  // differs only behind a decision on inexact floats: neither clean nor wrong, another sample must tell
  std::string detail;  // the first difference: output, index, both values
};

// Runs the plan on the sample's inputs, outputs and temporaries at guard pages, and compares: integers and bool
// exactly, floats within what the plan's numeric mode allows the ops before each output (common/numeric). A difference
// in an output behind a decision (common/segment/decisions.h) leaves it undecided.
ShadowVerdict CheckShadow(const ShadowSample& sample);

// A background thread with a small bounded queue and a duty cycle. Thread-safe.
class ShadowRunner {
 public:
  struct Options {
    size_t queue_max = 4;
    double core_share_max = 0.05;
  };
  ShadowRunner(Options options, std::function<void(ShadowVerdict)> report);  // `report` runs on the shadow thread
  ~ShadowRunner();
  // False when the queue is full: the sample is dropped, another will come.
  bool Offer(ShadowSample sample);
  bool HasRoom() const;

 private:
  void Run();
  const Options options_;
  const std::function<void(ShadowVerdict)> report_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<ShadowSample> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kiln
