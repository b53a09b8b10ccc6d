// FleetServices: the cache store and compile service of a running fleet, as PlanServices.
#pragma once

#include "vm-worker/tiering/plan_services.h"

namespace kiln {

class RpcClient;

struct FleetServicesOptions {
  int64_t store_deadline_ms = limits::kLookupTimeoutMs;
  int64_t compile_deadline_ms = 120'000;
  int64_t reproduce_deadline_ms = 60'000;
};

// Everything referred to outlives it. Thread-safe, but for Fetch, which one thread calls at a time.
class FleetServices final : public PlanServices {
 public:
  // `compile` may be null: plans come from the store only.
  // `disk` may be null: then a restarted worker knows of no fault.
  FleetServices(cache::CacheClient& store, PlanSource& source, DiskTier* disk, RpcClient* compile,
                FleetServicesOptions options = {})
      : store_(store), source_(source), disk_(disk), compile_(compile), options_(options) {}

  void Variants(const cache::VariantsRequest& request, Done<cache::VariantsReply> done) override;
  void ReadChangeLog(const cache::ChangeLogRequest& request, Done<cache::ChangeLogReply> done) override;
  void Report(const cache::ReportRequest& request, Done<cache::ReportReply> done) override;
  bool CanCompile() const override { return compile_ != nullptr; }
  void Compile(const CompileRequest& request, Done<CompileReply> done) override;
  void Cancel(const Digest& request) override;
  void Reproduce(const ReproduceRequest& request, Done<ReproduceReply> done) override;
  Result<FetchedPlan> Fetch(const PlanKey& key, const SegmentId& segment) override;
  Status Standing(const PlanKey& key) override;
  void Forget(const PlanKey& key) override;
  void Remember(const Mark& mark) override;
  void Forgive(const PlanKey& key) override;
  std::vector<Mark> Untold() override;
  void Told(const PlanKey& key) override;
  bool Trusts(const SignPublicKey& signer) const override { return source_.Trusts(signer); }

 private:
  cache::CacheClient& store_;
  PlanSource& source_;
  DiskTier* disk_;
  RpcClient* compile_;
  const FleetServicesOptions options_;
};

}  // namespace kiln
