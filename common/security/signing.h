// Ed25519 signatures over domain-tagged messages. The domain keeps a signature made for one purpose from being valid
// for another. All functions are thread-safe.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace kiln {

struct SignPublicKey {
  std::array<uint8_t, 32> bytes{};
  auto operator<=>(const SignPublicKey&) const = default;
  std::string Hex() const;
};

using SignatureBytes = std::array<uint8_t, 64>;

// Seed and public key of a signer. Wiped on destruction; never printed.
class SigningKey {
 public:
  SigningKey() = default;
  SigningKey(const SigningKey&) = default;
  SigningKey& operator=(const SigningKey&) = default;
  ~SigningKey();

  static SigningKey Generate();
  // Exactly 32 bytes.
  static Result<SigningKey> FromSeed(std::span<const uint8_t> seed);

  const SignPublicKey& public_key() const { return public_key_; }
  std::array<uint8_t, 32> Seed() const;
  SignatureBytes Sign(std::string_view domain, std::span<const uint8_t> message) const;

 private:
  SignPublicKey public_key_;
  std::array<uint8_t, 64> secret_{};
};

bool VerifySignature(const SignPublicKey& key, std::string_view domain, std::span<const uint8_t> message,
                     const SignatureBytes& signature);

// Accepts exactly 64 lower-case hex digits.
Result<SignPublicKey> SignPublicKeyFromHex(std::string_view hex);

// The public keys whose records are accepted. Several may be live at once; revoking one is removing it.
using TrustedSigners = std::vector<SignPublicKey>;

}  // namespace kiln
