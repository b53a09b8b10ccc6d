// Where the data of initialisers lies: in files beside the model, or in the model file itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_directory.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {
namespace {

using ::testing::HasSubstr;

class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(root_ / "model");
    const float weights[] = {1, 2, 3, 4};
    for (const char* place : {"model/weights.bin", "outside.bin"}) {
      std::ofstream(root_ / place, std::ios::binary).write(reinterpret_cast<const char*>(weights), sizeof(weights));
    }
  }

  Result<ImportedModel> Import(std::string_view location, std::string_view offset, std::string_view length) {
    TensorProto tensor = FloatTensor("w", {2}, {});
    tensor.clear_raw_data();
    tensor.set_data_location(1);
    for (const auto& [key, value] : {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
      if (value.empty()) continue;
      StringStringEntryProto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(std::string(value));
    }
    TestModel model(13);
    model.Initializer(tensor).Node("Identity", {"w"}, {"y"}).Output("y");
    const std::filesystem::path path = root_ / "model" / "m.onnx";
    std::ofstream(path, std::ios::binary) << model.Bytes();
    return ImportOnnx(path);
  }

  const testing::TempDirectory temp_directory_;
  const std::filesystem::path root_ = temp_directory_.path();
};

TEST_F(ExternalData, IsReadAtItsOffset) {
  const auto imported = Import("weights.bin", "8", "8");
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const Tensor* result = ConstantOutput(imported->program, 0);
  ASSERT_NE(result, nullptr);
  EXPECT_THAT(result->values<float>(), ::testing::ElementsAre(3, 4));
}

TEST_F(ExternalData, StaysInTheModelsDirectory) {
  std::filesystem::create_symlink(root_ / "outside.bin", root_ / "model" / "link.bin");
  for (const std::string& location :
       {std::string("../outside.bin"), (root_ / "outside.bin").string(), std::string("link.bin")}) {
    const auto imported = Import(location, "0", "8");
    ASSERT_FALSE(imported.has_value()) << location;
  }
}

TEST_F(ExternalData, ReportsWhatDoesNotFitTheFile) {
  EXPECT_EQ(Import("weights.bin", "12", "8").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(Import("weights.bin", "0", "4").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(Import("weights.bin", "-8", "8").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(Import("absent.bin", "0", "8").error().code, ErrorCode::kNotFound);
}

// The file that the memory is a mapping of; "" for anonymous memory.
std::string MappedFrom(const void* data) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    const auto address = reinterpret_cast<unsigned long>(data);
    if (address < begin || address >= end) continue;
    const size_t slash = line.find('/');
    return slash == std::string::npos ? "" : line.substr(slash);
  }
  return "";
}

TEST(RawData, StaysInTheModelFileWhereItIsAligned) {
  const testing::TempDirectory directory;
  const std::filesystem::path path = directory.path() + "/raw_data.onnx";
  std::vector<float> values(4096);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
  int in_file = 0;
  for (size_t pad = 0; pad < 4; ++pad) {
    TestModel model(13);
    model.proto().set_producer_name(std::string(pad, 'x'));
    model.Initializer(FloatTensor("w", {64, 64}, values)).Node("Identity", {"w"}, {"y"}).Output("y");
    std::ofstream(path, std::ios::binary) << model.Bytes();
    const auto imported = ImportOnnx(path);
    ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
    const Tensor* result = ConstantOutput(imported->program, 0);
    ASSERT_NE(result, nullptr);
    EXPECT_TRUE(std::ranges::equal(result->values<float>(), values)) << pad;
    in_file += MappedFrom(result->ref.data) == std::filesystem::canonical(path) ? 1 : 0;
  }
  EXPECT_EQ(in_file, 1) << "one of four byte offsets is aligned for f32; the others are copied";
}

TEST(RawData, OfAFileIsCheckedAgainstTheShapeAndCannotBePointedElsewhere) {
  const testing::TempDirectory directory;
  const std::filesystem::path path = directory.path() + "/raw_data_wrong.onnx";
  const auto import = [&](TensorProto tensor) {
    TestModel model(13);
    model.Initializer(tensor).Node("Identity", {"w"}, {"y"}).Output("y");
    std::ofstream(path, std::ios::binary) << model.Bytes();
    return ImportOnnx(path);
  };
  TensorProto tensor = FloatTensor("w", {64, 64}, std::vector<float>(4096));
  tensor.mutable_raw_data()->resize(16380);
  const auto shorter = import(tensor);
  ASSERT_FALSE(shorter.has_value());
  EXPECT_THAT(shorter.error().message, HasSubstr("16380 bytes of data where its shape [64, 64] needs 16384"));
  tensor.clear_raw_data();
  tensor.set_raw_offset(0);
  tensor.set_raw_bytes(16384);
  const auto pointed = import(tensor);
  ASSERT_FALSE(pointed.has_value()) << "a file's own raw_offset is not obeyed";
}

TEST(ImportOnnx, NamesTheFileThatCannotBeRead) {
  const auto imported = ImportOnnx("/nonexistent/model.onnx");
  ASSERT_FALSE(imported.has_value());
  EXPECT_EQ(imported.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(imported.error().message, HasSubstr("/nonexistent/model.onnx"));
}

}  // namespace
}  // namespace kiln::onnx
