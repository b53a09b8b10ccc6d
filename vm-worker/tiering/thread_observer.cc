#include "vm-worker/tiering/thread_observer.h"

#include "common/base/caught.h"

namespace kiln {
namespace {

bool TakeOne(std::atomic<int>& wanted) {
  int left = wanted.load(std::memory_order_relaxed);
  while (left > 0)
    if (wanted.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return true;
  return false;
}

}  // namespace

void ThreadObserver::Interpreted(int segment, const Signature& signature, int64_t elapsed_ns) {
  thread_.shapes.AddInterpreted(segment, signature, elapsed_ns);
}

void ThreadObserver::Answered(int segment, const Signature& signature, bool exact, uint64_t calls, int64_t elapsed_ns) {
  thread_.shapes.AddAnswered(segment, signature, exact, calls, elapsed_ns);
}

// A sample is dropped, and another will come, when there is no room or no memory for it.
bool ThreadObserver::Offer(const SegmentEntry& entry, const LinkedPlan& plan, SampleAnswer answer) {
  if (!shadow_.HasRoom()) return false;
  const Status offered = Caught([&]() -> Status {
    ShadowSample sample;
    sample.plan = plan.shared_from_this();
    sample.parameters.assign(entry.parameters.begin(), entry.parameters.end());
    int64_t bytes = 0;
    for (const TensorRef& input : entry.inputs) bytes += input.bytes();
    for (const TensorRef& output : entry.outputs) bytes += output.bytes();
    ASSIGN_OR_RETURN(sample.charge,
                     MemoryCharge::Take(shadow_.budget(), MemoryUse::kShadowSamples, bytes, WithoutRoom::kGoWithout));
    for (const TensorRef& input : entry.inputs) sample.inputs.push_back(MakeContiguous(input));
    if (answer != SampleAnswer::kOtherPlan)
      for (const TensorRef& output : entry.outputs) sample.outputs.push_back(MakeContiguous(output));
    sample.answer = answer;
    sample.keep_alive = model_.shared_from_this();
    if (!shadow_.Offer(std::move(sample))) return Fail(ErrorCode::kBusy, "the shadow queue is full");
    return {};
  });
  return offered.has_value();
}

// Each sample that is wanted is taken once, by whichever thread comes first.
void ThreadObserver::ShadowCandidate(int segment, const SegmentEntry& entry, const LinkedPlan& plan, bool by_plan) {
  std::atomic<int>& wanted = model_.runtime(static_cast<size_t>(segment)).shadow_wanted;
  if (!TakeOne(wanted)) return;
  if (!Offer(entry, plan, by_plan ? SampleAnswer::kOtherPlan : SampleAnswer::kInterpreter))
    wanted.fetch_add(1, std::memory_order_relaxed);
}

void ThreadObserver::AnsweredByPlan(int, const SegmentEntry& entry, const LinkedPlan& plan) {
  Offer(entry, plan, SampleAnswer::kThisPlan);
}

void ThreadObserver::Timed(int segment, const SegmentEntry& entry, const LinkedPlan& plan, int64_t arena_bytes,
                           const StepTiming& timing) {
  PlanTiming own{plan.key(), 1, timing.step_ns, {}, arena_bytes};
  own.symbol_values.assign(plan.segment().symbols.size(), -1);
  if (BindSymbols(plan.segment(), entry.inputs, entry.parameters, own.symbol_values).has_value())
    model_.AddTiming(static_cast<size_t>(segment), std::move(own));
}

}  // namespace kiln
