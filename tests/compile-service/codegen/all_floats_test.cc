// Every one of the 2^32 floats through every elementary function of one argument, for the host's best target: minutes
// of work, so that `make exhaustive` runs it and `make test` does not (math_test samples).
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <vector>

#include "tests/compile-service/codegen/math_reference.h"

namespace kiln {
namespace {

using testing::ElementaryFunction;

constexpr uint64_t kFloats = uint64_t{1} << 32, kChunk = uint64_t{1} << 16;

class AllFloats : public ::testing::TestWithParam<ElementaryFunction> {};

TEST_P(AllFloats, StayWithinTwoUlp) {
  const std::vector<Target> targets = HostTargets();
  ASSERT_FALSE(targets.empty());
  auto compiler = codegen::KernelCompiler::Create(targets.front());
  ASSERT_TRUE(compiler.has_value());
  auto code = (*compiler)->Compile(testing::Apply(GetParam().op, 1));
  ASSERT_TRUE(code.has_value()) << ToString(code.error());
  testing::ExecutableKernel kernel(code->bytes);
  ASSERT_TRUE(kernel.ok());
  std::vector<float> in(kChunk), out(kChunk);
  void* pointers[] = {in.data(), out.data()};
  const std::vector<int64_t> dims{static_cast<int64_t>(kChunk)};
  double worst = 0;
  float worst_at = 0;
  uint64_t beyond = 0;
  for (uint64_t first = 0; first < kFloats; first += kChunk) {
    for (uint64_t i = 0; i < kChunk; ++i) in[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i));
    kernel.Run(pointers, dims, 0, static_cast<int64_t>(kChunk));
    for (uint64_t i = 0; i < kChunk; ++i) {
      const double error = testing::UlpError(out[i], GetParam().reference(in[i]));
      beyond += error > testing::kUlpBound ? 1 : 0;
      if (error > worst) worst = error, worst_at = in[i];
    }
  }
  std::printf("%s on %s: %.3f ulp at %a\n", GetParam().name, InfoOf(targets.front()).name.data(), worst, worst_at);
  EXPECT_EQ(beyond, 0u) << GetParam().name << "(" << worst_at << ") is off by " << worst << " ulp";
}

INSTANTIATE_TEST_SUITE_P(Functions, AllFloats, ::testing::ValuesIn(testing::kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln
