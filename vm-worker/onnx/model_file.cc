#include "vm-worker/onnx/model_file.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "common/base/limits.h"

namespace kiln::onnx {
namespace {

std::unexpected<Error> FailOs(const std::filesystem::path& path, const char* action, int error) {
  const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIoError;
  return Fail(code, path.string() + ": cannot " + action + ": " + std::strerror(error));
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not hold us
  if (fd < 0) return FailOs(path, "open", errno);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return FailOs(path, "read the size", error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return Fail(ErrorCode::kInvalidArgument, path.string() + " is not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size > limits::kModelBytesMax) {
    close(fd);
    return Fail(ErrorCode::kLimitExceeded, path.string() + " has " + std::to_string(size) + " bytes; at most " +
                                               std::to_string(limits::kModelBytesMax) + " are read");
  }
  void* data = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return FailOs(path, "map", error);
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const uint8_t*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

Status ParseMessage(std::span<const uint8_t> bytes, std::string_view what, google::protobuf::MessageLite& message) {
  if (bytes.size() >= static_cast<size_t>(INT_MAX)) {
    return Fail(ErrorCode::kLimitExceeded,
                std::string(what) + " has " + std::to_string(bytes.size()) +
                    " bytes; a message holds less than 2 GiB, keep weights in external data");
  }
  google::protobuf::io::CodedInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(limits::kOnnxNestingMax);
  if (!message.ParsePartialFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return Fail(ErrorCode::kMalformed, std::string(what) + " is not a valid " + message.GetTypeName() +
                                           " message: truncated or damaged near byte " +
                                           std::to_string(stream.CurrentPosition()) + " of " +
                                           std::to_string(bytes.size()));
  }
  return {};
}

Result<std::filesystem::path> ResolveExternalData(const std::filesystem::path& directory, std::string_view location) {
  namespace fs = std::filesystem;
  const fs::path relative{std::string(location)};
  if (location.empty() || location.find('\0') != std::string_view::npos || relative.is_absolute()) {
    return Fail(ErrorCode::kMalformed, "external data needs a relative path, not '" + std::string(location) + "'");
  }
  std::error_code error;
  const fs::path base = fs::weakly_canonical(directory.empty() ? fs::path(".") : directory, error);
  if (error) return Fail(ErrorCode::kIoError, directory.string() + ": " + error.message());
  const fs::path path = fs::weakly_canonical(base / relative, error);
  if (error) return Fail(ErrorCode::kIoError, (base / relative).string() + ": " + error.message());
  const fs::path inside = path.lexically_relative(base);
  if (inside.empty() || *inside.begin() == "..") {
    return Fail(ErrorCode::kPermissionDenied,
                "external data '" + std::string(location) + "' lies outside the model's directory");
  }
  return path;
}

}  // namespace kiln::onnx
