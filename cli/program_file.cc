#include "cli/program_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "vm-worker/onnx/model_source.h"

namespace kiln::cli {
namespace {

Status WriteBytes(const std::filesystem::path& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return Fail(ErrorCode::kIoError, path.string() + " cannot be written: " + std::strerror(errno));
  bool failed = std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size();
  int error = errno;
  if (std::fclose(file) != 0 && !failed) {
    failed = true;
    error = errno;
  }
  if (failed) return Fail(ErrorCode::kIoError, path.string() + " cannot be written: " + std::strerror(error));
  return {};
}

}  // namespace

Result<Program> ReadProgram(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(ImportedModel model, ReadModel(path));
  return std::move(model.program);
}

Status WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "the output file has an empty name");
  std::error_code ignored;
  const auto kind = std::filesystem::symlink_status(path, ignored).type();
  if (kind == std::filesystem::file_type::directory)
    return Fail(ErrorCode::kInvalidArgument, path.string() + " is a directory; name a file in it");
  // A device, a pipe or a link is written through: a rename would put a file in its place.
  if (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::not_found)
    return WriteBytes(path, bytes);
  const std::filesystem::path partial = path.string() + ".partial";
  Status written = WriteBytes(partial, bytes);
  std::error_code error;
  if (written.has_value()) std::filesystem::rename(partial, path, error);
  if (error) written = Fail(ErrorCode::kIoError, path.string() + ": " + error.message());
  if (!written.has_value()) std::filesystem::remove(partial, ignored);
  return written;
}

}  // namespace kiln::cli
