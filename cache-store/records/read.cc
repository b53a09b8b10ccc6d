// Requests that change nothing but counts (and drop what they find damaged).
#include <spdlog/spdlog.h>

#include <algorithm>

#include "cache-store/eviction/policy.h"
#include "cache-store/records/records.h"
#include "common/base/limits.h"

namespace kiln::store {
namespace {

Evidence FleetEvidence(const CatalogPlan& plan) {
  return {plan.info.evidence.validation, std::max(plan.info.evidence.shadow_runs, plan.state.shadow_runs)};
}

}  // namespace

Result<cache::PingReply> Records::Handle(const cache::PingRequest&, const Caller&) {
  return cache::PingReply{options_.version, static_cast<uint64_t>((NowNs() - opened_ns_) / 1'000'000)};
}

Result<cache::VariantsReply> Records::Handle(const cache::VariantsRequest& request, const Caller&) {
  Add(Counter::variants_requests);
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<double, cache::Variant>> found;  // by use
  for (const Digest& key : catalog_.PlansOf(request.segment)) {
    const CatalogPlan& plan = *catalog_.FindPlan(key);
    const PlanInfo& info = plan.info;
    if (IsQuarantined(key)) continue;
    if (!request.targets.empty() &&
        std::find(request.targets.begin(), request.targets.end(), info.target) == request.targets.end())
      continue;
    if (info.weights != 0 && std::ranges::count(request.weights, info.weights) == 0) continue;
    found.push_back({UseNow(plan.state),
                     {.plan_key = key,
                      .target = info.target,
                      .abi = info.abi,
                      .numeric_mode = info.numeric_mode,
                      .guard = info.guard,
                      .evidence = FleetEvidence(plan),
                      .codegen_id = info.provenance.codegen_id,
                      .tier = info.provenance.tier,
                      .created_wall_ms = info.provenance.created_wall_ms,
                      .weights = info.weights}});
  }
  // Where there are too many: those of the lower tiers, which serve most shapes, and of these the most used.
  if (found.size() > limits::kVariantsMax) {
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.second.tier != b.second.tier ? a.second.tier < b.second.tier : a.first > b.first;
    });
    found.resize(limits::kVariantsMax);
  }
  cache::VariantsReply reply;
  for (auto& [use, variant] : found) reply.variants.push_back(std::move(variant));
  return reply;
}

Result<SignedRecord> Records::DecodeStored(const Digest& plan_key, const Result<std::optional<Bytes>>& bytes) {
  if (!bytes) return std::unexpected(bytes.error());
  if (!*bytes) return Fail(ErrorCode::kIntegrityFailure, "the record is missing");
  ASSIGN_OR_RETURN(SignedRecord decoded, CheckRecord(**bytes));
  if (decoded.record.plan_key != plan_key) return Fail(ErrorCode::kIntegrityFailure, "the record is of another plan");
  return decoded;
}

Result<cache::GetPlanReply> Records::Handle(const cache::GetPlanRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  CatalogPlan* plan = catalog_.FindPlan(request.plan_key);
  if (plan == nullptr || IsQuarantined(request.plan_key)) {
    Add(Counter::plan_misses);
    const bool hidden = IsQuarantined(request.plan_key);  // a mark outlives its plan
    return Fail(hidden ? ErrorCode::kQuarantined : ErrorCode::kNotFound,
                "plan " + request.plan_key.ShortHex() + (hidden ? " is quarantined" : " is not stored"));
  }
  auto bytes = kv_->Get(Space::kPlans, DigestKey(request.plan_key));
  if (!bytes && bytes.error().code != ErrorCode::kIntegrityFailure) {
    Add(Counter::backend_errors);
    return std::unexpected(bytes.error());
  }
  const auto decoded = DecodeStored(request.plan_key, bytes);
  if (!decoded) {
    DropDamagedPlan(request.plan_key, decoded.error());
    Add(Counter::plan_misses);
    return Fail(ErrorCode::kNotFound,
                "the stored record of plan " + request.plan_key.ShortHex() + " failed its checks and was dropped");
  }
  Add(Counter::plan_hits);
  plan->state.use = UseNow(plan->state) + 1;
  plan->state.use_wall_ms = options_.clock->WallMs();
  plan->state_dirty = true;
  return cache::GetPlanReply{**std::move(bytes)};
}

Result<std::optional<Bytes>> Records::ReadBlob(const Digest& id) {
  auto frame = kv_->Get(Space::kBlobs, DigestKey(id));
  if (!frame) {
    if (frame.error().code != ErrorCode::kIntegrityFailure) Add(Counter::backend_errors);
    return std::unexpected(frame.error());
  }
  if (!*frame) return std::optional<Bytes>();
  auto payload = UnframeKernelBlob(**frame, id);
  if (!payload) return Fail(ErrorCode::kIntegrityFailure, payload.error().message);
  return std::optional<Bytes>(*std::move(payload));
}

Result<std::shared_ptr<const Bytes>> Records::ReadBlobForChunk(const Digest& id, uint64_t offset) {
  if (offset != 0) {
    const std::lock_guard lock(large_mutex_);
    if (large_ != nullptr && large_id_ == id) return large_;
  }
  ASSIGN_OR_RETURN(std::optional<Bytes> blob, ReadBlob(id));
  if (!blob) return std::shared_ptr<const Bytes>();
  auto shared = std::make_shared<const Bytes>(*std::move(blob));
  if (shared->size() > limits::kBlobChunkBytes) {
    const std::lock_guard lock(large_mutex_);
    large_id_ = id;
    large_ = shared;
  }
  return shared;
}

Result<std::shared_ptr<const Bytes>> Records::FindBlob(const Digest& id, uint64_t offset) {
  const auto is_answer = [](const Result<std::shared_ptr<const Bytes>>& blob) {
    return blob ? *blob != nullptr : blob.error().code != ErrorCode::kIntegrityFailure;
  };
  auto blob = ReadBlobForChunk(id, offset);
  if (is_answer(blob)) return blob;
  const std::lock_guard lock(mutex_);
  if (blob && catalog_.FindKernel(id) == nullptr) return blob;
  blob = ReadBlobForChunk(id, offset);  // published, or healed, since it was looked for?
  if (is_answer(blob)) return blob;
  DropDamagedKernel(id);
  return std::shared_ptr<const Bytes>();
}

Result<cache::GetBlobsReply> Records::Handle(const cache::GetBlobsRequest& request, const Caller&) {
  cache::GetBlobsReply reply;
  size_t room = limits::kBlobChunkBytes;
  for (uint32_t index = 0; index < request.ids.size() && reply.chunks.size() < limits::kMessagePartsMax / 2; ++index) {
    const Digest& id = request.ids[index];
    const uint64_t offset = index == 0 ? request.offset : 0;
    ASSIGN_OR_RETURN(const std::shared_ptr<const Bytes> blob, FindBlob(id, offset));
    if (blob == nullptr) {
      Add(Counter::blob_misses);
      reply.chunks.push_back({.index = index, .bytes = {}});
      continue;
    }
    const Bytes& bytes = *blob;
    if (offset >= bytes.size())
      return Fail(ErrorCode::kInvalidArgument,
                  "offset " + std::to_string(offset) + " is past the end of kernel " + id.ShortHex());
    const size_t take = std::min(room, bytes.size() - static_cast<size_t>(offset));
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    reply.chunks.push_back({.index = index,
                            .offset = offset,
                            .total = bytes.size(),
                            .found = true,
                            .bytes = Bytes(first, first + static_cast<std::ptrdiff_t>(take))});
    if (offset == 0) Add(Counter::blobs_served);
    Add(Counter::blob_bytes_served, take);
    room -= take;
    if (room == 0 || offset + take < bytes.size()) break;
  }
  return reply;
}

Result<cache::LookupKernelsReply> Records::Handle(const cache::LookupKernelsRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  cache::LookupKernelsReply reply;
  for (const Digest& key : request.keys) {
    reply.kernels.push_back(catalog_.FindBinding(key));
    Add(reply.kernels.back().id.IsZero() ? Counter::kernel_lookup_misses : Counter::kernel_lookup_hits);
  }
  return reply;
}

Result<cache::ChangeLogReply> Records::Handle(const cache::ChangeLogRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  return log_.Since(request.since, request.limit);
}

Result<cache::ListReply> Records::Handle(const cache::ListRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  const size_t limit = request.limit == 0 ? limits::kListEntriesMax : std::min(request.limit, limits::kListEntriesMax);
  cache::ListReply reply;
  auto plan = request.after.IsZero() ? catalog_.plans().begin() : catalog_.plans().upper_bound(request.after);
  auto mark = request.after.IsZero() ? quarantine_.begin() : quarantine_.upper_bound(request.after);
  while (reply.plans.size() < limit) {
    const bool plans_left = plan != catalog_.plans().end();
    if (mark != quarantine_.end() && (!plans_left || mark->first < plan->first)) {
      // Of a plan that is gone, and does not come back as long as the mark is there.
      if (request.segment.IsZero())
        reply.plans.push_back({.plan_key = mark->first, .codegen_id = mark->second, .quarantined = true});
      ++mark;
    } else if (plans_left) {
      if (mark != quarantine_.end() && mark->first == plan->first) ++mark;
      if (request.segment.IsZero() || plan->second.info.segment == request.segment)
        reply.plans.push_back(SummaryOf(plan->first, plan->second));
      ++plan;
    } else {
      break;
    }
  }
  return reply;
}

cache::PlanSummary Records::SummaryOf(const Digest& plan_key, const CatalogPlan& plan) const {
  const PlanInfo& info = plan.info;
  return {.plan_key = plan_key,
          .segment = info.segment,
          .target = info.target,
          .tier = info.provenance.tier,
          .evidence = FleetEvidence(plan),
          .kernels = static_cast<uint32_t>(info.kernels.size()),
          .bytes = BytesOf(info),
          .uses = static_cast<uint64_t>(UseNow(plan.state) + 0.5),
          .compile_us = info.provenance.compile_us,
          .created_wall_ms = info.provenance.created_wall_ms,
          .codegen_id = info.provenance.codegen_id,
          .pinned = plan.state.pinned,
          .quarantined = IsQuarantined(plan_key)};
}

Result<cache::StatsReply> Records::Handle(const cache::StatsRequest&, const Caller&) {
  const std::lock_guard lock(mutex_);
  cache::StatsReply reply{{{"plans", catalog_.plans().size()},
                           {"kernels", catalog_.kernels().size()},
                           {"kernel_index", catalog_.index_size()},
                           {"bytes", catalog_.bytes()},
                           {"bytes_limit", options_.bytes_max},
                           {"quarantined", quarantine_.size()},
                           {"leases", leases_.size()},
                           {"change_log_head", log_.head()}}};
#define KILN_COUNTER(name, doc) reply.stats.push_back({#name, Count(Counter::name)});
#include "cache-store/records/counters.def"
#undef KILN_COUNTER
  return reply;
}

}  // namespace kiln::store
