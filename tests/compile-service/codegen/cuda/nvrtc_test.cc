// Emitted CUDA C++ through the real NVRTC, where there is one: every kind of kernel compiles for every target, without
// registers that spill, and to the same bytes each time. Nothing looks into what NVRTC returns.
#include "compile-service/codegen/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include "common/artifact/kernel_blob.h"
#include "compile-service/codegen/cuda/cuda_compiler.h"
#include "compile-service/codegen/cuda/cuda_source.h"
#include "compile-service/codegen/cuda/nvrtc_build.h"
#include "tests/compile-service/codegen/spec_cases.h"
#include "tests/support/random_loop_nest.h"

namespace kiln::testing {
namespace {

using codegen::cuda::CudaCompiler;

// Of one kernel; more than that slows a device down, or is a sign of a tile that does not fit.
constexpr uint32_t kStackBytesMax = 512;
constexpr size_t kImageBytesMax = 256 << 10;

std::vector<Target> DeviceRows() {
  std::vector<Target> targets;
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) \
  if (InfoOf(Target::k##name).is_device()) targets.push_back(Target::k##name);
#include "common/artifact/targets.def"
#undef KILN_TARGET
  return targets;
}

struct Sample {
  std::string name;
  ir::KernelSpec spec;
};

std::vector<Sample> Samples(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Sample> samples;
  for (uint64_t round = 0; round < 4; ++round)
    samples.push_back({"nest", RandomLoopNest(seed + round, 32).Make().spec});
  for (MakeCase make : {RandomMatmul, RandomMatmul, RandomConvolution, RandomByteProduct, RandomByteConvolution,
                        RandomWindow, RandomWindow, RandomAttention, RandomRecurrence}) {
    const SpecCase test = make(random, Target::kSm80);
    samples.push_back({test.name, test.spec});
  }
  return samples;
}

class NvrtcTest : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    auto path = codegen::cuda::FindNvrtc("");
    if (!path.has_value()) GTEST_SKIP() << "no kernel was compiled: " << ToString(path.error());
    path_ = *path;
    auto compiler = CudaCompiler::Create(GetParam(), path_);
    ASSERT_TRUE(compiler.has_value()) << ToString(compiler.error());
    compiler_ = *std::move(compiler);
  }
  std::string path_;
  std::unique_ptr<CudaCompiler> compiler_;
};

TEST_P(NvrtcTest, EveryKindOfKernelCompilesWithoutSpilling) {
  for (const Sample& sample : Samples(Seed())) {
    const auto code = compiler_->Compile(sample.spec);
    ASSERT_TRUE(code.has_value()) << sample.name << ": " << ToString(code.error()) << "\n"
                                  << ir::PrintSpec(sample.spec) << codegen::cuda::EmitCuda(sample.spec)->text;
    EXPECT_EQ(code->resources.spill_bytes, 0u) << sample.name;
    EXPECT_GT(code->resources.registers, 0u);
    EXPECT_LE(code->resources.stack_bytes, kStackBytesMax) << sample.name;
    EXPECT_LE(code->resources.shared_bytes, codegen::cuda::kStaticSharedBytes) << sample.name;
    EXPECT_LE(code->bytes.size(), kImageBytesMax) << sample.name;
    const auto blob = ParseKernelBlob(code->bytes);
    ASSERT_TRUE(blob.has_value()) << ToString(blob.error());
    EXPECT_EQ(blob->target, GetParam());
    EXPECT_EQ(blob->launch->driver_version, 13000u);
  }
}

TEST_P(NvrtcTest, EqualSpecsGiveEqualBytes) {
  const Sample sample = Samples(5)[6];
  const auto other = CudaCompiler::Create(GetParam(), path_);
  ASSERT_TRUE(other.has_value());
  const auto first = compiler_->Compile(sample.spec);
  (void)(*other)->Compile(Samples(6)[0].spec);
  const auto second = (*other)->Compile(sample.spec);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->bytes, second->bytes);
}

// Whatever tile a spec has, its threads have registers and shared memory for it.
TEST_P(NvrtcTest, TilesOfAnyShapeCompile) {
  for (const auto& [mr, nv] :
       {std::pair{64, 1}, {64, 3}, {1, 24}, {32, 24}, {16, 23}, {64, 12}, {9, 13}, {33, 5}, {64, 2}, {64, 7}}) {
    ir::ContractionSpec spec;
    spec.m = spec.n = spec.k = ir::SpecInt::Argument(0);
    spec.a = {0, DType::kF32, {ir::SpecInt::Argument(0), ir::SpecInt::Const(1)}};
    spec.b = {1, DType::kF32, {}};
    spec.tile = {mr, nv};
    spec.accesses = {{2, DType::kF32, {ir::SpecInt::Argument(0), ir::SpecInt::Const(1)}}};
    spec.epilogue = {Node(ir::ScalarOp::kAccumulator)};
    spec.stores = {{0, 0}};
    const auto code = compiler_->Compile({spec, 3, 1});
    EXPECT_TRUE(code.has_value()) << mr << " x " << nv << ": " << (code ? "" : ToString(code.error()));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, NvrtcTest, ::testing::ValuesIn(DeviceRows()),
                         [](const auto& info) { return TargetTestName(info.param); });

TEST(Nvrtc, WhatIsWrongWithAProgramIsTold) {
  const auto path = codegen::cuda::FindNvrtc("");
  if (!path.has_value()) GTEST_SKIP() << "no kernel was compiled: " << ToString(path.error());
  const auto nvrtc = codegen::cuda::Nvrtc::Open(*path);
  ASSERT_TRUE(nvrtc.has_value()) << ToString(nvrtc.error());
  const auto compile = [&](const char* text, int64_t ms) { return (*nvrtc)->Compile(text, Target::kSm80, ms); };
  const auto wrong = compile("extern \"C\" __global__ void kiln_kernel(int* a) { *a = nothing; }", 10'000);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(wrong.error().message.find("nothing"), std::string::npos) << wrong.error().message;
  // More shared memory than a block has.
  EXPECT_FALSE(
      compile("extern \"C\" __global__ void kiln_kernel(int* a) { __shared__ int s[20000]; s[threadIdx.x] = a[0];"
              " __syncthreads(); *a = s[threadIdx.x + 1]; }",
              10'000)
          .has_value());
  // Registers that do not suffice.
  const auto spills = compile(
      "extern \"C\" __global__ void __launch_bounds__(1024, 2) kiln_kernel(float* a) { float x[64];\n#pragma unroll\n"
      "for (int i = 0; i < 64; ++i) x[i] = a[i * threadIdx.x]; for (int k = 0; k < 9; ++k) {\n#pragma unroll\n"
      "for (int i = 0; i < 64; ++i) x[i] = fmaf(x[i], x[(i + 7) % 64], a[k]); }\n#pragma unroll\n"
      "for (int i = 0; i < 64; ++i) a[i * 1024 + threadIdx.x] = x[i]; }",
      10'000);
  ASSERT_FALSE(spills.has_value());
  EXPECT_NE(spills.error().message.find("spill"), std::string::npos) << spills.error().message;
  const auto late = compile(codegen::cuda::EmitCuda(Samples(3)[6].spec)->text.c_str(), 0);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
}

TEST(Nvrtc, ALibraryThatIsNotThereOrIsNoneIsRefused) {
  const auto absent = codegen::cuda::FindNvrtc("/nonexistent/libnvrtc.so.13");
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(codegen::cuda::Nvrtc::Open("/nonexistent/libnvrtc.so.13").has_value());
  EXPECT_FALSE(codegen::cuda::Nvrtc::Open("libm.so.6").has_value());
  EXPECT_FALSE(CudaCompiler::Create(Target::kX86V3, "libm.so.6").has_value());
}

TEST(Nvrtc, TheLogOfTheAssemblerIsRead) {
  const auto resources = codegen::cuda::ParseResources(
      "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'kiln_kernel' for 'sm_80'\n"
      "ptxas info    : Function properties for kiln_kernel\n    8 bytes stack frame, 4 bytes spill stores, 12 bytes "
      "spill loads\nptxas info    : Used 72 registers, used 1 barriers, 8 bytes cumulative stack size, 19456 bytes "
      "smem, 400 bytes cmem[0]\n");
  ASSERT_TRUE(resources.has_value());
  EXPECT_EQ(resources->registers, 72u);
  EXPECT_EQ(resources->barriers, 1u);
  EXPECT_EQ(resources->shared_bytes, 19456u);
  EXPECT_EQ(resources->stack_bytes, 8u);
  EXPECT_EQ(resources->spill_bytes, 16u);
  EXPECT_FALSE(codegen::cuda::ParseResources("").has_value());
}

// No header, no include directive; what the launch says fits the text.
TEST(CudaText, IsSelfContained) {
  for (const Sample& sample : Samples(Seed())) {
    const auto source = codegen::cuda::EmitCuda(sample.spec);
    ASSERT_TRUE(source.has_value()) << ToString(source.error());
    EXPECT_EQ(source->text.find("#include"), std::string::npos);
    EXPECT_NE(source->text.find("__launch_bounds__(" + std::to_string(source->threads) + ", 1)"), std::string::npos);
    EXPECT_EQ(source->text, codegen::cuda::EmitCuda(sample.spec)->text);
  }
}

// Whatever the verifier lets through comes out as a text or as an error, sense or not.
TEST(CudaText, AnyVerifiedSpecHasAText) {
  std::mt19937_64 random(Seed());
  int emitted = 0;
  for (uint64_t round = 0; round < 40; ++round)
    for (const Sample& sample : Samples(random())) {
      std::vector<uint8_t> bytes = ir::EncodeSpec(sample.spec);
      for (int flips = 0; flips < 3; ++flips)
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random() % 4 == 0 ? random() : random() % 9);
      const auto spec = ir::DecodeSpec(bytes);
      if (!spec.has_value()) continue;
      const auto source = codegen::cuda::EmitCuda(*spec);
      const bool too_many = !source.has_value() && source.error().code == ErrorCode::kLimitExceeded;  // arguments
      EXPECT_TRUE(source.has_value() == ir::VerifySpec(*spec).has_value() || too_many) << ir::PrintSpec(*spec);
      emitted += source.has_value() ? 1 : 0;
    }
  EXPECT_GT(emitted, 0);
}

TEST(CudaText, MoreArgumentsThanALaunchHasAreRefused) {
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(600);
  nest.accesses = {{0, DType::kF32, Consts({1})}};
  nest.body = {Node(ir::ScalarOp::kConstant)};
  nest.stages = {StoreStage(ir::Stage::Domain::kInner, {{0, 0}})};
  EXPECT_TRUE(codegen::cuda::EmitCuda({nest, 1, 601}).error().code == ErrorCode::kLimitExceeded);
  nest.inner = ir::SpecInt::Argument(400);
  EXPECT_TRUE(codegen::cuda::EmitCuda({nest, 1, 401}).has_value());
}

}  // namespace
}  // namespace kiln::testing
