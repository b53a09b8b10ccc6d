#include "common/security/transport_keys.h"

#include <zmq.h>

#include <array>

namespace kiln {
namespace {

constexpr size_t kZ85KeyChars = 40;

}  // namespace

Result<CurveKeyPair> GenerateCurveKeyPair() {
  std::array<char, kZ85KeyChars + 1> public_key{}, secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
    return Fail(ErrorCode::kUnsupported, "this libzmq was built without CURVE");
  return CurveKeyPair{public_key.data(), secret_key.data()};
}

Result<std::string> CurvePublicKey(std::string_view secret_z85) {
  RETURN_IF_ERROR(CheckCurveKey(secret_z85));
  std::array<char, kZ85KeyChars + 1> public_key{};
  if (zmq_curve_public(public_key.data(), std::string(secret_z85).c_str()) != 0)
    return Fail(ErrorCode::kUnsupported, "this libzmq was built without CURVE");
  return std::string(public_key.data());
}

Status CheckCurveKey(std::string_view z85) {
  if (z85.size() != kZ85KeyChars)
    return Fail(ErrorCode::kMalformed, "CURVE key has " + std::to_string(z85.size()) + " characters; a z85 key has 40");
  std::array<uint8_t, 32> raw;
  if (zmq_z85_decode(raw.data(), std::string(z85).c_str()) == nullptr)
    return Fail(ErrorCode::kMalformed, "CURVE key has characters outside the z85 alphabet");
  return {};
}

}  // namespace kiln
