#include "compile-service/validate/validate_kernel.h"

#include <gtest/gtest.h>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/validate/pointer_extents.h"

namespace kiln {
namespace {

// y[i] = op(x[i]) over n elements, n and the strides constant or arguments.
ir::KernelSpec Chain(ir::ScalarOp op, int64_t stride = 1) {
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(0);
  nest.accesses = {{0, DType::kF32, {ir::SpecInt::Const(stride)}}, {1, DType::kF32, {ir::SpecInt::Const(1)}}};
  ir::ScalarNode load{ir::ScalarOp::kLoad}, result{op};
  result.a = 0;
  nest.body = {load, result};
  ir::Stage store;
  store.kind = ir::Stage::Kind::kStore;
  store.domain = ir::Stage::Domain::kInner;
  store.stores = {{1, 1}};
  nest.stages = {store};
  return {nest, 2, 1};
}

class ValidateKernelTest : public ::testing::Test {
 protected:
  std::vector<uint8_t> Compile(const ir::KernelSpec& spec) {
    auto compiler = codegen::KernelCompiler::Create(target_).value();
    return compiler->Compile(spec)->bytes;
  }
  const Target target_ = HostTargets().front();
  const std::vector<std::vector<int64_t>> trials_ = {{1000}, {1}, {0}};
};

TEST_F(ValidateKernelTest, ACorrectKernelIsTriedAtEveryTrial) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp);
  const auto compared = ValidateKernel(spec, Compile(spec), target_, trials_, 1);
  ASSERT_TRUE(compared.has_value()) << ToString(compared.error());
  EXPECT_EQ(*compared, 4u);  // the first trial again with special values
}

TEST_F(ValidateKernelTest, AKernelOfAnotherSpecIsCaughtWithElementAndValues) {
  const auto compared =
      ValidateKernel(Chain(ir::ScalarOp::kExp), Compile(Chain(ir::ScalarOp::kTanh)), target_, trials_, 1);
  ASSERT_FALSE(compared.has_value());
  EXPECT_EQ(compared.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(compared.error().message.find("the reference gives"), std::string::npos) << compared.error().message;
}

TEST_F(ValidateKernelTest, AKernelThatReadsTooFarDiesAtTheGuardPage) {
  const std::vector<uint8_t> reads_every_third = Compile(Chain(ir::ScalarOp::kExp, 3));
  EXPECT_DEATH((void)ValidateKernel(Chain(ir::ScalarOp::kExp), reads_every_third, target_, trials_, 1).has_value(), "");
}

TEST_F(ValidateKernelTest, AKernelThatWritesItsInputDies) {
  ir::KernelSpec swapped = Chain(ir::ScalarOp::kExp);
  for (ir::Access& access : std::get<ir::LoopNestSpec>(swapped.kernel).accesses) access.pointer = 1 - access.pointer;
  EXPECT_DEATH((void)ValidateKernel(Chain(ir::ScalarOp::kExp), Compile(swapped), target_, trials_, 1).has_value(), "");
}

TEST_F(ValidateKernelTest, ForAForeignTargetNothingIsExecuted) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp);
  EXPECT_EQ(ValidateKernel(spec, Compile(spec), Target::kAArch64, trials_, 1).value(), 0u);
}

TEST(PointerExtents, NegativeStridesReachBelowThePointer) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp, -2);
  const int64_t dims[] = {5};
  const auto extents = PointerExtents(spec, dims, 16).value();
  EXPECT_EQ(extents[0].before, 8);
  EXPECT_EQ(extents[0].elements, 9);
  EXPECT_EQ(extents[1].before, 0);
  EXPECT_EQ(extents[1].elements, 5);
  EXPECT_TRUE(extents[1].written);
  EXPECT_FALSE(extents[0].written);
}

}  // namespace
}  // namespace kiln
