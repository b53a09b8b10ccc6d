// Single kernels beside oneDNN, OpenBLAS and compiled plain loops, on one thread, taking turns.
//
//   micro_bench [FILTER] [--rounds N] [--json FILE]
//
// CPU microseconds, medians over the rounds; ratios are medians of the ratio within a round. Answers are compared
// first.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/kernels/fma_peak.h"
#include "bench/micro/cases.h"
#include "bench/micro/dnnl_peer.h"
#include "bench/micro/peaks.h"

extern "C" {
char* openblas_get_corename(void);
void openblas_set_num_threads(int);
}

namespace kiln::bench {
namespace {

constexpr double kRoundSeconds = 0.002;
constexpr double kTolerance = 2e-3;  // of 1 + |value|

struct Flags {
  std::string filter, json;
  int rounds = 9;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// OpenBLAS reads its core when it is loaded: the benchmark starts itself again with the one that fits this host.
Status ChooseCore(char** argv) {
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  const char* wanted = avx512 ? "SkylakeX" : "Haswell";
  const char* given = std::getenv("OPENBLAS_CORETYPE");
  if (given == nullptr || std::strcmp(given, wanted) != 0) {
    setenv("OPENBLAS_CORETYPE", wanted, 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
    return Fail(ErrorCode::kIoError, "cannot start again with OPENBLAS_CORETYPE set");
  }
  openblas_set_num_threads(1);
  std::string core = openblas_get_corename();
  std::printf("# OpenBLAS core %s, oneDNN %s\n", core.c_str(), onednn::Version().c_str());
  std::transform(core.begin(), core.end(), core.begin(), [](unsigned char c) { return std::tolower(c); });
  if (avx512 && core == "haswell")
    return Fail(ErrorCode::kTargetMismatch, "OpenBLAS runs Haswell kernels on a host with AVX-512: no fair opponent");
  return {};
}

Status Compare(std::span<const float> kiln, const PeerRun& peer) {
  if (peer.output == nullptr) return {};
  for (size_t i = 0; i < kiln.size(); ++i)
    if (!(std::abs(kiln[i] - peer.output[i]) <= kTolerance * (1 + std::abs(peer.output[i]))))
      return Fail(ErrorCode::kInternal, peer.peer + " gives " + std::to_string(peer.output[i]) + " at element " +
                                            std::to_string(i) + ", Kiln " + std::to_string(kiln[i]));
  return {};
}

struct Entrant {
  std::string name, version;
  std::function<void()> run;
  int repeats = 1;
  std::vector<double> us;
};

double SecondsOf(const std::function<void()>& run, int repeats) {
  const double start = ThreadSeconds();
  for (int i = 0; i < repeats; ++i) run();
  return (ThreadSeconds() - start) / repeats;
}

void TakeTurns(std::vector<Entrant>& entrants, int rounds) {
  for (Entrant& entrant : entrants)
    entrant.repeats = std::max(1, static_cast<int>(kRoundSeconds / std::max(SecondsOf(entrant.run, 2), 1e-8)));
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < entrants.size(); ++i) {
      Entrant& entrant = entrants[(i + static_cast<size_t>(round)) % entrants.size()];
      entrant.us.push_back(1e6 * SecondsOf(entrant.run, entrant.repeats));
    }
}

double RatioOf(const Entrant& peer, const Entrant& kiln) {
  std::vector<double> ratios;
  for (size_t i = 0; i < kiln.us.size(); ++i) ratios.push_back(peer.us[i] / kiln.us[i]);
  return Median(std::move(ratios));
}

// Adds the case's rows and prints its line.
Status Measure(const MicroCase& test, const Flags& flags, Target target, codegen::KernelCompiler& compiler,
               nlohmann::json& rows) {
  ASSIGN_OR_RETURN(const auto exact, PlanRunner::Create(test.program, test.size, true, target, compiler));
  ASSIGN_OR_RETURN(const auto generic, PlanRunner::Create(test.program, test.size, false, target, compiler));
  std::vector<Entrant> entrants = {{"kiln", "", [&] { (void)exact->Run(); }},
                                   {"generic", "", [&] { (void)generic->Run(); }}};
  RETURN_IF_ERROR(exact->Run());
  RETURN_IF_ERROR(generic->Run());
  for (PeerRun& peer : test.peers(*exact)) {
    peer.run();
    RETURN_IF_ERROR(Compare(exact->output(0), peer));
    RETURN_IF_ERROR(Compare(generic->output(0), peer));
    entrants.push_back({peer.peer, peer.version, std::move(peer.run)});
  }
  if (test.isolated) {
    RETURN_IF_ERROR(exact->Isolate());
    RETURN_IF_ERROR(generic->Isolate());
  }
  std::vector<double> peaks;
  for (int i = 0; i < 3; ++i) peaks.push_back(MeasurePeak(target));
  TakeTurns(entrants, flags.rounds);
  for (int i = 0; i < 3; ++i) peaks.push_back(MeasurePeak(target));
  const double kiln_us = Median(entrants[0].us), peak = Median(peaks), bandwidth = MeasureReadBandwidth();
  std::printf("%-32s %9.1f us, generic %9.1f", test.name.c_str(), kiln_us, Median(entrants[1].us));
  if (test.flops > 0)
    std::printf(" | %6.1f GF/s %3.0f %%", test.flops / kiln_us * 1e-3, test.flops / kiln_us * 0.1 / peak);
  std::printf(" | %5.1f GB/s |", test.bytes / kiln_us * 1e-3);
  for (size_t i = 2; i < entrants.size(); ++i) {
    const double ratio = RatioOf(entrants[i], entrants[0]);
    std::printf(" %s %.1f (%.2fx)", entrants[i].name.c_str(), Median(entrants[i].us), ratio);
    rows.push_back({{"group", test.group},
                    {"name", test.name},
                    {"threads", 1},
                    {"steps", test.isolated ? 1 : exact->steps()},
                    {"peer", entrants[i].name},
                    {"peer_version", entrants[i].version},
                    {"peer_p50_us", Median(entrants[i].us)},
                    {"kiln_p50_us", kiln_us},
                    {"kiln_generic_p50_us", Median(entrants[1].us)},
                    {"peer_over_kiln", ratio},
                    {"flops", test.flops},
                    {"bytes", test.bytes},
                    {"peak_gflops", peak},
                    {"peak_read_gbps", bandwidth}});
  }
  std::printf("\n");
  std::fflush(stdout);
  return {};
}

void Summary(const nlohmann::json& rows) {
  std::map<std::pair<std::string, std::string>, std::vector<double>> ratios;
  for (const nlohmann::json& row : rows)
    ratios[{row["group"], row["peer"]}].push_back(std::log(row["peer_over_kiln"].get<double>()));
  for (const auto& [key, logs] : ratios) {
    double sum = 0;
    for (double value : logs) sum += value;
    std::printf("%-10s %-9s %2zu cases, geometric mean of peer/kiln %.2f, least %.2f\n", key.first.c_str(),
                key.second.c_str(), logs.size(), std::exp(sum / static_cast<double>(logs.size())),
                std::exp(*std::min_element(logs.begin(), logs.end())));
  }
}

Status Main(const Flags& flags, char** argv) {
  RETURN_IF_ERROR(ChooseCore(argv));
  if (HostTargets().empty()) return Fail(ErrorCode::kTargetMismatch, "no target for this host");
  const Target target = HostTargets().front();
  ASSIGN_OR_RETURN(auto compiler, codegen::KernelCompiler::Create(target));
  nlohmann::json rows = nlohmann::json::array();
  bool failed = false;
  for (const MicroCase& test : AllCases()) {
    if (test.name.find(flags.filter) == std::string::npos) continue;
    if (const Status status = Measure(test, flags, target, *compiler, rows); !status.has_value()) {
      failed = failed || status.error().code != ErrorCode::kUnsupported;  // no kernel: reported, no failure
      std::printf("%-32s not measured: %s\n", test.name.c_str(), ToString(status.error()).c_str());
    }
  }
  Summary(rows);
  if (!flags.json.empty()) std::ofstream(flags.json) << rows.dump(1) << "\n";
  if (failed) return Fail(ErrorCode::kInternal, "some cases failed");
  return {};
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  kiln::bench::Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
      flags.rounds = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc)
      flags.json = argv[++i];
    else
      flags.filter = argv[i];
  }
  const kiln::Status status = kiln::bench::Main(flags, argv);
  if (status.has_value()) return 0;
  std::fprintf(stderr, "%s\n", kiln::ToString(status.error()).c_str());
  return 1;
}
