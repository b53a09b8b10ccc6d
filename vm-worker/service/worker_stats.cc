// What a worker counts, for its Stats method and for its metrics.
#include "vm-worker/service/worker_service.h"

namespace kiln {
namespace {

void AddTiers(const TierStats& tiers, std::vector<MetricSample>& samples) {
  const auto add = [&samples](std::string stat, uint64_t value) { samples.push_back({std::move(stat), value, ""}); };
  add("compile_requests", tiers.compile_requests);
  add("throttled", tiers.throttled);
  add("compiled", tiers.compiled);
  add("compile_failures", tiers.compile_failures);
  add("fetched", tiers.fetched);
  add("fetched_from_disk", tiers.fetched_from_disk);
  add("rejected", tiers.rejected);
  add("published", tiers.published);
  add("shadow_clean", tiers.shadow_clean);
  add("shadow_mismatches", tiers.shadow_mismatches);
  add("shadow_undecided", tiers.shadow_undecided);
  add("shadow_faults", tiers.shadow_faults);
  add("samples_clean", tiers.samples_clean);
  add("quarantined", tiers.quarantined);
  add("evicted", tiers.evicted);
  for (size_t i = 1; i < kReproduceOutcomes; ++i)
    samples.push_back(
        {"reproductions", tiers.reproductions[i], std::string(ReproduceOutcomeText(static_cast<ReproduceOutcome>(i)))});
  for (size_t i = 1; i < kMissReasons; ++i) {
    const std::string reason(MissReasonText(static_cast<MissReason>(i)));
    samples.push_back({"miss", tiers.misses.calls[i], reason});
    samples.push_back({"miss_ns", tiers.misses.ns[i], reason});
  }
}

void AddStreams(const StreamStats& streams, std::vector<MetricSample>& samples) {
  samples.push_back({"streams", streams.open, ""});
  samples.push_back({"stream_bytes", static_cast<uint64_t>(streams.bytes), ""});
  samples.push_back({"streams_opened", streams.opened, ""});
  samples.push_back({"streams_expired", streams.expired, ""});
  samples.push_back({"streams_lost", streams.lost, ""});
  samples.push_back({"streams_refused", streams.refused, ""});
}

void AddModel(const std::string& name, const std::vector<SegmentStatus>& segments, std::vector<MetricSample>& samples) {
  Model::Totals all;
  uint64_t with_plan = 0;
  for (const SegmentStatus& segment : segments) {
    with_plan += segment.published.empty() ? 0 : 1;
    all.interpreted_calls += segment.totals.interpreted_calls;
    all.plan_calls += segment.totals.plan_calls;
    all.interpreted_ns += segment.totals.interpreted_ns;
    all.kernel_ns += segment.totals.kernel_ns;
    all.reference_ns += segment.totals.reference_ns;
    all.guard_misses += segment.totals.guard_misses;
    all.input_copies += segment.totals.input_copies;
  }
  const auto add = [&](std::string stat, uint64_t value) { samples.push_back({std::move(stat), value, name}); };
  add("segments", segments.size());
  add("segments_with_plan", with_plan);
  add("interpreted_calls", all.interpreted_calls);
  add("plan_calls", all.plan_calls);
  add("interpreted_ns", all.interpreted_ns);
  add("kernel_ns", all.kernel_ns);
  add("reference_ns", all.reference_ns);
  add("guard_misses", all.guard_misses);
  add("input_copies", all.input_copies);
}

void AddDevice(CudaDevice* device, DeviceState state, std::vector<MetricSample>& samples) {
  if (device != nullptr && device->lost()) state = DeviceState::kLost;
  for (size_t i = 0; i < kDeviceStates; ++i)
    samples.push_back({"device", static_cast<DeviceState>(i) == state ? uint64_t{1} : uint64_t{0},
                       std::string(DeviceStateText(static_cast<DeviceState>(i)))});
  if (device == nullptr) return;
  const DeviceCounters& counters = device->counters();
  samples.push_back({"device_calls", counters.calls.load(), ""});
  samples.push_back({"device_launches", counters.launches.load(), ""});
  samples.push_back({"device_allocations", counters.allocations.load(), ""});
  samples.push_back({"device_bytes_in", counters.bytes_in.load(), ""});
  samples.push_back({"device_bytes_out", counters.bytes_out.load(), ""});
  samples.push_back({"device_memory_limit", static_cast<uint64_t>(device->budget().limit()), ""});
  for (size_t use = 0; use < kMemoryUses; ++use)
    if (const int64_t bytes = device->budget().used(static_cast<MemoryUse>(use)); bytes > 0)
      samples.push_back(
          {"device_memory", static_cast<uint64_t>(bytes), std::string(MemoryUseText(static_cast<MemoryUse>(use)))});
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
  AddDevice(device_, device_state_, samples);
  if (budget_ != nullptr) {
    samples.push_back({"memory_limit", static_cast<uint64_t>(budget_->limit()), ""});
    for (size_t use = 0; use < kMemoryUses; ++use)
      samples.push_back({"memory", static_cast<uint64_t>(budget_->used(static_cast<MemoryUse>(use))),
                         std::string(MemoryUseText(static_cast<MemoryUse>(use)))});
  }
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

Result<Message> WorkerService::StatsOf(const Message& message, Subject& subject) {
  WorkerStatsRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  subject.model = request.model;
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
