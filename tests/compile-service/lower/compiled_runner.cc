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

lower::LoweredSegment CheckBits(const std::string& text, std::vector<std::vector<int64_t>> shapes) {
  SCOPED_TRACE(text);
  lower::LoweredSegment lowered = CheckSegment(SegmentOf(text), {.shapes = std::move(shapes),
                                                                 .targets = {Target::kX86V4, Target::kX86V2},
                                                                 .tolerance = 0,
                                                                 .runner = CompiledRunners()});
  EXPECT_TRUE(lowered.coverage.reference_ops.empty()) << Describe(lowered);
  return lowered;
}

void ExpectOutsideIndicesRefused(const Segment& segment, std::vector<int64_t> symbols) {
  symbols.resize(segment.symbols.size());
  const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, symbols, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  std::vector<Tensor> inputs;
  std::vector<TensorRef> refs;
  for (int i = 0; i < segment.runtime_inputs; ++i) {
    Dims dims;
    for (Dim dim : *segment.input(i).dims) dims.push_back(*segment.body.symbols.Evaluate(dim, symbols));
    inputs.push_back(Tensor::Zeros(segment.input(i).dtype, dims));
    refs.push_back(inputs.back().ref);
  }
  CompiledRunner runner(Target::kX86V3);
  EXPECT_TRUE(RunLowered(*lowered, symbols, refs, {}, 8, runner.runner()).has_value());
  for (int64_t bad : {int64_t{64}, int64_t{-65}, INT64_MIN, INT64_MAX}) {
    inputs[1].values<int64_t>().back() = bad;
    const auto result = RunLowered(*lowered, symbols, refs, {}, 8, runner.runner());
    ASSERT_FALSE(result.has_value()) << bad;
    EXPECT_EQ(result.error().code, ErrorCode::kOutOfRange) << ToString(result.error());
    EXPECT_NE(result.error().message.find("index " + std::to_string(bad) + " is outside axis"), std::string::npos);
  }
}

}  // namespace kiln::testing
