// Latency of a model, request by request, per tier.
//
//   model_bench MODEL DATA_SET... [--tiers interpreter,generic,exact] [--threads N] [--rounds N] [--profile TIER]
//               [--serve]
//
// JSON lines on standard output. First {"event":"ready"}: the tiers with their plans and how far their answers are from
// the interpreter's. Then per tier {"event":"tier"}: p50 and p99 over all rounds, first-seen times per request, shares
// of time. With --serve a caller decides what runs next, so that it can take turns with another program: each line on
// standard input is "round TIER N" (N times through all requests), "first TIER" (once through, in a fresh context) or
// "shares TIER"; each is answered by one line.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/models/profile.h"
#include "bench/models/tier.h"
#include "cli/onnx_test/compiled_runner.h"
#include "common/numeric/difference.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::bench {
namespace {

using Json = nlohmann::json;

struct Flags {
  std::string model;
  std::vector<std::string> data_sets;
  std::vector<std::string> tiers{"interpreter", "generic", "exact"};
  int rounds = 15;
  int threads = 1;
  std::string profile;
  bool serve = false;
};

void Print(const Json& line) {
  std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

cli::StrictTier KindOf(const std::string& tier) {
  return tier == "exact" ? cli::StrictTier::kExact : cli::StrictTier::kGeneric;
}

struct Bench {
  std::shared_ptr<const LoadedProgram> program;
  std::vector<Request> requests;
  std::unique_ptr<onnx_test::CompiledServices> services;
  std::unique_ptr<KernelPool> pool;
  std::map<std::string, Tier> tiers;

  Result<Tier*> Find(const std::string& name) {
    const auto it = tiers.find(name);
    if (it == tiers.end()) return Fail(ErrorCode::kInvalidArgument, "no tier \"" + name + "\" was asked for");
    return &it->second;
  }
};

Result<Bench> Load(const Flags& flags) {
  Bench bench;
  ASSIGN_OR_RETURN(ImportedModel model, ImportOnnx(flags.model));
  ASSIGN_OR_RETURN(bench.program, LoadedProgram::Load(std::move(model.program)));
  ASSIGN_OR_RETURN(bench.requests, ReadRequests(bench.program->program(), flags.data_sets));
  const bool planned = !flags.profile.empty() ||
                       std::ranges::any_of(flags.tiers, [](const std::string& t) { return t != "interpreter"; });
  if (planned) {
    const auto directory = std::filesystem::temp_directory_path() / ("kiln-model-bench-" + std::to_string(getpid()));
    ASSIGN_OR_RETURN(bench.services, onnx_test::CompiledServices::Start(directory.string(), KILN_BIN_DIR));
  }
  bench.pool = std::make_unique<KernelPool>(flags.threads);
  for (const std::string& name : flags.tiers) {
    bench.tiers.emplace(name, name == "interpreter" ? Tier::Interpreter(bench.program)
                                                    : Tier::Planned(bench.program, bench.services->plan_services(),
                                                                    KindOf(name), bench.pool.get()));
  }
  return bench;
}

constexpr ErrorBound kBound{.scope = ErrorScope::kElement, .relative = 1e-3, .tiny = 1e-4};

// Obtains every plan and compares the answers; the first difference, if any.
Result<Json> PrepareTier(Bench& bench, Tier& tier, std::span<const std::vector<Tensor>> expected) {
  std::string difference;
  for (size_t i = 0; i < bench.requests.size(); ++i) {
    ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, tier.Prepare(bench.requests[i]));
    for (size_t k = 0; k < outputs.size() && difference.empty(); ++k)
      if (auto found = FirstDifference(expected[i][k].ref, outputs[k].ref, kBound))
        difference = bench.requests[i].name + ", output " + std::to_string(k) + ": " + *found;
  }
  tier.Renew();
  const TierPlans& plans = tier.plans();
  return Json{{"plans", plans.plans},
              {"kernels", plans.kernels},
              {"kernels_compiled", plans.kernels_compiled},
              {"generated_nodes", plans.generated_nodes},
              {"reference_nodes", plans.reference_nodes},
              {"obtain_ms", static_cast<double>(plans.obtain_ns) / 1e6},
              {"failure", plans.failure},
              {"difference", difference}};
}

Result<Json> Prepare(Bench& bench) {
  std::vector<std::vector<Tensor>> expected;
  VmContext context;
  for (const Request& request : bench.requests) {
    auto outputs = context.Run(*bench.program, request.inputs);
    if (!outputs.has_value()) return FailIn(request.name, outputs.error());
    expected.push_back(*std::move(outputs));
  }
  Json tiers = Json::object();
  for (auto& [name, tier] : bench.tiers) {
    ASSIGN_OR_RETURN(tiers[name], PrepareTier(bench, tier, expected));
  }
  return Json{{"event", "ready"},
              {"requests", bench.requests.size()},
              {"segments", bench.program->segments().size()},
              {"tiers", tiers}};
}

Result<Json> Round(Bench& bench, Tier& tier, int times) {
  Json cpu = Json::array(), wall = Json::array(), allocations = Json::array();
  for (int i = 0; i < times; ++i) {
    for (const Request& request : bench.requests) {
      ASSIGN_OR_RETURN(const Sample sample, tier.Run(request));
      cpu.push_back(sample.cpu_ns);
      wall.push_back(sample.wall_ns);
      allocations.push_back(sample.allocations);
    }
  }
  return Json{{"event", "round"},
              {"cpu_ns", std::move(cpu)},
              {"wall_ns", std::move(wall)},
              {"allocations", std::move(allocations)}};
}

Result<Json> First(Bench& bench, Tier& tier) {
  tier.Renew();
  return Round(bench, tier, 1);
}

Json SharesOf(const Tier& tier) {
  const Shares shares = tier.shares();
  return Json{{"kernels", shares.kernels}, {"reference", shares.reference}, {"interpreter", shares.interpreter}};
}

Result<Json> Answer(Bench& bench, const std::string& command) {
  std::istringstream words(command);
  std::string verb, name;
  int times = 1;
  words >> verb >> name >> times;
  ASSIGN_OR_RETURN(Tier * tier, bench.Find(name));
  if (verb == "round") return Round(bench, *tier, std::max(times, 1));
  if (verb == "first") return First(bench, *tier);
  if (verb == "shares") return SharesOf(*tier);
  return Fail(ErrorCode::kInvalidArgument, "\"" + verb + "\" is none of round, first, shares");
}

Status Serve(Bench& bench) {
  for (std::string command; std::getline(std::cin, command);) {
    ASSIGN_OR_RETURN(const Json answer, Answer(bench, command));
    Print(answer);
  }
  return {};
}

double Quantile(std::vector<int64_t> sorted, double q) {
  std::ranges::sort(sorted);
  return static_cast<double>(sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)]) / 1000;
}

// Rounds of all tiers in turn.
Status Measure(Bench& bench, int rounds) {
  std::map<std::string, std::vector<int64_t>> cpu;
  std::map<std::string, Json> first;
  for (auto& [name, tier] : bench.tiers) {
    ASSIGN_OR_RETURN(const Json answer, First(bench, tier));
    first[name] = answer["cpu_ns"];
  }
  for (int round = 0; round < rounds; ++round) {
    for (auto& [name, tier] : bench.tiers) {
      ASSIGN_OR_RETURN(const Json answer, Round(bench, tier, 1));
      for (const Json& ns : answer["cpu_ns"]) cpu[name].push_back(ns.get<int64_t>());
    }
  }
  for (auto& [name, tier] : bench.tiers) {
    Print({{"event", "tier"},
           {"tier", name},
           {"p50_us", Quantile(cpu[name], 0.5)},
           {"p99_us", Quantile(cpu[name], 0.99)},
           {"min_us", Quantile(cpu[name], 0)},
           {"first_seen_ns", first[name]},
           {"shares", SharesOf(tier)}});
  }
  return {};
}

Status Main(const Flags& flags) {
  ASSIGN_OR_RETURN(Bench bench, Load(flags));
  if (!flags.profile.empty()) {
    for (const Request& request : bench.requests) {
      ASSIGN_OR_RETURN(Json profile, ProfileSteps(bench.program, request, bench.services->plan_services(),
                                                  KindOf(flags.profile), flags.rounds));
      profile["event"] = "profile";
      profile["request"] = request.name;
      Print(profile);
    }
    return {};
  }
  ASSIGN_OR_RETURN(const Json ready, Prepare(bench));
  Print(ready);
  return flags.serve ? Serve(bench) : Measure(bench, flags.rounds);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  kiln::bench::Flags flags;
  CLI::App app("Latency of a model, request by request, per tier");
  app.add_option("model", flags.model, "An ONNX model")->required();
  app.add_option("data_sets", flags.data_sets, "Directories with input_0.pb, input_1.pb …: one request each")
      ->required();
  app.add_option("--tiers", flags.tiers, "interpreter, generic, exact")
      ->delimiter(',')
      ->check(CLI::IsMember({"interpreter", "generic", "exact"}));
  app.add_option("--threads", flags.threads, "Threads that a plan's large kernels run on")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "Times through all requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--profile", flags.profile, "Print the time per step of this tier's plans instead")
      ->check(CLI::IsMember({"generic", "exact"}));
  app.add_flag("--serve", flags.serve, "Take commands from standard input");
  CLI11_PARSE(app, argc, argv);
  const kiln::Status status = kiln::bench::Main(flags);
  if (status.has_value()) return 0;
  std::fprintf(stderr, "model_bench: %s\n", kiln::ToString(status.error()).c_str());
  return 1;
}
