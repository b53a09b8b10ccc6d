// Pooling and convolutions in every form: dims, pads, dilations, ceil mode, counted pads, places of maxima.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

std::string Program(const std::string& x, const std::string& nodes, const std::string& constants = "",
                    const std::string& outputs = "%y") {
  return "program \"p\" { symbol n\n symbol d\n symbol h\n symbol w\n " + constants + " func main(%x: " + x + ") -> (" +
         outputs + ") {\n" + nodes + " } }";
}

std::string Pool(const std::string& x, const std::string& op, const std::string& attributes) {
  return Program(x, " %y : " + x.substr(0, x.find('[')) + "[*] = " + op + "(%x) {" + attributes + "}");
}

TEST(Windows, AveragesThatCountPads) {
  for (const char* attributes :
       {"kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1]", "kernel_shape = [3, 3], strides = [3, 2]",
        "kernel_shape = [2, 3], strides = [3, 3], pads = [1, 2, 0, 1], dilations = [2, 1]",
        "kernel_shape = [3, 3], strides = [2, 2], auto_pad = \"SAME_UPPER\"",
        "kernel_shape = [3, 3], strides = [2, 2], auto_pad = \"VALID\""}) {
    for (const char* count : {"0", "1"}) {
      for (const char* ceil : {"0", "1"}) {
        const std::string all = std::string(attributes) + ", count_include_pad = " + count + ", ceil_mode = " + ceil;
        const bool same = all.find("SAME") != std::string::npos;
        CheckGenerated(Pool(same ? "f32[n, 5, 9, 12]" : "f32[n, 5, h, w]", "AveragePool", all),
                       same ? std::vector<std::vector<int64_t>>{{2}, {1}}
                            : std::vector<std::vector<int64_t>>{{2, 7, 9}, {1, 10, 8}, {0, 6, 7}});
      }
    }
  }
  CheckGenerated(Pool("f32[n, 3, w]", "AveragePool",
                      "kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1, count_include_pad = 1"),
                 {{2, 8}, {1, 3}});
  CheckGenerated(Pool("f16[n, 3, w]", "AveragePool",
                      "kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1, count_include_pad = 1"),
                 {{2, 8}});
}

TEST(Windows, NormsOfWindows) {
  const auto pool = [](const std::string& x, const std::string& attributes, std::vector<std::vector<int64_t>> shapes) {
    CheckGenerated(Pool(x, "LpPool", attributes), std::move(shapes));
  };
  for (const char* power : {"p = 1", "p = 2", "p = 3", "p = 4"})
    pool("f32[n, 5, h, w]", std::string("kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1], ") + power,
         {{2, 7, 9}, {1, 10, 8}, {0, 6, 7}});
  pool("f32[n, 5, h, w]", "kernel_shape = [2, 3], strides = [3, 3], pads = [1, 2, 0, 1], dilations = [2, 1]",
       {{2, 7, 9}, {1, 10, 8}});
  for (const char* rest : {"ceil_mode = 1, pads = [1, 0, 1, 1]", "ceil_mode = 1, auto_pad = \"VALID\"",
                           "auto_pad = \"SAME_UPPER\"", "auto_pad = \"SAME_LOWER\""})
    pool("f32[n, 5, 9, 12]", std::string("kernel_shape = [3, 2], strides = [2, 3], ") + rest, {{2}});
  pool("f32[n, 3, w]", "kernel_shape = [3], strides = [2], p = 3", {{2, 8}, {1, 3}});
  pool("f32[n, 3, d, h, w]", "kernel_shape = [2, 3, 2], strides = [2, 1, 2], p = 3", {{2, 5, 6, 7}});
  pool("f16[n, 3, w]", "kernel_shape = [3], strides = [2], p = 2", {{2, 8}});
}

// With ceil_mode by less than a stride; by up to twice that there is no window.
TEST(Windows, WindowsLongerThanTheImage) {
  for (const char* x : {"f32[n, 3, 3]", "f32[n, 3, 4]"})
    CheckGenerated(Pool(x, "LpPool", "kernel_shape = [5], strides = [3], ceil_mode = 1"), {{2}, {1}});
  for (const char* op : {"MaxPool", "AveragePool"}) {
    CheckGenerated(Pool("f32[n, 3, w]", op, "kernel_shape = [5], strides = [3], ceil_mode = 1"),
                   {{2, 3}, {1, 4}, {2, 2}, {2, 1}, {1, 5}, {2, 9}});
    CheckGenerated(
        Pool("f32[n, 5, h, w]", op, "kernel_shape = [4, 3], strides = [2, 2], pads = [1, 0, 0, 1], ceil_mode = 1"),
        {{2, 2, 1}, {1, 1, 2}, {2, 5, 1}, {2, 7, 9}});
  }
}

// A dilated window may step over all that there is: nothing is its mean, the least number its maximum.
TEST(Windows, WindowsOverNothing) {
  const std::string over = "kernel_shape = [2, 2], dilations = [2, 2], pads = [1, 1, 1, 1]";
  CheckGenerated(Pool("f32[n, 3, h, w]", "AveragePool", over), {{2, 1, 1}, {1, 1, 4}, {1, 3, 2}});
  for (const char* type : {"f32", "u8", "i8"})
    CheckGenerated(Pool(std::string(type) + "[n, 3, h, w]", "MaxPool", over), {{2, 1, 1}, {1, 1, 4}});
}

TEST(Windows, PoolsOverThreeDims) {
  for (const char* op : {"MaxPool", "AveragePool"}) {
    for (const char* attributes :
         {"kernel_shape = [2, 3, 2]", "kernel_shape = [3, 2, 2], strides = [2, 1, 2], pads = [1, 0, 1, 1, 1, 0]",
          "kernel_shape = [2, 2, 2], dilations = [2, 1, 2], ceil_mode = 1, strides = [2, 2, 2]",
          "kernel_shape = [1, 3, 3], auto_pad = \"SAME_LOWER\""}) {
      CheckGenerated(Pool("f32[n, 3, d, h, w]", op, attributes), {{2, 5, 4, 6}, {1, 3, 7, 3}, {0, 4, 4, 4}});
    }
  }
  CheckGenerated(Pool("f32[n, 3, d, h, w]", "AveragePool",
                      "kernel_shape = [3, 2, 2], strides = [2, 2, 2], pads = [1, 0, 1, 1, 1, 0], ceil_mode = 1, "
                      "count_include_pad = 1"),
                 {{2, 5, 4, 6}, {1, 4, 7, 3}});
  CheckGenerated(Pool("u8[n, 3, d, h, w]", "MaxPool", "kernel_shape = [2, 3, 2], strides = [1, 2, 1]"), {{2, 5, 4, 6}});
}

std::string Places(const std::string& x, const std::string& attributes) {
  const std::string type = x.substr(0, x.find('['));
  return Program(x, " %y : " + type + "[*], %i : i64[*] = MaxPool(%x) {" + attributes + "}", "", "%y, %i");
}

TEST(Windows, PlacesOfMaxima) {
  for (const char* type : {"f32", "u8", "i8", "f16"}) {
    for (const char* order : {"0", "1"}) {
      const std::string t = type, s = std::string(", storage_order = ") + order;
      CheckBits(Places(t + "[n, 3, h, w]", "kernel_shape = [2, 3]" + s), {{2, 5, 6}, {1, 2, 3}, {0, 3, 3}});
      CheckBits(Places(t + "[n, 3, h, w]",
                       "kernel_shape = [3, 2], strides = [2, 1], pads = [1, 1, 0, 1], dilations = [1, 2]" + s),
                {{2, 5, 6}, {1, 4, 33}});
      CheckBits(Places(t + "[n, 3, h, w]", "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1" + s),
                {{2, 6, 6}, {1, 8, 17}});
      CheckBits(Places(t + "[n, 3, w]", "kernel_shape = [3], strides = [2]" + s), {{2, 9}, {1, 3}});
      CheckBits(Places(t + "[n, 2, d, h, w]", "kernel_shape = [2, 2, 2], pads = [1, 0, 0, 0, 1, 1]" + s),
                {{2, 3, 4, 5}, {1, 2, 2, 3}});
      CheckBits(Places(t + "[n, 3, h, w]", "kernel_shape = [2, 2], dilations = [2, 2], pads = [1, 1, 1, 1]" + s),
                {{2, 1, 1}, {1, 1, 4}});
    }
  }
}

// The first NaN is the maximum; of equals the first.
TEST(Windows, PlacesOfEqualsAndNaNs) {
  const Segment segment = SegmentOf(Places("f32[n, 1, w]", "kernel_shape = [3], strides = [3]"));
  const auto lowered =
      lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, std::vector<int64_t>{1, 12}, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  float x[] = {2, 3, 3, kInfinity, kNaN, kNaN, -kInfinity, -kInfinity, -kInfinity, -0.0f, 0.0f, -1};
  const TensorRef input = MakeRef(DType::kF32, {1, 1, 12}, x);
  CompiledRunner runner(Target::kX86V3);
  const auto got = RunLowered(*lowered, std::vector<int64_t>{1, 12}, {&input, 1}, {}, 8, runner.runner());
  ASSERT_TRUE(got.has_value()) << ToString(got.error());
  EXPECT_EQ(got->at(0).values<float>()[0], 3);
  EXPECT_TRUE(std::isnan(got->at(0).values<float>()[1]));
  const std::span<const int64_t> places = got->at(1).values<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(places.begin(), places.end()), (std::vector<int64_t>{1, 4, 6, 9}));
}

std::string Conv(const std::string& op, const std::string& x, const std::string& weights, int64_t bias,
                 const std::string& attributes) {
  const std::string b = "f32[" + std::to_string(bias) + "]";
  return Program(x,
                 " %k : f32" + weights + " = Constant() {value = @k}\n %b : " + b +
                     " = Constant() {value = @b}\n %c : f32[*] = " + op + "(%x, %k, %b) {" + attributes +
                     "}\n %y : f32[*] = Relu(%c)",
                 "constant k : f32" + weights + " = splat 0.5\n constant b : " + b + " = splat 0.25\n");
}

// Of lines whose width is known: they are copied into a border, and of some widths no tile of rows leaves its line.
TEST(Windows, NarrowImagesOfFewChannelsWithPads) {
  CheckGenerated(Conv("Conv", "f32[n, 1, h, 28]", "[8, 1, 5, 5]", 8, "pads = [2, 2, 2, 2]"), {{2, 28}, {1, 3}, {0, 4}});
  CheckGenerated(Conv("Conv", "f32[n, 8, h, 14]", "[16, 8, 5, 5]", 16, "auto_pad = \"SAME_UPPER\""), {{1, 14}, {3, 5}});
  CheckGenerated(Conv("Conv", "f32[n, 3, h, 48]", "[5, 3, 3, 3]", 5, "strides = [2, 2], pads = [1, 1, 0, 1]"),
                 {{2, 7}, {1, 2}});
  CheckGenerated(Conv("Conv", "f32[n, 2, h, 11]", "[33, 2, 2, 3]", 33, "dilations = [2, 1], pads = [0, 2, 1, 0]"),
                 {{2, 6}, {1, 2}});
  CheckGenerated(Conv("Conv", "f32[n, 4, 60]", "[20, 4, 7]", 20, "strides = [5], pads = [3, 3]"), {{3}, {1}});
}

TEST(Windows, ConvolutionsOverThreeDims) {
  const std::vector<std::vector<int64_t>> shapes = {{2, 5, 6, 7}, {1, 4, 3, 5}, {0, 4, 4, 4}};
  CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[4, 3, 2, 3, 2]", 4, ""), shapes);
  CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[4, 3, 3, 3, 3]", 4, "pads = [1, 1, 0, 1, 0, 1]"), shapes);
  CheckGenerated(Conv("Conv", "f32[n, 4, d, h, w]", "[6, 2, 2, 1, 3]", 6,
                      "group = 2, strides = [2, 1, 2], dilations = [2, 1, 1], pads = [1, 0, 1, 0, 0, 1]"),
                 shapes);
  CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[4, 3, 1, 1, 1]", 4, ""), shapes);
  CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[4, 3, 1, 3, 3]", 4, "strides = [2, 1, 1]"), shapes);
  CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[3, 1, 3, 2, 2]", 3, "group = 3"), shapes);
  CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[4, 3, 3, 3, 3]", 4, "auto_pad = \"SAME_UPPER\""), shapes);
  CheckGenerated(
      Conv("Conv", "f32[n, 3, 5, 6, 7]", "[4, 3, 2, 3, 2]", 4, "auto_pad = \"SAME_LOWER\", strides = [2, 2, 2]"),
      {{2}, {1}});
}

// How much lies in front depends on what is left of the size.
TEST(Windows, PadsThatFollowFromTheSize) {
  const std::vector<std::vector<int64_t>> shapes = {{2, 5, 6}, {1, 6, 5}, {1, 1, 8}, {0, 4, 4}, {1, 7, 33}};
  for (const std::string mode : {"SAME_UPPER", "SAME_LOWER"}) {
    const std::string pad = ", auto_pad = \"" + mode + "\"";
    CheckGenerated(Conv("Conv", "f32[n, 3, h, w]", "[4, 3, 3, 3]", 4, "strides = [2, 2]" + pad), shapes);
    CheckGenerated(Conv("Conv", "f32[n, 4, h, w]", "[4, 1, 3, 2]", 4, "group = 4, strides = [2, 3]" + pad), shapes);
    CheckGenerated(Conv("Conv", "f32[n, 3, h, w]", "[4, 3, 2, 3]", 4, "strides = [3, 2], dilations = [1, 2]" + pad),
                   shapes);
    CheckGenerated(Conv("Conv", "f32[n, 3, h, w]", "[4, 3, 1, 1]", 4, "strides = [2, 2]" + pad), shapes);
    CheckGenerated(Pool("f32[n, 3, h, w]", "MaxPool", "kernel_shape = [3, 3], strides = [2, 2]" + pad), shapes);
    CheckGenerated(Pool("f16[n, 3, w]", "MaxPool", "kernel_shape = [2], strides = [3]" + pad), {{2, 7}, {1, 9}});
  }
}

TEST(Windows, PadsOfDepthsThatFollowFromTheSize) {
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER"})
    CheckGenerated(Conv("Conv", "f32[n, 3, d, h, w]", "[4, 3, 3, 3, 3]", 4,
                        std::string("strides = [2, 2, 2], auto_pad = \"") + mode + "\""),
                   {{2, 4, 5, 6}, {1, 5, 2, 3}});
}

TEST(Windows, TransposedConvolutionsOfEveryForm) {
  const std::vector<std::vector<int64_t>> shapes = {{2, 4, 5}, {1, 1, 1}, {1, 3, 7}};
  const auto planes = [](const std::string& attributes, int64_t group = 1) {
    const std::string g = std::to_string(group);
    return Conv("ConvTranspose", "f32[n, 4, h, w]", "[4, 3, 3, 2]", 3 * group, "group = " + g + ", " + attributes);
  };
  for (const int64_t group : {1, 2}) {
    CheckGenerated(planes("strides = [2, 3], dilations = [2, 1]", group), shapes);
    CheckGenerated(planes("strides = [2, 2], dilations = [3, 2], pads = [1, 1, 2, 0], output_padding = [1, 1]", group),
                   {{2, 4, 5}, {1, 3, 7}});
    CheckGenerated(planes("strides = [2, 2], auto_pad = \"SAME_UPPER\"", group), shapes);
    CheckGenerated(planes("strides = [3, 2], auto_pad = \"SAME_LOWER\"", group), shapes);
    CheckGenerated(planes("strides = [2, 2], auto_pad = \"VALID\"", group), shapes);
    CheckGenerated(planes("strides = [3, 3], pads = [3, 2, 1, 2]", group), {{2, 4, 5}, {1, 3, 7}});
  }
  for (const char* mode : {"NOTSET", "SAME_UPPER", "SAME_LOWER"})
    CheckGenerated(Conv("ConvTranspose", "f32[n, 4, 5, 6]", "[4, 3, 3, 2]", 3,
                        std::string("strides = [2, 2], output_shape = [10, 14], auto_pad = \"") + mode + "\""),
                   {{2}, {1}, {0}});
  CheckGenerated(Conv("ConvTranspose", "f32[n, 4, w]", "[4, 3, 3]", 3, "strides = [3], dilations = [2]"),
                 {{2, 5}, {1, 1}});
  CheckGenerated(Conv("ConvTranspose", "f32[n, 4, d, h, w]", "[4, 3, 2, 3, 2]", 3,
                      "strides = [2, 1, 2], pads = [0, 1, 0, 1, 0, 1], output_padding = [1, 0, 0]"),
                 {{2, 3, 4, 3}, {1, 2, 2, 2}});
  CheckGenerated(Conv("ConvTranspose", "f32[n, 4, d, h, w]", "[4, 3, 2, 3, 2]", 6, "group = 2"),
                 {{2, 3, 4, 3}, {1, 1, 1, 1}});
}

}  // namespace
}  // namespace kiln::testing
