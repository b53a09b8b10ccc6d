// Which plans a segment has in the store, and which it wants: Variants, compile requests, backing off.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/base/transient.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {

constexpr int64_t kBackoffFirstMs = 500;
constexpr int64_t kBackoffMaxMs = 60'000;

}  // namespace

void TierController::AskVariants(ModelState& state, Group& group) {
  group.variants_pending = true;
  cache::VariantsRequest request{group.id, {}, {static_cast<uint8_t>(WeightForm::kAsGiven)}};
  if (HasDevice())
    for (Target target : options_.device->facts().targets) request.targets.emplace_back(InfoOf(target).name);
  for (Target target : options_.targets) request.targets.emplace_back(InfoOf(target).name);
  services_->Variants(request, ToGroup(state, group, &TierController::OnVariants));
}

void TierController::OnVariants(ModelState& state, Group& group, const Result<cache::VariantsReply>& reply) {
  group.variants_pending = false;
  if (std::exchange(group.variants_overtaken, false)) return;
  if (!reply.has_value()) return BackOff(state, group, MissReason::kNoService, reply.error());
  group.variants_known = true;
  group.backoff_ms = 0;
  if (group.trouble == MissReason::kNoService) group.ServicesAnswer();
  for (const cache::Variant& variant : reply->variants) group.doubted.erase(variant.plan_key);
  AskAboutDoubted(state, group);
  // Packed weights are tried whatever there is room for now: what has none is paused by its key.
  const auto is_wanted = [&](const cache::Variant& variant) {
    const std::optional<WeightForm> weights = WeightFormFromNumber(variant.weights);
    // On a device either form takes as much room.
    const std::optional<Target> target = TargetFromName(variant.target);
    if (target && InfoOf(*target).is_device() && (weights != WeightForm::kPacked || !HasDevice())) return false;
    return variant.numeric_mode == static_cast<uint8_t>(options_.numeric_mode) &&
           (weights == WeightForm::kPacked || weights == group.WeightsWanted());
  };
  for (const cache::Variant& variant : reply->variants)
    if (is_wanted(variant)) {
      const std::optional<Target> target = TargetFromName(variant.target);
      Want(state, group, variant.plan_key, variant.evidence, {}, target && InfoOf(*target).is_device());
    }
}

bool TierController::TakeTokens(ModelState& state, Group& group) {
  const int64_t now = Now();
  TokenBucket* const buckets[] = {&group.requests, &state.requests, &requests_};
  int64_t wait_ns = 0;
  for (const TokenBucket* bucket : buckets) wait_ns = std::max(wait_ns, bucket->WaitNs(now));
  if (wait_ns > 0) {
    if (group.throttled_until_ns == 0) ++stats_.throttled;
    group.throttled_until_ns = now + wait_ns;
    return false;
  }
  for (TokenBucket* bucket : buckets) bucket->Take(now);
  group.throttled_until_ns = 0;
  return true;
}

void TierController::ReturnTokens(ModelState& state, Group& group) {
  for (TokenBucket* bucket : {&group.requests, &state.requests, &requests_}) bucket->Return(Now());
}

void TierController::Consider(ModelState& state, Group& group) {
  if (Now() < group.throttled_until_ns) return;
  const Target wanted = WantedTarget(group);
  const bool for_device = InfoOf(wanted).is_device();
  if (!for_device && group.HasGenericOnDevice()) return;  // which answers, until it leaves
  SegmentPlans plans;
  plans.request_pending = group.request.has_value();
  for (const auto& [values, until_ns] : group.exact_asked)
    if (Now() < until_ns) plans.exact.push_back(values);
  plans.range_pending = group.range.request.has_value() || Now() < group.range.retry_ns;
  plans.ranges = group.range.asked;
  plans.tuned_pending = group.tuned.request.has_value() || Now() < group.tuned.retry_ns;
  plans.tuned_general = group.tuned.general;
  plans.tuned_exact.assign(group.tuned.exact.begin(), group.tuned.exact.end());
  for (const auto& [key, entry] : group.plans) {
    if (group.IsReplaced(entry) || entry.on_device() != for_device) continue;
    const bool exact = entry.linked.front()->exact();
    plans.tuned_general |= entry.tuned() && !exact;
    plans.published += entry.published ? 1 : 0;
    const Guard& guard = entry.linked.front()->plan().guard;
    if (!exact && !group.IsGeneral(key, guard) && std::ranges::count(plans.ranges, guard.symbols) == 0)
      plans.ranges.push_back(guard.symbols);
    if (!exact) continue;
    plans.exact.push_back(ExactValues(*entry.linked.front()));
    if (entry.published) plans.exact_published.push_back(plans.exact.back());
    if (entry.tuned()) plans.tuned_exact.push_back(plans.exact.back());
  }
  plans.generic = group.HasGeneric(InfoOf(wanted).name);
  // A plan of a lower rung keeps the interpreter idle: what it answers says as well that the segment is hot.
  std::optional<SegmentProfile> with_lower;
  if (!plans.generic && group.HasGeneric()) {
    with_lower = group.profile;
    with_lower->interpreted_calls += with_lower->plan_calls;
    with_lower->interpreted_ns = std::max(with_lower->interpreted_ns, options_.policy.hot_ns);
  }
  const auto wish = NextPlan(options_.policy, *group.segment, with_lower ? *with_lower : group.profile, plans);
  if (!wish) group.throttled_until_ns = 0;
  if (wish && TakeTokens(state, group)) SendRequest(state, group, *wish);
}

void TierController::SendRequest(ModelState& state, Group& group, const PlanWish& wish) {
  Result<std::vector<uint8_t>> segment = EncodeSegment(*group.segment);
  if (!segment.has_value()) return BackOff(state, group, MissReason::kCompileFailed, segment.error());
  CompileRequest request;
  request.segment = std::move(*segment);
  const Target wanted = WantedTarget(group);
  const bool for_device = InfoOf(wanted).is_device();
  request.target = InfoOf(wanted).name;
  request.numeric_mode = options_.numeric_mode;
  request.tier = wish.tier;
  request.priority = wish.priority;
  request.symbols = wish.symbols;
  request.hints = wish.hints;
  request.weights = for_device ? WeightForm::kPacked : group.WeightsWanted();
  if (wish.tier == PlanTier::kRange) return SendRangeRequest(state, group, std::move(request));
  if (wish.tier == PlanTier::kTuned) return SendTunedRequest(state, group, wish, std::move(request));
  const bool beside_others = wish.tier == PlanTier::kExact && !group.segment->symbols.empty();
  group.exact_wish = beside_others ? wish.hints : std::vector<int64_t>();
  if (beside_others) group.exact_asked[wish.hints] = INT64_MAX;
  group.request = request.Key();
  group.request_for_device = for_device;
  if (for_device) device_probed_ = !device_refusal_.empty();
  ++stats_.compile_requests;
  if (beside_others)
    spdlog::info("model {}: segment {}: asking for an exact plan: {}", state.model->name(), group.id.ShortHex(),
                 ForecastText(wish.forecast));
  else
    spdlog::info("model {}: segment {} is hot ({} runs, {:.1f} ms interpreted); asking for {} {} plan",
                 state.model->name(), group.id.ShortHex(), group.profile.interpreted_calls,
                 static_cast<double>(group.profile.interpreted_ns) / 1e6, wish.tier == PlanTier::kExact ? "an" : "a",
                 PlanTierName(wish.tier));
  services_->Compile(request, ToGroup(state, group, &TierController::OnCompiled));
}

void TierController::SendRangeRequest(ModelState& state, Group& group, CompileRequest request) {
  group.range.request = request.Key();
  group.range.asked.push_back(request.symbols);
  ++stats_.compile_requests;
  spdlog::info("model {}: segment {}: many shapes have bounds or divisors in common; asking for a range plan",
               state.model->name(), group.id.ShortHex());
  services_->Compile(request, ToGroup(state, group, &TierController::OnRange));
}

// As a tuned plan's: what is refused changes nothing, and is not asked for again.
void TierController::OnRange(ModelState& state, Group& group, const Result<CompileReply>& reply) {
  group.range.request.reset();
  if (reply.has_value()) {
    stats_.compiled += reply->already_there ? 0 : 1;
    Want(state, group, reply->plan_key, {});
    return;
  }
  ++stats_.compile_failures;
  spdlog::info("model {}: segment {}: no range plan: {}", state.model->name(), group.id.ShortHex(),
               ToString(reply.error()));
  if (!IsTransient(reply.error().code)) return;
  ReturnTokens(state, group);
  group.range.asked.pop_back();
  group.range.retry_ns = Now() + kBackoffMaxMs * 1'000'000;
}

void TierController::SendTunedRequest(ModelState& state, Group& group, const PlanWish& wish, CompileRequest request) {
  group.tuned.request = request.Key();
  group.tuned.request_general = wish.general;
  group.tuned.request_values = wish.hints;
  ++stats_.compile_requests;
  spdlog::info("model {}: segment {}: {} calls by plan; asking for a tuned plan", state.model->name(),
               group.id.ShortHex(), group.profile.plan_calls);
  services_->Compile(request, ToGroup(state, group, &TierController::OnTuned));
}

// A tuned plan that cannot be had changes nothing for the plans that are there: no backing off, no miss reason.
void TierController::OnTuned(ModelState& state, Group& group, const Result<CompileReply>& reply) {
  group.tuned.request.reset();
  if (!reply.has_value()) {
    ++stats_.compile_failures;
    group.tuned.refusal = ToString(reply.error());
    spdlog::info("model {}: segment {}: no tuned plan: {}", state.model->name(), group.id.ShortHex(),
                 group.tuned.refusal);
    // Of replicas on several targets one refuses what another does: whoever answers the second time is believed.
    const bool elsewhere = reply.error().code == ErrorCode::kTargetMismatch && !group.tuned.elsewhere;
    if (IsTransient(reply.error().code)) ReturnTokens(state, group);
    if (IsTransient(reply.error().code) || elsewhere) {
      group.tuned.elsewhere |= elsewhere;
      group.tuned.retry_ns = Now() + kBackoffMaxMs * 1'000'000;
      return;
    }
  }
  group.tuned.elsewhere = false;
  if (group.tuned.request_general) {
    group.tuned.general = true;
  } else {
    group.tuned.exact.insert(group.tuned.request_values);
  }
  if (!reply.has_value()) return;
  group.tuned.refusal.clear();
  stats_.compiled += reply->already_there ? 0 : 1;
  Want(state, group, reply->plan_key, {});
}

void TierController::OnCompiled(ModelState& state, Group& group, const Result<CompileReply>& reply) {
  group.request.reset();
  const std::vector<int64_t> exact_wish = std::exchange(group.exact_wish, {});
  if (group.request_for_device) device_probed_ = false;
  if (!reply.has_value()) {
    ++stats_.compile_failures;
    if (IsTransient(reply.error().code)) ReturnTokens(state, group);
    // What was refused for its own reasons is asked for again as seldom as a plan that is given up.
    if (!exact_wish.empty())
      group.exact_asked[exact_wish] =
          IsTransient(reply.error().code) ? 0 : Now() + RejectedPlans::kPauseMaxMs * 1'000'000;
    if (group.request_for_device && !IsTransient(reply.error().code))
      return OnDeviceRefused(state, group, reply.error());
    return BackOff(state, group, ReasonOf(reply.error().code), reply.error());
  }
  if (group.request_for_device) device_refusal_.clear();
  if (exact_wish.empty()) group.general.insert(reply->plan_key);
  group.backoff_ms = 0;
  if (group.trouble == MissReason::kCompileFailed || group.trouble == MissReason::kNoService) group.ServicesAnswer();
  if (!reply->already_there) {
    ++stats_.compiled;
    group.profile.compile_ns = static_cast<int64_t>(reply->compile_us * 1000);
  }
  const int64_t now = Now();
  int64_t* const without_wish = group.request_for_device ? &group.device_retry_ns : &group.retry_ns;
  int64_t* const retry_ns = exact_wish.empty() ? without_wish : &group.exact_asked[exact_wish];
  switch (Want(state, group, reply->plan_key, {}, exact_wish, group.request_for_device)) {
    case Wanted::kFetching:
      break;
    case Wanted::kPaused:
      *retry_ns = group.rejected.RetryNs(reply->plan_key, now);
      break;
    case Wanted::kThere:
      // The service has no other plan for the wish than one that is there: asking at once would go on for ever.
      *retry_ns = now + kBackoffMaxMs * 1'000'000;
      break;
  }
}

void TierController::BackOff(const ModelState& state, Group& group, MissReason reason, const Error& error) {
  group.backoff_ms =
      !IsTransient(error.code) ? kBackoffMaxMs : std::clamp(group.backoff_ms * 2, kBackoffFirstMs, kBackoffMaxMs);
  group.retry_ns = Now() + group.backoff_ms * 1'000'000;
  group.trouble = reason;
  group.detail = ToString(error);
  spdlog::warn("model {}: segment {}: no plan ({}): {}; next try in {} ms", state.model->name(), group.id.ShortHex(),
               MissReasonText(reason), group.detail, group.backoff_ms);
}

}  // namespace kiln
