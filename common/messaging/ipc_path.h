// Files of ipc endpoints.
#pragma once

#include <string>

#include "common/base/result.h"

namespace kiln {

// The file of an ipc endpoint; empty for other transports, wildcard paths and abstract names.
std::string IpcPath(const std::string& endpoint);

// OK for other transports. InvalidArgument where the path does not fit a socket's address.
Status CheckIpcPathLength(const std::string& endpoint);

// Whether a listener may take the endpoint's path: ZeroMQ replaces whatever lies there. OK where nothing does, or a
// socket that nobody answers on; AlreadyExists for anything but a socket, Busy for one that somebody answers on.
Status CheckIpcPathIsFree(const std::string& endpoint);

// Removes the socket at `path`, and nothing but a socket.
void RemoveSocketFile(const std::string& path);

}  // namespace kiln
