// A segment's plan with its kernels' code, as the compile children make it.
#pragma once

#include "common/artifact/record.h"
#include "common/segment/segment.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/lower/lower_segment.h"

namespace kiln::testing {

struct CompiledPlan {
  Plan plan;
  std::vector<std::vector<uint8_t>> code;  // of plan.kernels
};

// `hints`: a value per symbol of the segment, -1 for those that only a run knows.
inline Result<CompiledPlan> CompilePlan(const Segment& segment, std::vector<int64_t> hints, Target target) {
  ASSIGN_OR_RETURN(auto lowered, lower::LowerSegment({segment, target, NumericMode::kDefault, std::move(hints), {}}));
  ASSIGN_OR_RETURN(const auto compiler, codegen::KernelCompiler::Create(target));
  CompiledPlan compiled{std::move(lowered.plan), {}};
  for (const ir::KernelSpec& spec : lowered.specs) {
    ASSIGN_OR_RETURN(codegen::KernelCode code, compiler->Compile(spec));
    compiled.plan.kernels.push_back(KernelIdOf(code.bytes));
    compiled.code.push_back(std::move(code.bytes));
  }
  return compiled;
}

}  // namespace kiln::testing
