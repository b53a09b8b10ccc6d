#include <alloca.h>
#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "common/artifact/kernel_blob.h"
#include "compile-service/codegen/disassembler/disassembler.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "tests/support/executable_memory.h"

namespace kiln {
namespace {

// y = x * w with x : [40, 24], w packed in panels of the target's vectors: enough values in flight to be put on the
// stack.
ir::KernelSpec Product(Target target, int64_t m, int64_t n, int64_t k) {
  ir::ContractionSpec c;
  c.m = ir::SpecInt::Const(m);
  c.n = ir::SpecInt::Const(n);
  c.k = ir::SpecInt::Const(k);
  c.a = {0, DType::kF32, {ir::SpecInt::Const(k), ir::SpecInt::Const(1)}};
  c.b = {1, DType::kF32, {}};
  c.tile = {8, InfoOf(target).f32_lanes() >= 16 ? 3 : 1};
  c.accesses = {{2, DType::kF32, {ir::SpecInt::Const(n), ir::SpecInt::Const(1)}}};
  c.epilogue = {{ir::ScalarOp::kAccumulator}};
  c.stores = {{0, 0}};
  return {c, 3, 0};
}

// A frame of another size for each `bytes`: the kernel finds its stack at every alignment that the platform's
// convention allows.
[[gnu::noinline]] void CallFromFrameOf(size_t bytes, const testing::ExecutableKernel& kernel,
                                       std::span<void* const> pointers, int64_t range) {
  volatile char* room = static_cast<volatile char*>(alloca(bytes + 16));
  room[0] = 1;
  kernel.Run(pointers, {}, 0, range);
  room[bytes] = 2;
}

// Vectors that are wider than the stack's alignment are spilled to it, from callers of every frame size; and the code
// calls nothing that could find the stack out of line.
TEST(Origin, StackAlignment) {
  const Target target = HostTargets().front();
  const int64_t m = 40, n = InfoOf(target).f32_lanes() * (InfoOf(target).f32_lanes() >= 16 ? 3 : 1), k = 24;
  const ir::KernelSpec spec = Product(target, m, n, k);
  auto compiler = codegen::KernelCompiler::Create(target);
  ASSERT_TRUE(compiler.has_value());
  const auto code = (*compiler)->Compile(spec);
  ASSERT_TRUE(code.has_value()) << ToString(code.error());
  EXPECT_THAT(*codegen::Disassemble(code->bytes), ::testing::Not(::testing::HasSubstr("call")));
  const testing::ExecutableKernel kernel(code->bytes);
  ASSERT_TRUE(kernel.ok());
  std::vector<float> x(static_cast<size_t>(m * k)), w(static_cast<size_t>(k * n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(i));
  std::vector<float> first;
  for (size_t frame = 0; frame < 160; frame += 16) {
    std::vector<float> y(static_cast<size_t>(m * n), -1);
    void* pointers[] = {x.data(), w.data(), y.data()};
    CallFromFrameOf(frame, kernel, pointers, ir::RangeOf(spec, {}, InfoOf(target).f32_lanes()));
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << "called from a frame of " << frame << " bytes";
  }
  double expected = 0;
  for (int64_t i = 0; i < k; ++i) expected += double{x[static_cast<size_t>(i)]} * double{w[static_cast<size_t>(i * n)]};
  EXPECT_NEAR(first[0], expected, 1e-5);
}

}  // namespace
}  // namespace kiln
