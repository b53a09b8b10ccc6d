#include "common/security/signing.h"

#include <sodium.h>

#include <cstring>

#include "common/base/check.h"
#include "common/base/hash.h"

namespace kiln {
namespace {

static_assert(crypto_sign_BYTES == 64 && crypto_sign_SECRETKEYBYTES == 64 && crypto_sign_PUBLICKEYBYTES == 32);

// What is really signed: domain and message, hashed to one fixed-size digest.
Digest SignedDigest(std::string_view domain, std::span<const uint8_t> message) {
  return FieldHasher("kiln.signature.v1").Text(domain).Bytes(message).Finish();
}

}  // namespace

std::string SignPublicKey::Hex() const {
  return Digest{bytes}.Hex();
}

SigningKey::~SigningKey() {
  sodium_memzero(secret_.data(), secret_.size());
}

SigningKey SigningKey::Generate() {
  KILN_CHECK(sodium_init() >= 0);
  SigningKey key;
  crypto_sign_keypair(key.public_key_.bytes.data(), key.secret_.data());
  return key;
}

Result<SigningKey> SigningKey::FromSeed(std::span<const uint8_t> seed) {
  KILN_CHECK(sodium_init() >= 0);
  if (seed.size() != crypto_sign_SEEDBYTES)
    return Fail(ErrorCode::kMalformed, "signing seed has " + std::to_string(seed.size()) + " bytes; 32 are needed");
  SigningKey key;
  crypto_sign_seed_keypair(key.public_key_.bytes.data(), key.secret_.data(), seed.data());
  return key;
}

std::array<uint8_t, 32> SigningKey::Seed() const {
  std::array<uint8_t, 32> seed;
  crypto_sign_ed25519_sk_to_seed(seed.data(), secret_.data());
  return seed;
}

SignatureBytes SigningKey::Sign(std::string_view domain, std::span<const uint8_t> message) const {
  const Digest digest = SignedDigest(domain, message);
  SignatureBytes signature;
  crypto_sign_detached(signature.data(), nullptr, digest.bytes.data(), digest.bytes.size(), secret_.data());
  return signature;
}

bool VerifySignature(const SignPublicKey& key, std::string_view domain, std::span<const uint8_t> message,
                     const SignatureBytes& signature) {
  const Digest digest = SignedDigest(domain, message);
  return crypto_sign_verify_detached(signature.data(), digest.bytes.data(), digest.bytes.size(), key.bytes.data()) == 0;
}

Result<SignPublicKey> SignPublicKeyFromHex(std::string_view hex) {
  ASSIGN_OR_RETURN(const Digest digest, DigestFromHex(hex));
  return SignPublicKey{digest.bytes};
}

}  // namespace kiln
