// Dispatcher: the interpreter's hook. Per call of a segment it decides between a published plan and the interpreter.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/stopwatch.h"
#include "vm-worker/dispatch/segment_call.h"
#include "vm-worker/dispatch/segment_runtime.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln {

// What the control side learns from interpreted calls. Called on the worker thread; must be quick and must not block.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // An interpreted call of segment `segment` with this signature.
  virtual void Interpreted(int segment, const Signature& signature, int64_t elapsed_ns) = 0;
  // `calls` more calls of one signature that a plan, an exact one or not, answered in `elapsed_ns` together. Told in
  // bundles (kToldCalls, kToldNs); what is left when the dispatcher ends is not told.
  virtual void Answered(int /*segment*/, const Signature& /*signature*/, bool /*exact*/, uint64_t /*calls*/,
                        int64_t /*elapsed_ns*/) {}
  // Whether a sample would be taken now.
  virtual bool ShadowRoom() const { return true; }
  // A call that the shadowed plan admits was answered, by the interpreter or by a published plan (`by_plan`): inputs
  // and outputs may be copied now.
  virtual void ShadowCandidate(int segment, const SegmentEntry& entry, const LinkedPlan& plan, bool by_plan) = 0;
  // A plan answered a call that is to be a sample (SegmentRuntime::sample_every).
  virtual void AnsweredByPlan(int /*segment*/, const SegmentEntry& /*entry*/, const LinkedPlan& /*plan*/) {}
  // A call that explain asked to measure: time per step of the plan that answered it.
  // `arena_bytes`: of its temporaries, on the device where that runs it.
  virtual void Timed(int /*segment*/, const SegmentEntry& /*entry*/, const LinkedPlan& /*plan*/,
                     int64_t /*arena_bytes*/, const StepTiming& /*timing*/) {}
};

struct DispatcherOptions {
  size_t instances_max = 1024;     // memoised per thread, over all segments
  DeviceLane* lane = nullptr;      // of the thread; outlives the dispatcher. Null: plans of devices are not run
  KernelPool* pool = nullptr;      // shared by the worker's threads; outlives the dispatcher
  MemoryBudget* budget = nullptr;  // where instances are booked; outlives the dispatcher
  const Clock* clock = &Stopwatch();
};

// Calls of one signature that plans answer are told when there are so many of them or they took so long together:
// telling costs some hundred nanoseconds.
inline constexpr uint64_t kToldCalls = 1024;
inline constexpr int64_t kToldNs = 1'000'000;

// One per worker thread and model. Not thread-safe; the caller is inside an EpochScope while the interpreter runs.
class Dispatcher final : public SegmentHook {
 public:
  // `runtimes` and `counters` have an entry per segment of the model and outlive the dispatcher.
  Dispatcher(std::span<const std::unique_ptr<SegmentRuntime>> runtimes, std::span<SegmentCounters> counters,
             CallObserver& observer, DispatcherOptions options = {});
  ~Dispatcher() override;

  SegmentVerdict Enter(const SegmentEntry& entry) override;
  void Leave(const SegmentEntry& entry, int64_t elapsed_ns) override;

 private:
  // Outcome of guard evaluation for one signature under one version of a slot; no instance means: no plan holds. The
  // instance does not keep its plan: it is run only while a list of that version is in the slot, and epochs keep that.
  struct Memo {
    uint64_t version = 0;
    std::unique_ptr<PlanInstance> instance;
    std::unique_ptr<DeviceInstance> device_instance;  // in its stead
    std::vector<uint32_t> copies;                     // InputsToCopy, InputsToCopyForDevice
    MemoryCharge charge;
    int64_t retry_ns = 0;  // a plan that holds has no instance: when it is worth another try; 0: none is left out
    bool runs() const { return instance != nullptr || device_instance != nullptr; }
    const LinkedPlan& plan() const { return instance != nullptr ? instance->linked() : device_instance->linked(); }
    uint64_t last_use = 0;
    bool exact = false;  // the instance's plan
    uint64_t untold_calls = 0;
    int64_t untold_ns = 0;
  };
  using SegmentMemos = std::unordered_map<Signature, Memo, SignatureHash>;

  Memo& MemoFor(const SegmentEntry& entry);
  void Resolve(const SegmentEntry& entry, const PlanList& list, Memo& memo);
  // The instance of a plan that holds for symbol_values_; false: there is no room for it.
  bool Instantiate(const SegmentEntry& entry, const std::shared_ptr<const LinkedPlan>& plan, Memo& memo);
  void OfferShadow(const SegmentRuntime& runtime, const SegmentEntry& entry, bool by_plan);
  bool ShadowAdmits(const SegmentRuntime& runtime, const SegmentEntry& entry, const LinkedPlan** plan);
  Status RunPlan(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters);
  Status RunTimed(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters);
  Status RunCounted(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters, StepTiming* timing);
  void Tell(size_t segment, const Signature& signature, Memo& memo);
  void EvictUnused();

  std::span<const std::unique_ptr<SegmentRuntime>> runtimes_;
  std::span<SegmentCounters> counters_;
  CallObserver& observer_;
  const DispatcherOptions options_;
  std::vector<SegmentMemos> memos_;  // per segment
  // The last signature of each segment and its memo: most calls repeat it.
  struct Recent {
    const Signature* signature = nullptr;
    Memo* memo = nullptr;
  };
  std::vector<Recent> recent_;
  // Every memo, those first that were made or looked at longest ago; `use` is their last_use then.
  struct Place {
    size_t segment;
    const Signature* signature;
    Memo* memo;
    uint64_t use;
  };
  std::list<Place> places_;
  uint64_t now_ = 0;
  std::vector<int64_t> symbol_values_;
  SegmentCallTables tables_;
};

}  // namespace kiln
