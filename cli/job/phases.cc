#include "cli/job/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/messaging/rpc_client.h"

namespace kiln::cli {
namespace {

constexpr int64_t kRequestDeadlineMs = 60'000;
constexpr int64_t kStatsDeadlineMs = 5'000;
constexpr std::string_view kMissPrefix = "miss_", kMissTimePrefix = "miss_ns_";

uint64_t Percentile(std::vector<uint64_t> values, double share) {
  if (values.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

}  // namespace

Status PhaseRunner::Begin(std::string name, bool with_start) {
  figures_ = {};
  figures_.name = std::move(name);
  timings_.clear();
  latencies_us_.clear();
  answers_.clear();
  before_.clear();
  if (with_start) return {};
  ASSIGN_OR_RETURN(before_, Counters());
  return {};
}

Result<std::map<std::string, uint64_t>> PhaseRunner::Counters() const {
  std::map<std::string, uint64_t> sums;
  for (RpcClient* worker : workers_) {
    ASSIGN_OR_RETURN(WorkerStatsReply reply, CallStats(*worker, {}, kStatsDeadlineMs));
    for (const auto& [name, value] : reply.stats) sums[name] += value;
  }
  return sums;
}

Status PhaseRunner::Send(const TextLine& line) {
  const int64_t start = SystemClock().NowNs();
  RpcClient& worker = *workers_[latencies_us_.size() % workers_.size()];
  ASSIGN_OR_RETURN(RunReply reply, CallRun(worker, {model_, {{input_, line.input}}}, kRequestDeadlineMs));
  latencies_us_.push_back(static_cast<uint64_t>((SystemClock().NowNs() - start) / 1000));
  timings_.push_back(reply.timing);
  if (reply.outputs.empty()) return Fail(ErrorCode::kMalformed, "the worker answered without outputs");
  answers_.push_back({&line, std::move(reply.outputs[0].tensor)});
  return {};
}

Result<PhaseFigures> PhaseRunner::Finish(std::set<int64_t>& seen) {
  ASSIGN_OR_RETURN(auto after, Counters());
  figures_.requests = latencies_us_.size();
  figures_.p50_us = Percentile(latencies_us_, 0.5);
  figures_.p99_us = Percentile(latencies_us_, 0.99);
  double run = 0, kernel = 0, reference = 0;
  for (const RunTiming& timing : timings_) {
    run += static_cast<double>(timing.run_us);
    kernel += static_cast<double>(timing.kernel_us);
    reference += static_cast<double>(timing.reference_us);
  }
  if (run > 0) {
    figures_.share_kernels = kernel / run;
    figures_.share_reference = reference / run;
    figures_.share_interpreter = std::max(0.0, 1 - figures_.share_kernels - figures_.share_reference);
  }
  const auto grown = [&](const std::string& name) { return after[name] - before_[name]; };
  figures_.compiles = grown("compiled");
  figures_.fetched = grown("fetched");
  figures_.rejected = grown("rejected");
  for (const auto& [name, value] : after)
    if (name.starts_with(kMissPrefix) && !name.starts_with(kMissTimePrefix) && grown(name) > 0)
      figures_.misses.emplace_back(name.substr(kMissPrefix.size()), grown(name));
  std::set<int64_t> widths;
  for (const Answer& answer : answers_) widths.insert(answer.line->width);
  const auto fresh = std::count_if(widths.begin(), widths.end(), [&](int64_t width) { return !seen.contains(width); });
  if (!widths.empty()) figures_.unseen_shape_share = static_cast<double>(fresh) / static_cast<double>(widths.size());
  seen.insert(widths.begin(), widths.end());
  return figures_;
}

std::string PhaseTable(const std::vector<PhaseFigures>& phases) {
  std::string table =
      fmt::format("{:<8}{:>10}{:>11}{:>11}{:>10}{:>11}{:>13}{:>10}{:>9}{:>10}{:>8}\n", "phase", "requests", "p50 ms",
                  "p99 ms", "kernels", "reference", "interpreter", "compiled", "fetched", "rejected", "unseen");
  for (const PhaseFigures& p : phases)
    table += fmt::format("{:<8}{:>10}{:>11.2f}{:>11.2f}{:>9.1f}%{:>10.1f}%{:>12.1f}%{:>10}{:>9}{:>10}{:>7.0f}%\n",
                         p.name, p.requests, static_cast<double>(p.p50_us) / 1000, static_cast<double>(p.p99_us) / 1000,
                         100 * p.share_kernels, 100 * p.share_reference, 100 * p.share_interpreter, p.compiles,
                         p.fetched, p.rejected, 100 * p.unseen_shape_share);
  table += "segment calls answered by the interpreter, by reason:";
  for (const PhaseFigures& p : phases) {
    table += "\n  " + p.name + ":";
    if (p.misses.empty()) table += " none";
    for (const auto& [reason, count] : p.misses) table += fmt::format(" {} {}", reason, count);
  }
  return table + "\n";
}

std::string PhasesAsJson(const std::string& model, uint64_t mismatches, const std::vector<PhaseFigures>& phases) {
  nlohmann::json root{{"model", model}, {"mismatches", mismatches}, {"phases", nlohmann::json::array()}};
  for (const PhaseFigures& p : phases)
    root["phases"].push_back({{"name", p.name},
                              {"requests", p.requests},
                              {"p50_us", p.p50_us},
                              {"p99_us", p.p99_us},
                              {"share_kernels", p.share_kernels},
                              {"share_reference", p.share_reference},
                              {"share_interpreter", p.share_interpreter},
                              {"compiles", p.compiles},
                              {"fetched", p.fetched},
                              {"rejected", p.rejected},
                              {"unseen_shape_share", p.unseen_shape_share}});
  return root.dump(2) + "\n";
}

}  // namespace kiln::cli
