#include "vm-worker/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

namespace kiln {
Dispatcher::Dispatcher(std::span<const std::unique_ptr<SegmentRuntime>> runtimes, std::span<SegmentCounters> counters,
                       CallObserver& observer, DispatcherOptions options)
    : runtimes_(runtimes),
      counters_(counters),
      observer_(observer),
      options_(options),
      memos_(runtimes.size()),
      recent_(runtimes.size()) {}

Dispatcher::~Dispatcher() = default;

SegmentVerdict Dispatcher::Enter(const SegmentEntry& entry) {
  const auto segment = static_cast<size_t>(entry.segment);
  SegmentRuntime& runtime = *runtimes_[segment];
  SegmentCounters& counters = counters_[segment];
  const PlanList* list = runtime.slot.Load();
  if (list == nullptr) return SegmentVerdict::kInterpretAndTell;
  Memo& memo = MemoFor(entry);
  if (memo.version != list->version()) Resolve(entry, *list, memo);
  memo.last_use = ++now_;
  if (memo.instance == nullptr) {
    Count(counters.guard_misses);
    return SegmentVerdict::kInterpretAndTell;
  }
  // An error of a reference step (an index out of range) is reported by the interpreter, which names the node.
  if (!RunPlan(entry, memo, counters).has_value()) return SegmentVerdict::kInterpretAndTell;
  const uint32_t every = runtime.sample_every.load(std::memory_order_relaxed);
  if (every > 0 && counters.plan_calls.load(std::memory_order_relaxed) % every == 0)
    observer_.AnsweredByPlan(entry.segment, entry, *memo.instance);
  Count(counters.plan_calls);
  if (runtime.shadow_wanted.load(std::memory_order_relaxed) > 0) OfferShadow(runtime, entry, true);
  return SegmentVerdict::kExecuted;
}

void Dispatcher::Leave(const SegmentEntry& entry, int64_t elapsed_ns) {
  SegmentCounters& counters = counters_[static_cast<size_t>(entry.segment)];
  Count(counters.interpreted_calls);
  Count(counters.interpreted_ns, static_cast<uint64_t>(elapsed_ns));
  observer_.Interpreted(entry.segment, *entry.signature, elapsed_ns);
  const SegmentRuntime& runtime = *runtimes_[static_cast<size_t>(entry.segment)];
  if (runtime.shadow_wanted.load(std::memory_order_relaxed) > 0) OfferShadow(runtime, entry, false);
}

void Dispatcher::OfferShadow(const SegmentRuntime& runtime, const SegmentEntry& entry, bool by_plan) {
  const LinkedPlan* plan = nullptr;
  if (observer_.ShadowRoom() && ShadowAdmits(runtime, entry, &plan))
    observer_.ShadowCandidate(entry.segment, entry, *plan, by_plan);
}

bool Dispatcher::ShadowAdmits(const SegmentRuntime& runtime, const SegmentEntry& entry, const LinkedPlan** plan) {
  *plan = runtime.shadowed.load(std::memory_order_seq_cst);
  if (*plan == nullptr) return false;
  const Segment& segment = (*plan)->segment();
  symbol_values_.assign(segment.symbols.size(), -1);
  if (!BindSymbols(segment, entry.inputs, entry.parameters, symbol_values_).has_value()) return false;
  Guard guard = (*plan)->plan().guard;
  for (InputGuard& input : guard.inputs) input = {false, AlignmentClass::kElement};  // copies are made contiguous
  return !CheckGuard(guard, (*plan)->plan().symbols, symbol_values_, entry.inputs).has_value();
}

Dispatcher::Memo& Dispatcher::MemoFor(const SegmentEntry& entry) {
  const auto segment = static_cast<size_t>(entry.segment);
  Recent& recent = recent_[segment];
  if (recent.signature != nullptr && *recent.signature == *entry.signature) return *recent.memo;
  SegmentMemos& memos = memos_[segment];
  auto it = memos.find(*entry.signature);
  if (it == memos.end()) {
    if (memo_count_ >= options_.instances_max) EvictOldest();
    it = memos.try_emplace(*entry.signature).first;
    ++memo_count_;
  }
  recent = {&it->first, &it->second};
  return it->second;
}

void Dispatcher::Resolve(const SegmentEntry& entry, const PlanList& list, Memo& memo) {
  Tell(static_cast<size_t>(entry.segment), *entry.signature, memo);
  memo.version = list.version();
  memo.instance.reset();
  memo.charge = {};
  const Segment& segment = list.plans().front()->segment();
  symbol_values_.assign(segment.symbols.size(), -1);
  if (!BindSymbols(segment, entry.inputs, entry.parameters, symbol_values_).has_value()) return;
  // Guards are asked about the inputs as the plan will see them: RunOnEntry makes views contiguous and places them on
  // 64 bytes.
  std::vector<TensorRef>& inputs = tables_.inputs;
  inputs.assign(entry.inputs.begin(), entry.inputs.end());
  for (TensorRef& input : inputs)
    if (!input.IsContiguous() || reinterpret_cast<uintptr_t>(input.data) % 64 != 0)
      input = MakeRef(input.dtype, input.dims, nullptr);
  const std::shared_ptr<const LinkedPlan>* plan = list.Select(symbol_values_, inputs, nullptr);
  if (plan == nullptr) return;
  const std::shared_ptr<const LinkedPlan> borrowed(std::shared_ptr<const void>(), plan->get());
  Result<std::unique_ptr<PlanInstance>> instance = PlanInstance::Instantiate(borrowed, symbol_values_);
  if (!instance.has_value()) return;
  // Without room the call is interpreted; it asks again when the slot's version changes or its memo was dropped.
  auto charge = MemoryCharge::Take(options_.budget, MemoryUse::kPlans, (*instance)->bytes());
  if (!charge.has_value()) return;
  memo.charge = std::move(*charge);
  memo.instance = std::move(*instance);
  memo.exact = (*plan)->exact();
}

Status Dispatcher::RunPlan(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters) {
  PlanInstance& instance = *memo.instance;
  SegmentRuntime& runtime = *runtimes_[static_cast<size_t>(entry.segment)];
  const bool timed = runtime.timing_wanted.load(std::memory_order_relaxed) > 0;
  StepTiming timing;
  if (timed) timing.step_ns.assign(instance.linked().plan().steps.size(), 0);
  const int64_t start = options_.clock->NowNs();
  ASSIGN_OR_RETURN(const SegmentCallResult call,
                   RunOnEntry(instance, entry, tables_, timed ? &timing : nullptr, nullptr, options_.pool));
  const int64_t total = options_.clock->NowNs() - start;
  if (timed) {
    runtime.timing_wanted.fetch_sub(1, std::memory_order_relaxed);
    observer_.Timed(entry.segment, entry, instance, timing);
  }
  Count(counters.kernel_ns, static_cast<uint64_t>(total - call.reference_ns));
  Count(counters.reference_ns, static_cast<uint64_t>(call.reference_ns));
  if (call.input_copies > 0) Count(counters.input_copies, call.input_copies);
  memo.untold_ns += total;
  if (++memo.untold_calls >= kToldCalls || memo.untold_ns >= kToldNs)
    Tell(static_cast<size_t>(entry.segment), *entry.signature, memo);
  return {};
}

void Dispatcher::Tell(size_t segment, const Signature& signature, Memo& memo) {
  if (memo.untold_calls == 0) return;
  observer_.Answered(static_cast<int>(segment), signature, memo.exact, std::exchange(memo.untold_calls, 0),
                     std::exchange(memo.untold_ns, 0));
}

void Dispatcher::EvictOldest() {
  size_t oldest_segment = 0;
  SegmentMemos::iterator oldest;
  bool found = false;
  for (size_t s = 0; s < memos_.size(); ++s)
    for (auto it = memos_[s].begin(); it != memos_[s].end(); ++it)
      if (!found || it->second.last_use < oldest->second.last_use) {
        oldest_segment = s;
        oldest = it;
        found = true;
      }
  if (!found) return;
  Tell(oldest_segment, oldest->first, oldest->second);
  recent_[oldest_segment] = {};
  memos_[oldest_segment].erase(oldest);
  --memo_count_;
}

}  // namespace kiln
