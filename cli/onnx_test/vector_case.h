// Models with test vectors on disk: a directory with test_data_set_K/{input_i.pb, output_i.pb}, and a model.onnx in it
// or elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::onnx_test {

struct VectorCase {
  std::string name;  // path below the directory that was searched
  std::filesystem::path model;
  std::vector<std::filesystem::path> data_sets;  // in the order of their numbers
};

// Every case below `root`, sorted by name. With `model`, every directory below (or at) root that holds data sets is a
// case of that model; else a case also holds its model.onnx.
Result<std::vector<VectorCase>> FindCases(const std::filesystem::path& root, const std::filesystem::path& model = {});

struct DataSet {
  std::vector<onnx::NamedTensor> inputs;
  std::vector<onnx::NamedTensor> outputs;
};
// Reads input_0.pb, input_1.pb … input_10.pb in numeric order.
Result<DataSet> ReadDataSet(const std::filesystem::path& directory);

}  // namespace kiln::onnx_test
