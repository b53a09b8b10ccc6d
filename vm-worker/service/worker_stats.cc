// What a worker counts, for its Stats method and for its metrics.
#include "vm-worker/service/worker_service.h"

namespace kiln {
namespace {

void AddTiers(const TierStats& tiers, std::vector<MetricSample>& samples) {
#define KILN_TIER_COUNT(name) samples.push_back({#name, tiers.name, ""});
#include "vm-worker/tiering/tier_counts.def"
#undef KILN_TIER_COUNT
  for (size_t i = 1; i < kMissReasons; ++i) {
    const std::string reason(MissReasonText(static_cast<MissReason>(i)));
    samples.push_back({"miss", tiers.misses.calls[i], reason});
    samples.push_back({"miss_ns", tiers.misses.ns[i], reason});
  }
}

void AddStreams(const StreamStats& streams, std::vector<MetricSample>& samples) {
#define KILN_STREAM_COUNT(member, stat) samples.push_back({stat, static_cast<uint64_t>(streams.member), ""});
#include "vm-worker/service/stream_counts.def"
#undef KILN_STREAM_COUNT
}

void AddModel(const std::string& name, const std::vector<SegmentStatus>& segments, std::vector<MetricSample>& samples) {
  Model::Totals all;
  uint64_t with_plan = 0;
  for (const SegmentStatus& segment : segments) {
    with_plan += segment.published.empty() ? 0 : 1;
#define KILN_SEGMENT_COUNT(count) all.count += segment.totals.count;
#include "vm-worker/dispatch/segment_counts.def"
#undef KILN_SEGMENT_COUNT
  }
  samples.push_back({"segments", segments.size(), name});
  samples.push_back({"segments_with_plan", with_plan, name});
#define KILN_SEGMENT_COUNT(count) samples.push_back({#count, all.count, name});
#include "vm-worker/dispatch/segment_counts.def"
#undef KILN_SEGMENT_COUNT
}

}  // namespace

std::vector<MetricSample> WorkerService::Counts() {
  std::vector<MetricSample> samples = {{"requests", requests_.load(), ""},
                                       {"errors", errors_.load(), ""},
                                       {"busy", busy_.load(), ""},
                                       {"expired", expired_.load(), ""},
                                       {"queued", queue_.size(), ""}};
  AddStreams(streams_.stats(), samples);
  AddTiers(tiers_.Stats(), samples);
  return samples;
}

MetricsSnapshot WorkerService::Snapshot() {
  MetricsSnapshot snapshot{Counts(), {{"queue_wait", queue_wait_.Snapshot()}, {"run", run_.Snapshot()}}};
  const std::vector<std::string> names = registry_.Names();
  snapshot.samples.push_back({"models", names.size(), ""});
  for (const std::string& name : names)
    if (const auto served = registry_.Find(name); served.has_value())
      AddModel(name, tiers_.Segments(*(*served)->model), snapshot.samples);
  snapshot.samples.push_back(ResidentBytes());
  return snapshot;
}

Result<Message> WorkerService::StatsOf(const Message& message) {
  WorkerStatsRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  std::vector<MetricSample> samples;
  if (request.model.empty()) {
    samples = Counts();
  } else {
    ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
    AddModel("", tiers_.Segments(*served->model), samples);
  }
  WorkerStatsReply reply;
  for (MetricSample& sample : samples)
    reply.stats.emplace_back(sample.label.empty() ? std::move(sample.stat) : sample.stat + "_" + sample.label,
                             sample.value);
  return Encode(reply);
}

}  // namespace kiln
