#include "cli/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

Status WriteBytes(const fs::path& path, const char* mode, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), mode);
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

Status CheckFolder(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  if (fs::is_directory(folder, error)) return {};
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) return {};
  return Fail(ErrorCode::kNotFound,
              path.string() + " cannot be written: there is no directory " + folder.string() + "; make it first");
}

}  // namespace

Status CheckIsNoSource(const fs::path& output, const std::vector<fs::path>& sources) {
  for (const fs::path& source : sources) {
    std::error_code error;  // one of the two does not exist, so they are not the same
    if (fs::equivalent(output, source, error) && !error)
      return Fail(ErrorCode::kInvalidArgument, output.string() + ": output is the input" +
                                                   (output == source ? "" : " " + source.string()) +
                                                   ", which would be lost; name another file");
  }
  return {};
}

Status WriteFile(const fs::path& path, std::string_view bytes) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "the output file has an empty name");
  std::error_code ignored;
  const auto kind = fs::symlink_status(path, ignored).type();
  if (kind == fs::file_type::directory)
    return Fail(ErrorCode::kInvalidArgument, path.string() + " is a directory; name a file in it");
  // A device, a pipe or a link is written through: a rename would put a file in its place.
  if (kind != fs::file_type::regular && kind != fs::file_type::not_found) return WriteBytes(path, "wbe", bytes);
  RETURN_IF_ERROR(CheckFolder(path));
  // Of this process alone, and never a file that is there already: it could be somebody's data.
  const fs::path partial = path.string() + "." + std::to_string(::getpid()) + ".partial";
  if (fs::exists(fs::symlink_status(partial, ignored)))
    return Fail(ErrorCode::kAlreadyExists, partial.string() + " is in the way; move it away");
  Status written = WriteBytes(partial, "wbxe", bytes);
  std::error_code error;
  if (written.has_value()) fs::rename(partial, path, error);
  if (error) written = Fail(ErrorCode::kIoError, path.string() + ": " + error.message());
  if (!written.has_value()) fs::remove(partial, ignored);
  return written;
}

}  // namespace kiln::cli
