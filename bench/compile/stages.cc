#include "bench/compile/stages.h"

#include <ctime>

#include "compile-service/jobs/trial_dims.h"
#include "compile-service/validate/validate_kernel.h"

namespace kiln::bench {
namespace {

// Milliseconds of this thread's CPU time since the last call.
class CpuTimer {
 public:
  double LapMs() {
    const double now = Now();
    return now - std::exchange(last_, now);
  }

 private:
  static double Now() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  }
  double last_ = Now();
};

std::string KindOf(const ir::KernelSpec& spec) {
  if (const auto* nest = std::get_if<ir::LoopNestSpec>(&spec.kernel))
    return nest->reduce_inner || !nest->reduce.empty() ? "reduction" : "chain";
  if (const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel))
    return product->conv ? "convolution" : "contraction";
  return std::holds_alternative<ir::WindowSpec>(spec.kernel) ? "window" : "other";
}

}  // namespace

Result<CompileStages> CompileStages::Create(Target target) {
  CompileStages stages;
  stages.target_ = target;
  ASSIGN_OR_RETURN(stages.compiler_, codegen::KernelCompiler::Create(target));
  return stages;
}

Result<PlanFigures> CompileStages::Plan(const Segment& segment, const std::vector<int64_t>& values, bool exact) {
  CpuTimer timer;
  lower::LowerRequest request{segment, target_, NumericMode::kDefault, values, {}};
  if (exact)
    for (int64_t value : values)
      request.symbols.push_back(value < 0 ? lower::SymbolChoice{}
                                          : lower::SymbolChoice{lower::SymbolChoice::Kind::kExact, value, value, 1});
  ASSIGN_OR_RETURN(const lower::LoweredSegment lowered, lower::LowerSegment(request));
  const auto trials = TrialDims(lowered.plan, lowered.specs.size(), values);
  PlanFigures figures{.steps = lowered.plan.steps.size(),
                      .kernels = lowered.specs.size(),
                      .generated_nodes = lowered.coverage.kernel_nodes,
                      .reference_nodes = lowered.coverage.reference_nodes,
                      .lower_ms = timer.LapMs()};
  for (size_t i = 0; i < lowered.specs.size(); ++i) {
    const auto [known, fresh] = known_.try_emplace(ir::EncodeSpec(lowered.specs[i]), 0);
    if (fresh) {
      ASSIGN_OR_RETURN(KernelFigures kernel, Kernel(lowered.specs[i], trials[i]));
      known->second = kernel.code_bytes;
      figures.compiled.push_back(std::move(kernel));
    } else {
      ++figures.reused;
    }
    figures.code_bytes += known->second;
  }
  return figures;
}

Result<KernelFigures> CompileStages::Kernel(const ir::KernelSpec& spec,
                                            std::span<const std::vector<int64_t>> trial_dims) {
  CpuTimer timer;
  ASSIGN_OR_RETURN(const codegen::KernelCode code, compiler_->Compile(spec));
  const double compile_ms = timer.LapMs();
  ASSIGN_OR_RETURN(const uint32_t trials, ValidateKernel(spec, code.bytes, target_, trial_dims, 1));
  const double validate_ms = timer.LapMs();
  // The compiler tells wall time; its share of emission is applied to CPU time.
  const auto emit = static_cast<double>(code.emit_us), rest = static_cast<double>(code.codegen_us);
  const double emit_ms = compile_ms * emit / std::max(1.0, emit + rest);
  return KernelFigures{KindOf(spec), code.bytes.size(), emit_ms, compile_ms - emit_ms, validate_ms, trials};
}

}  // namespace kiln::bench
