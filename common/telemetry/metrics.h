// What a service tells a Prometheus server: the rows of metrics.def, answered over HTTP at /metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/telemetry/latency.h"

namespace kiln {

enum class MetricService : uint8_t { kWorker, kCompile, kCache };
enum class MetricKind : uint8_t { kCounter, kGauge, kSeconds, kLatency };

struct MetricInfo {
  MetricService service;
  std::string_view stat;
  MetricKind kind;
  std::string_view name;   // as exported
  std::string_view label;  // "": none
  std::string_view doc;
};
std::span<const MetricInfo> Metrics();

// A value of now. `label` is the label's value where the metric has one.
struct MetricSample {
  std::string stat;
  uint64_t value = 0;
  std::string label;
};
struct MetricsSnapshot {
  std::vector<MetricSample> samples;
  std::vector<std::pair<std::string, LatencySnapshot>> latencies;
};

// Resident memory of this process, as every service has it.
MetricSample ResidentBytes();

// The text of a scrape. A sample without a row is left out.
std::string MetricsText(MetricService service, const MetricsSnapshot& snapshot);

// Plain HTTP without authentication: to be bound where only the fleet's monitoring reaches it.
class MetricsEndpoint {
 public:
  // `address`: HOST:PORT, port 0 for any. `collect` runs on a thread of the endpoint, one scrape at a time.
  static Result<std::unique_ptr<MetricsEndpoint>> Start(MetricService service, const std::string& address,
                                                        std::function<MetricsSnapshot()> collect);
  ~MetricsEndpoint();
  const std::string& address() const { return address_; }  // with the real port

 private:
  struct Server;
  MetricsEndpoint();
  std::unique_ptr<Server> server_;
  std::string address_;
};

}  // namespace kiln
