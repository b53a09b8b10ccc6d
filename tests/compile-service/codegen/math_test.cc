// Elementary functions of generated code against the C library in double: every exponent of f32, special values, every
// target that the host runs or emulates.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/compile-service/codegen/math_reference.h"
#include "tests/support/emulated_kernel.h"

namespace kiln {
namespace {

using ir::ScalarOp;
using testing::Apply;
using testing::kFunctions;
using testing::kUlpBound;
using testing::UlpError;

std::vector<float> Samples() {
  std::mt19937 random(7);
  std::vector<float> samples = {0.0f,
                                -0.0f,
                                1.0f,
                                -1.0f,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                0x1p-149f,
                                -0x1p-149f,
                                0x1p-126f,
                                std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::lowest()};
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (int i = 0; i < 400; ++i) {
      const uint32_t mantissa = i == 0 ? 0 : i == 1 ? 0x7fffff : random() & 0x7fffff;
      samples.push_back(std::bit_cast<float>(exponent << 23 | mantissa | (i & 1) << 31));
    }
  }
  for (int i = 0; i < 200000; ++i)
    samples.push_back(static_cast<float>(static_cast<int32_t>(random() & 0xffffff) - 0x800000) *
                      0x1p-16f);  // [-128, 128)
  return samples;
}

void ExpectWithinBound(const testing::ElementaryFunction& function, const std::vector<float>& in,
                       const std::vector<float>& out) {
  double worst = 0;
  float worst_at = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double error = UlpError(out[i], function.reference(in[i]));
    if (error > worst) worst = error, worst_at = in[i];
  }
  std::printf("%s: %.2f ulp at %a\n", function.name, worst, worst_at);
  EXPECT_LE(worst, kUlpBound) << function.name << "(" << worst_at << ")";
}

class Math : public ::testing::TestWithParam<Target> {};

TEST_P(Math, EveryFunction_StaysWithinTwoUlp) {
  auto compiler = codegen::KernelCompiler::Create(GetParam());
  ASSERT_TRUE(compiler.has_value());
  std::vector<float> in = Samples();
  std::vector<float> out(in.size());
  for (const testing::ElementaryFunction& function : kFunctions) {
    auto code = (*compiler)->Compile(Apply(function.op, 1));
    ASSERT_TRUE(code.has_value()) << function.name << ": " << ToString(code.error());
    testing::ExecutableKernel kernel(code->bytes);
    ASSERT_TRUE(kernel.ok());
    const auto n = static_cast<int64_t>(in.size());
    void* pointers[] = {in.data(), out.data()};
    kernel.Run(pointers, std::vector<int64_t>{n}, 0, n);
    ExpectWithinBound(function, in, out);
  }
}

TEST_P(Math, Pow_StaysWithinTwoUlpAndFollowsIeeeSpecialCases) {
  auto compiler = codegen::KernelCompiler::Create(GetParam());
  ASSERT_TRUE(compiler.has_value());
  auto code = (*compiler)->Compile(Apply(ScalarOp::kPow, 2));
  ASSERT_TRUE(code.has_value()) << ToString(code.error());
  testing::ExecutableKernel kernel(code->bytes);
  const float special[] = {0.0f,  -0.0f,  1.0f,        -1.0f,       2.0f,       -2.0f,       3.0f,      -3.0f,
                           0.5f,  -0.5f,  1.5f,        INFINITY,    -INFINITY,  NAN,         0x1p-149f, -0x1p-140f,
                           1e30f, -1e30f, 16777216.0f, 16777217.0f, 8388607.0f, 0.99999994f, 1.0000001f};
  std::vector<float> x, y;
  for (float a : special)
    for (float b : special) x.push_back(a), y.push_back(b);
  std::mt19937 random(11);
  std::uniform_real_distribution<float> exponents(-60, 60), powers(-8, 8);
  for (int i = 0; i < 200000; ++i) {
    x.push_back(std::exp2(exponents(random)));
    y.push_back(powers(random));
  }
  std::vector<float> out(x.size());
  const auto n = static_cast<int64_t>(x.size());
  void* pointers[] = {x.data(), y.data(), out.data()};
  kernel.Run(pointers, std::vector<int64_t>{n}, 0, n);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(UlpError(out[i], std::pow(static_cast<double>(x[i]), static_cast<double>(y[i]))), kUlpBound)
        << x[i] << " ^ " << y[i] << " = " << out[i];
}

class EmulatedMath : public ::testing::TestWithParam<Target> {};

TEST_P(EmulatedMath, EveryFunction_StaysWithinTwoUlp) {
  if (const auto why = testing::WhyNotEmulated(GetParam())) GTEST_SKIP() << *why;
  auto compiler = codegen::KernelCompiler::Create(GetParam());
  ASSERT_TRUE(compiler.has_value());
  const std::vector<float> all = Samples();
  std::vector<float> in(all.begin(), all.begin() + 12);  // the special ones
  for (size_t i = in.size(); i < all.size(); i += 9) in.push_back(all[i]);
  for (const testing::ElementaryFunction& function : kFunctions) {
    auto code = (*compiler)->Compile(Apply(function.op, 1));
    ASSERT_TRUE(code.has_value()) << function.name << ": " << ToString(code.error());
    std::vector<float> out(in.size());
    std::vector<float> given = in;
    const auto bytes = [](std::vector<float>& values) {
      return testing::EmulatedBuffer{{reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float)}};
    };
    const std::vector<testing::EmulatedBuffer> buffers = {bytes(given), bytes(out)};
    const auto n = static_cast<int64_t>(in.size());
    const std::vector<int64_t> dims = {n};
    const std::vector<std::pair<int64_t, int64_t>> parts = {{0, n}};
    const auto failure = testing::RunEmulated(GetParam(), code->bytes, buffers, dims, parts);
    ASSERT_FALSE(failure.has_value()) << *failure;
    ExpectWithinBound(function, in, out);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedMath, ::testing::ValuesIn(testing::EmulatedTargets()),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

INSTANTIATE_TEST_SUITE_P(EveryHostTarget, Math, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

}  // namespace
}  // namespace kiln
