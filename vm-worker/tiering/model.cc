#include "vm-worker/tiering/model.h"

namespace kiln {

ShapeTimes* ShapeHistogram::Find(int segment, const Signature& signature) {
  auto& shapes = shapes_[segment];
  auto it = shapes.find(signature);
  if (it == shapes.end()) {
    if (count_ >= kShapesMax) return nullptr;
    it = shapes.try_emplace(signature, Entry{signature, {}}).first;
    ++count_;
  }
  return &it->second.times;
}

void ShapeHistogram::AddInterpreted(int segment, const Signature& signature, int64_t ns) {
  std::lock_guard lock(mutex_);
  if (ShapeTimes* times = Find(segment, signature); times != nullptr) times->interpreted.Add(1, ns);
}

void ShapeHistogram::AddAnswered(int segment, const Signature& signature, bool exact, uint64_t calls, int64_t ns) {
  std::lock_guard lock(mutex_);
  if (ShapeTimes* times = Find(segment, signature); times != nullptr)
    (exact ? times->exact : times->general).Add(calls, ns);
}

std::unordered_map<int, std::vector<ShapeHistogram::Entry>> ShapeHistogram::Take() {
  std::unordered_map<int, std::unordered_map<Signature, Entry, SignatureHash>> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(shapes_);
    count_ = 0;
  }
  std::unordered_map<int, std::vector<Entry>> result;
  for (auto& [segment, shapes] : taken)
    for (auto& [signature, entry] : shapes) result[segment].push_back(std::move(entry));
  return result;
}

Model::Model(std::string name, std::shared_ptr<const LoadedProgram> program, EpochDomain& epochs)
    : name_(std::move(name)), program_(std::move(program)) {
  for (size_t i = 0; i < program_->segments().size(); ++i)
    runtimes_.push_back(std::make_unique<SegmentRuntime>(epochs));
}

ModelThread& Model::AddThread() {
  std::lock_guard lock(mutex_);
  threads_.push_back(std::make_unique<ModelThread>(runtimes_.size()));
  return *threads_.back();
}

std::vector<ModelThread*> Model::threads() const {
  std::lock_guard lock(mutex_);
  std::vector<ModelThread*> list;
  for (const auto& thread : threads_) list.push_back(thread.get());
  return list;
}

void Model::AddTiming(size_t segment, PlanTiming timing) {
  std::lock_guard lock(mutex_);
  PlanTiming& kept = timings_[segment];
  if (kept.plan == timing.plan && kept.step_ns.size() == timing.step_ns.size()) {
    timing.calls += kept.calls;
    for (size_t i = 0; i < timing.step_ns.size(); ++i) timing.step_ns[i] += kept.step_ns[i];
  }
  kept = std::move(timing);
}

std::optional<PlanTiming> Model::TimingOf(size_t segment) const {
  std::lock_guard lock(mutex_);
  const auto it = timings_.find(segment);
  return it == timings_.end() ? std::nullopt : std::optional(it->second);
}

Model::Totals Model::SumCounters(size_t segment) const {
  Totals totals;
  for (ModelThread* thread : threads()) {
    const SegmentCounters& c = thread->counters[segment];
    totals.interpreted_calls += c.interpreted_calls.load(std::memory_order_relaxed);
    totals.plan_calls += c.plan_calls.load(std::memory_order_relaxed);
    totals.interpreted_ns += c.interpreted_ns.load(std::memory_order_relaxed);
    totals.kernel_ns += c.kernel_ns.load(std::memory_order_relaxed);
    totals.reference_ns += c.reference_ns.load(std::memory_order_relaxed);
    totals.guard_misses += c.guard_misses.load(std::memory_order_relaxed);
    totals.plans_not_run += c.plans_not_run.load(std::memory_order_relaxed);
    totals.input_copies += c.input_copies.load(std::memory_order_relaxed);
  }
  return totals;
}

}  // namespace kiln
