#include "common/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/scrape.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Scrape;

TEST(Metrics, NamesFollowTheConventionAndAreDistinct) {
  static const std::regex pattern("kiln_(worker|compile|cache)_[a-z_]+");
  std::set<std::string> names;
  for (const MetricInfo& info : Metrics()) {
    const std::string name(info.name);
    EXPECT_TRUE(std::regex_match(name, pattern)) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(name.ends_with("_total"), info.kind == MetricKind::kCounter || info.kind == MetricKind::kSeconds) << name;
    if (info.kind == MetricKind::kSeconds || info.kind == MetricKind::kLatency) {
      EXPECT_THAT(name, HasSubstr("_seconds"));
    }
    EXPECT_FALSE(info.doc.empty());
  }
}

TEST(Metrics, AreAllOnTheOperationsPage) {
  std::ifstream file(KILN_SOURCE_DIR "/docs/operations.md");
  std::stringstream page;
  page << file.rdbuf();
  for (const MetricInfo& info : Metrics()) {
    const std::string label = info.label.empty() ? "" : "{" + std::string(info.label) + "}";
    EXPECT_THAT(page.str(), HasSubstr("| `" + std::string(info.name) + label + "` | " + std::string(info.doc) + " |"));
  }
}

TEST(Metrics, OfAlertsAndDashboardExist) {
  std::set<std::string> names;
  for (const MetricInfo& info : Metrics()) {
    names.insert(std::string(info.name));
    if (info.kind == MetricKind::kLatency) names.insert(std::string(info.name) + "_bucket");
  }
  static const std::regex pattern("kiln_(worker|compile|cache)_[a-z_]+");
  for (const std::string file : {"alerts.yaml", "grafana.json"}) {
    std::ifstream stream(KILN_SOURCE_DIR "/deploy/monitoring/" + file);
    std::stringstream text;
    text << stream.rdbuf();
    const std::string content = text.str();
    int found = 0;
    for (std::sregex_iterator it(content.begin(), content.end(), pattern), end; it != end; ++it, ++found)
      EXPECT_TRUE(names.contains((*it)[0])) << file << " names " << (*it)[0];
    EXPECT_GT(found, 5) << file;
  }
}

// An alert without a row would wake somebody who then finds nothing to read; its row names the counter, or its label.
TEST(Metrics, OfAlertsHaveARowUnderWhatToWatch) {
  const auto text_of = [](const char* path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  std::string rows = text_of(KILN_SOURCE_DIR "/docs/operations.md");
  rows = rows.substr(rows.find("## What to watch"));
  rows = rows.substr(0, rows.find("\n## ", 1));
  const std::string alerts = text_of(KILN_SOURCE_DIR "/deploy/monitoring/alerts.yaml");
  static const std::regex pattern("expr: .*(kiln_[a-z_]+)(\\{[a-z]+=\"([a-z_]+)\"\\})?");
  int found = 0;
  for (std::sregex_iterator it(alerts.begin(), alerts.end(), pattern), end; it != end; ++it, ++found) {
    const auto info = std::ranges::find(Metrics(), (*it)[1].str(), &MetricInfo::name);
    ASSERT_NE(info, Metrics().end()) << (*it)[1];
    const std::string label = (*it)[3];
    const std::string sign = label.empty() ? std::string(info->stat) : label;
    EXPECT_TRUE(rows.contains("`" + sign + "`") || rows.contains("`miss_" + sign + "`")) << sign;
  }
  EXPECT_GT(found, 8);
}

TEST(MetricsText, HasLabelsSecondsAndCumulativeBuckets) {
  Latency latency;
  latency.Record(10'000);
  latency.Record(60'000);
  latency.Record(int64_t{100} * 1'000'000'000);
  const std::string text = MetricsText(
      MetricService::kWorker,
      {{{"requests", 7, ""}, {"miss", 3, "cold"}, {"miss_ns", 1'500'000'000, "cold"}, {"without a row", 1, ""}},
       {{"run", latency.Snapshot()}}});
  EXPECT_THAT(text, HasSubstr("kiln_worker_requests_total 7"));
  EXPECT_THAT(text, HasSubstr("kiln_worker_fallback_total{reason=\"cold\"} 3"));
  EXPECT_THAT(text, HasSubstr("kiln_worker_fallback_seconds_total{reason=\"cold\"} 1.5"));
  EXPECT_THAT(text, HasSubstr("# TYPE kiln_worker_run_seconds histogram"));
  EXPECT_THAT(text, HasSubstr("kiln_worker_run_seconds_bucket{le=\"0.0001\"} 2"));
  EXPECT_THAT(text, HasSubstr("kiln_worker_run_seconds_count 3"));
  EXPECT_THAT(text, HasSubstr("kiln_worker_run_seconds_bucket{le=\"+Inf\"} 3"));
  EXPECT_THAT(text, Not(HasSubstr("without a row")));
  EXPECT_THAT(text, Not(HasSubstr("kiln_cache")));
}

TEST(MetricsEndpoint, AnswersScrapesWithWhatIsSoNow) {
  uint64_t requests = 1;
  auto endpoint = MetricsEndpoint::Start(MetricService::kWorker, "127.0.0.1:0", [&] {
    return MetricsSnapshot{{{"requests", requests++, ""}, ResidentBytes()}, {}};
  });
  ASSERT_TRUE(endpoint.has_value()) << ToString(endpoint.error());
  EXPECT_THAT(Scrape((*endpoint)->address()), HasSubstr("kiln_worker_requests_total 1"));
  const std::string second = Scrape((*endpoint)->address());
  EXPECT_THAT(second, HasSubstr("kiln_worker_requests_total 2"));
  EXPECT_THAT(second, HasSubstr("kiln_worker_resident_bytes "));
}

TEST(MetricsEndpoint, AnAddressThatCannotBeIsAnError) {
  const auto none = [] { return MetricsSnapshot{}; };
  EXPECT_EQ(MetricsEndpoint::Start(MetricService::kCache, "9100", none).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(MetricsEndpoint::Start(MetricService::kCache, "192.0.2.1:9100", none).error().code,
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace kiln
