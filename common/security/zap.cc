#include "common/security/zap.h"

#include <zmq.h>

#include <array>

namespace kiln {
namespace {

constexpr size_t kZapFrames = 7;
constexpr size_t kCurveKeyBytes = 32;

ZapDecision Decide(const std::string& request_id, bool accepted, std::string text, std::string user_id) {
  return {.well_formed = true,
          .accepted = accepted,
          .reply = {"1.0", request_id, accepted ? "200" : "400", std::move(text), std::move(user_id), ""}};
}

}  // namespace

ZapDecision DecideZap(const std::vector<std::string>& frames, const AllowList* allow_list) {
  if (frames.size() < 6 || frames[0] != "1.0") return {};
  const std::string& request_id = frames[1];
  if (frames.size() != kZapFrames || frames[5] != "CURVE" || frames[6].size() != kCurveKeyBytes)
    return Decide(request_id, false, "CURVE is required", "");
  if (allow_list == nullptr) return Decide(request_id, false, "unknown domain", "");
  std::array<char, 41> z85{};
  zmq_z85_encode(z85.data(), reinterpret_cast<const uint8_t*>(frames[6].data()), kCurveKeyBytes);
  const std::string key(z85.data());
  const auto role = allow_list->RoleOf(key);
  if (!role) return Decide(request_id, false, "key is not in the allow-list", "");
  return Decide(request_id, true, "OK", std::string(RoleName(*role)) + ":" + key);
}

Result<PeerIdentity> ParseUserId(std::string_view user_id) {
  const size_t colon = user_id.find(':');
  if (colon == std::string_view::npos) return Fail(ErrorCode::kPermissionDenied, "peer has no user id");
  ASSIGN_OR_RETURN(const Role role, RoleFromName(user_id.substr(0, colon)));
  return PeerIdentity{role, std::string(user_id.substr(colon + 1))};
}

}  // namespace kiln
