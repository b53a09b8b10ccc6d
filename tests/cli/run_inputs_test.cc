#include "cli/run_inputs.h"

#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "tests/support/temp_directory.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// x: f32[n, 4], y: f32[n, m].
LoadReply Model() {
  LoadReply model;
  model.inputs = {{"x", DType::kF32, true, {-1, 4}, "f32[n, 4]"}, {"y", DType::kF32, true, {-1, -1}, "f32[n, m]"}};
  return model;
}

Result<std::vector<NamedTensor>> First(const std::vector<std::string>& dims,
                                       const std::vector<std::string>& files = {}) {
  ASSIGN_OR_RETURN(RunInputs inputs, RunInputs::Parse(dims, files, 1));
  return inputs.Next(Model());
}

class RunInputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(onnx::WriteTensorFile(file_, {"x", Tensor::Zeros(DType::kF32, {3, 4})}).has_value());
  }
  const testing::TempDirectory directory_;
  const std::string file_ = directory_.path() + "/x.pb";
};

TEST_F(RunInputsTest, FlagsThatContradictEachOtherAreBothNamed) {
  struct Case {
    std::vector<std::string> dims, files;
    const char *one, *other;
  };
  const std::string x = "x=" + file_;
  for (const Case& c : {
           Case{{"n=2", "n=3", "m=1"}, {}, "\"n=2\"", "\"n=3\""},
           Case{{"n=2", "n=2", "m=1"}, {}, "\"n=2\"", "twice"},
           Case{{"n=2", "x.0=3", "m=1"}, {}, "--dim n=2", "--dim x.0=3"},
           Case{{"n=1..2", "x.0=3", "m=1"}, {}, "--dim n=1..2", "--dim x.0=3"},
           Case{{"x.0=2", "y.0=3", "m=1"}, {}, "--dim x.0=2", "--dim y.0=3"},
           Case{{"x.0=1..2", "y.0=1..3", "m=1"}, {}, "--dim x.0=1..2", "--dim y.0=1..3"},
           Case{{"x.0=2", "m=1"}, {x}, "--dim x.0=2", "--input x"},
           Case{{"n=4..8", "m=1"}, {x}, "--dim n=4..8", "--input x"},
           Case{{"n=3", "m=1"}, {x, "x=other.pb"}, file_.c_str(), "other.pb"},
       }) {
    const auto inputs = First(c.dims, c.files);
    ASSERT_FALSE(inputs.has_value()) << c.one << " " << c.other;
    EXPECT_EQ(inputs.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(inputs.error().message, AllOf(HasSubstr(c.one), HasSubstr(c.other)));
  }
}

TEST_F(RunInputsTest, FlagsThatSayTheSameOfADimAgree) {
  for (const auto& [dims, files] : {std::pair<std::vector<std::string>, std::vector<std::string>>{{"n=3", "m=1"}, {}},
                                    {{"n=1..8", "x.0=3", "m=1"}, {}},
                                    {{"x.0=3", "y.0=3", "y.1=1"}, {}},
                                    {{"n=1..4", "m=1"}, {"x=" + file_}},
                                    {{"m=1"}, {"x=" + file_}}}) {
    const auto inputs = First(dims, files);
    ASSERT_TRUE(inputs.has_value()) << ToString(inputs.error());
    EXPECT_EQ((*inputs)[0].tensor.dims(), (Dims{3, 4}));
    EXPECT_EQ((*inputs)[1].tensor.dims(), (Dims{3, 1}));
  }
  // A range that two inputs share is drawn once.
  auto inputs = RunInputs::Parse({"x.0=1..1000", "y.0=1..1000", "m=1"}, {}, 1).value();
  for (int i = 0; i < 10; ++i) {
    const auto drawn = inputs.Next(Model());
    ASSERT_TRUE(drawn.has_value());
    EXPECT_EQ((*drawn)[0].tensor.dims()[0], (*drawn)[1].tensor.dims()[0]);
  }
}

TEST_F(RunInputsTest, AFileOfNumPySaysWhatIsNeeded) {
  const std::string path = directory_.path() + "/x.npy";
  std::ofstream(path) << "\x93NUMPY\x01 some header";
  const auto inputs = First({"n=3", "m=1"}, {"x=" + path});
  ASSERT_FALSE(inputs.has_value());
  EXPECT_THAT(inputs.error().message, AllOf(HasSubstr(path), HasSubstr("TensorProto"), HasSubstr("from_array")));
}

}  // namespace
}  // namespace kiln::cli
