#include "common/base/writable_directory.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace kiln {
namespace {

std::unexpected<Error> CannotUse(const std::string& directory, int reason) {
  const bool broken = reason == EIO || reason == EMFILE || reason == ENFILE;
  return Fail(broken ? ErrorCode::kIoError : ErrorCode::kInvalidArgument,
              "cannot write to directory \"" + directory + "\": " + std::strerror(reason) + "; name another");
}

bool IsFull(int reason) {
  return reason == ENOSPC || reason == EDQUOT;
}

}  // namespace

Status MakeWritable(const std::string& directory) {
  std::filesystem::path path(directory);
  if (!path.has_filename()) path = path.parent_path();  // it ended in a slash
  std::error_code error;
  if (!path.parent_path().empty()) std::filesystem::create_directories(path.parent_path(), error);
  if (error && !IsFull(error.value())) return CannotUse(directory, error.value());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    if (IsFull(errno)) return {};
    return CannotUse(directory, errno);
  }
  std::string file = (path / "kiln-writable-XXXXXX").string();
  const int opened = ::mkstemp(file.data());
  if (opened < 0) {
    if (IsFull(errno)) return {};
    return CannotUse(directory, errno);
  }
  ::close(opened);
  ::unlink(file.c_str());
  return {};
}

}  // namespace kiln
