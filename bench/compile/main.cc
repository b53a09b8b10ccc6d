// Compile time of a model's plans by stage, what they share, and how large their code is.
//
//   compile_bench MODEL DATA_SET... [--target NAME] [--kernels] [--json FILE]
//
// One line per plan, generic plans first, then exact ones for every different shape, in one order; kernels known from
// an earlier line are reused as the cache store lets a service reuse them. --kernels adds a line per kernel, --json
// writes the plans as a list.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/compile/segments.h"
#include "bench/compile/stages.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::bench {
namespace {

using Json = nlohmann::json;

struct Flags {
  std::string model;
  std::vector<std::string> data_sets;
  std::string target, json;
  bool kernels = false;
};

// Prints the plan's line; its row.
Json Report(const Flags& flags, const EnteredSegment& entered, bool exact, const PlanFigures& plan) {
  double emit = 0, codegen = 0, validate = 0, validate_max = 0;
  uint32_t trials = 0;
  for (const KernelFigures& kernel : plan.compiled) {
    emit += kernel.emit_ms;
    codegen += kernel.codegen_ms;
    validate += kernel.validate_ms;
    validate_max = std::max(validate_max, kernel.validate_ms);
    trials += kernel.trials;
    if (flags.kernels)
      std::printf("  %-12s %6zu bytes, emission %6.2f ms, LLVM %6.2f ms, %u trials %6.2f ms\n", kernel.kind.c_str(),
                  kernel.code_bytes, kernel.emit_ms, kernel.codegen_ms, kernel.trials, kernel.validate_ms);
  }
  std::printf(
      "segment %3d %-7s %4zu steps, %3zu kernels (%3zu reused), %7zu bytes of code; ms: lowering %6.1f, emission "
      "%6.1f, "
      "LLVM %7.1f, %4u trials %7.1f (worst %6.1f)\n",
      entered.segment, exact ? "exact" : "generic", plan.steps, plan.kernels, plan.reused, plan.code_bytes,
      plan.lower_ms, emit, codegen, trials, validate, validate_max);
  std::fflush(stdout);
  return {{"model", std::filesystem::path(flags.model).stem().string()},
          {"segment", entered.segment},
          {"tier", exact ? "exact" : "generic"},
          {"values", entered.values},
          {"steps", plan.steps},
          {"kernels", plan.kernels},
          {"kernels_reused", plan.reused},
          {"code_bytes", plan.code_bytes},
          {"generated_nodes", plan.generated_nodes},
          {"reference_nodes", plan.reference_nodes},
          {"lower_ms", plan.lower_ms},
          {"emit_ms", emit},
          {"codegen_ms", codegen},
          {"validate_ms", validate},
          {"validate_ms_max", validate_max},
          {"trials", trials}};
}

Status Main(const Flags& flags) {
  ASSIGN_OR_RETURN(ImportedModel model, ImportOnnx(flags.model));
  ASSIGN_OR_RETURN(const auto program, LoadedProgram::Load(std::move(model.program)));
  ASSIGN_OR_RETURN(const std::vector<Request> requests, ReadRequests(program->program(), flags.data_sets));
  ASSIGN_OR_RETURN(const std::vector<EnteredSegment> entered, SegmentsOf(*program, requests));
  std::optional<Target> target = TargetFromName(flags.target);
  if (!target && !HostTargets().empty()) target = HostTargets().front();
  if (!target) return Fail(ErrorCode::kTargetMismatch, "no target that kernels can be made for; give --target");
  ASSIGN_OR_RETURN(CompileStages stages, CompileStages::Create(*target));
  std::set<int> generic;
  Json rows = Json::array();
  for (const bool exact : {false, true}) {
    for (const EnteredSegment& entry : entered) {
      if (!exact && !generic.insert(entry.segment).second) continue;
      const Segment& segment = program->segments()[static_cast<size_t>(entry.segment)];
      auto plan = stages.Plan(segment, entry.values, exact);
      if (!plan.has_value()) return FailIn("segment " + std::to_string(entry.segment), plan.error());
      rows.push_back(Report(flags, entry, exact, *plan));
    }
  }
  if (!flags.json.empty()) std::ofstream(flags.json) << rows.dump(1) << "\n";
  return {};
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  kiln::bench::Flags flags;
  CLI::App app("compile time of a model's plans by stage");
  app.add_option("model", flags.model)->required();
  app.add_option("data_sets", flags.data_sets)->required();
  app.add_option("--target", flags.target, "default: the host's");
  app.add_option("--json", flags.json, "file for the plans as a list");
  app.add_flag("--kernels", flags.kernels, "a line per kernel too");
  CLI11_PARSE(app, argc, argv);
  const kiln::Status status = kiln::bench::Main(flags);
  if (status.has_value()) return 0;
  std::fprintf(stderr, "%s\n", kiln::ToString(status.error()).c_str());
  return 1;
}
