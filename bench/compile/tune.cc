// What measured tiles gain: for every exact plan that the data sets enter, the hottest kernels are made in their other
// forms and timed, as the compile service does for the tuned tier, and the model is run with and without the winners.
//
//   tune_bench MODEL DATA_SET... [--rounds N] [--json FILE]
//
// A line per kernel whose forms were timed, and one per request: medians of runs in turns over the same inputs and
// weights, CPU time of one thread. The control is a second copy of the plans as they are: what its ratio differs from 1
// is chance.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/compile/segments.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/ir/spec_form.h"
#include "compile-service/jobs/tune_kernels.h"
#include "compile-service/lower/tuning.h"
#include "compile-service/validate/time_kernels.h"
#include "vm-worker/dispatch/segment_call.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::bench {
namespace {

using Json = nlohmann::json;

struct Flags {
  std::string model;
  std::vector<std::string> data_sets;
  std::string json;
  int rounds = 15;
};

using Key = std::pair<int, std::vector<int64_t>>;  // segment, values
enum Kind : size_t { kPlain, kTuned, kControl };

// Plans of one kind, for every entry of the data sets.
class Plans final : public SegmentHook {
 public:
  explicit Plans(const LoadedProgram& program) : program_(program), packer_(InterpretRecipe) {}

  Status Add(const Key& key, const lower::LoweredSegment& lowered, codegen::KernelCompiler& compiler, Target target) {
    auto plan = std::make_shared<Plan>(lowered.plan);
    std::vector<std::span<const uint8_t>> blobs;
    for (const ir::KernelSpec& spec : lowered.specs) {
      auto& code = codes_[ir::EncodeSpec(spec)];
      if (code.empty()) {
        ASSIGN_OR_RETURN(codegen::KernelCode compiled, compiler.Compile(spec));
        code = std::move(compiled.bytes);
      }
      plan->kernels.push_back(HashBytes(code));
      blobs.push_back(code);
    }
    const auto site = static_cast<size_t>(key.first);
    ASSIGN_OR_RETURN(auto mapping, CodeMapping::Map(plan->kernels, blobs, target));
    ASSIGN_OR_RETURN(auto linked, LinkedPlan::Link(plan, ComputePlanKey(*plan), program_.segments()[site],
                                                   std::move(mapping), program_.weights(key.first), packer_));
    ASSIGN_OR_RETURN(instances_[key], PlanInstance::Instantiate(std::move(linked), key.second));
    return {};
  }

  SegmentVerdict Enter(const SegmentEntry& entry) override {
    const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
    Key key{entry.segment, std::vector<int64_t>(segment.symbols.size(), -1)};
    if (!BindSymbols(segment, entry.inputs, entry.parameters, key.second).has_value())
      return SegmentVerdict::kInterpret;
    const auto found = instances_.find(key);
    if (found == instances_.end()) return SegmentVerdict::kInterpret;
    const std::vector<uint32_t> copies = InputsToCopy(found->second->linked().plan().guard, entry.inputs);
    int64_t reference_ns = 0;
    if (!RunOnEntry(*found->second, entry, copies, tables_, reference_ns).has_value())
      return SegmentVerdict::kInterpret;
    return SegmentVerdict::kExecuted;
  }
  void Leave(const SegmentEntry&, int64_t) override {}

 private:
  const LoadedProgram& program_;
  PackedWeights packer_;
  std::map<std::vector<uint8_t>, std::vector<uint8_t>> codes_;  // by canonical bytes of the spec
  std::map<Key, std::unique_ptr<PlanInstance>> instances_;
  SegmentCallTables tables_;
};

// Times the forms of one kernel; the chosen one.
struct KernelTimes {
  double own_ns = 0, chosen_ns = 0;
};
Result<uint32_t> Choose(const lower::Tunable& tunable, codegen::KernelCompiler& compiler, Target target, Json& rows,
                        KernelTimes& times) {
  std::vector<std::vector<uint8_t>> codes;
  std::vector<KernelForm> forms;
  for (const ir::KernelSpec& form : tunable.forms) {
    ASSIGN_OR_RETURN(codegen::KernelCode code, compiler.Compile(form));
    codes.push_back(std::move(code.bytes));
  }
  for (size_t f = 0; f < codes.size(); ++f) forms.push_back({tunable.forms[f], codes[f]});
  std::vector<FormCall> calls;
  for (const lower::TunedCall& call : tunable.calls) calls.push_back({call.dims, call.uses});
  ASSIGN_OR_RETURN(const std::vector<int64_t> ns, TimeKernels(forms, target, calls, kTuneBudgetMs));
  const uint32_t chosen = FastestForm(ns);
  Json choices = Json::array();
  std::string line;
  for (size_t f = 0; f < forms.size(); ++f) {
    const std::string what(ir::SpecForm(tunable.forms[f]));
    choices.push_back({{"form", what}, {"ns", ns[f]}});
    line += (f == 0 ? "" : "; ") + what + " " + std::to_string(ns[f] / 1000) + " us" + (f == chosen ? " (taken)" : "");
  }
  std::printf("  %s\n", line.c_str());
  rows.push_back({{"chosen", chosen}, {"choices", choices}});
  times.own_ns += static_cast<double>(ns[0]);
  times.chosen_ns += static_cast<double>(ns[chosen]);
  return chosen;
}

Status Prepare(const LoadedProgram& program, const EnteredSegment& entered, Target target,
               codegen::KernelCompiler& compiler, std::span<Plans, 3> plans, Json& rows, KernelTimes& times) {
  const Segment& segment = program.segments()[static_cast<size_t>(entered.segment)];
  lower::LowerRequest request{segment, target, NumericMode::kDefault, entered.values, {}};
  for (const int64_t value : entered.values)
    request.symbols.push_back(value < 0 ? lower::SymbolChoice{}
                                        : lower::SymbolChoice{lower::SymbolChoice::Kind::kExact, value, value, 1});
  ASSIGN_OR_RETURN(lower::LoweredSegment lowered, lower::LowerSegment(request));
  const Key key{entered.segment, entered.values};
  for (const size_t kind : {kPlain, kControl}) RETURN_IF_ERROR(plans[kind].Add(key, lowered, compiler, target));
  const std::vector<lower::Tunable> tunable = lower::FindTunable(lowered, target, entered.values);
  std::vector<uint32_t> chosen;
  for (const lower::Tunable& kernel : tunable) {
    ASSIGN_OR_RETURN(const uint32_t form, Choose(kernel, compiler, target, rows, times));
    chosen.push_back(form);
  }
  RETURN_IF_ERROR(lower::TakeForms(lowered, target, tunable, chosen));
  return plans[kTuned].Add(key, lowered, compiler, target);
}

int64_t ThreadNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Result<int64_t> RunNs(const LoadedProgram& program, VmContext& context, const Request& request, Plans& plans) {
  RunOptions options;
  options.hook = &plans;
  const int64_t start = ThreadNs();
  const auto outputs = context.RunBorrowed(program, request.inputs, options);
  if (!outputs.has_value()) return FailIn(request.name, outputs.error());
  return ThreadNs() - start;
}

double Median(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

// Beside the rows that the file has of other models.
void WriteRows(const std::string& path, Json rows) {
  std::ifstream file(path);
  const Json before = Json::parse(file, nullptr, false);
  Json all = Json::array();
  if (before.is_array())
    for (const Json& row : before)
      if (row.value("model", "") != rows.at(0).at("model")) all.push_back(row);
  for (Json& row : rows) all.push_back(std::move(row));
  std::ofstream(path) << all.dump(1) << "\n";
}

Status Main(const Flags& flags) {
  ASSIGN_OR_RETURN(ImportedModel model, ImportOnnx(flags.model));
  ASSIGN_OR_RETURN(const auto program, LoadedProgram::Load(std::move(model.program)));
  ASSIGN_OR_RETURN(const std::vector<Request> requests, ReadRequests(program->program(), flags.data_sets));
  ASSIGN_OR_RETURN(const std::vector<EnteredSegment> entered, SegmentsOf(*program, requests));
  if (HostTargets().empty()) return Fail(ErrorCode::kTargetMismatch, "no kernels are made for this processor");
  const Target target = HostTargets().front();
  ASSIGN_OR_RETURN(const auto compiler, codegen::KernelCompiler::Create(target));
  std::array<Plans, 3> plans{Plans(*program), Plans(*program), Plans(*program)};
  Json kernels = Json::array(), rows = Json::array();
  KernelTimes times;
  for (const EnteredSegment& entry : entered)
    RETURN_IF_ERROR(Prepare(*program, entry, target, *compiler, plans, kernels, times));
  const double kernel_ratio = times.chosen_ns > 0 ? times.own_ns / times.chosen_ns : 1;
  std::printf("timed kernels: %.1f us, fastest forms %.1f us, ratio %.3f\n", times.own_ns / 1e3, times.chosen_ns / 1e3,
              kernel_ratio);
  VmContext context;
  for (const Request& request : requests) {
    std::array<std::vector<int64_t>, 3> taken;
    for (size_t turn = 0; turn < 3 * static_cast<size_t>(flags.rounds); ++turn) {
      const size_t kind = (turn + turn / 3) % 3;  // each kind in each place
      ASSIGN_OR_RETURN(const int64_t ns, RunNs(*program, context, request, plans[kind]));
      taken[kind].push_back(ns);
    }
    const double plain = Median(taken[kPlain]), tuned = Median(taken[kTuned]), control = Median(taken[kControl]);
    const std::string model_name = std::filesystem::path(flags.model).stem().string();
    std::printf("%s %s: %.1f us, tuned %.1f us, ratio %.3f (control %.3f)\n", model_name.c_str(), request.name.c_str(),
                plain / 1e3, tuned / 1e3, plain / tuned, plain / control);
    rows.push_back({{"model", model_name},
                    {"request", request.name},
                    {"rounds", flags.rounds},
                    {"default_p50_us", plain / 1e3},
                    {"tuned_p50_us", tuned / 1e3},
                    {"default_over_tuned", plain / tuned},
                    {"default_over_control", plain / control},
                    {"timed_kernels_default_over_fastest", kernel_ratio},
                    {"timed_kernels", kernels}});
  }
  if (!flags.json.empty()) WriteRows(flags.json, std::move(rows));
  return {};
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  kiln::bench::Flags flags;
  CLI::App app("what measured tiles gain");
  app.add_option("model", flags.model)->required();
  app.add_option("data_sets", flags.data_sets)->required();
  app.add_option("--rounds", flags.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--json", flags.json, "file for the figures");
  CLI11_PARSE(app, argc, argv);
  const kiln::Status status = kiln::bench::Main(flags);
  if (status.has_value()) return 0;
  std::fprintf(stderr, "%s\n", kiln::ToString(status.error()).c_str());
  return 1;
}
