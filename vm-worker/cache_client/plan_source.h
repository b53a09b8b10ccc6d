// PlanSource: a verified plan by its key, from the worker's disk or the cache store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
#include "vm-worker/device/kernel_images.h"

namespace kiln {

// Verified in full: signature, key, target, ABI, every kernel's id; and mapped, where the processor runs it.
struct FetchedPlan {
  PlanKey key;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const CodeMapping> code;     // of the processor…
  std::shared_ptr<const KernelImages> images;  // …or of a device: one of them is null
  Evidence evidence;
  Provenance provenance;
  Digest contents;  // hash of the plan's bytes, which name its kernels by hash: equal exactly for equal plans
  SignPublicKey signer;
  bool from_disk = false;
};

// Fetch is called by one thread at a time, Trusts by any.
class PlanSource {
 public:
  // `disk` may be null. Both outlive this. `device`: the best target of the worker's device, where it has one.
  PlanSource(cache::CacheClient& store, DiskTier* disk, SignerList trusted, Target host,
             std::optional<Target> device = std::nullopt)
      : store_(store), disk_(disk), trusted_(std::move(trusted)), host_(host), device_(device) {}

  // Blocks up to about deadline_ms; not on the loop thread. NotFound, IntegrityFailure (damage or forgery: counted by
  // the caller, the disk's copy is dropped), TargetMismatch, Unavailable, DeadlineExceeded.
  Result<FetchedPlan> Fetch(const PlanKey& key, const SegmentId& segment, int64_t deadline_ms);

  // Whether records of this signer are believed now.
  bool Trusts(const SignPublicKey& signer) const;

 private:
  Result<FetchedPlan> Open(const Bytes& record, const PlanKey& key, const SegmentId& segment, int64_t deadline_ms);
  Result<std::vector<Bytes>> Kernels(const std::vector<KernelId>& ids, int64_t deadline_ms);

  cache::CacheClient& store_;
  DiskTier* disk_;
  const SignerList trusted_;
  const Target host_;
  const std::optional<Target> device_;
};

}  // namespace kiln
