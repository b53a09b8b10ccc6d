// The decision of the ZeroMQ authentication protocol (ZAP 1.0, RFC 27): may this CURVE client connect, and as whom.
// A pure function of the request frames; messaging carries them over inproc://zeromq.zap.01.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/security/allow_list.h"

namespace kiln {

struct ZapDecision {
  bool well_formed = false;  // false: the request follows no known format; nothing should be answered
  bool accepted = false;
  std::vector<std::string> reply;  // the six reply frames
};

// `frames`: version, request id, domain, address, identity, mechanism, credentials. The accepted peer's user id is
// "<role>:<z85 key>".
ZapDecision DecideZap(const std::vector<std::string>& frames, const AllowList* allow_list);

// A peer as ZeroMQ reports it on each message.
struct PeerIdentity {
  Role role;
  std::string key;  // z85 public key
};
Result<PeerIdentity> ParseUserId(std::string_view user_id);

}  // namespace kiln
