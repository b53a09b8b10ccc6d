#include "common/telemetry/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <limits>
#include <mutex>

namespace kiln {
namespace {

constexpr MetricInfo kMetrics[] = {
#define KILN_METRIC(service, stat, kind, name, label, doc) \
  {MetricService::k##service, #stat, MetricKind::k##kind, name, label, doc},
#include "common/telemetry/metrics.def"
#undef KILN_METRIC
};

constexpr double kNsPerSecond = 1e9;

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
    case MetricKind::kSeconds:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kLatency:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric ValueOf(const MetricInfo& info, const MetricSample& sample) {
  prometheus::ClientMetric metric;
  const auto value = static_cast<double>(sample.value);
  if (info.kind == MetricKind::kGauge)
    metric.gauge.value = value;
  else
    metric.counter.value = info.kind == MetricKind::kSeconds ? value / kNsPerSecond : value;
  if (!info.label.empty()) metric.label.push_back({std::string(info.label), sample.label});
  return metric;
}

prometheus::ClientMetric HistogramOf(const LatencySnapshot& latency) {
  prometheus::ClientMetric metric;
  uint64_t below = 0;
  for (size_t i = 0; i < latency.counts.size(); ++i) {
    below += latency.counts[i];
    const double bound = i < kLatencyBounds ? static_cast<double>(LatencyBoundNs(i)) / kNsPerSecond
                                            : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({below, bound});
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = static_cast<double>(latency.sum_ns) / kNsPerSecond;
  return metric;
}

std::vector<prometheus::MetricFamily> Families(MetricService service, const MetricsSnapshot& snapshot) {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricInfo& info : kMetrics) {
    if (info.service != service) continue;
    prometheus::MetricFamily family{std::string(info.name), std::string(info.doc), TypeOf(info.kind), {}};
    for (const MetricSample& sample : snapshot.samples)
      if (info.kind != MetricKind::kLatency && sample.stat == info.stat) family.metric.push_back(ValueOf(info, sample));
    for (const auto& [stat, latency] : snapshot.latencies)
      if (info.kind == MetricKind::kLatency && stat == info.stat) family.metric.push_back(HistogramOf(latency));
    families.push_back(std::move(family));
  }
  return families;
}

class Collector final : public prometheus::Collectable {
 public:
  Collector(MetricService service, std::function<MetricsSnapshot()> collect)
      : service_(service), collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::lock_guard lock(mutex_);
    return Families(service_, collect_());
  }

 private:
  const MetricService service_;
  const std::function<MetricsSnapshot()> collect_;
  mutable std::mutex mutex_;  // one scrape at a time
};

}  // namespace

std::span<const MetricInfo> Metrics() {
  return kMetrics;
}

MetricSample ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return {"resident_bytes", resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), ""};
}

std::string MetricsText(MetricService service, const MetricsSnapshot& snapshot) {
  return prometheus::TextSerializer().Serialize(Families(service, snapshot));
}

struct MetricsEndpoint::Server {
  std::shared_ptr<Collector> collector;  // the exposer holds it weakly
  std::unique_ptr<prometheus::Exposer> exposer;
};

MetricsEndpoint::MetricsEndpoint() : server_(std::make_unique<Server>()) {}
MetricsEndpoint::~MetricsEndpoint() = default;

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(MetricService service, const std::string& address,
                                                                std::function<MetricsSnapshot()> collect) {
  const size_t colon = address.rfind(':');
  unsigned port = 0;
  const char* const end = address.data() + address.size();
  if (colon == std::string::npos || colon == 0 || std::from_chars(address.data() + colon + 1, end, port).ptr != end ||
      colon + 1 == address.size() || port > 65535)
    return Fail(ErrorCode::kInvalidArgument, "--metrics takes HOST:PORT, not \"" + address + "\"");
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint());
  try {
    endpoint->server_->collector = std::make_shared<Collector>(service, std::move(collect));
    endpoint->server_->exposer = std::make_unique<prometheus::Exposer>(address, 1);
    endpoint->server_->exposer->RegisterCollectable(endpoint->server_->collector);
    endpoint->address_ =
        address.substr(0, colon + 1) + std::to_string(endpoint->server_->exposer->GetListeningPorts().at(0));
  } catch (const std::exception& failure) {
    return Fail(ErrorCode::kUnavailable,
                "cannot answer metrics on " + address +
                    ": the address is not this machine's, or its port is taken or not allowed (" + failure.what() +
                    ")");
  }
  return endpoint;
}

}  // namespace kiln
