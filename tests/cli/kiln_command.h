// The binaries, run by a shell, beside a small model: y = 2 * x of x: f32[n].
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/shell.h"
#include "tests/support/temp_directory.h"
#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::RunShell;
using testing::ShellRun;

// Its output is that of stdout and stderr.
inline ShellRun Start(const std::string& binary, const std::string& arguments) {
  return RunShell(std::string(KILN_BIN_DIR) + "/" + binary + " " + arguments + " 2>&1");
}

inline ShellRun Kiln(const std::string& arguments) {
  return Start("kiln", arguments);
}

inline std::string ReadAll(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class KilnCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(directory_ / "test_data_set_0");
    onnx::TestModel model(13);
    model.Input(onnx::Tensor32("x", {"n"})).Initializer(onnx::FloatTensor("w", {1}, {2}));
    model.Node("Mul", {"x", "w"}, {"y"}).Output("y");
    std::ofstream(directory_ / "model.onnx", std::ios::binary) << model.Bytes();
    WriteVectors({2, 4});
  }

  void WriteVectors(std::vector<float> expected) {
    const std::vector<float> x = {1, 2};
    const auto write = [&](const char* file, const char* name, const std::vector<float>& values) {
      const Tensor tensor = Tensor::Of<float>(DType::kF32, Dims{2}, std::span<const float>(values));
      ASSERT_TRUE(onnx::WriteTensorFile(directory_ / "test_data_set_0" / file, {name, tensor}).has_value());
    };
    write("input_0.pb", "x", x);
    write("output_0.pb", "y", expected);
  }
  std::string Path(const char* name) const { return (directory_ / name).string(); }

  const testing::TempDirectory temp_directory_;
  const fs::path directory_ = temp_directory_.path();
};

}  // namespace kiln
