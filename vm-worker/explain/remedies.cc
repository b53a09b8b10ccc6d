#include "vm-worker/explain/remedies.h"

#include <fmt/format.h>

#include <set>

#include "common/artifact/target_text.h"
#include "common/ops/tensor_op.h"

namespace kiln {
namespace {

double Ms(uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

std::string ColdText(const SegmentStatus& status, const TierPolicy& policy) {
  const Model::Totals& totals = status.totals;
  return fmt::format(
      "a plan is asked for after {} runs and {:.0f} ms in the interpreter; so far {} runs and {:.1f} ms (--hot-runs, "
      "--hot-ms)",
      std::max(policy.hot_runs, policy.warm_up_runs + 1), Ms(policy.hot_ns), totals.interpreted_calls,
      Ms(totals.interpreted_ns));
}

// Why a published plan leaves calls to the interpreter, if it does.
std::string MissText(const SegmentStatus& status, const TierPolicy& policy) {
  if (status.totals.guard_misses == 0) return "";
  if (status.published.size() >= policy.plans_max)
    return fmt::format(
        "{} calls were admitted by no plan, and the segment's budget of {} plans is used up: raise it (--plans)",
        status.totals.guard_misses, policy.plans_max);
  return fmt::format(
      "{} calls were admitted by no plan; a shape with {} calls gets an exact plan when what that saves in {:.0f} s is "
      "more than its compilation takes, up to {} plans (--plans)",
      status.totals.guard_misses, policy.exact_calls, static_cast<double>(policy.horizon_ns) / 1e9, policy.plans_max);
}

// Why the most frequent shape has no plan of its own, while another plan answers it.
std::string TopShapeText(const SegmentStatus& status, const TierPolicy& policy) {
  if (!status.top_shape || status.top_shape->symbol_values.empty() || status.top_shape->times.exact.calls > 0 ||
      status.top_shape->times.general.calls == 0)
    return "";
  return fmt::format(
      "the most frequent shape ({}) has no exact plan yet: {}; it gets one from {} calls on when that pays",
      fmt::join(status.top_shape->symbol_values, ", "), ForecastText(status.top_forecast), policy.exact_calls);
}

std::string ThrottledText(const SegmentStatus& status) {
  return fmt::format(
      "the segment, its model or the worker has asked for as many plans as it may; the next one is asked for in {} ms "
      "(--compile-rate)",
      status.retry_in_ms);
}

std::string UnpackedText(const SegmentStatus& status) {
  return fmt::format(
      "packed weights, which kernels are faster with, have no room: {}; more memory for the worker (--memory-bytes), "
      "or "
      "fewer models in it, changes that; they are tried again in {} ms",
      status.no_pack_room, status.pack_again_in_ms);
}

// Ops that plans leave to reference steps, by what their plans' kernels may read: weights in any form, or as given.
void AddReferenceText(const ExplainedSegment& explained, std::vector<std::string>& remedies) {
  std::set<std::string> any, given;
  for (const ExplainedPlan& plan : explained.plans)
    for (const ExplainedStep& step : plan.steps)
      if (const auto op = TensorOpFromName(step.op); op && !IsPlanCheck(*op))
        (plan.weights.empty() ? any : given).insert(step.op);
  if (!any.empty())
    remedies.push_back(fmt::format("no kernel is generated for {}: these run as reference steps inside the plan",
                                   fmt::join(any, ", ")));
  for (const std::string& op : any) given.erase(op);
  if (!given.empty())
    remedies.push_back(fmt::format("where weights are not packed, {} are left to reference steps inside the plan",
                                   fmt::join(given, ", ")));
}

void AddQuarantineText(const SegmentStatus& status, std::vector<std::string>& remedies) {
  remedies.push_back(
      "the plan gave a wrong result, faulted, or was withdrawn; `kiln run --compare` names the step; another plan that "
      "a "
      "compile service publishes is used at once, one that the fleet quarantined when that is lifted (`kiln cache "
      "quarantine --lift PLAN`)");
  if (!status.reproduction.empty())
    remedies.push_back("the compile service ran the plan that was wrong here: " + status.reproduction);
}

void AddReasonText(const SegmentStatus& status, const TierOptions& options, std::vector<std::string>& remedies) {
  switch (status.reason) {
    case MissReason::kCold:
      remedies.push_back(ColdText(status, options.policy));
      break;
    case MissReason::kCompiling:
      remedies.push_back("the plan arrives when the compile service is done; nothing to do");
      break;
    case MissReason::kShadowing:
      remedies.push_back(fmt::format(
          "calls of any shape that the plan admits; it answers after {} clean runs (--shadow-runs, --shadow-share)",
          options.shadow_runs));
      break;
    case MissReason::kGuardFailed:
    case MissReason::kNotRun:
      if (status.totals.plans_not_run > 0)
        remedies.push_back(
            fmt::format("{} calls that a plan admits were interpreted: no memory for its tables (--memory-bytes), or "
                        "calls that end "
                        "in an error",
                        status.totals.plans_not_run));
      if (std::string text = MissText(status, options.policy); !text.empty()) remedies.push_back(std::move(text));
      if (std::string text = TopShapeText(status, options.policy); !text.empty()) remedies.push_back(std::move(text));
      break;
    case MissReason::kCompileFailed:
      remedies.push_back(fmt::format(
          "the services are asked again in {} ms; the message above names what they cannot do", status.retry_in_ms));
      break;
    case MissReason::kNoService:
      remedies.push_back(
          fmt::format("start or reach the cache store and the compile service; next try in {} ms", status.retry_in_ms));
      break;
    case MissReason::kQuarantined:
      AddQuarantineText(status, remedies);
      break;
    case MissReason::kThrottled:
      remedies.push_back(ThrottledText(status));
      break;
    case MissReason::kNoMemory:
      remedies.push_back("more memory for the worker (--memory-bytes), or fewer models in it");
      break;
    case MissReason::kNoPackRoom:
      remedies.push_back(
          "the plan that reads weights as the model holds them arrives when the compile service is done with it");
      break;
    case MissReason::kDeviceLost:
      remedies.push_back(
          "a restart of the worker opens the device again; the log and the line `host` name what it failed with, and a "
          "plan whose kernel did it is not run again");
      break;
    case MissReason::kDeviceRefused:
      remedies.push_back("the message above is the driver's; a later driver may take what this one does not");
      break;
    case MissReason::kNoDeviceMemory:
      remedies.push_back("more memory of the device (--device-memory), or fewer models in the worker");
      break;
    case MissReason::kUndecided:
      remedies.push_back(fmt::format(
          "calls whose decisions (comparisons, rounding to integers) do not lie on an edge, or more memory for shadow "
          "runs; the plan is tried again in {} ms",
          status.retry_in_ms));
      break;
    case MissReason::kDisabled:
      remedies.push_back(options.targets.empty()
                             ? "no kernels are made for this processor: " + TargetsText(options.targets)
                             : "start the worker with --store (and --compile)");
      break;
  }
}

}  // namespace

std::vector<std::string> Remedies(const SegmentStatus& status, const TierOptions& options,
                                  const ExplainedSegment& explained) {
  std::vector<std::string> remedies;
  AddReasonText(status, options, remedies);
  if (status.trouble == MissReason::kQuarantined && status.reason != status.trouble)
    AddQuarantineText(status, remedies);
  if (!status.no_pack_room.empty()) remedies.push_back(UnpackedText(status));
  if (status.throttled && status.reason != MissReason::kThrottled) remedies.push_back(ThrottledText(status));
  if (!status.tuned_refusal.empty())
    remedies.push_back("the tiles of this segment were not measured: " + status.tuned_refusal);
  AddReferenceText(explained, remedies);
  if (explained.input_copies > 0)
    remedies.push_back(
        fmt::format("{} inputs came as views or unaligned and were copied together for the plan; pass them contiguous",
                    explained.input_copies));
  for (size_t i = 0; i < explained.symbols.size(); ++i)
    if (explained.symbols[i].find("no input shows it") != std::string::npos)
      remedies.push_back("a size is lost on the way (" + explained.symbols[i] +
                         "): plans cannot be specialised for it; give the reshape or the dim a name or a constant");
  return remedies;
}

}  // namespace kiln
