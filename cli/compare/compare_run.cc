#include "cli/compare/compare_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "cli/compare/compare_hook.h"
#include "cli/compare/replay_file.h"
#include "cli/onnx_test/compiled_runner.h"
#include "cli/output_file.h"
#include "cli/say.h"
#include "vm-worker/explain/segment_names.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/onnx/model_source.h"
#include "vm-worker/service/model_registry.h"

namespace kiln::cli {
namespace {

void SayStep(const Plan& plan, const StepDifference& step, const std::vector<ExplainedNode>& nodes) {
  const PlanStep& at = plan.steps[step.step];
  const auto* kernel = std::get_if<KernelStep>(&at.step);
  const ExplainedNode& node = nodes[static_cast<size_t>(step.node)];
  Say("    first difference in step {} of {}: {}{}\n", step.step, plan.steps.size(), at.label,
      kernel == nullptr ? " (reference step)"
                        : " [kernel " + plan.kernels[static_cast<size_t>(kernel->kernel)].ShortHex() + "]");
  Say("      value of {}{}: {}\n", node.op, node.name.empty() ? "" : " \"" + node.name + "\"", step.detail);
}

void PrintDifference(const SegmentCase& call, const CaseDifference& difference,
                     const std::vector<ExplainedNode>& nodes) {
  const Plan& plan = call.plan->plan();
  Say("    plan {}{}\n    {}\n", call.plan->key().ShortHex(),
      difference.undecided ? " (undecided: only behind a decision on inexact floats)" : "", difference.detail);
  if (difference.step) {
    SayStep(plan, *difference.step, nodes);
  } else {
    Say("    no single step shows it: the values that differ are inside fused steps\n");
  }
}

// Plans of one tier; a segment that is called with several shapes keeps what admits them.
CompareHook::PlanProvider PlansOf(const PlanServices& services, StrictTier tier) {
  auto plans = std::make_shared<std::map<int, std::vector<std::shared_ptr<const LinkedPlan>>>>();
  return [services, tier, plans](const SegmentEntry& entry, const Segment& segment,
                                 const std::vector<int64_t>& values) -> Result<std::shared_ptr<const LinkedPlan>> {
    for (const auto& plan : (*plans)[entry.segment])
      if (Admits(*plan, values, entry)) return plan;
    ASSIGN_OR_RETURN(ObtainedPlan obtained, ObtainPlan(services, tier, entry, segment, values));
    (*plans)[entry.segment].push_back(obtained.plan);
    return obtained.plan;
  };
}

Status ReportFinding(const CompareFlags& flags, const LoadedProgram& program, const CompareHook::Finding& finding) {
  const SegmentNames names(program, static_cast<size_t>(finding.segment));
  Say("  segment {} differs\n", finding.segment);
  PrintDifference(finding.call, finding.difference, names.nodes());
  ReplayText text{flags.model, finding.segment, finding.difference.detail, flags.inputs.seed, flags.keep_tensors};
  RETURN_IF_ERROR(WriteReplay(flags.replay, text, finding.call));
  ASSIGN_OR_RETURN(const auto replay, ReadReplay(flags.replay));
  const auto again = CompareCase(replay->call);
  const bool shows = again.has_value() && again->has_value();
  Say("    {} written; it shows the difference {}\n", flags.replay,
      shows                ? "by itself"
      : flags.keep_tensors ? "not: the fault does not repeat"
                           : "with these very values only: --keep-tensors puts them in");
  return {};
}

Result<bool> CompareTier(const CompareFlags& flags, const PlanServices& services, StrictTier tier,
                         const LoadedProgram& program, std::span<const TensorRef> inputs) {
  CompareHook hook(PlansOf(services, tier));
  RunOptions options;
  options.hook = &hook;
  VmContext context;
  ASSIGN_OR_RETURN([[maybe_unused]] auto outputs, context.Run(program, inputs, options));
  Say("{} plans: {} segment calls compared, {} differ, {} without a plan\n",
      tier == StrictTier::kGeneric ? "generic" : "exact", hook.compared(), hook.findings().size(),
      hook.failures().size());
  for (const std::string& failure : hook.failures()) Say("  {}\n", failure);
  bool wrong = false;
  for (const CompareHook::Finding& finding : hook.findings()) {
    if (!wrong && !finding.difference.undecided) {
      RETURN_IF_ERROR(ReportFinding(flags, program, finding));
    } else {
      Say("  segment {} differs{}: {}\n", finding.segment, finding.difference.undecided ? " behind a decision" : "",
          finding.difference.detail);
    }
    wrong |= !finding.difference.undecided;
  }
  return wrong;
}

// The file that a difference is written to is none that the run reads.
Status CheckReplayPath(const CompareFlags& flags, const ImportedModel& imported) {
  std::vector<std::filesystem::path> sources = imported.weight_files;
  sources.emplace_back(flags.model);
  for (const std::string& input : flags.inputs.files) sources.emplace_back(input.substr(input.find('=') + 1));
  return CheckIsNoSource(flags.replay, sources);
}

}  // namespace

Result<int> RunCompare(const CompareFlags& flags) {
  ASSIGN_OR_RETURN(ImportedModel imported, ReadModel(flags.model));
  RETURN_IF_ERROR(CheckReplayPath(flags, imported));
  LoadReply declared;
  for (const ImportedValue& input : imported.inputs)
    declared.inputs.push_back(InfoOfValue(input.name, input.desc, imported.program.symbols));
  ASSIGN_OR_RETURN(const auto program, LoadedProgram::Load(std::move(imported.program)));
  ASSIGN_OR_RETURN(RunInputs source, RunInputs::Parse(flags.inputs.dims, flags.inputs.files, flags.inputs.seed));
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, source.Next(declared));
  std::vector<TensorRef> inputs;
  for (const NamedTensor& tensor : tensors) inputs.push_back(tensor.tensor.ref);
  const auto directory = std::filesystem::temp_directory_path() / ("kiln-compare-" + std::to_string(getpid()));
  ASSIGN_OR_RETURN(const auto services, onnx_test::CompiledServices::Start(directory.string()));
  bool wrong = false;
  for (const StrictTier tier : {StrictTier::kGeneric, StrictTier::kExact}) {
    ASSIGN_OR_RETURN(const bool found, CompareTier(flags, services->plan_services(), tier, *program, inputs));
    if (wrong |= found; wrong) break;
  }
  return wrong ? 1 : 0;
}

Result<int> RunReplay(const std::string& path) {
  ASSIGN_OR_RETURN(const auto replay, ReadReplay(path));
  Say("segment {} of {}, plan {}; {}\n  found then: {}\n", replay->text.segment_index, replay->text.model,
      replay->call.plan->key().ShortHex(),
      replay->text.keep_tensors ? "the values that showed it" : fmt::format("values from seed {}", replay->text.seed),
      replay->text.difference);
  ASSIGN_OR_RETURN(const auto difference, CompareCase(replay->call));
  if (!difference) {
    Say("  now: plan and interpreter agree\n");
    return 0;
  }
  std::vector<ExplainedNode> nodes;
  for (const Node& node : replay->segment->body.entry().regions[0].nodes)
    nodes.push_back({"", std::string(OpInfo(node.op).name)});
  Say("  now:\n");
  PrintDifference(replay->call, *difference, nodes);
  return 1;
}

}  // namespace kiln::cli
