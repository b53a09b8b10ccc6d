// PlanServices: what a worker's control thread asks of the fleet. Tests put their own store and compiler behind it.
#pragma once

#include <functional>

#include "common/cache_api/types.h"
#include "common/compile_api/compile_api.h"
#include "common/compile_api/reproduce.h"
#include "common/security/signing.h"
#include "vm-worker/cache_client/plan_source.h"

namespace kiln {

// Implementations are thread-safe and bring their own deadlines: every `done` runs once, on any thread, soon after its
// deadline at the latest. Unreachable services are the errors of RpcClient::Call.
class PlanServices {
 public:
  template <class Reply>
  using Done = std::function<void(Result<Reply>)>;

  virtual ~PlanServices() = default;
  virtual void Variants(const cache::VariantsRequest& request, Done<cache::VariantsReply> done) = 0;
  virtual void ReadChangeLog(const cache::ChangeLogRequest& request, Done<cache::ChangeLogReply> done) = 0;
  virtual void Report(const cache::ReportRequest& request, Done<cache::ReportReply> done) = 0;
  // Whether there is a compile service to ask at all.
  virtual bool CanCompile() const = 0;
  virtual void Compile(const CompileRequest& request, Done<CompileReply> done) = 0;
  // Nobody here waits for the request of this key any more.
  virtual void Cancel(const Digest& request) = 0;
  // A plan that was wrong here, for the compile service to see for itself. Unsupported by one of the version before.
  virtual void Reproduce(const ReproduceRequest& request, Done<ReproduceReply> done) = 0;
  // As PlanSource::Fetch: blocks, never on the control thread.
  virtual Result<FetchedPlan> Fetch(const PlanKey& key, const SegmentId& segment) = 0;
  // What the store says of a plan now: success, Quarantined, NotFound, or why it cannot be asked. Blocking, as Fetch.
  virtual Status Standing(const PlanKey& key) = 0;
  // The disk's copy of the record was withdrawn by the store. Blocking, as Fetch.
  virtual void Forget(const PlanKey& key) = 0;
  // The worker's memory over restarts: plans that gave a wrong result or faulted here. Blocking, as Fetch.
  using Mark = DiskTier::Mark;
  virtual void Remember(const Mark& mark) = 0;
  virtual void Forgive(const PlanKey& key) = 0;
  virtual std::vector<Mark> Untold() = 0;  // remembered, and the store was not told
  virtual void Told(const PlanKey& key) = 0;
  // Whether records of this signer are believed now.
  virtual bool Trusts(const SignPublicKey& signer) const = 0;
};

}  // namespace kiln
