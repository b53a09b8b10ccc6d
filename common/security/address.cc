#include "common/security/address.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

namespace kiln {
namespace {

// A name is whatever a resolver says today; of names only "localhost" counts.
bool IsLoopbackHost(std::string_view host) {
  if (host == "localhost" || host == "[::1]") return true;
  in_addr address;
  return ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

// 1 to 65535; 0 or * for one that the system chooses.
bool IsPort(std::string_view text) {
  if (text == "*") return true;
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<EndpointKind> ClassifyEndpoint(std::string_view endpoint) {
  if (endpoint.starts_with("inproc://") && endpoint.size() > 9) return EndpointKind::kInproc;
  if (endpoint.starts_with("ipc://") && endpoint.size() > 6) return EndpointKind::kIpc;
  if (endpoint.starts_with("tcp://")) {
    const std::string_view rest = endpoint.substr(6);
    const size_t colon = rest.rfind(':');
    if (colon != std::string_view::npos && colon > 0 && IsPort(rest.substr(colon + 1)))
      return IsLoopbackHost(rest.substr(0, colon)) ? EndpointKind::kTcpLoopback : EndpointKind::kTcpOther;
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      "endpoint '" + std::string(endpoint) + "' is neither tcp://HOST:PORT with a port of 1 to 65535, nor ipc://PATH");
}

Status CheckPlaintextEndpoint(std::string_view endpoint, bool insecure) {
  ASSIGN_OR_RETURN(const EndpointKind kind, ClassifyEndpoint(endpoint));
  switch (kind) {
    case EndpointKind::kInproc:
      return {};
    case EndpointKind::kIpc:
    case EndpointKind::kTcpLoopback:
      if (insecure) return {};
      return Fail(ErrorCode::kPermissionDenied,
                  "endpoint '" + std::string(endpoint) +
                      "' without keys needs --insecure; or name a key directory with --keys");
    case EndpointKind::kTcpOther:
      return Fail(
          ErrorCode::kPermissionDenied,
          "endpoint '" + std::string(endpoint) +
              "' is reachable from other hosts and plaintext is refused there; name a key directory with --keys");
  }
  return Fail(ErrorCode::kInternal, "unknown endpoint kind");
}

Status CheckSocketDirectory(std::string_view endpoint) {
  ASSIGN_OR_RETURN(const EndpointKind kind, ClassifyEndpoint(endpoint));
  if (kind != EndpointKind::kIpc) return {};
  const std::string path(endpoint.substr(6));
  if (path[0] == '@')
    return Fail(ErrorCode::kPermissionDenied,
                "abstract socket '" + path + "' can be reached by every user; use a path");
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  struct stat info;
  if (::stat(directory.c_str(), &info) != 0)
    return Fail(ErrorCode::kNotFound, "socket directory '" + directory + "': " + std::strerror(errno));
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return Fail(
        ErrorCode::kPermissionDenied,
        "socket directory '" + directory + "' is open to other users; use a directory of your own with mode 0700");
  return {};
}

}  // namespace kiln
