// CURVE keys of the transport, in the z85 text form that ZeroMQ takes (40 characters), and how a server or client uses
// them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/security/role.h"

namespace kiln {

class AllowList;

struct CurveKeyPair {
  std::string public_z85;
  std::string secret_z85;
};

Result<CurveKeyPair> GenerateCurveKeyPair();
// The public half of a secret key.
Result<std::string> CurvePublicKey(std::string_view secret_z85);
// Length and alphabet of a z85 key.
Status CheckCurveKey(std::string_view z85);

// How a listening socket authenticates its peers. Default: nothing configured, which no server accepts.
struct ServerSecurity {
  bool insecure = false;                        // plaintext, on loopback, ipc and inproc only
  Role insecure_role = Role::kAdmin;            // the role of every plaintext peer
  CurveKeyPair keys;                            // with insecure == false
  std::shared_ptr<const AllowList> allow_list;  // with insecure == false
};

// How a connecting socket authenticates itself and the server.
struct ClientSecurity {
  bool insecure = false;
  CurveKeyPair keys;
  std::string server_public_z85;
};

}  // namespace kiln
