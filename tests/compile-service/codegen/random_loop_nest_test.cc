// Generated code = evaluator, on random loop nests: sizes around the vector length, strides, dtypes, chains and
// reductions.
#include "tests/support/random_loop_nest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/validate/column_evaluator.h"
#include "tests/support/emulated_kernel.h"
#include "tests/support/executable_memory.h"

namespace kiln {
namespace {

using testing::PointerMemory;
using testing::RandomKernel;

// KILN_TEST_SEED and KILN_TEST_ROUNDS choose other kernels, or more of them.
uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::vector<void*> PointersOf(std::vector<PointerMemory>& memory) {
  std::vector<void*> pointers;
  for (PointerMemory& item : memory) pointers.push_back(item.pointer());
  return pointers;
}

// Relative to the storage's precision and the values' size (at most about 3, sums aside).
double ToleranceOf(DType storage) {
  if (storage == DType::kF16) return 4e-3;
  if (storage == DType::kBF16) return 3e-2;
  return 5e-4;
}

template <class T>
double AsNumber(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

void Compare(PointerMemory& got, PointerMemory& expected, const std::string& what) {
  DispatchDType(got.storage, [&]<class T>() {
    const auto* a = reinterpret_cast<const T*>(got.bytes.data());
    const auto* b = reinterpret_cast<const T*>(expected.bytes.data());
    for (size_t i = 0; i < got.bytes.size() / sizeof(T); ++i) {
      if (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) continue;
      if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
        FAIL() << what << ": element " << i << " is " << +a[i] << ", expected " << +b[i];
      } else {
        const double x = AsNumber(a[i]), y = AsNumber(b[i]);
        if (std::isnan(x) && std::isnan(y)) continue;
        ASSERT_LE(std::fabs(x - y), ToleranceOf(got.storage) * (1 + std::fabs(y)))
            << what << ": element " << i << " is " << x << ", expected " << y;
      }
    }
  });
}

template <class T>
bool SameValue(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (std::isnan(AsNumber(a)) && std::isnan(AsNumber(b)));
}

// The reference of validation computes what the evaluator computes, bit for bit.
void ExpectSameBits(PointerMemory& columns, PointerMemory& expected, const std::string& what) {
  DispatchDType(columns.storage, [&]<class T>() {
    const auto* a = reinterpret_cast<const T*>(columns.bytes.data());
    const auto* b = reinterpret_cast<const T*>(expected.bytes.data());
    for (size_t i = 0; i < columns.bytes.size() / sizeof(T); ++i)
      ASSERT_TRUE(SameValue(a[i], b[i])) << what << ": element " << i << " is " << AsNumber(a[i]) << " by columns, "
                                         << AsNumber(b[i]) << " by elements";
  });
}

using RunParts =
    std::function<void(std::span<const uint8_t> blob, const RandomKernel& kernel, std::vector<PointerMemory>& memory,
                       const std::vector<std::pair<int64_t, int64_t>>& parts)>;

void CheckNests(Target target, uint64_t rounds, const RunParts& run) {
  const uint64_t seed = FromEnvironment("KILN_TEST_SEED", 1);
  auto compiler = codegen::KernelCompiler::Create(target);
  ASSERT_TRUE(compiler.has_value());
  const int lanes = InfoOf(target).f32_lanes();
  for (uint64_t round = 0; round < rounds; ++round) {
    RandomKernel kernel = testing::RandomLoopNest(seed * 1000003 + round, lanes).Make();
    const std::string what =
        "seed " + std::to_string(seed) + " round " + std::to_string(round) + "\n" + ir::PrintSpec(kernel.spec);
    auto code = (*compiler)->Compile(kernel.spec);
    ASSERT_TRUE(code.has_value()) << what << ToString(code.error());
    std::vector<PointerMemory> got = kernel.memory, expected = kernel.memory;
    const int64_t range = ir::RangeOf(kernel.spec, kernel.dims, lanes);
    auto evaluated = ir::EvaluateSpec(kernel.spec, PointersOf(expected), kernel.dims, lanes, 0, range);
    ASSERT_TRUE(evaluated.has_value()) << what << ToString(evaluated.error());
    std::vector<PointerMemory> columns = kernel.memory;
    const Status by_columns = EvaluateByColumns(kernel.spec, PointersOf(columns), kernel.dims, lanes, 0, range);
    ASSERT_TRUE(by_columns.has_value()) << what << ToString(by_columns.error());
    for (size_t i = 0; i < columns.size(); ++i)
      ExpectSameBits(columns[i], expected[i], what + "pointer " + std::to_string(i));
    // In two parts, as two threads would.
    const int64_t middle = range / 3;
    run(code->bytes, kernel, got, {{0, middle}, {middle, range}});
    for (size_t i = 0; i < got.size(); ++i) Compare(got[i], expected[i], what + "pointer " + std::to_string(i));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class RandomNests : public ::testing::TestWithParam<Target> {};

TEST_P(RandomNests, CodeAgreesWithTheEvaluator) {
  CheckNests(GetParam(), FromEnvironment("KILN_TEST_ROUNDS", 40),
             [](std::span<const uint8_t> blob, const RandomKernel& kernel, std::vector<PointerMemory>& memory,
                const std::vector<std::pair<int64_t, int64_t>>& parts) {
               testing::ExecutableKernel executable(blob);
               ASSERT_TRUE(executable.ok());
               for (const auto& [begin, end] : parts) executable.Run(PointersOf(memory), kernel.dims, begin, end);
             });
}

class EmulatedRandomNests : public ::testing::TestWithParam<Target> {};

TEST_P(EmulatedRandomNests, CodeAgreesWithTheEvaluator) {
  if (const auto why = testing::WhyNotEmulated(GetParam())) GTEST_SKIP() << *why;
  CheckNests(GetParam(), FromEnvironment("KILN_TEST_ROUNDS", 15),
             [](std::span<const uint8_t> blob, const RandomKernel& kernel, std::vector<PointerMemory>& memory,
                const std::vector<std::pair<int64_t, int64_t>>& parts) {
               std::vector<testing::EmulatedBuffer> buffers;
               for (PointerMemory& pointer : memory)
                 buffers.push_back({pointer.bytes, pointer.origin * DTypeBytes(pointer.storage)});
               const auto failure = testing::RunEmulated(GetParam(), blob, buffers, kernel.dims, parts);
               ASSERT_FALSE(failure.has_value()) << *failure << "\n" << ir::PrintSpec(kernel.spec);
             });
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedRandomNests, ::testing::ValuesIn(testing::EmulatedTargets()),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

INSTANTIATE_TEST_SUITE_P(EveryHostTarget, RandomNests, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

}  // namespace
}  // namespace kiln
