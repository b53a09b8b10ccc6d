// Every one of the 2^32 floats through every elementary function of one argument, for the host's best target: minutes
// of work, so that `make exhaustive` runs it and `make test` does not (math_test samples).
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/compile-service/codegen/math_reference.h"

namespace kiln {
namespace {

using testing::ElementaryFunction;

constexpr uint64_t kFloats = uint64_t{1} << 32, kChunk = uint64_t{1} << 16;

struct Tally {
  uint64_t beyond = 0;  // the bound
  double worst = 0.5;   // ulp
  float worst_at = 0;
};

// Chunks of floats from `first` on, `step` apart.
Tally TryFloats(const ElementaryFunction& function, const testing::ExecutableKernel& kernel, uint64_t first,
                uint64_t step) {
  Tally tally;
  std::vector<float> in(kChunk), out(kChunk);
  void* pointers[] = {in.data(), out.data()};
  const std::vector<int64_t> dims{static_cast<int64_t>(kChunk)};
  for (; first < kFloats; first += step) {
    for (uint64_t i = 0; i < kChunk; ++i) in[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i));
    kernel.Run(pointers, dims, 0, static_cast<int64_t>(kChunk));
    for (uint64_t i = 0; i < kChunk; ++i) {
      const double expected = function.reference(in[i]);
      if (std::bit_cast<uint32_t>(out[i]) == std::bit_cast<uint32_t>(static_cast<float>(expected))) continue;
      const double error = testing::UlpError(out[i], expected);
      tally.beyond += error > testing::kUlpBound ? 1 : 0;
      if (error > tally.worst) tally.worst = error, tally.worst_at = in[i];
    }
  }
  return tally;
}

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
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Tally> tallies(threads);
  {
    std::vector<std::jthread> workers;
    for (unsigned t = 0; t < threads; ++t)
      workers.emplace_back([&, t] { tallies[t] = TryFloats(GetParam(), kernel, t * kChunk, threads * kChunk); });
  }
  uint64_t beyond = 0;
  for (const Tally& tally : tallies) beyond += tally.beyond;
  const auto [_, worst, worst_at] = *std::ranges::max_element(tallies, {}, &Tally::worst);
  std::printf("%s on %s: %.3f ulp at %a\n", GetParam().name, InfoOf(targets.front()).name.data(), worst, worst_at);
  EXPECT_EQ(beyond, 0u) << GetParam().name << "(" << worst_at << ") is off by " << worst << " ulp";
}

INSTANTIATE_TEST_SUITE_P(Functions, AllFloats, ::testing::ValuesIn(testing::kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln
