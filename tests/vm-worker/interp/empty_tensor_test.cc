// A tensor without elements may have dims as large as any. No op may walk them: this test would run for hours.
#include <gtest/gtest.h>

#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

constexpr int64_t kLong = int64_t{1} << 35;

class EmptyTensor : public ::testing::TestWithParam<const char*> {};

TEST_P(EmptyTensor, IsAnsweredAtOnce) {
  const auto program = LoadText(std::string(R"(program "p" {
    symbol n
    symbol m
    constant axis : i64[] = splat 1
    constant one : i64[1] = [1]
    constant ones : f32[3] = splat 1.0
    func main(%x: f32[n, m, 3], %k: i64[1], %keep: bool[m], %boxes: f32[n, m, 4], %flat: f32[n, 3, m]) -> (%y) {
      %axis : i64[] = Constant() {value = @axis}
      %one : i64[1] = Constant() {value = @one}
      %scale : f32[3] = Constant() {value = @ones}
      )") + GetParam() + "\n}}");
  ASSERT_TRUE(program);
  const Tensor k = Ints({1}, {0}), keep = Tensor::Allocate(DType::kBool, Dims{0});
  const Tensor x = Tensor::Allocate(DType::kF32, Dims{kLong, 0, 3});
  const Tensor boxes = Tensor::Allocate(DType::kF32, Dims{kLong, 0, 4});
  const Tensor flat = Tensor::Allocate(DType::kF32, Dims{kLong, 3, 0});
  VmContext context;
  for (const bool static_forms : {false, true, true}) {
    const auto outputs = context.Run(*program, std::vector<TensorRef>{x.ref, k.ref, keep.ref, boxes.ref, flat.ref},
                                     {.static_forms = static_forms});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    EXPECT_EQ(outputs->front().ref.elements(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, EmptyTensor,
    ::testing::Values("%y : f32[*] = Softmax(%x)", "%y : f32[*] = Relu(%x)", "%y : f32[*] = Add(%x, %scale)",
                      "%y : f32[*] = CumSum(%x, %axis)", "%y : f32[*] = LayerNormalization(%x, %scale)",
                      "%y : f32[*] = Concat(%x, %x) {axis = 1}", "%y : f32[*], %i : i64[*] = TopK(%x, %k) {axis = 1}",
                      "%y : f32[*] = Compress(%x, %keep) {axis = 1}", "%y : f32[*] = Unique(%x) {axis = 1}",
                      "%y : i64[*] = NonMaxSuppression(%boxes, %flat, %k)", "%y : f32[*] = Gather(%x, %k) {axis = 2}",
                      "%y : f32[*] = Unique(%x)", "%y : i64[*] = NonZero(%x)"));

}  // namespace
}  // namespace kiln
