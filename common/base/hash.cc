#include "common/base/hash.h"

#include <sodium.h>
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace kiln {

static_assert(crypto_generichash_BYTES == kDigestBytes);

bool Digest::IsZero() const {
  for (uint8_t byte : bytes)
    if (byte != 0) return false;
  return true;
}

std::string Digest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * kDigestBytes);
  for (uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::string Digest::ShortHex() const {
  return Hex().substr(0, 12);
}

Result<Digest> DigestFromHex(std::string_view hex) {
  auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (hex.size() != 2 * kDigestBytes)
    return Fail(ErrorCode::kMalformed,
                "digest has " + std::to_string(hex.size()) + " characters; 64 hex digits are needed");
  Digest digest;
  for (size_t i = 0; i < kDigestBytes; ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0)
      return Fail(ErrorCode::kMalformed,
                  "digest has a character that is no lower-case hex digit at position " + std::to_string(2 * i));
    digest.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

Result<Digest> DigestFromBytes(std::span<const uint8_t> bytes) {
  if (bytes.size() != kDigestBytes)
    return Fail(ErrorCode::kMalformed, "digest has " + std::to_string(bytes.size()) + " bytes; 32 are needed");
  Digest digest;
  std::memcpy(digest.bytes.data(), bytes.data(), kDigestBytes);
  return digest;
}

Digest HashBytes(std::span<const uint8_t> bytes) {
  Digest digest;
  crypto_generichash(digest.bytes.data(), kDigestBytes, bytes.data(), bytes.size(), nullptr, 0);
  return digest;
}

struct FieldHasher::State {
  crypto_generichash_state hash;
  bool finished = false;
};

FieldHasher::FieldHasher(std::string_view domain) : state_(std::make_unique<State>()) {
  crypto_generichash_init(&state_->hash, nullptr, 0, kDigestBytes);
  Text(domain);
}
FieldHasher::~FieldHasher() = default;

FieldHasher& FieldHasher::U8(uint8_t value) {
  crypto_generichash_update(&state_->hash, &value, 1);
  return *this;
}

FieldHasher& FieldHasher::U64(uint64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  crypto_generichash_update(&state_->hash, bytes, sizeof bytes);
  return *this;
}

FieldHasher& FieldHasher::U32(uint32_t value) {
  uint8_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  crypto_generichash_update(&state_->hash, bytes, sizeof bytes);
  return *this;
}

FieldHasher& FieldHasher::I64(int64_t value) {
  return U64(static_cast<uint64_t>(value));
}
FieldHasher& FieldHasher::F64Bits(double value) {
  return U64(std::bit_cast<uint64_t>(value));
}

FieldHasher& FieldHasher::Bytes(std::span<const uint8_t> value) {
  U64(value.size());
  crypto_generichash_update(&state_->hash, value.data(), value.size());
  return *this;
}

FieldHasher& FieldHasher::Text(std::string_view value) {
  return Bytes({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
}

FieldHasher& FieldHasher::Id(const Digest& value) {
  crypto_generichash_update(&state_->hash, value.bytes.data(), kDigestBytes);
  return *this;
}

FieldHasher& FieldHasher::Int64s(std::span<const int64_t> values) {
  U64(values.size());
  for (int64_t value : values) I64(value);
  return *this;
}

Digest FieldHasher::Finish() {
  KILN_CHECK(!state_->finished);
  state_->finished = true;
  Digest digest;
  crypto_generichash_final(&state_->hash, digest.bytes.data(), kDigestBytes);
  return digest;
}

uint64_t FastHash(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

size_t DigestHash::operator()(const Digest& digest) const noexcept {
  uint64_t word;
  std::memcpy(&word, digest.bytes.data(), sizeof word);
  return word;
}

}  // namespace kiln
