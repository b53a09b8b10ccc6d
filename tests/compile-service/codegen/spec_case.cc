#include "tests/compile-service/codegen/spec_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/validate/column_evaluator.h"
#include "tests/support/emulated_kernel.h"
#include "tests/support/executable_memory.h"
#include "tests/support/guarded_buffer.h"

namespace kiln::testing {
namespace {

codegen::KernelCompiler* CompilerOf(Target target) {
  static std::map<Target, std::unique_ptr<codegen::KernelCompiler>> compilers;
  auto& compiler = compilers[target];
  if (!compiler) {
    auto created = codegen::KernelCompiler::Create(target);
    if (!created.has_value()) {
      ADD_FAILURE() << ToString(created.error());
      return nullptr;
    }
    compiler = *std::move(created);
  }
  return compiler.get();
}

GuardedBuffer Fill(const SpecBuffer& source) {
  GuardedBuffer buffer(source.values.size() * static_cast<size_t>(DTypeBytes(source.dtype)));
  DispatchDType(source.dtype, [&]<class T>() {
    for (size_t i = 0; i < source.values.size(); ++i) {
      T value = static_cast<T>(source.values[i]);
      std::memcpy(buffer.as<uint8_t>() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return buffer;
}

double Element(const GuardedBuffer& buffer, DType dtype, size_t index) {
  return DispatchDType(dtype, [&]<class T>() -> double {
    T value;
    std::memcpy(&value, buffer.as<uint8_t>() + index * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
      return static_cast<float>(value);
    else
      return static_cast<double>(value);
  });
}

struct Memory {
  std::vector<GuardedBuffer> buffers;
  std::vector<void*> pointers;
  explicit Memory(const SpecCase& test) {
    for (const SpecBuffer& source : test.buffers) buffers.push_back(Fill(source));
    for (const GuardedBuffer& buffer : buffers) pointers.push_back(buffer.data());
  }
};

// 16-bit storage rounds the last step differently when the sums differ in their last bit.
double StorageTolerance(DType dtype) {
  if (dtype == DType::kF16) return 1e-3;
  if (dtype == DType::kBF16) return 8e-3;
  return IsFloat(dtype) ? 0 : 1;
}

// The reference of validation computes what the evaluator computes.
void ExpectSameBits(const SpecCase& test, const Memory& expected, Target target) {
  Memory columns(test);
  const int lanes = InfoOf(target).f32_lanes();
  const Status evaluated =
      EvaluateByColumns(test.spec, columns.pointers, test.dims, lanes, 0, ir::RangeOf(test.spec, test.dims, lanes));
  ASSERT_TRUE(evaluated.has_value()) << ToString(evaluated.error());
  for (size_t i = 0; i < test.buffers.size(); ++i) {
    const DType dtype = test.buffers[i].dtype;
    for (size_t j = 0; j < test.buffers[i].values.size(); ++j) {
      const double want = Element(expected.buffers[i], dtype, j), got = Element(columns.buffers[i], dtype, j);
      ASSERT_TRUE((want == got && std::signbit(want) == std::signbit(got)) || (std::isnan(want) && std::isnan(got)))
          << "pointer " << i << " element " << j << ": want " << want << ", got " << got << "\n"
          << ir::PrintSpec(test.spec);
    }
  }
}

}  // namespace

std::vector<float> RandomValues(std::mt19937_64& random, int64_t count) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

int64_t Pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

uint64_t Seed() {
  const char* text = std::getenv("KILN_TEST_SEED");
  const uint64_t seed = text ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::cout << "KILN_TEST_SEED=" << seed << "\n";
  return seed;
}

ir::ScalarNode Node(ir::ScalarOp op, int32_t a, int32_t b, int32_t index, double number) {
  ir::ScalarNode node{op};
  node.a = a;
  node.b = b;
  node.index = index;
  node.number = number;
  return node;
}

ir::SpecInt SpecBuilder::Size(int64_t value) {
  if (Coin()) return ir::SpecInt::Const(value);
  test_.dims.push_back(value);
  return ir::SpecInt::Argument(static_cast<int64_t>(test_.dims.size()) - 1);
}

int32_t SpecBuilder::Buffer(DType dtype, std::vector<float> values) {
  test_.buffers.push_back({dtype, std::move(values)});
  return static_cast<int32_t>(test_.buffers.size()) - 1;
}

void SpecBuilder::Side(bool flat, int32_t* kernel, int32_t* stride, int32_t* dilation, int32_t* pad, int64_t* in,
                       int64_t* out) {
  const bool wide = Pick(random_, 0, 11) == 0;
  *kernel = flat ? 1 : static_cast<int32_t>(wide ? Pick(random_, 16, 18) : Pick(random_, 1, 5));
  *stride = flat ? 1 : static_cast<int32_t>(Pick(random_, 1, 3));
  *dilation = flat ? 1 : static_cast<int32_t>(Pick(random_, 1, 2));
  *pad = flat ? 0 : static_cast<int32_t>(Pick(random_, 0, *kernel - 1));
  const int64_t pad_after = flat ? 0 : Pick(random_, 0, *kernel - 1);
  const int64_t reach = int64_t{*kernel - 1} * *dilation + 1;
  *in = flat ? 1 : std::max<int64_t>(Pick(random_, 1, 24), reach - *pad - pad_after);
  *out = (*in + *pad + pad_after - reach) / *stride + 1;
}

ir::WindowGeometry SpecBuilder::Geometry(int64_t channels, Image* image) {
  ir::WindowGeometry g;
  const bool flat = Pick(random_, 0, 3) == 0;
  Side(flat, &g.kernel_h, &g.stride_h, &g.dilation_h, &g.pad_top, &image->in_height, &image->out_height);
  Side(false, &g.kernel_w, &g.stride_w, &g.dilation_w, &g.pad_left, &image->in_width, &image->out_width);
  g.in_height = Size(image->in_height);
  g.in_width = Size(image->in_width);
  g.out_height = Size(image->out_height);
  g.out_width = Size(image->out_width);
  g.column_stride = Size(channels);
  g.row_stride = Size(image->in_width * channels);
  g.image_stride = Size(image->in_height * image->in_width * channels);
  return g;
}

SpecCase SpecBuilder::Finish(decltype(ir::KernelSpec::kernel) kernel, std::string name) {
  test_.spec.kernel = std::move(kernel);
  test_.spec.pointers = static_cast<int32_t>(test_.buffers.size());
  test_.spec.dims = static_cast<int32_t>(test_.dims.size());
  test_.name = std::move(name);
  return test_;
}

namespace {

using Parts = std::vector<std::pair<int64_t, int64_t>>;
using RunParts = std::function<void(std::span<const uint8_t> blob, Memory& memory, const Parts& parts)>;

void ExpectAgrees(const SpecCase& test, Target target, std::mt19937_64& random, const RunParts& run) {
  SCOPED_TRACE(test.name + " on " + std::string(InfoOf(target).name));
  Status valid = ir::VerifySpec(test.spec);
  ASSERT_TRUE(valid.has_value()) << ToString(valid.error());
  codegen::KernelCompiler* compiler = CompilerOf(target);
  ASSERT_NE(compiler, nullptr);
  auto code = compiler->Compile(test.spec);
  ASSERT_TRUE(code.has_value()) << ToString(code.error());
  const int lanes = InfoOf(target).f32_lanes();
  const int64_t range = ir::RangeOf(test.spec, test.dims, lanes);
  Memory expected(test), actual(test);
  Status evaluated = ir::EvaluateSpec(test.spec, expected.pointers, test.dims, lanes, 0, range);
  ASSERT_TRUE(evaluated.has_value()) << ToString(evaluated.error());
  ExpectSameBits(test, expected, target);
  const int64_t first = Pick(random, 0, range), second = Pick(random, first, range);
  run(code->bytes, actual, {{second, range}, {0, first}, {first, second}});

  for (size_t i = 0; i < test.buffers.size(); ++i) {
    const DType dtype = test.buffers[i].dtype;
    for (size_t j = 0; j < test.buffers[i].values.size(); ++j) {
      const double want = Element(expected.buffers[i], dtype, j), got = Element(actual.buffers[i], dtype, j);
      if (want == got || (std::isnan(want) && std::isnan(got))) continue;
      ASSERT_LE(std::abs(want - got), (test.tolerance + StorageTolerance(dtype)) * (1 + std::abs(want)))
          << "pointer " << i << " element " << j << ": want " << want << ", got " << got << "\n"
          << ir::PrintSpec(test.spec);
    }
  }
}

}  // namespace

void ExpectAgreesWithEvaluator(const SpecCase& test, Target target, std::mt19937_64& random) {
  ExpectAgrees(test, target, random, [&](std::span<const uint8_t> blob, Memory& memory, const Parts& parts) {
    ExecutableKernel kernel(blob);
    ASSERT_TRUE(kernel.ok());
    for (const auto& [begin, end] : parts) kernel.Run(memory.pointers, test.dims, begin, end);
    // Threads cut the range anywhere: the same bits as in one piece.
    Memory whole(test);
    kernel.Run(whole.pointers, test.dims, 0, ir::RangeOf(test.spec, test.dims, InfoOf(target).f32_lanes()));
    for (size_t i = 0; i < whole.buffers.size(); ++i)
      ASSERT_EQ(std::memcmp(whole.buffers[i].data(), memory.buffers[i].data(), whole.buffers[i].size()), 0)
          << "pointer " << i << " depends on how the range is cut\n"
          << ir::PrintSpec(test.spec);
  });
}

void ExpectEmulatedAgreesWithEvaluator(const SpecCase& test, Target target, std::mt19937_64& random) {
  ExpectAgrees(test, target, random, [&](std::span<const uint8_t> blob, Memory& memory, const Parts& parts) {
    std::vector<EmulatedBuffer> buffers;
    for (const GuardedBuffer& buffer : memory.buffers) buffers.push_back({{buffer.as<uint8_t>(), buffer.size()}});
    const std::optional<std::string> failure = RunEmulated(target, blob, buffers, test.dims, parts);
    ASSERT_FALSE(failure.has_value()) << *failure << "\n" << ir::PrintSpec(test.spec);
  });
}

std::string TargetTestName(Target target) {
  std::string name(InfoOf(target).name);
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

void SpecTest::ExpectAgreement(int cases, MakeCase make) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < cases && !HasFatalFailure(); ++i)
    ExpectAgreesWithEvaluator(make(random, GetParam()), GetParam(), random);
}

void EmulatedSpecTest::SetUp() {
  if (const auto why = WhyNotEmulated(GetParam())) GTEST_SKIP() << *why;
}

void EmulatedSpecTest::ExpectAgreement(int cases, MakeCase make) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < cases && !HasFatalFailure(); ++i)
    ExpectEmulatedAgreesWithEvaluator(make(random, GetParam()), GetParam(), random);
}

}  // namespace kiln::testing
