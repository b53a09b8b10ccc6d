#include "vm-worker/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

// Memory that was tight may be free again by then.
constexpr int64_t kInstanceRetryNs = 5'000'000'000;

}  // namespace

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
  if (memo.version != list->version() || (memo.retry_ns != 0 && options_.clock->NowNs() >= memo.retry_ns))
    Resolve(entry, *list, memo);
  memo.last_use = ++now_;
  if (!memo.runs()) {
    Count(memo.retry_ns != 0 ? counters.plans_not_run : counters.guard_misses);
    return SegmentVerdict::kInterpretAndTell;
  }
  // An error of a reference step (an index out of range) is reported by the interpreter, which names the node.
  if (const Status ran = RunPlan(entry, memo, counters); !ran.has_value()) [[unlikely]] {
    Count(counters.plans_not_run);
    // The next call looks for a plan that needs no device, or less of it.
    if (memo.device_instance != nullptr &&
        (ran.error().code == ErrorCode::kResourceExhausted || options_.lane->device().lost()))
      memo.version = 0;
    return SegmentVerdict::kInterpretAndTell;
  }
  const uint32_t every = runtime.sample_every.load(std::memory_order_relaxed);
  if (every > 0 && counters.plan_calls.load(std::memory_order_relaxed) % every == 0)
    observer_.AnsweredByPlan(entry.segment, entry, memo.plan());
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
    if (places_.size() >= options_.instances_max) EvictUnused();
    it = memos.try_emplace(*entry.signature).first;
    places_.push_back({segment, &it->first, &it->second, now_ + 1});  // it is used next
  }
  recent = {&it->first, &it->second};
  return it->second;
}

void Dispatcher::Resolve(const SegmentEntry& entry, const PlanList& list, Memo& memo) {
  Tell(static_cast<size_t>(entry.segment), *entry.signature, memo);
  memo.version = list.version();
  memo.instance.reset();
  memo.device_instance.reset();
  memo.charge = {};
  memo.retry_ns = 0;
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
  const bool device = options_.lane != nullptr && !options_.lane->device().lost();
  const std::shared_ptr<const LinkedPlan>* plan = list.Select(symbol_values_, inputs, device);
  if (plan == nullptr) return;
  const int64_t retry_ns = options_.clock->NowNs() + kInstanceRetryNs;
  if (Instantiate(entry, *plan, memo)) return;
  memo.retry_ns = retry_ns;
  // What has no room on the device may have a plan of the processor beside it, which answers meanwhile.
  if (!(*plan)->on_device()) return;
  plan = list.Select(symbol_values_, inputs, false);
  if (plan != nullptr) Instantiate(entry, *plan, memo);
}

bool Dispatcher::Instantiate(const SegmentEntry& entry, const std::shared_ptr<const LinkedPlan>& plan, Memo& memo) {
  const std::shared_ptr<const LinkedPlan> borrowed(std::shared_ptr<const void>(), plan.get());
  const auto keep = [&](auto made, auto& place) {
    if (!made.has_value()) return false;
    auto charge = MemoryCharge::Take(options_.budget, MemoryUse::kPlans, (*made)->bytes());
    if (!charge.has_value()) return false;
    memo.charge = std::move(*charge);
    place = std::move(*made);
    memo.exact = plan->exact();
    return true;
  };
  if (!plan->on_device()) {
    if (!keep(PlanInstance::Instantiate(borrowed, symbol_values_), memo.instance)) return false;
    memo.copies = InputsToCopy(plan->plan().guard, entry.inputs);
    return true;
  }
  auto made = DeviceInstance::Instantiate(borrowed, symbol_values_);
  // The arena of the thread grows here, so that it does not while calls repeat.
  if (made.has_value() && !options_.lane->Reserve((*made)->device_bytes()).has_value()) return false;
  if (!keep(std::move(made), memo.device_instance)) return false;
  memo.copies = InputsToCopyForDevice(entry.inputs);
  return true;
}

Status Dispatcher::RunPlan(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters) {
  if (runtimes_[static_cast<size_t>(entry.segment)]->timing_wanted.load(std::memory_order_relaxed) > 0) [[unlikely]]
    return RunTimed(entry, memo, counters);
  return RunCounted(entry, memo, counters, nullptr);
}

Status Dispatcher::RunTimed(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters) {
  StepTiming timing;
  timing.step_ns.assign(memo.plan().plan().steps.size(), 0);
  RETURN_IF_ERROR(RunCounted(entry, memo, counters, &timing));
  runtimes_[static_cast<size_t>(entry.segment)]->timing_wanted.fetch_sub(1, std::memory_order_relaxed);
  const int64_t arena = memo.instance != nullptr ? memo.instance->arena_bytes() : memo.device_instance->device_bytes();
  observer_.Timed(entry.segment, entry, memo.plan(), arena, timing);
  return {};
}

Status Dispatcher::RunCounted(const SegmentEntry& entry, Memo& memo, SegmentCounters& counters, StepTiming* timing) {
  int64_t reference_ns = 0;
  const int64_t start = options_.clock->NowNs();
  Status status =
      memo.instance != nullptr
          ? RunOnEntry(*memo.instance, entry, memo.copies, tables_, reference_ns, timing, options_.pool)
          : RunOnDevice(*memo.device_instance, *options_.lane, entry, memo.copies, tables_, reference_ns, timing);
  if (!status.has_value()) [[unlikely]]
    return status;
  const int64_t total = options_.clock->NowNs() - start;
  Count(counters.kernel_ns, static_cast<uint64_t>(total - reference_ns));
  if (reference_ns != 0) Count(counters.reference_ns, static_cast<uint64_t>(reference_ns));
  if (!memo.copies.empty()) Count(counters.input_copies, memo.copies.size());
  memo.untold_ns += total;
  if (++memo.untold_calls >= kToldCalls || memo.untold_ns >= kToldNs)
    Tell(static_cast<size_t>(entry.segment), *entry.signature, memo);
  return status;
}

void Dispatcher::Tell(size_t segment, const Signature& signature, Memo& memo) {
  if (memo.untold_calls == 0) return;
  observer_.Answered(static_cast<int>(segment), signature, memo.exact, std::exchange(memo.untold_calls, 0),
                     std::exchange(memo.untold_ns, 0));
}

// The first memo that was not used since it came to its place; those that were go to the end. Each use moves a memo
// once at most, so that a call of a new signature finds one soon, however many there are.
void Dispatcher::EvictUnused() {
  while (!places_.empty()) {
    const auto place = places_.begin();
    if (place->memo->last_use > place->use) {
      place->use = place->memo->last_use;
      places_.splice(places_.end(), places_, place);
      continue;
    }
    const size_t segment = place->segment;
    Tell(segment, *place->signature, *place->memo);
    recent_[segment] = {};
    memos_[segment].erase(memos_[segment].find(*place->signature));
    places_.erase(place);
    return;
  }
}

}  // namespace kiln
