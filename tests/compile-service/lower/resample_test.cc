// Resize as loads at positions that a kernel has made: every mode, rule of coordinates and rounding, by scales and by
// sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

constexpr const char* kCoordinates[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                        "align_corners", "asymmetric",           "tf_half_pixel_for_nn"};

std::string Attribute(const std::string& name, const std::string& text) {
  return name + " = \"" + text + "\"";
}

// x of [n, 3, h, w] by constant scales.
std::string ByScales(const std::string& scales, const std::string& attributes, const std::string& type = "f32") {
  return "program \"p\" { symbol n\n symbol h\n symbol w\n constant s : f32[4] = [" + scales +
         "]\n func main(%x: " + type +
         "[n, 3, h, w]) -> (%y) {\n %s : f32[4] = Constant() {value = @s}\n %y : " + type +
         "[*] = Resize(%x, _, %s) {" + attributes + "} } }";
}

// The last two dims to those of another tensor, or to constants.
std::string BySizes(const std::string& h, const std::string& w, const std::string& attributes,
                    const std::string& type = "f32") {
  return "program \"p\" { symbol n\n symbol h\n symbol w\n symbol a\n symbol b\n func main(%x: " + type +
         "[n, 3, h, w], %z: f32[a, b]) -> (%y, %k) {\n %s : i64[2] = ShapeVector() {dims = dims[" + h + ", " + w +
         "]}\n %y : " + type + "[*] = Resize(%x, _, _, %s) {axes = [2, 3], " + attributes +
         "}\n %k : f32[a, b] = Neg(%z) } }";
}

const std::vector<std::vector<int64_t>> kScaled = {{2, 4, 6}, {1, 1, 1}, {1, 7, 33}, {0, 3, 2}};
const std::vector<std::vector<int64_t>> kSized = {
    {2, 4, 6, 7, 9}, {1, 1, 1, 3, 2}, {1, 7, 33, 7, 20}, {0, 3, 2, 1, 4}, {1, 3, 4, 0, 2}};

// By the evaluator of specs: rules multiply, kernels are compiled for some of them.
void CheckRules(const std::string& text, const std::vector<std::vector<int64_t>>& shapes, double tolerance = 2e-4) {
  const lower::LoweredSegment lowered =
      CheckSegment(SegmentOf(text), {.shapes = shapes, .targets = {Target::kX86V3}, .tolerance = tolerance});
  EXPECT_EQ(lowered.coverage.reference_nodes, 0) << text << Describe(lowered);
}

TEST(Resample, NearestOfEveryRule) {
  for (const char* coordinates : kCoordinates) {
    for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      const std::string rules = Attribute("mode", "nearest") + ", " +
                                Attribute("coordinate_transformation_mode", coordinates) + ", " +
                                Attribute("nearest_mode", rounding);
      CheckRules(ByScales("1, 1, 1.5, 0.75", rules), kScaled, 0);
      CheckRules(BySizes("a", "b", rules), kSized, 0);
    }
    CheckBits(BySizes("a", "b", Attribute("coordinate_transformation_mode", coordinates)), kSized);
  }
  for (const char* scales : {"1, 1, 0.5, 2.5", "1, 1, 1, 0.75"})
    CheckBits(ByScales(scales, Attribute("coordinate_transformation_mode", "asymmetric") + ", " +
                                   Attribute("nearest_mode", "ceil_when_shrinking")),
              kScaled);
}

TEST(Resample, NearestMovesEveryDType) {
  for (const char* type : {"f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64"}) {
    CheckBits(ByScales("1, 1, 1.5, 0.75", Attribute("mode", "nearest"), type), {{2, 4, 6}, {1, 7, 33}});
    CheckBits(BySizes("a", "b", Attribute("mode", "nearest"), type), {{2, 4, 6, 7, 9}});
  }
}

TEST(Resample, LinearAndCubicOfEveryRule) {
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* coordinates : kCoordinates) {
      const std::string rules =
          Attribute("mode", mode) + ", " + Attribute("coordinate_transformation_mode", coordinates);
      for (const char* outside : {"", ", exclude_outside = 1"}) {
        CheckRules(ByScales("1, 1, 1.5, 0.75", rules + outside), kScaled);
        CheckRules(BySizes("a", "b", rules + outside), kSized);
      }
      CheckGenerated(BySizes("a", "b", rules + ", exclude_outside = 1"), {kSized[0], kSized[2]});
    }
    CheckGenerated(ByScales("1, 1, 2, 2", Attribute("mode", mode)), kScaled);
    CheckGenerated(BySizes("5", "2*w", Attribute("mode", mode)), {{2, 4, 6, 1, 1}, {1, 5, 1, 1, 1}});
  }
  CheckGenerated(ByScales("1, 1, 1.5, 0.75", Attribute("mode", "cubic") + ", cubic_coeff_a = -0.5"), kScaled);
  for (const char* type : {"f16", "bf16"})
    CheckGenerated(ByScales("1, 1, 1.5, 0.75", Attribute("mode", "linear"), type), {{2, 4, 6}});
}

TEST(Resample, OfEveryAxis) {
  for (const char* scales : {"1, 1.5, 1, 1", "2, 1, 1, 0.5", "1, 3, 0.5, 2", "0.5, 1, 1, 1", "1, 1, 1, 1"}) {
    for (const char* mode : {"nearest", "linear", "cubic"})
      CheckGenerated(ByScales(scales, Attribute("mode", mode)), {{2, 4, 6}, {1, 2, 33}});
  }
  for (const char* mode : {"nearest", "linear", "cubic"})
    CheckGenerated(
        "program \"p\" { symbol n\n constant s : f32[1] = [1.25]\n func main(%x: f32[n]) -> (%y) {\n"
        " %s : f32[1] = Constant() {value = @s}\n %y : f32[*] = Resize(%x, _, %s) {" +
            Attribute("mode", mode) + "} } }",
        {{4}, {100}, {1}, {0}});
}

TEST(Resample, PartsOfTheInput) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* roi :
         {"0, 0, 0.25, -0.5, 1, 1, 0.75, 1.5", "0, 0, 0, 0, 1, 1, 1, 1", "0, 0, 0.5, 1, 1, 1, 0.5, 0"}) {
      CheckGenerated(
          "program \"p\" { symbol n\n symbol h\n symbol w\n constant s : f32[4] = [1, 1, 1.5, 2]\n"
          " constant r : f32[8] = [" +
              std::string(roi) +
              "]\n func main(%x: f32[n, 3, h, w]) -> (%y) {\n %s : f32[4] = Constant() {value = @s}\n"
              " %r : f32[8] = Constant() {value = @r}\n %y : f32[*] = Resize(%x, %r, %s) {" +
              Attribute("mode", mode) + ", " + Attribute("coordinate_transformation_mode", "tf_crop_and_resize") +
              ", extrapolation_value = 2.5} } }",
          {{2, 4, 6}, {1, 1, 1}, {1, 5, 33}});
    }
  }
}

// One scale for all axes; the sizes follow from it.
TEST(Resample, SizesThatKeepTheAspect) {
  for (const char* policy : {"not_larger", "not_smaller"}) {
    for (const char* mode : {"nearest", "linear", "cubic"})
      CheckGenerated(
          "program \"p\" { symbol n\n constant s : i64[2] = [7, 8]\n func main(%x: f32[n, 2, 4]) -> (%y) {\n"
          " %s : i64[2] = Constant() {value = @s}\n %y : f32[*] = Resize(%x, _, _, %s) {axes = [1, 2], " +
              Attribute("mode", mode) + ", " + Attribute("keep_aspect_ratio_policy", policy) + "} } }",
          {{3}, {1}});
  }
}

// Antialiasing changes nothing where no axis shrinks; elsewhere it is left to the reference kernel, as are integers
// between others.
TEST(Resample, WhatReferenceStepsCompute) {
  const std::string rules = Attribute("mode", "linear") + ", antialias = 1";
  CheckGenerated(ByScales("1, 1, 1.5, 2", rules), {{2, 4, 6}});
  for (const std::string& text : {ByScales("1, 1, 0.5, 2", rules), BySizes("a", "b", rules),
                                  ByScales("1, 1, 1.5, 2", Attribute("mode", "linear"), "u8")}) {
    const Segment segment = SegmentOf(text);
    std::vector<int64_t> shape(segment.symbols.size(), 6);
    const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {shape}});
    EXPECT_EQ(lowered.coverage.reference_nodes, 1) << text << Describe(lowered);
  }
}

// What has no weight takes no part, whatever it is; a zero's sign is that of a sum.
TEST(Resample, NeighboursOfInfinitiesStayFinite) {
  const Segment segment = SegmentOf(R"(program "p" {
      constant s : f32[1] = [2]
      func main(%x: f32[4]) -> (%y) {
        %s : f32[1] = Constant() {value = @s}
        %y : f32[*] = Resize(%x, _, %s) {mode = "linear", coordinate_transformation_mode = "asymmetric"} } })");
  const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {}, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float x[] = {1, kInfinity, 3, std::numeric_limits<float>::quiet_NaN()};
  const TensorRef input = MakeRef(DType::kF32, {4}, x);
  CompiledRunner runner(Target::kX86V3);
  const auto got = RunLowered(*lowered, {}, {&input, 1}, {}, 8, runner.runner());
  ASSERT_TRUE(got.has_value()) << ToString(got.error());
  const std::span<const float> y = got->at(0).values<float>();
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_EQ(y[4], 3);
  EXPECT_TRUE(std::isnan(y[5]) && std::isnan(y[6]) && std::isnan(y[7]));
}

// Equal axes share positions; what follows is computed on the way, in the memory order of the convolutions around.
TEST(Resample, BetweenConvolutions) {
  const lower::LoweredSegment lowered = CheckGenerated(R"(program "p" { symbol n
      symbol h
      constant k : f32[8, 8, 3, 3] = splat 0.0625
      constant s : f32[4] = [1, 1, 2, 2]
      func main(%x: f32[n, 8, h, h]) -> (%y) {
        %k : f32[8, 8, 3, 3] = Constant() {value = @k}
        %s : f32[4] = Constant() {value = @s}
        %c : f32[*] = Conv(%x, %k) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
        %r : f32[*] = Resize(%c, _, %s) {mode = "linear"}
        %a : f32[*] = Relu(%r)
        %y : f32[*] = Conv(%a, %k) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} } })",
                                                       {{2, 5}, {1, 1}});
  EXPECT_EQ(lowered.plan.steps.size(), 7u) << Describe(lowered);  // in, conv, positions, axis, axis, conv, out
}

// Nothing to show is an error of the op, which the interpreter reports.
TEST(Resample, APlanBySizesHoldsWhereThereIsSomethingToShow) {
  const Segment segment = SegmentOf(BySizes("a", "b", Attribute("mode", "linear")));
  const lower::LoweredSegment lowered =
      lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {2, 4, 5, 3, 3}, {}}).value();
  EXPECT_TRUE(GuardAdmits(lowered.plan.guard, lowered.plan.symbols, std::vector<int64_t>{2, 1, 5, 3, 3}));
  EXPECT_FALSE(GuardAdmits(lowered.plan.guard, lowered.plan.symbols, std::vector<int64_t>{2, 0, 5, 3, 3}));
}

// A group that is too much for a kernel is computed node by node: the nodes of the axes are the op again.
TEST(Resample, OneAxisAsAReferenceStep) {
  constexpr int kLinks = 70;
  for (const bool by_sizes : {false, true}) {
    std::string body, outputs;
    for (int i = 1; i <= kLinks; ++i) {
      const std::string before = i == 1 ? "r" : "y" + std::to_string(i - 1), name = "y" + std::to_string(i);
      body += " %" + name + " : f32[*] = Add(%" + before + ", %r)\n";
      outputs += (i == 1 ? "%" : ", %") + name;
    }
    const std::string how = by_sizes ? " %s : i64[2] = ShapeVector() {dims = dims[m, 2*n]}\n"
                                       " %r : f32[*] = Resize(%x, _, _, %s) {mode = \"linear\"}\n"
                                     : " %s : f32[2] = Constant() {value = @s}\n"
                                       " %r : f32[*] = Resize(%x, _, %s) {mode = \"cubic\"}\n";
    const Segment segment = SegmentOf(
        "program \"p\" { symbol n\n symbol m\n constant s : f32[2] = [1.5, 0.5]\n"
        " func main(%x: f32[n, m]) -> (" +
        outputs + ") {\n" + how + body + "} }");
    const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{5, 4}, {1, 2}}});
    EXPECT_EQ(lowered.coverage.reference_nodes, kLinks + 1) << Describe(lowered);
  }
}

}  // namespace
}  // namespace kiln::testing
