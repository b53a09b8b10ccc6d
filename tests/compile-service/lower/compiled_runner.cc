#include "tests/compile-service/lower/compiled_runner.h"

#include <gtest/gtest.h>

#include "compile-service/validate/validate_kernel.h"

namespace kiln::testing {

CompiledRunner::CompiledRunner(Target target) : target_(target), compiler_(codegen::KernelCompiler::Create(target)) {}

Result<const ExecutableKernel*> CompiledRunner::Kernel(const ir::KernelSpec& spec, std::span<const int64_t> dims) {
  if (!compiler_) return std::unexpected(compiler_.error());
  std::unique_ptr<ExecutableKernel>& kernel = kernels_[ir::EncodeSpec(spec)];
  if (kernel == nullptr) {
    ASSIGN_OR_RETURN(const codegen::KernelCode code, (*compiler_)->Compile(spec));
    const std::vector<std::vector<int64_t>> calls = {{dims.begin(), dims.end()}};
    ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t compared, ValidateKernel(spec, code.bytes, target_, calls, 1));
    kernel = std::make_unique<ExecutableKernel>(code.bytes);
  }
  if (!kernel->ok()) return Fail(ErrorCode::kInternal, "a kernel blob does not parse");
  return kernel.get();
}

SpecRunner CompiledRunner::runner() {
  return [this](const ir::KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                int64_t begin, int64_t end) -> Status {
    ASSIGN_OR_RETURN(const ExecutableKernel* kernel, Kernel(spec, dims));
    kernel->Run(pointers, dims, begin, end);
    return {};
  };
}

std::function<SpecRunner(Target)> CompiledRunners() {
  return [runners = std::make_shared<std::map<Target, CompiledRunner>>()](Target target) {
    return runners->try_emplace(target, target).first->second.runner();
  };
}

lower::LoweredSegment CheckGenerated(const std::string& text, std::vector<std::vector<int64_t>> shapes) {
  const auto runners = CompiledRunners();
  const lower::LoweredSegment lowered = CheckSegment(
      SegmentOf(text),
      {.shapes = std::move(shapes), .targets = {Target::kX86V4, Target::kX86V3, Target::kX86V2}, .runner = runners});
  EXPECT_EQ(lowered.coverage.reference_nodes, 0) << text << Describe(lowered);
  return lowered;
}

}  // namespace kiln::testing
