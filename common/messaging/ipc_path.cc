#include "common/messaging/ipc_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace kiln {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr size_t kPathBytesMax = sizeof(sockaddr_un{}.sun_path) - 1;

bool SomeoneListensOn(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  const bool answered =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
  ::close(probe);
  return answered;
}

const char* KindOf(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  return "a device";
}

}  // namespace

std::string IpcPath(const std::string& endpoint) {
  if (!endpoint.starts_with(kIpc)) return {};
  std::string path = endpoint.substr(kIpc.size());
  return path == "*" || path.starts_with('@') ? std::string() : path;
}

Status CheckIpcPathLength(const std::string& endpoint) {
  const std::string path = IpcPath(endpoint);
  if (path.size() <= kPathBytesMax) return {};
  return Fail(ErrorCode::kInvalidArgument, "the path of '" + endpoint + "' has " + std::to_string(path.size()) +
                                               " bytes; a socket's may have " + std::to_string(kPathBytesMax) +
                                               ": choose a shorter one");
}

Status CheckIpcPathIsFree(const std::string& endpoint) {
  RETURN_IF_ERROR(CheckIpcPathLength(endpoint));
  const std::string path = IpcPath(endpoint);
  struct stat info;
  if (path.empty() || (::lstat(path.c_str(), &info) != 0 && errno == ENOENT)) return {};
  if (::lstat(path.c_str(), &info) != 0)
    return Fail(ErrorCode::kInvalidArgument, "cannot listen on '" + endpoint + "': " + std::strerror(errno));
  if (!S_ISSOCK(info.st_mode))
    return Fail(ErrorCode::kAlreadyExists, "cannot listen on '" + endpoint + "': " + path + " is " +
                                               KindOf(info.st_mode) +
                                               ", not a socket; choose another path, or move it away");
  if (SomeoneListensOn(path))
    return Fail(ErrorCode::kBusy, "another process answers on '" + endpoint + "'; stop it, or choose another path");
  return {};
}

void RemoveSocketFile(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) ::unlink(path.c_str());
}

}  // namespace kiln
