// RejectedPlans: the plans of one segment that must not be used as they were last seen, and when their keys are worth
// another look.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/artifact/plan.h"
#include "vm-worker/tiering/miss_reasons.h"

namespace kiln {

// Plans are told apart by contents (FetchedPlan::contents: the plan's bytes, kernels by hash), not by key: another plan
// under a rejected key is welcome. Bounded: beyond kRejectedPlansMax keys the one that is due first is forgotten. Not
// thread-safe.
class RejectedPlans {
 public:
  static constexpr int64_t kPauseFirstMs = 5'000, kPauseMaxMs = 600'000;

  struct Why {
    MissReason reason;
    std::string detail;
  };
  // `contents` is zero where they could not be read. Rejected again unchanged, the pause doubles. Returns it in ms.
  int64_t Reject(const PlanKey& key, const Digest& contents, Why why, int64_t now_ns);
  // Until when the key is not fetched; 0: it may be.
  int64_t RetryNs(const PlanKey& key, int64_t now_ns) const;
  // What was rejected under the key; zero: nothing that could be read.
  Digest ContentsOf(const PlanKey& key) const;
  // A record was published or purged, or signers changed: the pause ends, contents stay rejected.
  bool LookAgain(const PlanKey& key);  // whether there is one
  void LookAgainAtAll();
  // What was rejected under the key waits for room for its packed weights, until it is rejected again. Precondition: it
  // is known.
  void AwaitPackRoom(const PlanKey& key) { plans_.at(key).awaits_pack_room = true; }
  // When the first of those is fetched again; 0: there is none, or its pause is over.
  int64_t PackAgainNs() const;
  // Forgets the key.
  void Lift(const PlanKey& key) { plans_.erase(key); }
  // Of the plan that was rejected last; null: there is none.
  const Why* Last() const;
  size_t size() const { return plans_.size(); }

 private:
  struct Entry {
    Digest contents;
    int64_t pause_ms = 0;
    int64_t retry_ns = 0;
    int64_t rejected_ns = 0;
    Why why{};
    bool awaits_pack_room = false;
  };
  std::map<PlanKey, Entry> plans_;
};

}  // namespace kiln
