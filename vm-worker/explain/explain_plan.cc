#include "vm-worker/explain/explain_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln {
namespace {

std::string Allowed(const SymbolGuard& guard) {
  if (guard.min == guard.max) return "exactly " + std::to_string(guard.min);
  std::string text = guard.max == Interval::kNoBound ? std::to_string(guard.min) + " or more"
                                                     : std::to_string(guard.min) + " to " + std::to_string(guard.max);
  if (guard.divisor > 1) text += ", multiples of " + std::to_string(guard.divisor);
  return text;
}

bool Holds(const Constraint& constraint, const SymbolTable& symbols, std::span<const int64_t> values) {
  const Result<int64_t> left = symbols.Evaluate(constraint.left, values),
                        right = symbols.Evaluate(constraint.right, values);
  return left.has_value() && right.has_value() && kiln::Holds(constraint.kind, *left, *right);
}

std::vector<std::string> GuardLines(const Plan& plan, const SegmentNames& names) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < plan.guard.symbols.size(); ++i)
    lines.push_back(names.SymbolName(i) + ": " + Allowed(plan.guard.symbols[i]));
  for (const Constraint& constraint : plan.guard.constraints)
    lines.push_back(names.ConstraintText(plan.symbols, constraint));
  for (size_t i = 0; i < plan.guard.inputs.size(); ++i) {
    const InputGuard& input = plan.guard.inputs[i];
    if (input.contiguous || input.alignment == AlignmentClass::k64)
      lines.push_back(names.Input(i) + ": " + (input.contiguous ? "contiguous" : "any strides") +
                      (input.alignment == AlignmentClass::k64 ? ", 64-byte aligned" : "") + " (else it is copied)");
  }
  if (plan.guard.max_elements != INT64_MAX)
    lines.push_back("tensors of at most " + std::to_string(plan.guard.max_elements) + " elements");
  return lines;
}

// Arguments as numbers where the symbols' values are known, else as expressions.
std::string Argument(const Plan& plan, Dim dim, const SegmentNames& names, std::span<const int64_t> values) {
  if (!values.empty())
    if (const Result<int64_t> value = plan.symbols.Evaluate(dim, values); value.has_value())
      return std::to_string(*value);
  return names.DimText(plan.symbols, dim);
}

std::string StorageText(const PlanValue& value, const SegmentNames& names) {
  switch (value.storage) {
    case StorageKind::kInput:
      return names.Input(static_cast<size_t>(value.index));
    case StorageKind::kOutput:
      return "output " + std::to_string(value.index);
    case StorageKind::kWeight:
      return "weight " + std::to_string(value.index);
    case StorageKind::kPrepacked:
      return "packed " + std::to_string(value.index);
    case StorageKind::kArena:
      return "t" + std::to_string(value.index);
  }
  return "?";
}

// How a tensor of some rank lies in memory; "" where there is nothing to say: scalars, vectors, packed panels.
std::string LayoutText(const Plan& plan, const PlanValue& value, std::span<const int64_t> values) {
  if (value.dims.size() < 2 || value.storage == StorageKind::kPrepacked) return "";
  std::vector<int64_t> dims, strides;
  for (size_t i = 0; i < value.dims.size(); ++i) {
    const Result<int64_t> dim = plan.symbols.Evaluate(value.dims[i], values),
                          stride = plan.symbols.Evaluate(value.strides[i], values);
    if (!dim.has_value() || !stride.has_value()) return "";
    dims.push_back(*dim);
    strides.push_back(*stride);
  }
  int64_t dense = 1, expanded = 0;
  bool row_major = true;
  for (size_t i = dims.size(); i-- > 0;) {
    row_major &= dims[i] == 1 || strides[i] == dense;
    expanded += dims[i] != 1 && strides[i] == 0 ? 1 : 0;
    dense *= dims[i];
  }
  if (row_major) return " row-major";
  if (expanded > 0) return " broadcast";
  if (dims.size() >= 3 && strides[1] == 1) return " channels-last";
  if (strides.size() == 2 && strides[0] == 1) return " transposed";
  return " strided";
}

ExplainedStep ExplainStep(const Plan& plan, const PlanStep& step, const SegmentNames& names,
                          std::span<const int64_t> values) {
  ExplainedStep explained;
  explained.label = step.label;
  for (int32_t node : step.nodes)
    if (node >= 0 && static_cast<size_t>(node) < names.nodes().size())
      explained.nodes.push_back(static_cast<uint32_t>(node));
  if (const auto* kernel = std::get_if<KernelStep>(&step.step)) {
    explained.kernel = plan.kernels[static_cast<size_t>(kernel->kernel)].Hex();
    for (Dim dim : kernel->dims)
      explained.dims += (explained.dims.empty() ? "" : ", ") + Argument(plan, dim, names, values);
    explained.operands = OperandsText(plan, *kernel, names, values);
  } else {
    explained.op = OpInfo(std::get<ReferenceStep>(step.step).op).name;
  }
  return explained;
}

PlanTier TierOf(const Plan& plan, const Segment& segment) {
  if (plan.tuned) return PlanTier::kTuned;
  bool exact = true;
  for (size_t i = 0; i < plan.guard.symbols.size(); ++i)
    if (segment.symbols[i].kind != SymbolSource::Kind::kValueDim)
      exact &= plan.guard.symbols[i].min == plan.guard.symbols[i].max;
  return exact ? PlanTier::kExact : IsBounded(plan.guard, segment) ? PlanTier::kRange : PlanTier::kGeneric;
}

// "tile 8x3 412.0 us, tile 6x4 380.2 us (taken) [ea7bd91f]", a line per kernel.
std::vector<std::string> TuningLines(const Plan& plan) {
  std::vector<std::string> lines;
  for (const KernelTuning& tuning : plan.tuning) {
    std::string line;
    for (size_t i = 0; i < tuning.choices.size(); ++i) {
      const TunedChoice& choice = tuning.choices[i];
      line += fmt::format("{}{} {:.1f} us{}", i == 0 ? "" : ", ", choice.what, static_cast<double>(choice.ns) / 1e3,
                          static_cast<int32_t>(i) == tuning.chosen ? " (taken)" : "");
    }
    lines.push_back(line + " [" + plan.kernels[static_cast<size_t>(tuning.kernel)].Hex().substr(0, 8) + "]");
  }
  return lines;
}

}  // namespace

std::string OperandsText(const Plan& plan, const KernelStep& step, const SegmentNames& names,
                         std::span<const int64_t> values) {
  std::string text;
  for (int32_t pointer : step.pointers) {
    const PlanValue& value = plan.values[static_cast<size_t>(pointer)];
    text += (text.empty() ? "" : ", ") + StorageText(value, names) + LayoutText(plan, value, values);
  }
  return text;
}

std::vector<std::string> GuardMismatch(const Plan& plan, const SegmentNames& names, const SeenCall& call) {
  std::vector<std::string> lines;
  const Guard& guard = plan.guard;
  for (size_t i = 0; i < std::min(guard.symbols.size(), call.symbol_values.size()); ++i) {
    const int64_t value = call.symbol_values[i];
    const SymbolGuard& allowed = guard.symbols[i];
    if (value < 0 || (value >= allowed.min && value <= allowed.max && value % allowed.divisor == 0)) continue;
    lines.push_back(names.SymbolSourceText(i) + " is " + std::to_string(value) + "; the plan holds for " +
                    Allowed(allowed));
  }
  for (const Constraint& constraint : guard.constraints)
    if (!Holds(constraint, plan.symbols, call.symbol_values))
      lines.push_back("the plan assumes " + names.ConstraintText(plan.symbols, constraint) + "; here " +
                      names.Values(call.symbol_values));
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (NumElements(call.inputs[i].dims) > guard.max_elements)
      lines.push_back(names.Input(i) + " has " + std::to_string(NumElements(call.inputs[i].dims)) +
                      " elements; the plan indexes at most " + std::to_string(guard.max_elements));
  return lines;
}

ExplainedPlan ExplainPlan(const PlanStatus& status, const SegmentNames& names, const std::optional<PlanTiming>& timing,
                          bool with_steps, int shadow_runs) {
  const Plan& plan = status.plan->plan();
  ExplainedPlan explained;
  explained.key = status.key.Hex();
  explained.state = status.published ? "published"
                                     : "in shadow runs, " + std::to_string(status.clean_runs) + " of " +
                                           std::to_string(shadow_runs) + " clean";
  explained.target = plan.target;
  explained.tier = PlanTierName(TierOf(plan, status.plan->segment()));
  explained.tuning = TuningLines(plan);
  if (plan.weights != WeightForm::kPacked) explained.weights = WeightFormText(plan.weights);
  explained.guard = GuardLines(plan, names);
  explained.guard_bytes = EncodeGuard(plan.guard, plan.symbols);
  explained.kernels = static_cast<uint32_t>(plan.kernels.size());
  explained.clean_runs = static_cast<uint32_t>(status.clean_runs);
  const bool timed = timing && timing->plan == status.key;
  for (const PlanStep& step : plan.steps) {
    const bool generated = std::holds_alternative<KernelStep>(step.step);
    ++(generated ? explained.generated_steps : explained.reference_steps);
    if (with_steps || !generated)
      explained.steps.push_back(ExplainStep(
          plan, step, names, timed ? std::span<const int64_t>(timing->symbol_values) : std::span<const int64_t>()));
  }
  if (!timed) return explained;
  explained.timed_calls = timing->calls;
  explained.timed_shape = names.Values(timing->symbol_values);
  explained.arena_bytes = timing->arena_bytes;
  if (with_steps)
    for (size_t i = 0; i < explained.steps.size(); ++i)
      explained.steps[i].ns = static_cast<uint64_t>(timing->step_ns[i]);
  return explained;
}

}  // namespace kiln
