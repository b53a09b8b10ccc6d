// The files themselves: they parse, and their programs survive text and binary form.
#include <gtest/gtest.h>

#include <cmath>

#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "tests/support/program_file.h"
#include "tests/support/random_program.h"

namespace kiln {
namespace {

TEST(ProgramFiles, ParseAndRoundTrip) {
  const auto paths = testing::ProgramFilesIn(KILN_SOURCE_DIR "/tests/programs");
  EXPECT_GE(paths.size(), 15u);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const auto file = testing::ReadProgramFile(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto printed = ParseProgram(PrintProgram(file->program));
    ASSERT_TRUE(printed.has_value()) << printed.error().message;
    EXPECT_EQ(testing::DifferenceOf(file->program, *printed), "");
    const auto decoded = DecodeProgram(EncodeProgram(file->program).value());
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
    EXPECT_EQ(testing::DifferenceOf(file->program, *decoded), "");
  }
}

TEST(ProgramFiles, ErrorsNameThePlace) {
  constexpr char program[] = "program \"p\" { func f(%x: f32[2]) -> (%x) { } }\n";
  const auto message = [&](const std::string& runs) {
    return testing::ParseProgramFile(program + runs).error().message;
  };
  EXPECT_EQ(message(""), "line 2, column 1: a file without a run shows nothing");
  EXPECT_EQ(message("run \"r\" { }"), "line 2, column 4: an input is missing");
  EXPECT_EQ(message("run \"r\" { input %y : f32[2] = splat 1 }"), "line 2, column 16: %y is not number 0 of its kind");
  EXPECT_EQ(message("run \"r\" { input %x : f32[2] = splat 1 }"),
            "line 2, column 4: an output is missing, or one stands beside an error");
}

TEST(TensorDifference, SeesShapeBitsAndTolerance) {
  const auto of = [](std::vector<float> values) {
    return Tensor::Of<float>(DType::kF32, {static_cast<int64_t>(values.size())}, values);
  };
  const auto differ = [](const Tensor& a, const Tensor& b, double tolerance) {
    return testing::DifferenceOf(a.ref, b.ref, tolerance);
  };
  EXPECT_EQ(differ(of({1, NAN}), of({1, NAN}), 0), "");
  EXPECT_EQ(differ(of({1}), of({1, 2}), 0), "expected f32[1], got f32[2]");
  EXPECT_EQ(differ(of({0.0f}), of({-0.0f}), 0), "element 0 of f32[1]: expected 0.0, got -0.0");
  EXPECT_EQ(differ(of({1}), of({1.00001f}), 1e-4), "");
  EXPECT_NE(differ(of({1}), of({1.001f}), 1e-4), "");
  EXPECT_NE(differ(of({INFINITY}), of({1e30f}), 1e-4), "");
  EXPECT_NE(differ(of({1}), of({NAN}), 1e9), "");
}

}  // namespace
}  // namespace kiln
