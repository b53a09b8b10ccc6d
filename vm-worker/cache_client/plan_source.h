// PlanSource: a verified plan by its key, from the worker's disk or the cache store.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/record.h"
#include "common/artifact/target.h"
#include "common/base/result.h"
#include "common/cache_api/client.h"
#include "common/native/code_mapping.h"
#include "common/security/signer_list.h"
#include "vm-worker/cache_client/disk_tier.h"

namespace kiln {

// Verified in full: signature, key, target, ABI, every kernel's id; and mapped.
struct FetchedPlan {
  PlanKey key;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const CodeMapping> code;
  Evidence evidence;
  Provenance provenance;
  SignPublicKey signer{};
  bool from_disk = false;
};

// Thread-safe. Checks and maps on a thread of its own, which never waits for the store: a store that is slow or hung
// delays the plans it was asked for and no other.
class PlanSource {
 public:
  // `disk` may be null. Both outlive this.
  PlanSource(cache::CacheClient& store, DiskTier* disk, SignerList trusted, Target host);
  ~PlanSource();  // plans on their way are forgotten, their `done` is not called

  // `done` runs on this object's thread, once, within about deadline_ms. NotFound, IntegrityFailure (damage or forgery:
  // counted by the caller, the disk's copy is dropped), TargetMismatch, Unavailable, DeadlineExceeded.
  using Done = std::function<void(Result<FetchedPlan>)>;
  void FetchAsync(const PlanKey& key, const SegmentId& segment, int64_t deadline_ms, Done done);
  // The same, blocking; not on the store client's loop thread.
  Result<FetchedPlan> Fetch(const PlanKey& key, const SegmentId& segment, int64_t deadline_ms);

  bool Trusts(const SignPublicKey& signer) const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace kiln
