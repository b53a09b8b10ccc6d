// Objects to flat code: nothing undefined on any target, and hostile objects are refused.
#include <gtest/gtest.h>

#include <random>

#include "compile-service/codegen/llvm/codegen_id.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/codegen/llvm/mini_linker.h"
#include "tests/support/random_loop_nest.h"

namespace kiln {
namespace {

const Target kAllTargets[] = {
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) Target::k##name,
#include "common/artifact/targets.def"
#undef KILN_TARGET
};

std::vector<Target> ProcessorTargets() {
  std::vector<Target> targets;
  for (Target target : kAllTargets)
    if (!InfoOf(target).is_device()) targets.push_back(target);
  return targets;
}

// Every operation of the scalar language that takes floats, in one chain, through every storage dtype: what LLVM might
// turn into a library call shows as an undefined symbol, which the linker refuses.
ir::KernelSpec EverythingOnce() {
  using ir::ScalarOp;
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(0);
  testing::ProgramBuilder p;
  int32_t value = p.Number(0.5);
  std::vector<ir::Store> stores;
#define KILN_DTYPE(number, name, text, type, bytes, kind)                                                      \
  nest.accesses.push_back({static_cast<int32_t>(nest.accesses.size()), DType::k##name, testing::Consts({1})}); \
  value = p.Op(ScalarOp::kAdd, value, p.Load(static_cast<int32_t>(nest.accesses.size()) - 1));
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  for (ScalarOp op :
       {ScalarOp::kSqrt, ScalarOp::kExp, ScalarOp::kLog, ScalarOp::kTanh, ScalarOp::kErf, ScalarOp::kSigmoid,
        ScalarOp::kSin, ScalarOp::kCos, ScalarOp::kFloor, ScalarOp::kCeil, ScalarOp::kRound, ScalarOp::kAbs})
    value = p.Op(op, value);
  value = p.Op(ScalarOp::kPow, value, p.Number(1.7));
  value = p.Op(ScalarOp::kFma, value, value, p.Number(1.0));
  const int32_t wide = p.Op(ScalarOp::kConvert, value, -1, -1, DType::kI64);
  const int32_t ratio =
      p.Op(ScalarOp::kDiv, wide, p.Op(ScalarOp::kAdd, wide, p.Integer(3), -1, DType::kI64), -1, DType::kI64);
  const int32_t narrow = p.Op(ScalarOp::kConvert, value, -1, -1, DType::kI32);
  const int32_t quotient =
      p.Op(ScalarOp::kDiv, narrow, p.Op(ScalarOp::kNeg, narrow, -1, -1, DType::kI32), -1, DType::kI32);
  const int32_t real = p.Op(ScalarOp::kConvert, ratio, -1, -1, DType::kF64);
#define KILN_DTYPE(number, name, text, type, bytes, kind)                                                        \
  for (int32_t node : {value, ratio, quotient, real}) {                                                          \
    nest.accesses.push_back({static_cast<int32_t>(nest.accesses.size()), DType::k##name, testing::Consts({1})}); \
    stores.push_back({static_cast<int32_t>(nest.accesses.size()) - 1, node});                                    \
  }
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  const auto pointers = static_cast<int32_t>(nest.accesses.size());
  nest.body = p.Take();
  nest.stages = {testing::StoreStage(ir::Stage::Domain::kInner, stores)};
  return {nest, pointers, 1};
}

TEST(Codegen, NoOperationOrConversionNeedsALibrary) {
  for (Target target : ProcessorTargets()) {
    auto compiler = codegen::KernelCompiler::Create(target);
    ASSERT_TRUE(compiler.has_value()) << InfoOf(target).name;
    auto code = (*compiler)->Compile(EverythingOnce());
    EXPECT_TRUE(code.has_value()) << InfoOf(target).name << ": " << (code ? "" : ToString(code.error()));
  }
}

TEST(Codegen, RandomNestsCompileForTargetsTheHostCannotRun) {
  for (Target target : ProcessorTargets()) {
    auto compiler = codegen::KernelCompiler::Create(target);
    ASSERT_TRUE(compiler.has_value());
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const auto kernel = testing::RandomLoopNest(seed, InfoOf(target).f32_lanes()).Make();
      auto code = (*compiler)->Compile(kernel.spec);
      EXPECT_TRUE(code.has_value()) << InfoOf(target).name << ": " << (code ? "" : ToString(code.error())) << "\n"
                                    << ir::PrintSpec(kernel.spec);
    }
  }
}

TEST(Codegen, LlvmMakesNothingForDevices) {
  for (Target target : kAllTargets) {
    if (!InfoOf(target).is_device()) continue;
    const auto compiler = codegen::KernelCompiler::Create(target);
    ASSERT_FALSE(compiler.has_value()) << InfoOf(target).name;
    EXPECT_EQ(compiler.error().code, ErrorCode::kUnsupported);
  }
}

TEST(Codegen, EqualSpecsGiveEqualBytes) {
  auto first = codegen::KernelCompiler::Create(Target::kX86V3);
  auto second = codegen::KernelCompiler::Create(Target::kX86V3);
  ASSERT_TRUE(first.has_value() && second.has_value());
  const auto spec = testing::RandomLoopNest(3, 8).Make().spec;
  auto a = (*first)->Compile(spec);
  (void)(*second)->Compile(EverythingOnce());
  auto b = (*second)->Compile(spec);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->bytes, b->bytes);
}

TEST(Codegen, AnInvalidSpecIsAnErrorNotACrash) {
  auto compiler = codegen::KernelCompiler::Create(Target::kX86V3);
  ASSERT_TRUE(compiler.has_value());
  EXPECT_FALSE((*compiler)->Compile(ir::KernelSpec{}).has_value());
}

// Whatever the verifier lets through must come out as code or as an error: bytes that decode are compiled, sense or
// nonsense.
TEST(Codegen, MutatedSpecsThatVerifyCompileOrFailCleanly) {
  auto compiler = codegen::KernelCompiler::Create(Target::kX86V4);
  ASSERT_TRUE(compiler.has_value());
  std::mt19937 random(3);
  int compiled = 0;
  for (uint64_t seed = 0; compiled < 60; ++seed) {
    ASSERT_LT(seed, 4000u);
    auto bytes = ir::EncodeSpec(testing::RandomLoopNest(seed, 16).Make().spec);
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1u << random() % 8);
    auto spec = ir::DecodeSpec(bytes);
    if (!spec) continue;
    (void)(*compiler)->Compile(*spec);
    ++compiled;
  }
}

TEST(Codegen, IdIsMadeByTheBuild) {
  EXPECT_FALSE(codegen::CodegenId().IsZero());
}

TEST(MiniLinker, RefusesWhatIsNoObject) {
  std::mt19937 random(9);
  std::vector<uint8_t> bytes(4096);
  EXPECT_FALSE(codegen::LinkFlat({}, Architecture::kX86, "kernel").has_value());
  for (int i = 0; i < 200; ++i) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const uint8_t magic[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    std::copy(std::begin(magic), std::end(magic), bytes.begin());
    bytes[16] = 1, bytes[17] = 0, bytes[18] = 62, bytes[19] = 0;
    EXPECT_FALSE(codegen::LinkFlat(bytes, Architecture::kX86, "kernel").has_value());
  }
}

}  // namespace
}  // namespace kiln
