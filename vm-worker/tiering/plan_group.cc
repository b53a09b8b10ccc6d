#include "vm-worker/tiering/plan_group.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr size_t kShapesPerSegmentMax = 1024;

using TakenShapes = std::unordered_map<int, std::vector<ShapeHistogram::Entry>>;

void AddShape(Group& group, const ShapeHistogram::Entry& entry) {
  const auto parts = ParseSignature(entry.signature.words, group.segment->runtime_inputs);
  if (!parts.has_value()) return;
  std::vector<TensorRef> inputs;
  for (const SignatureInput& input : parts->inputs) inputs.push_back({input.dtype, input.dims, input.strides, nullptr});
  std::vector<int64_t> values(group.segment->symbols.size(), -1);
  if (!BindSymbols(*group.segment, inputs, parts->parameters, values).has_value()) return;
  if (group.shapes.size() < kShapesPerSegmentMax || group.shapes.contains(values)) group.shapes[values] += entry.calls;
  group.last_interpreted = SeenCall{std::move(values), parts->inputs};
}

}  // namespace

bool Group::HasGeneric() const {
  return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) {
    return segment->symbols.empty() || !plan.second.linked.front()->exact();
  });
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

void Group::AskAgain() {
  ListAgain();
  retry_ns = 0;
  backoff_ms = 0;
}

ModelState::ModelState(std::shared_ptr<Model> of, MemoryBudget* of_worker) : model(std::move(of)), budget(of_worker) {
  for (size_t i = 0; i < model->program().segments().size(); ++i) {
    const Segment& segment = model->program().segments()[i];
    Group& group = groups[segment.id];
    group.id = segment.id;
    if (group.segment == nullptr) group.segment = &segment;
    group.sites.push_back(i);
  }
}

void ModelState::CollectProfile(MissLedger& all) {
  int64_t profile_bytes =
      static_cast<int64_t>(model->threads().size() * model->runtimes().size() * sizeof(SegmentCounters));
  for (const auto& [id, group] : groups)
    profile_bytes +=
        static_cast<int64_t>(sizeof(group) + group.shapes.size() * (96 + 16 * group.segment->symbols.size()));
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
    profile.interpreted_calls = profile.interpreted_ns = profile.plan_calls = 0;
    for (size_t site : group.sites) {
      const Model::Totals totals = model->SumCounters(site);
      profile.interpreted_calls += totals.interpreted_calls;
      profile.interpreted_ns += totals.interpreted_ns;
      profile.plan_calls += totals.plan_calls;
      for (TakenShapes& shapes : taken)
        if (const auto entries = shapes.find(static_cast<int>(site)); entries != shapes.end())
          for (const ShapeHistogram::Entry& entry : entries->second) AddShape(group, entry);
    }
    all.Add(group.reason, profile.interpreted_calls - before, profile.interpreted_ns - before_ns);
    group.misses.Add(group.reason, profile.interpreted_calls - before, profile.interpreted_ns - before_ns);
    profile.shapes.clear();
    for (const auto& [values, calls] : group.shapes) profile.shapes.push_back({values, calls});
    std::stable_sort(profile.shapes.begin(), profile.shapes.end(),
                     [](const auto& a, const auto& b) { return a.calls > b.calls; });
  }
}

}  // namespace kiln
