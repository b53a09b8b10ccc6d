#include "cache-store/records/records.h"

#include <spdlog/spdlog.h>

#include "cache-store/eviction/policy.h"

namespace kiln::store {

Records::Records(std::unique_ptr<KvStore> kv, RecordsOptions options)
    : kv_(std::move(kv)), options_(std::move(options)), opened_ns_(options_.clock->NowNs()), leases_(*options_.clock) {}

Records::~Records() {
  Tick();
  if (!opened_) return;
  // The mark says that the change log is complete; without it the next start opens a new epoch.
  KvBatch batch;
  batch.Put(Space::kMeta, kCleanKey, Seal(Space::kMeta, kCleanKey, EncodeU64(log_.head())));
  if (kv_->Write(batch)) (void)kv_->Sync();
}

Status Records::Sync() {
  Status status = kv_->Sync();
  if (!status) Add(Counter::backend_errors);
  return status;
}

Status Records::Commit(const KvBatch& batch) {
  if (batch.empty()) return {};
  if (Status status = kv_->Write(batch); !status) {
    Add(Counter::backend_errors);
    log_.Abandon();
    spdlog::error("the store refused a write: {}", ToString(status.error()));
    return status;
  }
  log_.Commit();
  if (const uint64_t head = log_.head(); head_.exchange(head) != head && options_.on_change) options_.on_change(head);
  return {};
}

bool Records::IsQuarantined(const Digest& plan_key) const {
  return quarantine_.contains(plan_key);
}

double Records::UseNow(const PlanState& state) const {
  return DecayedUse(state.use, options_.clock->WallMs() - state.use_wall_ms);
}

void Records::Tick() {
  const std::lock_guard lock(mutex_);
  KvBatch batch;
  std::vector<Digest> written;
  for (const auto& [key, plan] : catalog_.plans()) {
    if (!plan.state_dirty && !plan.witnesses_dirty) continue;
    PrepareState(key, plan, batch);
    if (plan.witnesses_dirty) PrepareWitnesses(key, plan, batch);
    written.push_back(key);
  }
  leases_.SweepExpired(batch);
  if (!Commit(batch)) return;
  for (const Digest& key : written) {
    CatalogPlan& plan = *catalog_.FindPlan(key);
    plan.state_dirty = plan.witnesses_dirty = false;
  }
  (void)RemoveOrphans(NowNs() - kOrphanGraceMs * 1'000'000, {});
}

}  // namespace kiln::store
