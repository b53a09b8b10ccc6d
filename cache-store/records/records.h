// Records: everything the cache store keeps, with its invariants (see README.md), over one KvStore.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache-store/eviction/policy.h"
#include "cache-store/records/catalog.h"
#include "cache-store/records/change_log.h"
#include "cache-store/records/leases.h"
#include "cache-store/store/kv_store.h"
#include "common/base/clock.h"
#include "common/cache_api/types.h"
#include "common/security/role.h"
#include "common/security/signer_list.h"

namespace kiln::store {

struct RecordsOptions {
  uint64_t bytes_max = uint64_t{4} << 30;  // records and kernels
  bool verify_signatures = false;          // refuse records that nobody in `trusted` signed
  SignerList trusted;
  std::string version = KILN_VERSION;  // what Ping answers
  const Clock* clock = &SystemClock();
  // Called with the new head after each change, on the changing thread, with internal locks held: must only pass it on.
  std::function<void(uint64_t head)> on_change;
};

// Who asks. The service fills it from the connection.
struct Caller {
  Role role = Role::kAdmin;
  std::string machine;  // two callers on one machine with one key are one witness
};

enum class Counter : uint8_t {
#define KILN_COUNTER(name, doc) name,
#include "cache-store/records/counters.def"
#undef KILN_COUNTER
};
inline constexpr size_t kCounterCount = 0
#define KILN_COUNTER(name, doc) +1
#include "cache-store/records/counters.def"
#undef KILN_COUNTER
    ;

// Kernels that no plan names are kept this long: they are on their way to their plan.
inline constexpr int64_t kOrphanGraceMs = 10 * 60 * 1000;
// Bad reports from this many different machines hide a plan; one from the compile service or an admin does.
inline constexpr size_t kMachinesToQuarantine = 2;

// Thread-safe. One Handle per method of the cache protocol.
class Records {
 public:
  // Reads the index; damaged entries are dropped and logged on the way.
  static Result<std::unique_ptr<Records>> Open(std::unique_ptr<KvStore> kv, RecordsOptions options);
  ~Records();

  Result<cache::PingReply> Handle(const cache::PingRequest& request, const Caller& caller);
  Result<cache::VariantsReply> Handle(const cache::VariantsRequest& request, const Caller& caller);
  Result<cache::GetPlanReply> Handle(const cache::GetPlanRequest& request, const Caller& caller);
  Result<cache::GetBlobsReply> Handle(const cache::GetBlobsRequest& request, const Caller& caller);
  Result<cache::LookupKernelsReply> Handle(const cache::LookupKernelsRequest& request, const Caller& caller);
  Result<cache::ClaimReply> Handle(const cache::ClaimRequest& request, const Caller& caller);
  Result<cache::ReleaseReply> Handle(const cache::ReleaseRequest& request, const Caller& caller);
  Result<cache::PublishBlobsReply> Handle(const cache::PublishBlobsRequest& request, const Caller& caller);
  Result<cache::PublishPlanReply> Handle(const cache::PublishPlanRequest& request, const Caller& caller);
  Result<cache::ReportReply> Handle(const cache::ReportRequest& request, const Caller& caller);
  Result<cache::ChangeLogReply> Handle(const cache::ChangeLogRequest& request, const Caller& caller);
  Result<cache::PurgeReply> Handle(const cache::PurgeRequest& request, const Caller& caller);
  Result<cache::PinReply> Handle(const cache::PinRequest& request, const Caller& caller);
  Result<cache::QuarantineReply> Handle(const cache::QuarantineRequest& request, const Caller& caller);
  Result<cache::StatsReply> Handle(const cache::StatsRequest& request, const Caller& caller);
  Result<cache::ListReply> Handle(const cache::ListRequest& request, const Caller& caller);

  // Housekeeping, every few seconds and before the end: writes use counts, sweeps expired leases and orphans.
  void Tick();
  // Returns when everything that Handle did before is on the disk. Without internal locks: lookups go on meanwhile.
  Status Sync();
  // Head of the change log; lock-free.
  uint64_t head() const { return head_.load(); }
  uint64_t Count(Counter counter) const { return counters_[static_cast<size_t>(counter)].load(); }

 private:
  friend class Loader;
  using KernelSet = std::set<Digest>;

  Records(std::unique_ptr<KvStore> kv, RecordsOptions options);
  void Add(Counter counter, uint64_t count = 1) { counters_[static_cast<size_t>(counter)].fetch_add(count); }
  int64_t NowNs() const { return options_.clock->NowNs(); }

  // All below: with mutex_ held.
  Status Commit(const KvBatch& batch);  // writes, then commits or abandons prepared changes
  bool IsQuarantined(const Digest& plan_key) const;
  double UseNow(const PlanState& state) const;
  // Removes plans and the kernels that no other plan needs, but none in `keep`.
  Status RemovePlans(const std::vector<Digest>& plan_keys, cache::ChangeKind kind, const KernelSet& keep);
  Status RemoveOrphans(int64_t older_than_ns, const KernelSet& keep);
  // Makes space for `bytes` more, or ResourceExhausted.
  Status EnsureRoom(uint64_t bytes, const KernelSet& keep);
  void DropDamagedPlan(const Digest& plan_key, const Error& reason);
  void DropDamagedKernel(const Digest& kernel_id);
  static void PrepareState(const Digest& plan_key, const CatalogPlan& plan, KvBatch& batch);
  static void PrepareWitnesses(const Digest& plan_key, const CatalogPlan& plan, KvBatch& batch);
  void WriteState(const Digest& plan_key, CatalogPlan& plan);
  // Takes what a kernel has in the store out of it; the catalog follows once that is committed.
  static void PrepareRemoval(const Digest& id, const CatalogKernel& kernel, KvBatch& batch);
  // Makes room for one more plan of the segment and target; the least worth leave.
  Status BoundSegment(const Digest& segment, const std::string& target, const KernelSet& keep);
  EvictionCandidate CandidateOf(const Digest& plan_key, const CatalogPlan& plan) const;
  cache::PlanSummary SummaryOf(const Digest& plan_key, const CatalogPlan& plan) const;
  void DropOldMarks();
  void CountClean(const cache::ReportRequest& request, const Caller& caller, CatalogPlan& plan);
  Status CountBad(const cache::ReportRequest& request, const Caller& caller, CatalogPlan& plan);
  Result<Digest> ContentsOf(const Digest& plan_key, CatalogPlan& plan);
  Status SetQuarantine(const Digest& plan_key, bool on);
  Result<std::optional<Bytes>> ReadBlob(const Digest& id);  // needs no lock; IntegrityFailure if damaged
  Result<std::shared_ptr<const Bytes>> ReadBlobForChunk(const Digest& id, uint64_t offset);  // the same; null: absent
  // Takes mutex_ where it has to drop what cannot be read. Errors are the backend's; null: absent or dropped.
  Result<std::shared_ptr<const Bytes>> FindBlob(const Digest& id, uint64_t offset);
  Result<SignedRecord> CheckRecord(std::span<const uint8_t> bytes);
  // Of what the backend answered for this plan; any error means that the stored record cannot be used.
  Result<SignedRecord> DecodeStored(const Digest& plan_key, const Result<std::optional<Bytes>>& bytes);
  Status CheckKernels(const PlanRecord& record) const;
  // Whether the stored record stays in place of `record`.
  bool KeepsStored(const Digest& plan_key, const PlanRecord& record);
  Status StorePlan(const SignedRecord& decoded, const cache::PublishPlanRequest& request);
  Status PutBlob(const Digest& id, const Bytes& blob, const KernelSet& keep);
  // Refuses entries of kernels that are not in `kernels`, and forged ones.
  Status CheckIndex(const std::vector<KernelBinding>& index, const KernelSet& kernels);
  // The entries that are worth more than what the index has, written into `batch`, with the leases that they end.
  std::vector<KernelBinding> PrepareIndex(const std::vector<KernelBinding>& index, KvBatch& batch);

  const std::unique_ptr<KvStore> kv_;
  const RecordsOptions options_;
  const int64_t opened_ns_;
  mutable std::mutex mutex_;
  Catalog catalog_;
  ChangeLog log_;
  Leases leases_;
  std::map<Digest, Digest> quarantine_;  // plan key → code generator that made it
  bool opened_ = false;
  // The last kernel that takes several chunks, verified: its further chunks come from here.
  std::mutex large_mutex_;
  Digest large_id_;
  std::shared_ptr<const Bytes> large_;
  std::atomic<uint64_t> head_{0};
  std::array<std::atomic<uint64_t>, kCounterCount> counters_{};
};

}  // namespace kiln::store
