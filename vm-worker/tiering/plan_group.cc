#include "vm-worker/tiering/plan_group.h"

#include <algorithm>

#include "common/base/limits.h"

namespace kiln {
namespace {

using TakenShapes = std::unordered_map<int, std::vector<ShapeHistogram::Entry>>;

bool AnswersSameCalls(const Plan& a, const Plan& b) {
  return a.target == b.target && EncodeGuard(a.guard, a.symbols) == EncodeGuard(b.guard, b.symbols);
}

// Of plans for the same calls the one of the highest rank answers.
int RankOf(const Plan& plan) {
  return (plan.weights == WeightForm::kPacked ? 2 : 0) + (plan.tuned ? 1 : 0);
}

}  // namespace

bool Group::IsGeneral(const PlanKey& key, const Guard& guard) const {
  return !IsBounded(guard, *segment) || general.contains(key);
}

bool Group::HasGeneric(std::string_view target) const {
  return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) {
    const LinkedPlan& linked = *plan.second.linked.front();
    return (target.empty() || linked.plan().target == target) && IsGeneral(plan.first, linked.plan().guard);
  });
}

bool Group::HasGenericOnDevice() const {
  return std::ranges::any_of(plans, [this](const auto& plan) {
    return plan.second.on_device() && IsGeneral(plan.first, plan.second.linked.front()->plan().guard);
  });
}

bool Group::HasPackedGeneric() const {
  return std::ranges::any_of(plans, [this](const auto& plan) {
    const Plan& own = plan.second.linked.front()->plan();
    return own.weights == WeightForm::kPacked && IsGeneral(plan.first, own.guard);
  });
}

const PlanEntry* Group::FindTwin(const Plan& plan) const {
  for (const auto& [key, entry] : plans) {
    const Plan& other = entry.linked.front()->plan();
    if (RankOf(other) != RankOf(plan) && AnswersSameCalls(other, plan)) return &entry;
  }
  return nullptr;
}

bool Group::IsReplaced(const PlanEntry& entry) const {
  const Plan& plan = entry.linked.front()->plan();
  return std::ranges::any_of(plans, [&](const auto& item) {
    const Plan& other = item.second.linked.front()->plan();
    if (!item.second.published || item.second.on_device() != entry.on_device() || RankOf(other) <= RankOf(plan))
      return false;
    const bool for_all = plan.weights == WeightForm::kAsGiven && other.weights == WeightForm::kPacked &&
                         IsGeneral(item.first, other.guard);
    return for_all || AnswersSameCalls(other, plan);
  });
}

size_t Group::CountPlans() const {
  const auto is_lowest = [this](const auto& item) {
    const Plan& plan = item.second.linked.front()->plan();
    return std::ranges::none_of(plans, [&](const auto& other) {
      const Plan& twin = other.second.linked.front()->plan();
      return RankOf(twin) < RankOf(plan) && AnswersSameCalls(twin, plan);
    });
  };
  return static_cast<size_t>(std::ranges::count_if(plans, is_lowest));
}

MissReason Group::Reason() const {
  if (trouble == MissReason::kDisabled) return trouble;
  const auto published = [](const auto& plan) { return plan.second.published; };
  if (std::any_of(plans.begin(), plans.end(), published)) return MissReason::kGuardFailed;
  if (!plans.empty()) return MissReason::kShadowing;
  if (trouble != MissReason::kNoPackRoom && (request.has_value() || !fetching.empty())) return MissReason::kCompiling;
  return throttled_until_ns > 0 ? MissReason::kThrottled : trouble;
}

void Group::BookMisses(uint64_t calls, uint64_t ns, uint64_t not_run, MissLedger& all) {
  if (calls == 0) return;
  not_run = std::min(not_run, calls);
  const auto not_run_ns =
      static_cast<uint64_t>(static_cast<double>(ns) / static_cast<double>(calls) * static_cast<double>(not_run));
  for (MissLedger* ledger : {&misses, &all}) {
    ledger->Add(MissReason::kNotRun, not_run, not_run_ns);
    ledger->Add(Reason(), calls - not_run, ns - not_run_ns);
  }
}

void Group::ListAgain() {
  variants_known = false;
  variants_overtaken = variants_pending;
}

void Group::Overtake(const PlanKey& key) {
  variants_overtaken |= variants_pending;
  if (const auto it = fetching.find(key); it != fetching.end()) it->second.overtaken = true;
}

void Group::DoubtAll() {
  ListAgain();
  for (const auto& [key, entry] : plans) doubted.insert(key);
  for (auto& [key, under_way] : fetching) under_way.overtaken = true;
}

void Group::ServicesAnswer() {
  const RejectedPlans::Why* const why = rejected.Last();
  trouble = why == nullptr ? MissReason::kCold : why->reason;
  detail = why == nullptr ? "" : why->detail;
}

void Group::AskAgain() {
  ListAgain();
  retry_ns = 0;
  backoff_ms = 0;
}

void Group::SetNoPackRoom(std::string why) {
  if (why.empty() != no_pack_room.empty()) exact_asked.clear();
  no_pack_room = std::move(why);
}

void Group::OnPublished() {
  for (auto& [values, shape] : shapes) {
    shape.times.interpreted = {};
    shape.admitted = Admits(values, shape.elements);
  }
  shapes_changed = true;
}

bool Group::Admits(const std::vector<int64_t>& symbol_values, int64_t elements) const {
  return std::ranges::any_of(plans, [&](const auto& plan) {
    const LinkedPlan& linked = *plan.second.linked.front();
    if (!plan.second.published || linked.exact() || elements > linked.plan().guard.max_elements) return false;
    Guard guard = linked.plan().guard;
    guard.inputs.clear();  // those that do not lie as it demands are copied
    return !CheckGuard(guard, linked.plan().symbols, symbol_values, {}).has_value();
  });
}

void Group::AddShape(const ShapeHistogram::Entry& entry) {
  const auto parts = ParseSignature(entry.signature.words, segment->runtime_inputs);
  if (!parts.has_value()) return;
  std::vector<TensorRef> inputs;
  for (const SignatureInput& input : parts->inputs) inputs.push_back({input.dtype, input.dims, input.strides, nullptr});
  std::vector<int64_t> values(segment->symbols.size(), -1);
  if (!BindSymbols(*segment, inputs, parts->parameters, values).has_value()) return;
  if (entry.times.interpreted.calls > 0) last_interpreted = SeenCall{values, parts->inputs};
  auto it = shapes.find(values);
  if (it == shapes.end()) {
    no_room |= shapes.size() >= limits::kShapesPerSegmentMax;
    if (shapes.size() >= limits::kShapesPerSegmentMax) return;
    int64_t elements = 0;
    for (const TensorRef& input : inputs) elements = std::max(elements, input.elements());
    const bool admitted = Admits(values, elements);
    it = shapes.try_emplace(std::move(values), SeenShape{{}, elements, admitted}).first;
  }
  it->second.times.Add(entry.times);
  shapes_changed = true;
}

void Group::HalveShapes(int64_t now_ns) {
  halved_span_ns = (halved_span_ns + now_ns - counted_since_ns) / 2;
  counted_since_ns = now_ns;
  for (auto it = shapes.begin(); it != shapes.end();) {
    ShapeTimes& times = it->second.times;
    times.interpreted.Halve();
    times.exact.Halve();
    if (times.exact.calls == 0) times.general.Halve();
    it = times.calls() == 0 ? shapes.erase(it) : std::next(it);
  }
  std::erase_if(exact_asked, [this](const auto& asked) { return !shapes.contains(asked.first); });
  std::erase_if(tuned.exact, [this](const auto& values) { return !shapes.contains(values); });
  no_room = false;
  shapes_changed = true;
}

void Group::UpdateShapes(int64_t now_ns) {
  profile.span_ns = halved_span_ns + now_ns - counted_since_ns;
  if (!shapes_changed) return;
  shapes_changed = false;
  profile.shapes.clear();
  for (const auto& [values, shape] : shapes) profile.shapes.push_back({values, shape.times, shape.admitted});
  std::stable_sort(profile.shapes.begin(), profile.shapes.end(),
                   [](const auto& a, const auto& b) { return a.times.calls() > b.times.calls(); });
}

ModelState::ModelState(std::shared_ptr<Model> of, const TierOptions& options, int64_t now_ns)
    : model(std::move(of)), budget(options.budget), requests(options.rates.model, now_ns) {
  for (size_t i = 0; i < model->program().segments().size(); ++i) {
    const Segment& segment = model->program().segments()[i];
    Group& group = groups.try_emplace(segment.id, options.rates.segment, now_ns).first->second;
    group.id = segment.id;
    group.counted_since_ns = now_ns;
    if (group.segment == nullptr) group.segment = &segment;
    group.sites.push_back(i);
  }
}

void ModelState::CollectProfile(const TierPolicy& policy, int64_t now_ns, MissLedger& all) {
  int64_t profile_bytes =
      static_cast<int64_t>(model->threads().size() * model->runtimes().size() * sizeof(SegmentCounters));
  for (const auto& [id, group] : groups)
    profile_bytes += static_cast<int64_t>(
        sizeof(group) + group.shapes.size() * (96 + 16 * group.segment->symbols.size() + sizeof(SeenShape)));
  if (profile_bytes != profile_charge.bytes()) {
    profile_charge = {};
    auto charge = MemoryCharge::Take(budget, MemoryUse::kProfiles, profile_bytes);
    if (charge.has_value()) profile_charge = std::move(*charge);
  }
  std::vector<TakenShapes> taken;
  for (ModelThread* thread : model->threads()) taken.push_back(thread->shapes.Take());
  for (auto& [id, group] : groups) {
    SegmentProfile& profile = group.profile;
    const uint64_t before = profile.interpreted_calls, before_ns = profile.interpreted_ns;
    uint64_t not_run = 0;
    profile.interpreted_calls = profile.interpreted_ns = profile.plan_calls = 0;
    for (size_t site : group.sites) {
      const Model::Totals totals = model->SumCounters(site);
      profile.interpreted_calls += totals.interpreted_calls;
      profile.interpreted_ns += totals.interpreted_ns;
      profile.plan_calls += totals.plan_calls;
      not_run += totals.plans_not_run;
      for (TakenShapes& shapes : taken)
        if (const auto entries = shapes.find(static_cast<int>(site)); entries != shapes.end())
          for (const ShapeHistogram::Entry& entry : entries->second) group.AddShape(entry);
    }
    group.BookMisses(profile.interpreted_calls - before, profile.interpreted_ns - before_ns,
                     not_run - group.counted_not_run, all);
    group.counted_not_run = not_run;
    if (group.no_room || now_ns - group.counted_since_ns >= policy.half_life_ns) group.HalveShapes(now_ns);
    group.UpdateShapes(now_ns);
  }
}

}  // namespace kiln
