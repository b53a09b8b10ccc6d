// Files of a model: mapped read-only, and parsed under limits.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace google::protobuf {
class MessageLite;
}

namespace kiln::onnx {

// A read-only private mapping of a whole file; unmapped with the last owner. Thread-safe to read.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const uint8_t* data_;
  size_t size_;
};

// Parses a protobuf message with bounded nesting and size; Malformed names `what`.
Status ParseMessage(std::span<const uint8_t> bytes, std::string_view what, google::protobuf::MessageLite& message);

// The path of an external data file: relative, and inside `directory` after links are resolved.
Result<std::filesystem::path> ResolveExternalData(const std::filesystem::path& directory, std::string_view location);

}  // namespace kiln::onnx
