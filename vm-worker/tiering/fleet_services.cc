#include "vm-worker/tiering/fleet_services.h"

#include <spdlog/spdlog.h>

#include "common/messaging/rpc_client.h"

namespace kiln {

void FleetServices::Variants(const cache::VariantsRequest& request, Done<cache::VariantsReply> done) {
  store_.Call(request, options_.store_deadline_ms, std::move(done));
}

void FleetServices::ReadChangeLog(const cache::ChangeLogRequest& request, Done<cache::ChangeLogReply> done) {
  store_.Call(request, options_.store_deadline_ms, std::move(done));
}

void FleetServices::Report(const cache::ReportRequest& request, Done<cache::ReportReply> done) {
  store_.Call(request, options_.store_deadline_ms, std::move(done));
}

void FleetServices::Compile(const CompileRequest& request, Done<CompileReply> done) {
  RequestCompile(*compile_, request, options_.compile_deadline_ms, std::move(done));
}

void FleetServices::Cancel(const Digest& request) {
  CancelCompile(*compile_, request);
}

void FleetServices::Reproduce(const ReproduceRequest& request, Done<ReproduceReply> done) {
  RequestReproduce(*compile_, request, options_.reproduce_deadline_ms, std::move(done));
}

Result<FetchedPlan> FleetServices::Fetch(const PlanKey& key, const SegmentId& segment) {
  return source_.Fetch(key, segment, options_.store_deadline_ms);
}

Status FleetServices::Standing(const PlanKey& key) {
  RETURN_IF_ERROR(store_.CallSync(cache::GetPlanRequest{key}, options_.store_deadline_ms));
  return {};
}

void FleetServices::Forget(const PlanKey& key) {
  if (disk_ != nullptr) disk_->DropRecord(key);
}

void FleetServices::Remember(const Mark& mark) {
  if (disk_ != nullptr && !disk_->PutMark(mark))
    spdlog::error("plan {} is not remembered over a restart: the disk cache cannot be written",
                  mark.plan_key.ShortHex());
}

void FleetServices::Forgive(const PlanKey& key) {
  if (disk_ != nullptr) disk_->ClearMark(key);
}

std::vector<PlanServices::Mark> FleetServices::Untold() {
  return disk_ == nullptr ? std::vector<Mark>() : disk_->UntoldMarks();
}

void FleetServices::Told(const PlanKey& key) {
  if (disk_ != nullptr) disk_->MarkTold(key);
}

}  // namespace kiln
