// Hand-written loop nests with results a sentence can say, on every target this host runs.
#include <gtest/gtest.h>

#include <cmath>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "tests/support/executable_memory.h"
#include "tests/support/spec_builder.h"

namespace kiln {
namespace {

using ir::Access;
using ir::KernelSpec;
using ir::LoopNestSpec;
using ir::ScalarOp;
using ir::SpecInt;
using ir::Stage;
using testing::Consts;
using testing::ProgramBuilder;

class LoopNest : public ::testing::TestWithParam<Target> {
 protected:
  std::vector<uint8_t> Compile(const KernelSpec& spec) {
    auto compiler = codegen::KernelCompiler::Create(GetParam());
    EXPECT_TRUE(compiler.has_value());
    auto code = (*compiler)->Compile(spec);
    EXPECT_TRUE(code.has_value()) << (code ? "" : ToString(code.error()));
    return code ? code->bytes : std::vector<uint8_t>{};
  }
};

// out[i] = a[i] * b[0] + 1 over a run-time extent.
KernelSpec ScaleAndShift() {
  LoopNestSpec nest;
  nest.inner = SpecInt::Argument(0);
  nest.accesses = {{0, DType::kF32, Consts({1})}, {1, DType::kF32, Consts({0})}, {2, DType::kF32, Consts({1})}};
  ProgramBuilder p;
  const int32_t product = p.Op(ScalarOp::kMul, p.Load(0), p.Load(1));
  const int32_t sum = p.Op(ScalarOp::kAdd, product, p.Number(1));
  nest.body = p.Take();
  nest.stages = {testing::StoreStage(Stage::Domain::kInner, {{2, sum}})};
  return {nest, 3, 1};
}

TEST_P(LoopNest, FlatChain_WritesExactlyItsPart) {
  const std::vector<uint8_t> blob = Compile(ScaleAndShift());
  testing::ExecutableKernel kernel(blob);
  ASSERT_TRUE(kernel.ok());
  for (int64_t n : {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 100, 257}) {
    std::vector<float> a(static_cast<size_t>(n)), out(static_cast<size_t>(n) + 2, -7.0f);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
    float b = 2.0f;
    void* pointers[] = {a.data(), &b, out.data() + 1};
    const int64_t middle = n / 3;
    kernel.Run(pointers, std::vector<int64_t>{n}, middle, n);
    for (int64_t i = 0; i < middle; ++i) ASSERT_EQ(out[static_cast<size_t>(i) + 1], -7.0f);
    kernel.Run(pointers, std::vector<int64_t>{n}, 0, middle);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[static_cast<size_t>(i) + 1], 2.0f * static_cast<float>(i) + 1.0f);
    EXPECT_EQ(out.front(), -7.0f);
    EXPECT_EQ(out.back(), -7.0f);
  }
}

// Softmax over the inner dim: maximum, exponentials stored in place of the result, their sum, quotient.
KernelSpec Softmax() {
  LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0)};
  nest.inner = SpecInt::Argument(1);
  nest.reduce_inner = true;
  const std::vector<SpecInt> strides = {SpecInt::Argument(1), SpecInt::Const(1)};
  nest.accesses = {{0, DType::kF32, strides}, {1, DType::kF32, strides}};
  ProgramBuilder p;
  const int32_t x = p.Load(0), largest = p.StageResult(0), kept = p.Load(1), sum = p.StageResult(2);
  const int32_t exponential = p.Op(ScalarOp::kExp, p.Op(ScalarOp::kSub, x, largest));
  const int32_t quotient = p.Op(ScalarOp::kDiv, kept, sum);
  nest.body = p.Take();
  nest.stages = {
      testing::ReduceStage(ir::Combine::kMax, x), testing::StoreStage(Stage::Domain::kInner, {{1, exponential}}),
      testing::ReduceStage(ir::Combine::kSum, kept), testing::StoreStage(Stage::Domain::kInner, {{1, quotient}})};
  return {nest, 2, 2};
}

TEST_P(LoopNest, Softmax_RowsSumToOneAndKeepTheOrderOfTheirInputs) {
  const std::vector<uint8_t> blob = Compile(Softmax());
  testing::ExecutableKernel kernel(blob);
  ASSERT_TRUE(kernel.ok());
  for (int64_t n : {1, 2, 15, 16, 17, 70}) {
    std::vector<float> in(static_cast<size_t>(3 * n)), out(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 13) * 2.0f - 12.0f;
    void* pointers[] = {in.data(), out.data()};
    kernel.Run(pointers, std::vector<int64_t>{3, n}, 0, 3);
    for (int64_t row = 0; row < 3; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(row * n + i);
        sum += out[at];
        if (i > 0) {
          EXPECT_EQ(in[at] > in[at - 1], out[at] > out[at - 1]) << at;
        }
      }
      EXPECT_NEAR(sum, 1.0, 1e-6);
    }
  }
}

// out[b, c, i] = in[b, i, c], the last two transposed.
KernelSpec Transposed() {
  LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0), SpecInt::Argument(1)};
  nest.inner = SpecInt::Argument(2);
  nest.accesses = {{0, DType::kF32, {SpecInt::Argument(3), SpecInt::Const(1), SpecInt::Argument(1)}},
                   {1, DType::kF32, {SpecInt::Argument(3), SpecInt::Argument(2), SpecInt::Const(1)}}};
  ProgramBuilder p;
  const int32_t x = p.Load(0);
  nest.body = p.Take();
  nest.stages = {testing::StoreStage(Stage::Domain::kInner, {{1, x}})};
  return {nest, 2, 4};
}

// Tiles of 16 points and 128 positions, and whatever a part of the range leaves of them.
TEST_P(LoopNest, Transpose_WritesExactlyItsPart) {
  const std::vector<uint8_t> blob = Compile(Transposed());
  testing::ExecutableKernel kernel(blob);
  ASSERT_TRUE(kernel.ok());
  for (const int64_t batch : {1, 3}) {
    for (const int64_t points : {0, 1, 2, 15, 16, 17, 33}) {
      for (const int64_t positions : {0, 1, 5, 16, 127, 128, 129, 300}) {
        const int64_t range = batch * points, elements = range * positions;
        std::vector<float> in(static_cast<size_t>(elements)), out(in.size(), -7.0f);
        for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
        void* pointers[] = {in.data(), out.data()};
        const std::vector<int64_t> dims = {batch, points, positions, points * positions};
        const int64_t cuts[] = {0, range / 5, range / 2, range - range / 7, range};
        for (size_t part : {2, 0, 3, 1}) {
          kernel.Run(pointers, dims, cuts[part], cuts[part + 1]);
          // Of the parts of which none has run, nothing is written.
          if (part != 2) continue;
          for (int64_t i = 0; i < cuts[2] * positions; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], -7.0f);
        }
        for (int64_t b = 0; b < batch; ++b)
          for (int64_t c = 0; c < points; ++c)
            for (int64_t i = 0; i < positions; ++i)
              ASSERT_EQ(out[static_cast<size_t>((b * points + c) * positions + i)],
                        static_cast<float>((b * positions + i) * points + c))
                  << batch << " x " << points << " x " << positions;
      }
    }
  }
}

// Sums of numbers that are alike, which rounding shortens all in one direction: of a column over two dims, and of a
// row.
TEST_P(LoopNest, LongSums_AreAddedInShortChains) {
  constexpr int64_t kRows = 3000, kPlanes = 400;
  LoopNestSpec nest;
  nest.reduce = {SpecInt::Argument(0), SpecInt::Argument(1)};
  nest.inner = SpecInt::Const(1);
  nest.accesses = {{0, DType::kF32, {SpecInt::Argument(1), SpecInt::Const(1), SpecInt::Const(0)}},
                   {1, DType::kF32, Consts({0, 0, 1})}};
  ProgramBuilder p;
  const int32_t x = p.Load(0), sum = p.StageResult(0);
  nest.body = p.Take();
  nest.stages = {testing::ReduceStage(ir::Combine::kSum, x), testing::StoreStage(Stage::Domain::kInner, {{1, sum}})};
  const KernelSpec columns{nest, 2, 2};
  nest.reduce = {SpecInt::Argument(0)};
  nest.inner = SpecInt::Argument(1);
  nest.reduce_inner = true;
  nest.accesses = {{0, DType::kF32, {SpecInt::Argument(1), SpecInt::Const(1)}}, {1, DType::kF32, Consts({0, 0})}};
  nest.stages = {testing::ReduceStage(ir::Combine::kSum, x), testing::StoreStage(Stage::Domain::kRow, {{1, sum}})};
  const KernelSpec row{nest, 2, 2};
  std::vector<float> in(static_cast<size_t>(kRows * kPlanes), 0.1f);
  for (const KernelSpec* spec : {&columns, &row}) {
    const std::vector<uint8_t> blob = Compile(*spec);
    testing::ExecutableKernel kernel(blob);
    ASSERT_TRUE(kernel.ok());
    for (const auto& [planes, rows] :
         {std::pair{kPlanes, kRows}, {int64_t{1}, kRows * kPlanes}, {kRows * kPlanes, int64_t{1}}}) {
      float out = 0;
      void* pointers[] = {in.data(), &out};
      kernel.Run(pointers, std::vector<int64_t>{planes, rows}, 0, 1);
      const double exact = static_cast<double>(0.1f) * static_cast<double>(in.size());
      EXPECT_NEAR(out / exact, 1.0, 1e-4) << planes << " x " << rows;
    }
  }
}

// out[column] = largest of the column's three rows.
TEST_P(LoopNest, ColumnMaximum_LetsANaNWin) {
  LoopNestSpec nest;
  nest.reduce = Consts({3});
  nest.inner = SpecInt::Const(21);
  nest.accesses = {{0, DType::kF32, Consts({21, 1})}, {1, DType::kF32, Consts({0, 1})}};
  ProgramBuilder p;
  const int32_t x = p.Load(0), largest = p.StageResult(0);
  nest.body = p.Take();
  nest.stages = {testing::ReduceStage(ir::Combine::kMax, x),
                 testing::StoreStage(Stage::Domain::kInner, {{1, largest}})};
  const std::vector<uint8_t> blob = Compile({nest, 2, 0});
  testing::ExecutableKernel kernel(blob);
  ASSERT_TRUE(kernel.ok());
  for (size_t bad_row = 0; bad_row < 3; ++bad_row) {
    std::vector<float> in(63), out(21);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    in[bad_row * 21 + 18] = NAN;
    void* pointers[] = {in.data(), out.data()};
    kernel.Run(pointers, {}, 0, 1);
    for (size_t i = 0; i < 21; ++i) {
      if (i == 18) {
        EXPECT_TRUE(std::isnan(out[i]));
      } else {
        EXPECT_EQ(out[i], static_cast<float>(42 + i));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryHostTarget, LoopNest, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

}  // namespace
}  // namespace kiln
