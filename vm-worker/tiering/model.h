// Model: a loaded program with what tiering knows about it. Shared by the worker's threads and its control thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "vm-worker/dispatch/dispatcher.h"
#include "vm-worker/dispatch/segment_runtime.h"
#include "vm-worker/interp/loaded_program.h"
#include "vm-worker/tiering/policy.h"

namespace kiln {

// Shapes of the calls of one model on one thread, until the control thread collects them. Bounded: of shapes beyond
// kShapesMax nothing is kept.
class ShapeHistogram {
 public:
  static constexpr size_t kShapesMax = 512;
  struct Entry {
    Signature signature;
    ShapeTimes times;
  };
  void AddInterpreted(int segment, const Signature& signature, int64_t ns);
  // Calls that an exact plan or another one answered.
  void AddAnswered(int segment, const Signature& signature, bool exact, uint64_t calls, int64_t ns);
  // Moves everything out: per segment, its entries.
  std::unordered_map<int, std::vector<Entry>> Take();

 private:
  ShapeTimes* Find(int segment, const Signature& signature);  // mutex_ is held; nullptr: no room

  std::mutex mutex_;  // short: one worker thread against the control thread
  std::unordered_map<int, std::unordered_map<Signature, Entry, SignatureHash>> shapes_;
  size_t count_ = 0;
};

// What one worker thread keeps for a model.
struct ModelThread {
  explicit ModelThread(size_t segments) : counters(segments) {}
  std::vector<SegmentCounters> counters;
  ShapeHistogram shapes;
};

// Measured steps of one plan of one segment, summed over the calls that were measured.
struct PlanTiming {
  PlanKey plan;
  uint64_t calls = 0;
  std::vector<int64_t> step_ns;
  std::vector<int64_t> symbol_values;  // of the last measured call
  int64_t arena_bytes = 0;             // of the last measured call
};

class Model : public std::enable_shared_from_this<Model> {
 public:
  Model(std::string name, std::shared_ptr<const LoadedProgram> program, EpochDomain& epochs);

  const std::string& name() const { return name_; }
  const LoadedProgram& program() const { return *program_; }
  std::span<const std::unique_ptr<SegmentRuntime>> runtimes() const { return runtimes_; }
  SegmentRuntime& runtime(size_t segment) const { return *runtimes_[segment]; }

  // A place for the calling thread's counters; lives as long as the model. Thread-safe.
  ModelThread& AddThread();
  // Sums over threads. Thread-safe.
  struct Totals {
    uint64_t interpreted_calls = 0, plan_calls = 0, interpreted_ns = 0, kernel_ns = 0, reference_ns = 0,
             guard_misses = 0, plans_not_run = 0, input_copies = 0;
  };
  Totals SumCounters(size_t segment) const;
  std::vector<ModelThread*> threads() const;
  // Sums are kept per segment and plan, the plan measured last. Thread-safe.
  void AddTiming(size_t segment, PlanTiming timing);
  std::optional<PlanTiming> TimingOf(size_t segment) const;

 private:
  std::string name_;
  std::shared_ptr<const LoadedProgram> program_;
  std::vector<std::unique_ptr<SegmentRuntime>> runtimes_;
  mutable std::mutex mutex_;  // guards threads_, timings_
  std::vector<std::unique_ptr<ModelThread>> threads_;
  std::unordered_map<size_t, PlanTiming> timings_;
};

}  // namespace kiln
