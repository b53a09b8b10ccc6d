// Nodes that ask where an element lies: Trilu, OneHot, ArgMax and ArgMin, alone and among others.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

std::string Program(const std::string& inputs, const std::string& nodes, const std::string& constants = "") {
  return "program \"p\" { symbol n\n symbol m\n " + constants + " func main(" + inputs + ") -> (%y) {\n" + nodes +
         " } }";
}

TEST(Positional, Triangles) {
  for (const char* dtype : {"f32", "i64", "u8", "bool"}) {
    for (int upper : {0, 1}) {
      const std::string t = dtype;
      CheckGenerated(Program("%x: " + t + "[2, n, m]",
                             "%y : " + t + "[2, n, m] = Trilu(%x) {upper = " + std::to_string(upper) + "}"),
                     {{4, 5}, {1, 33}, {7, 1}, {0, 3}});
    }
  }
  for (const char* k : {"-2", "3", "-9223372036854775807", "9223372036854775807"}) {
    CheckGenerated(Program("%x: f32[n, m]", "%k : i64[] = Constant() {value = @k}\n %y : f32[n, m] = Trilu(%x, %k)",
                           std::string("constant k : i64[] = [") + k + "]\n"),
                   {{4, 5}, {9, 9}});
  }
}

// A mask that is made, cut and added in one kernel.
TEST(Positional, ATriangleJoinsTheChainAroundIt) {
  const lower::LoweredSegment lowered =
      CheckGenerated(Program("%x: f32[n, m], %z: f32[n, m]", R"(%a : f32[n, m] = Sigmoid(%x)
        %t : f32[n, m] = Trilu(%a) {upper = 0}
        %y : f32[n, m] = Add(%t, %z))"),
                     {{4, 5}, {1, 17}, {6, 6}});
  EXPECT_EQ(lowered.plan.steps.size(), 1u) << Describe(lowered);
}

// The diagonal is what the call says: beyond every tensor, too.
TEST(Positional, TrianglesAtARunTimeDiagonal) {
  const std::string text = Program("%x: f32[n, m], %i: i64[], %f: i64[1]", R"(%k : i64[] = Mul(%i, %f)
        %a : f32[n, m] = Trilu(%x, %k) {upper = 0}
        %y : f32[n, m] = Trilu(%a, %i))");
  CheckGenerated(text, {{4, 5}, {1, 33}, {7, 1}, {0, 3}});
  const Segment segment = SegmentOf(
      "program \"p\" { func main(%x: f32[3, 3], %k: i64[]) -> (%y) { %y : f32[3, 3] = "
      "Trilu(%x, %k) } }");
  const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {}, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  CompiledRunner runner(Target::kX86V3);
  std::vector<float> x(9, 1);
  for (const auto& [k, ones] :
       std::vector<std::pair<int64_t, float>>{{INT64_MIN, 9}, {-1, 8}, {2, 1}, {INT64_MAX, 0}}) {
    int64_t diagonal = k;
    const TensorRef inputs[] = {MakeRef(DType::kF32, {3, 3}, x.data()), MakeRef(DType::kI64, {}, &diagonal)};
    const auto got = RunLowered(*lowered, {}, inputs, {}, 8, runner.runner());
    ASSERT_TRUE(got.has_value()) << ToString(got.error());
    float sum = 0;
    for (float value : got->at(0).values<float>()) sum += value;
    EXPECT_EQ(sum, ones) << k;
  }
}

// As many as there are entries, from a start that is a size, too; what is made of a range is made with it.
TEST(Positional, RangesOfSizesThatTheCallSays) {
  const lower::LoweredSegment lowered = CheckGenerated(R"(program "p" { symbol n in [0, 64]
      symbol m in [0, 64]
      func main(%x: f32[n, m]) -> (%y) {
        %s : i64[1] = ShapeVector() {dims = dims[n]}
        %e : i64[1] = ShapeVector() {dims = dims[3*n]}
        %d : i64[1] = ShapeVector() {dims = dims[2]}
        %r : i64[*] = Range(%s, %e, %d)
        %y : i64[*] = Mul(%r, %r) } })",
                                                       {{5, 1}, {1, 1}, {0, 2}, {64, 3}});
  EXPECT_EQ(lowered.plan.steps.size(), 3u) << Describe(lowered);
}

TEST(Positional, OneHotRowsOfAnyAxis) {
  const std::string depth = "constant d : i64[] = [3]\n constant v : f32[2] = [-1, 2.5]\n";
  const std::string operands = "%d : i64[] = Constant() {value = @d}\n %v : f32[2] = Constant() {value = @v}\n";
  // Indices are 0..3: one of them is beyond the depth, and negative ones count from the end.
  CheckGenerated(Program("%i: i64[n, m]", operands + "%y : f32[n, m, 3] = OneHot(%i, %d, %v)", depth),
                 {{4, 5}, {1, 1}, {0, 2}});
  CheckGenerated(
      Program("%i: i32[n, m]",
              operands + "%j : i32[n, m] = Neg(%i)\n %y : f32[n, 3, m] = OneHot(%j, %d, %v) {axis = 1}", depth),
      {{4, 5}, {2, 40}});
  CheckGenerated(
      Program("%i: i64[n], %w: i64[2]",
              "%d : i64[] = Constant() {value = @d}\n %y : i64[3, n] = OneHot(%i, %d, %w) {axis = 0}", depth),
      {{5}, {33}});
}

TEST(Positional, ArgReductionsOfEveryAxisAndDType) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const char* dtype : {"f32", "i64", "i32", "u8", "f16"}) {
      for (const char* attributes : {"axis = -1, keepdims = 0", "axis = 0", "axis = 1, select_last_index = 1"}) {
        const std::string a = attributes, t = dtype;
        const char* dims = a.find("keepdims = 0") != std::string::npos ? "[n, m]"
                           : a.find("axis = 0") != std::string::npos   ? "[1, m, 5]"
                                                                       : "[n, 1, 5]";
        CheckGenerated(
            Program("%x: " + t + "[n, m, 5]", std::string("%y : i64") + dims + " = " + op + "(%x) {" + a + "}"),
            {{4, 3}, {1, 1}, {17, 40}});
      }
    }
  }
}

// The input is made by another kernel: both passes over it must see the same bits.
TEST(Positional, WhatAnArgReductionReadsIsStoredFirst) {
  const lower::LoweredSegment lowered =
      CheckGenerated(Program("%x: f32[n, m], %z: f32[n, m]", R"(%p : f32[n, m] = Mul(%x, %z)
        %s : f32[n, m] = Add(%p, %x)
        %i : i64[n, 1] = ArgMax(%s) {axis = 1}
        %f : f32[n, 1] = Cast(%i) {to = 1}
        %y : f32[n, m] = Add(%s, %f))"),
                     {{4, 5}, {1, 1}, {3, 70}});
  EXPECT_EQ(lowered.plan.steps.size(), 2u) << Describe(lowered);
}

TEST(Positional, NaNsAreWhereTheReferenceLeavesThem) {
  const float nan = std::nanf(""), inf = INFINITY;
  const std::vector<std::vector<float>> rows = {{nan, 1, 2},       {1, nan, 2},   {2, nan, 1},   {nan, nan, nan},
                                                {-inf, nan, -inf}, {inf, 1, inf}, {nan, inf, 1}, {-0.0f, 0, -1}};
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (int last : {0, 1}) {
      const Segment segment = SegmentOf(Program(
          "%x: f32[n, 3]", std::string("%y : i64[n] = ") + op +
                               "(%x) {axis = 1, keepdims = 0, select_last_index = " + std::to_string(last) + "}"));
      const std::vector<int64_t> values = {static_cast<int64_t>(rows.size())};
      const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, values, {}});
      ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
      std::vector<float> x;
      for (const std::vector<float>& row : rows) x.insert(x.end(), row.begin(), row.end());
      const TensorRef inputs[] = {MakeRef(DType::kF32, {values[0], 3}, x.data())};
      CompiledRunner runner(Target::kX86V3);
      const auto got = RunLowered(*lowered, values, inputs, {}, 8, runner.runner());
      ASSERT_TRUE(got.has_value()) << ToString(got.error());
      for (size_t r = 0; r < rows.size(); ++r) {
        int64_t best = 0;
        for (int64_t i = 1; i < 3; ++i) {
          const float a = rows[r][static_cast<size_t>(i)], b = rows[r][static_cast<size_t>(best)];
          if ((op[3] == 'M' && op[4] == 'a' ? a > b : a < b) || (last == 1 && a == b)) best = i;
        }
        EXPECT_EQ(got->at(0).values<int64_t>()[r], best) << op << " last " << last << " row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::testing
