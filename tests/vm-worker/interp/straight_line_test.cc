#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

TEST(Interpreter, RunsAStraightLine) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 4096]
    constant w : f32[2, 3] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    func main(%x: f32[n, 2]) -> (%z) {
      %c : f32[2, 3] = Constant() {value = @w}
      %y : f32[n, 3] = MatMul(%x, %c)
      %z : f32[n, 3] = Relu(%y)
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  for (int64_t n : {0, 1, 2, 5}) {
    const Tensor x = Iota({n, 2}, -1.0f);
    const auto outputs = RunEveryWay(context, *program, std::vector{x.ref});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    ASSERT_EQ((*outputs)[0].dims(), (Dims{n, 3}));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < 3; ++k) {
        const float a = x.ref.as<float>()[2 * i], b = x.ref.as<float>()[2 * i + 1];
        const float w0 = static_cast<float>(k + 1), w1 = static_cast<float>(k + 4);
        EXPECT_EQ((*outputs)[0].ref.as<float>()[3 * i + k], std::max(0.0f, a * w0 + b * w1));
      }
  }
}

TEST(Interpreter, ViewsShareTheInputsMemory) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [1, 4096]
    constant shape : i64[2] = [-1, 6]
    constant starts : i64[1] = [1]
    constant ends : i64[1] = [3]
    constant axes : i64[1] = [1]
    func main(%x: f32[n, 3, 2]) -> (%t, %r, %s) {
      %t : f32[2, 3, n] = Transpose(%x)
      %c : i64[2] = Constant() {value = @shape}
      %r : f32[n, 6] = Reshape(%x, %c)
      %b : i64[1] = Constant() {value = @starts}
      %e : i64[1] = Constant() {value = @ends}
      %a : i64[1] = Constant() {value = @axes}
      %s : f32[n, 2] = Slice(%r, %b, %e, %a)
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor x = Iota({4, 3, 2});
  for (bool static_forms : {false, true, true}) {
    const auto outputs = context.RunBorrowed(*program, std::vector{x.ref}, {.static_forms = static_forms});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    EXPECT_EQ((*outputs)[0].data, x.ref.data);
    EXPECT_EQ((*outputs)[0].strides, (Dims{1, 2, 6}));
    EXPECT_EQ((*outputs)[1].data, x.ref.data);
    EXPECT_EQ((*outputs)[2].data, x.ref.as<float>() + 1);
    EXPECT_EQ((*outputs)[2].strides, (Dims{6, 1}));
    EXPECT_EQ(context.stats().arena.used_bytes, 0u);
  }
}

TEST(Interpreter, CopiesWhereAReshapeOfATransposedTensorHasNoView) {
  const auto program = LoadText(R"(program "p" {
    constant shape : i64[1] = [6]
    func main(%x: f32[2, 3]) -> (%r) {
      %t : f32[3, 2] = Transpose(%x)
      %c : i64[1] = Constant() {value = @shape}
      %r : f32[6] = Reshape(%t, %c)
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor x = Iota({2, 3});
  const auto outputs = RunEveryWay(context, *program, std::vector{x.ref});
  ASSERT_TRUE(outputs) << ToString(outputs.error());
  EXPECT_EQ(Values((*outputs)[0].ref), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(Interpreter, BroadcastsEveryRow) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [1, 4096]
    func main(%x: f32[n, 64], %b: f32[64]) -> (%y) {
      %y : f32[n, 64] = Add(%x, %b)
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  for (int64_t rows : {1, 2, 31, 32, 33}) {
    const Tensor x = Iota({rows, 64}), b = Iota({64}, 1000.0f);
    const auto outputs = RunEveryWay(context, *program, std::vector{x.ref, b.ref});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    for (int64_t i = 0; i < rows * 64; ++i)
      ASSERT_EQ((*outputs)[0].ref.as<float>()[i], static_cast<float>(i) + 1000.0f * static_cast<float>(i % 64))
          << "element " << i;
  }
}

TEST(Interpreter, TakesStridedInputs) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    func main(%x: f32[n, m]) -> (%y, %s) {
      %y : f32[n, m] = Neg(%x)
      %s : f32[n, m] = Softmax(%x)
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor whole = Iota({6, 8}, 0.25f);
  TensorRef transposed{DType::kF32, {8, 6}, {1, 8}, whole.ref.data};
  TensorRef part{DType::kF32, {3, 2}, {16, 3}, whole.ref.as<float>() + 1};
  TensorRef repeated{DType::kF32, {5, 8}, {0, 1}, whole.ref.data};
  TensorRef backwards{DType::kF32, {6, 8}, {8, -1}, whole.ref.as<float>() + 7};
  TensorRef empty{DType::kF32, {0, 8}, {8, 1}, nullptr};
  for (const TensorRef& x : {transposed, part, repeated, backwards, empty}) {
    const auto strided = RunEveryWay(context, *program, std::vector{x});
    ASSERT_TRUE(strided) << ToString(strided.error());
    const Tensor flat = MakeContiguous(x);
    const auto contiguous = RunEveryWay(context, *program, std::vector{flat.ref});
    ASSERT_TRUE(contiguous) << ToString(contiguous.error());
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(Values((*strided)[i].ref), Values((*contiguous)[i].ref));
  }
}

TEST(Interpreter, ShapeArithmeticFollowsTheShapes) {
  const auto program = LoadText(R"(program "p" {
    symbol b in [1, 64]
    symbol t in [1, 64]
    constant one : i64[1] = [1]
    constant zero : i64[] = [0]
    func main(%x: f32[b, t, 4]) -> (%y, %v) {
      %shape : i64[3] = Shape(%x)
      %i : i64[] = Constant() {value = @zero}
      %d : i64[] = Gather(%shape, %i)
      %axis : i64[1] = Constant() {value = @one}
      %z : i64[1] = Unsqueeze(%d, %i)
      %minus : i64[1] = Neg(%axis)
      %to : i64[2] = Concat(%z, %minus) {axis = 0}
      %y : f32[b, 4*t] = Reshape(%x, %to)
      %v : i64[2] = ShapeVector() {dims = dims[t, 4*b]}
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  for (int64_t b : {1, 2, 3}) {
    const Tensor x = Iota({b, 5, 4});
    const auto outputs = RunEveryWay(context, *program, std::vector{x.ref});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    EXPECT_EQ((*outputs)[0].dims(), (Dims{b, 20}));
    EXPECT_EQ(Values<int64_t>((*outputs)[1].ref), (std::vector<int64_t>{5, 4 * b}));
  }
}

TEST(Interpreter, DataDependentSizesLeaveTheSegment) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    symbol k in [0, 64]
    func main(%x: f32[n]) -> (%y, %v) {
      %a : f32[n] = Relu(%x)
      %i : i64[1, k] = NonZero(%a)
      %y : i64[1, k] = Neg(%i)
      %v : i64[1] = ShapeVector() {dims = dims[k]}
    }
  })");
  ASSERT_TRUE(program);
  EXPECT_EQ(program->segments().size(), 2u);
  VmContext context;
  for (const std::vector<float>& values : {std::vector<float>{0, 1, -1, 2}, {0, 0}, {}, {5, 6, 7}}) {
    const Tensor x = Floats({static_cast<int64_t>(values.size())}, values);
    const auto outputs = RunEveryWay(context, *program, std::vector{x.ref});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    std::vector<int64_t> expected;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] > 0) expected.push_back(-static_cast<int64_t>(i));
    EXPECT_EQ(Values<int64_t>((*outputs)[0].ref), expected);
    EXPECT_EQ(Values<int64_t>((*outputs)[1].ref), std::vector<int64_t>{static_cast<int64_t>(expected.size())});
  }
}

}  // namespace
}  // namespace kiln
