#include "vm-worker/tiering/rejected_plans.h"

#include <algorithm>
#include <utility>

#include "common/base/limits.h"

namespace kiln {

int64_t RejectedPlans::Reject(const PlanKey& key, const Digest& contents, Why why, int64_t now_ns) {
  if (plans_.size() >= limits::kRejectedPlansMax && !plans_.contains(key))
    plans_.erase(std::min_element(plans_.begin(), plans_.end(),
                                  [](const auto& a, const auto& b) { return a.second.retry_ns < b.second.retry_ns; }));
  const auto [it, fresh] = plans_.try_emplace(key);
  Entry& entry = it->second;
  // A key whose record cannot be read any more keeps what is known of it.
  const bool unchanged = !fresh && (contents == Digest{} || contents == entry.contents);
  entry.pause_ms = unchanged ? std::min(2 * entry.pause_ms, kPauseMaxMs) : kPauseFirstMs;
  if (!unchanged) entry.contents = contents;
  entry.retry_ns = now_ns + entry.pause_ms * 1'000'000;
  entry.rejected_ns = now_ns;
  entry.why = std::move(why);
  entry.awaits_pack_room = false;
  return entry.pause_ms;
}

int64_t RejectedPlans::RetryNs(const PlanKey& key, int64_t now_ns) const {
  const auto it = plans_.find(key);
  return it != plans_.end() && now_ns < it->second.retry_ns ? it->second.retry_ns : 0;
}

Digest RejectedPlans::ContentsOf(const PlanKey& key) const {
  const auto it = plans_.find(key);
  return it == plans_.end() ? Digest{} : it->second.contents;
}

const RejectedPlans::Why* RejectedPlans::Last() const {
  const auto last = std::ranges::max_element(plans_, {}, [](const auto& plan) { return plan.second.rejected_ns; });
  return last == plans_.end() ? nullptr : &last->second.why;
}

int64_t RejectedPlans::PackAgainNs() const {
  int64_t first_ns = INT64_MAX;
  for (const auto& [key, entry] : plans_)
    if (entry.awaits_pack_room) first_ns = std::min(first_ns, entry.retry_ns);
  return first_ns == INT64_MAX ? 0 : first_ns;
}

bool RejectedPlans::LookAgain(const PlanKey& key) {
  const auto it = plans_.find(key);
  if (it == plans_.end()) return false;
  it->second.retry_ns = 0;
  return true;
}

void RejectedPlans::LookAgainAtAll() {
  for (auto& [key, entry] : plans_) entry.retry_ns = 0;
}

}  // namespace kiln
