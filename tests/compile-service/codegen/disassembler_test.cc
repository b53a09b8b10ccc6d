// Listings of kernels: what people read, from bytes that anybody may have sent.
#include "compile-service/codegen/disassembler/disassembler.h"

#include <gmock/gmock.h>

#include <random>

#include "common/artifact/kernel_blob.h"
#include "common/base/limits.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"

namespace kiln::codegen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// y[i] = exp(x[i]) over a flat range.
ir::KernelSpec ExpSpec() {
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(0);
  nest.accesses = {{0, DType::kF32, {ir::SpecInt::Const(1)}}, {1, DType::kF32, {ir::SpecInt::Const(1)}}};
  nest.body = {{ir::ScalarOp::kLoad, DType::kF32}, {ir::ScalarOp::kExp, DType::kF32, 0}};
  ir::Stage store{ir::Stage::Kind::kStore};
  store.domain = ir::Stage::Domain::kInner;
  store.stores = {{1, 1}};
  nest.stages = {store};
  return {nest, 2, 1};
}

std::vector<uint8_t> Compiled(Target target) {
  auto compiler = KernelCompiler::Create(target);
  EXPECT_TRUE(compiler.has_value());
  auto code = (*compiler)->Compile(ExpSpec());
  EXPECT_TRUE(code.has_value()) << (code.has_value() ? "" : ToString(code.error()));
  return code.has_value() ? code->bytes : std::vector<uint8_t>();
}

TEST(Disassembler, ShowsLoopsBranchesAndConstants) {
  const auto listing = Disassemble(Compiled(Target::kX86V3));
  ASSERT_TRUE(listing.has_value()) << ToString(listing.error());
  EXPECT_THAT(*listing, HasSubstr("bytes of code for x86-64-v3"));
  EXPECT_THAT(*listing, HasSubstr("entry:\n"));
  EXPECT_THAT(*listing, HasSubstr("; loop"));
  EXPECT_THAT(*listing, HasSubstr("; back"));
  EXPECT_THAT(*listing, HasSubstr("ymm"));
  EXPECT_THAT(*listing, HasSubstr("1.4427 as f32"));  // log2(e), as every exp needs it
  EXPECT_THAT(*listing, HasSubstr("ret"));
}

// Neither architecture's code calls anything, so no call can find a stack that is not aligned.
TEST(Disassembler, KernelsCallNothing) {
  EXPECT_THAT(*Disassemble(Compiled(Target::kX86V4)), Not(HasSubstr("call")));
  const auto arm = Disassemble(Compiled(Target::kAArch64));
  ASSERT_TRUE(arm.has_value()) << ToString(arm.error());
  EXPECT_THAT(*arm, HasSubstr("fmla"));
  EXPECT_THAT(*arm, Not(HasSubstr(" bl ")));
}

TEST(Disassembler, EndlessCodeIsCutOff) {
  const auto listing = Disassemble(BuildKernelBlob(Target::kX86V2, 0, std::vector<uint8_t>(size_t{1} << 20, 0x90)));
  ASSERT_TRUE(listing.has_value()) << ToString(listing.error());
  EXPECT_THAT(*listing, HasSubstr("the rest is left out"));
  EXPECT_LE(listing->size(), limits::kListingBytesMax + 4096);
}

// What a driver loads is nobody's to read: there is no listing, whatever the image is.
TEST(Disassembler, ImagesOfDevicesAreNotLookedInto) {
  const DeviceLaunch launch{32, 1, 0, 1, 1, 13000};
  const auto listing = Disassemble(BuildDeviceBlob(Target::kSm90, launch, std::vector<uint8_t>(100, 0x7f)));
  ASSERT_FALSE(listing.has_value());
  EXPECT_EQ(listing.error().code, ErrorCode::kUnsupported);
}

TEST(Disassembler, BytesThatAreNoKernelAreRefusedAndAnyCodeIsRead) {
  EXPECT_EQ(Disassemble({}).error().code, ErrorCode::kMalformed);
  EXPECT_FALSE(Disassemble(std::vector<uint8_t>(200, 7)).has_value());
  std::mt19937_64 random(5);
  for (const Target target : {Target::kX86V4Bf16Vnni, Target::kAArch64})
    for (int i = 0; i < 300; ++i) {
      std::vector<uint8_t> code(4 + random() % 200);
      for (uint8_t& byte : code) byte = static_cast<uint8_t>(random());
      const auto listing = Disassemble(BuildKernelBlob(target, 0, code));
      EXPECT_TRUE(listing.has_value());
    }
}

}  // namespace
}  // namespace kiln::codegen
