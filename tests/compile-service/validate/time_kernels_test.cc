#include "compile-service/validate/time_kernels.h"

#include <gtest/gtest.h>

#include <deque>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/validate/idle_core.h"

namespace kiln {
namespace {

// y = x over n elements, `extra` more additions an element.
ir::KernelSpec Chain(int extra) {
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(0);
  nest.accesses = {{0, DType::kF32, {ir::SpecInt::Const(1)}}, {1, DType::kF32, {ir::SpecInt::Const(1)}}};
  nest.body = {ir::ScalarNode{ir::ScalarOp::kLoad}};
  for (int i = 0; i < extra; ++i) {
    ir::ScalarNode tanh{ir::ScalarOp::kTanh};
    tanh.a = i;
    nest.body.push_back(tanh);
  }
  ir::Stage store;
  store.kind = ir::Stage::Kind::kStore;
  store.domain = ir::Stage::Domain::kInner;
  store.stores = {{1, extra}};
  nest.stages = {store};
  return {nest, 2, 1};
}

class TimeKernelsTest : public ::testing::Test {
 protected:
  KernelForm Form(int extra) {
    const ir::KernelSpec spec = Chain(extra);
    code_.push_back(codegen::KernelCompiler::Create(target_).value()->Compile(spec)->bytes);
    return {spec, code_.back()};
  }
  const Target target_ = HostTargets().front();
  std::deque<std::vector<uint8_t>> code_;
};

TEST_F(TimeKernelsTest, MoreWorkTakesMoreTimeAndUsesCount) {
  // Sixteen tanh against one copy: no load of the machine turns that round.
  const std::vector<KernelForm> forms{Form(0), Form(16)};
  const auto ns = TimeKernels(forms, target_, std::vector<FormCall>{{{100'000}, 1}, {{64}, 3}}, 20);
  ASSERT_TRUE(ns.has_value()) << ToString(ns.error());
  ASSERT_EQ(ns->size(), 2u);
  EXPECT_GT((*ns)[0], 0);
  EXPECT_GT((*ns)[1], (*ns)[0]);
}

TEST_F(TimeKernelsTest, AnotherTargetThanTheHostsIsRefusedWithAReason) {
  const std::vector<KernelForm> forms{Form(0)};
  const Target other = target_ == Target::kX86V2 ? Target::kX86V3 : Target::kX86V2;
  const auto ns = TimeKernels(forms, other, std::vector<FormCall>{{{100}, 1}}, 20);
  ASSERT_FALSE(ns.has_value());
  EXPECT_EQ(ns.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(ns.error().message.find(InfoOf(other).name), std::string::npos) << ns.error().message;
}

TEST_F(TimeKernelsTest, NothingToTimeAndTooMuchMemoryAreErrors) {
  EXPECT_FALSE(TimeKernels({}, target_, std::vector<FormCall>{{{1}, 1}}, 20).has_value());
  const std::vector<KernelForm> forms{Form(0)};
  EXPECT_FALSE(TimeKernels(forms, target_, {}, 20).has_value());
  EXPECT_EQ(TimeKernels(forms, target_, std::vector<FormCall>{{{int64_t{1} << 33}, 1}}, 20).error().code,
            ErrorCode::kLimitExceeded);
}

constexpr const char* kBefore =
    "cpu  300 0 0 300 0 0 0 0 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 100 0 0 100 0 0 0 0\n"
    "cpu2 100 0 0 100 0 0 0 0\nintr 1 2 3\n";
constexpr const char* kAfter =
    "cpu  330 0 0 330 0 0 0 0 0 0\ncpu0 110 0 0 100 0 0 0 0 0 0\ncpu1 101 0 0 109 0 0 0 0\n"
    "cpu2 100 0 0 105 5 0 0 0\nintr 1 2 3\n";

TEST(IdleCore, IsTheOneThatWasIdleMostAmongThoseAllowed) {
  const std::vector<int> all{0, 1, 2, 3};
  EXPECT_EQ(MostIdleCore(kBefore, kAfter, all, 0.8), 2);
  EXPECT_EQ(MostIdleCore(kBefore, kAfter, std::vector<int>{0, 1}, 0.8), 1);
  EXPECT_EQ(MostIdleCore(kBefore, kAfter, std::vector<int>{0}, 0.8), std::nullopt);
  EXPECT_EQ(MostIdleCore(kBefore, kAfter, std::vector<int>{1}, 0.95), std::nullopt);
}

TEST(IdleCore, TextThatIsNoStatisticGivesNone) {
  for (const char* text : {"", "cpu", "cpux 1 2", "cpu99999999999 1 2 3 4", "cpu0", "cpu0 a b c"})
    EXPECT_EQ(MostIdleCore(text, text, std::vector<int>{0}, 0.1), std::nullopt) << text;
}

}  // namespace
}  // namespace kiln
