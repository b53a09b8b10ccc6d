// Rows that kernels reduce: normalisation of groups, sums of exponentials, and reductions of every integer dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

std::string GroupNorm(const std::string& x, int64_t channels, int64_t groups, const std::string& type = "f32") {
  const std::string vector = type + "[" + std::to_string(channels) + "]";
  return "program \"p\" { symbol n\n symbol h\n symbol w\n func main(%x: " + type + x + ", %s: " + vector +
         ", %b: " + vector + ") -> (%y) {\n %y : " + type +
         "[*] = GroupNormalization(%x, %s, %b) {num_groups = " + std::to_string(groups) + ", epsilon = 0.001} } }";
}

TEST(Rows, GroupsOfChannelsAreNormalised) {
  CheckGenerated(GroupNorm("[n, 6, h, w]", 6, 3), {{2, 5, 7}, {1, 1, 1}, {3, 1, 40}, {0, 2, 2}});
  CheckGenerated(GroupNorm("[n, 8, h, w]", 8, 8), {{2, 4, 5}});
  CheckGenerated(GroupNorm("[n, 8, h, w]", 8, 1), {{2, 4, 5}, {1, 3, 1}});
  CheckGenerated(GroupNorm("[n, 4, h]", 4, 2), {{3, 17}, {1, 1}});
  CheckGenerated(GroupNorm("[n, 12]", 12, 4), {{5}, {1}, {0}});
  CheckGenerated(GroupNorm("[n, 4, h, w]", 4, 2, "f16"), {{2, 5, 7}});
}

// As importers write operator sets 18 to 20: scale and bias per group, spread over its channels.
TEST(Rows, ScalesPerGroupAreSpread) {
  CheckGenerated(R"(program "p" { symbol n
      symbol h
      constant one : i64[1] = [1]
      constant to : i64[2] = [2, 3]
      constant flat : i64[1] = [-1]
      func main(%x: f32[n, 6, h], %s: f32[2], %b: f32[2]) -> (%y) {
        %one : i64[1] = Constant() {value = @one}
        %to : i64[2] = Constant() {value = @to}
        %flat : i64[1] = Constant() {value = @flat}
        %sc : f32[2, 1] = Unsqueeze(%s, %one)
        %se : f32[2, 3] = Expand(%sc, %to)
        %sf : f32[6] = Reshape(%se, %flat)
        %bc : f32[2, 1] = Unsqueeze(%b, %one)
        %be : f32[2, 3] = Expand(%bc, %to)
        %bf : f32[6] = Reshape(%be, %flat)
        %y : f32[n, 6, h] = GroupNormalization(%x, %sf, %bf) {num_groups = 2} } })",
                 {{2, 9}, {1, 1}});
}

// Between convolutions, with the activation behind it: rows stay in the memory order of the convolutions.
TEST(Rows, ANormalisationOfGroupsBetweenConvolutions) {
  const lower::LoweredSegment lowered = CheckGenerated(R"(program "p" { symbol n
      symbol h
      constant k : f32[12, 12, 3, 3] = splat 0.0625
      constant v : f32[12] = splat 1.5
      func main(%x: f32[n, 12, h, 6]) -> (%y) {
        %k : f32[12, 12, 3, 3] = Constant() {value = @k}
        %v : f32[12] = Constant() {value = @v}
        %c : f32[*] = Conv(%x, %k) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
        %g : f32[*] = GroupNormalization(%c, %v, %v) {num_groups = 2}
        %s : f32[*] = Sigmoid(%g)
        %m : f32[*] = Mul(%g, %s)
        %y : f32[*] = Conv(%m, %k) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} } })",
                                                       {{2, 9}, {1, 5}});
  EXPECT_EQ(lowered.plan.steps.size(), 5u) << Describe(lowered);  // in, conv, rows, conv, out
}

TEST(Rows, ShortOnesAreMadeInPairs) {
  const std::string softmax = R"(program "p" { symbol n
      symbol m
      func main(%x: f32[n, m]) -> (%y) { %y : f32[n, m] = Softmax(%x) {axis = -1} } })";
  const std::string mean = R"(program "p" { symbol n
      symbol m
      constant a : i64[1] = [1]
      func main(%x: f32[n, m]) -> (%y) {
        %a : i64[1] = Constant() {value = @a}
        %y : f32[n, 1] = ReduceMean(%x, %a) {keepdims = 1} } })";
  const auto in_pairs = [](const std::string& text, std::vector<int64_t> hints, Target target) {
    const lower::LoweredSegment lowered =
        CheckSegment(SegmentOf(text), {.shapes = {std::move(hints), {5, 33}, {1, 7}, {0, 3}}, .targets = {target}});
    EXPECT_EQ(lowered.specs.size(), 1u);
    return std::get<ir::LoopNestSpec>(lowered.specs.at(0).kernel).pairs_rows;
  };
  EXPECT_TRUE(in_pairs(softmax, {8, 32}, Target::kX86V4));
  EXPECT_FALSE(in_pairs(softmax, {1, 32}, Target::kX86V4));
  EXPECT_FALSE(in_pairs(softmax, {8, 600}, Target::kX86V4));
  EXPECT_FALSE(in_pairs(softmax, {8, 32}, Target::kX86V3));
  EXPECT_TRUE(in_pairs(mean, {8, 600}, Target::kX86V4));
}

std::string Reduced(const std::string& op, const std::string& type, const std::string& axes, bool keepdims,
                    const std::string& before = "") {
  const std::string count = "i64[" + std::to_string(1 + std::count(axes.begin(), axes.end(), ',')) + "]";
  return "program \"p\" { symbol n\n symbol m\n constant a : " + count + " = [" + axes +
         "]\n constant big : i32[] = [1000000007]\n constant long : i64[] = [4000000000000000037]\n func main(%x: " +
         type + "[n, 5, m]) -> (%y) {\n %a : " + count + " = Constant() {value = @a}\n" + before + "%y : " + type +
         "[*] = " + op + "(" + (before.empty() ? "%x" : "%z") + ", %a) {keepdims = " + (keepdims ? "1" : "0") + "} } }";
}

TEST(Rows, ReductionsOfEveryIntegerDType) {
  for (const char* type : {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"}) {
    for (const char* op : {"ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax", "ReduceMin"}) {
      const std::string t = type, o = op;
      const bool extreme = o == "ReduceMax" || o == "ReduceMin";
      if ((t == "bool" && !extreme) || (t == "u64" && (extreme || o == "ReduceMean"))) continue;
      CheckBits(Reduced(o, t, "2", false), {{3, 70}, {1, 1}, {2, 0}});
      CheckBits(Reduced(o, t, "-2", true), {{3, 17}, {0, 2}});
      CheckBits(Reduced(o, t, "0, 1, 2", false), {{3, 17}, {0, 1}});
    }
  }
}

// Sums and products beyond the dtype wrap; means do at 2^64 only.
TEST(Rows, LargeIntegersWrap) {
  const std::string narrow = "%b : i32[] = Constant() {value = @big}\n %z : i32[n, 5, m] = Mul(%x, %b)\n";
  const std::string wide = "%b : i64[] = Constant() {value = @long}\n %z : i64[n, 5, m] = Mul(%x, %b)\n";
  for (const char* op :
       {"ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"}) {
    CheckBits(Reduced(op, "i32", "2", false, narrow), {{3, 70}, {1, 1}});
    CheckBits(Reduced(op, "i64", "0, 1", true, wide), {{30, 7}, {1, 1}});
  }
}

// A byte's sum is a byte before anything else reads it.
TEST(Rows, WhatFollowsAReductionSeesItsDType) {
  for (const char* type : {"u8", "i8", "i32"}) {
    const std::string t = type;
    for (const char* op : {"ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax"}) {
      CheckBits("program \"p\" { symbol n\n symbol m\n constant a : i64[1] = [1]\n func main(%x: " + t +
                    "[n, m]) -> (%y) {\n %a : i64[1] = Constant() {value = @a}\n %s : " + t + "[*] = " + op +
                    "(%x, %a)\n %c : f32[*] = Cast(%s) {to = 1}\n %w : f32[n, m] = Cast(%x) {to = 1}\n"
                    " %y : f32[*] = Add(%w, %c) } }",
                {{3, 70}, {1, 1}, {5, 4}});
    }
  }
}

TEST(Rows, SumsOfExponentials) {
  for (const char* axes : {"2", "0, 2", "1", "0, 1, 2"}) {
    CheckGenerated(Reduced("ReduceLogSumExp", "f32", axes, true), {{3, 70}, {1, 1}, {0, 2}});
    CheckGenerated(Reduced("ReduceLogSumExp", "f32", axes, false), {{3, 17}, {2, 1}});
  }
  CheckGenerated(Reduced("ReduceLogSumExp", "f16", "2", false), {{3, 17}});
}

TEST(Rows, SumsOfExponentialsOfInfinities) {
  const Segment segment = SegmentOf(R"(program "p" {
      constant a : i64[1] = [1]
      func main(%x: f32[5, 2]) -> (%y) {
        %a : i64[1] = Constant() {value = @a}
        %y : f32[*] = ReduceLogSumExp(%x, %a) {keepdims = 0} } })");
  const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {}, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  float x[] = {-kInfinity, -kInfinity, kInfinity, 0, -kInfinity, 3, kNaN, 1, 88, 1000};
  const TensorRef input = MakeRef(DType::kF32, {5, 2}, x);
  CompiledRunner runner(Target::kX86V3);
  const auto got = RunLowered(*lowered, {}, {&input, 1}, {}, 8, runner.runner());
  ASSERT_TRUE(got.has_value()) << ToString(got.error());
  const std::span<const float> y = got->at(0).values<float>();
  EXPECT_EQ(y[0], -kInfinity);
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_FLOAT_EQ(y[2], 3);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_FLOAT_EQ(y[4], 1000);
}

TEST(Rows, MeanAndVarianceOverAnyAxes) {
  const auto text = [](const std::string& x, const std::string& attributes) {
    return "program \"p\" { symbol n\n symbol h\n func main(%x: " + x +
           ") -> (%y) {\n %y : " + x.substr(0, x.find('[')) + "[*] = MeanVarianceNormalization(%x) {" + attributes +
           "} } }";
  };
  CheckGenerated(text("f32[n, 5, h, 7]", ""), {{2, 3}, {1, 1}, {3, 40}});
  CheckGenerated(text("f32[n, h]", "axes = [1]"), {{2, 3}, {5, 1}, {1, 100}});
  CheckGenerated(text("f32[n, h, 3]", "axes = [-1, 0]"), {{2, 3}, {5, 1}});
  CheckGenerated(text("f16[n, 5, h, 7]", ""), {{2, 3}});
}

// Equal numbers have no deviation: what rounding leaves of their mean must not be taken for one.
TEST(Rows, MeanAndVarianceOfEqualNumbersAreZero) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
      func main(%x: f32[n, 100]) -> (%y) { %y : f32[n, 100] = MeanVarianceNormalization(%x) {axes = [1]} } })");
  for (const Target target : HostTargets()) {
    const auto lowered = lower::LowerSegment({segment, target, NumericMode::kDefault, {7}, {}});
    ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
    EXPECT_EQ(lowered->coverage.reference_nodes, 0);
    Tensor x = Tensor::Zeros(DType::kF32, Dims{7, 100});
    for (int64_t i = 0; i < 700; ++i) x.ref.as<float>()[i] = 0.1f * static_cast<float>(i / 100 + 1) + 3e4f * (i >= 300);
    CompiledRunner runner(target);
    const auto y =
        RunLowered(*lowered, std::vector<int64_t>{7}, {&x.ref, 1}, {}, InfoOf(target).f32_lanes(), runner.runner());
    ASSERT_TRUE(y.has_value()) << ToString(y.error());
    for (const float value : (*y)[0].values<float>()) EXPECT_EQ(value, 0);
  }
}

TEST(Rows, ResponsesOfNeighbouringChannels) {
  const auto text = [](const std::string& x, const std::string& attributes) {
    return "program \"p\" { symbol n\n symbol h\n func main(%x: " + x +
           ") -> (%y) {\n %y : " + x.substr(0, x.find('[')) + "[*] = LRN(%x) {" + attributes + "} } }";
  };
  for (const char* attributes :
       {"size = 3", "size = 5, alpha = 0.5, beta = 0.75, bias = 2.0", "size = 4, alpha = 1.0, beta = 0.5, bias = 0.5",
        "size = 1, alpha = 2.0", "size = 31, alpha = 3.0, beta = 1.0"})
    CheckGenerated(text("f32[n, 9, h, 7]", attributes), {{2, 3}, {1, 1}, {0, 2}});
  CheckGenerated(text("f32[n, h, 5]", "size = 3, alpha = 0.5"), {{3, 7}});
  CheckGenerated(text("f16[n, 9, h, 7]", "size = 3, alpha = 0.5"), {{2, 3}});
}

TEST(Rows, RowsByTheirNorm) {
  for (const char* attributes : {"p = 1", "p = 2", "axis = 0, p = 2", "axis = 1, p = 1"})
    CheckGenerated(std::string("program \"p\" { symbol n\n symbol h\n func main(%x: f32[n, h, 7]) -> (%y) {\n "
                               "%y : f32[n, h, 7] = LpNormalization(%x) {") +
                       attributes + "} } }",
                   {{2, 3}, {1, 1}, {5, 40}});
}

}  // namespace
}  // namespace kiln::testing
