// Weights that stay in their files.
//
// A model file is mapped. Before it is parsed, the raw data of its initializers is taken out of the bytes that the
// parser sees, so that it is neither copied by the parser nor held twice; what is left names where in the file it lies.
// Tensors are then views of the mapping where the data is aligned for its type, copies where it is not.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/onnx/model_file.h"

namespace kiln::onnx {

// Raw data of fewer bytes stays in the message.
inline constexpr size_t kFileWeightBytesMin = 4096;

// The serialised model with the raw_data of the main graph's initializers replaced by raw_offset and raw_bytes, which
// are dropped where the file has them itself. Nothing when there is nothing to gain or the bytes are not what they
// should be: then the parser reads the bytes themselves, and says what is wrong with them.
std::optional<std::string> WithoutRawData(std::span<const uint8_t> model);

// The files that a model's tensors may lie in: the model's own, and external data beside it. Each is mapped once; its
// mapping lives as long as a tensor in it. Not thread-safe.
class WeightFiles {
 public:
  WeightFiles() = default;  // none: a model given as bytes, a file with one tensor
  WeightFiles(std::filesystem::path directory, std::shared_ptr<const MappedFile> model)
      : directory_(std::move(directory)), model_(std::move(model)) {}

  bool has_directory() const { return !directory_.empty(); }
  const std::shared_ptr<const MappedFile>& model() const { return model_; }  // null: no raw data stays in a file
  void ForgetModel() { model_ = nullptr; }                                   // its bytes were parsed as they are
  Result<std::shared_ptr<const MappedFile>> External(std::string_view location);
  std::vector<std::filesystem::path> external_paths() const;  // of those read so far

 private:
  std::filesystem::path directory_;
  std::shared_ptr<const MappedFile> model_;
  std::map<std::filesystem::path, std::shared_ptr<const MappedFile>> external_;
};

}  // namespace kiln::onnx
