// Where plaintext is allowed. An endpoint is a ZeroMQ address: tcp://host:port, ipc://path, inproc://name.
#pragma once

#include <string_view>

#include "common/base/result.h"

namespace kiln {

enum class EndpointKind : uint8_t { kInproc, kIpc, kTcpLoopback, kTcpOther };

// InvalidArgument for anything that is no such address.
Result<EndpointKind> ClassifyEndpoint(std::string_view endpoint);

// OK if `endpoint` may be used without CURVE: inproc always; ipc and loopback tcp with `insecure`; other tcp never.
Status CheckPlaintextEndpoint(std::string_view endpoint, bool insecure);

// For a listener on ipc://: the socket's directory must be closed to other users, because a plaintext ipc socket has no
// other guard.
Status CheckSocketDirectory(std::string_view endpoint);

}  // namespace kiln
