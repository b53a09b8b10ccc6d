// Content identity: BLAKE2b-256 over a canonical field list (docs/design.md).
//
// Every field is written little-endian, variable-length fields with their length in front, so that two different
// field lists never feed the same bytes. The first field of every hash is a domain tag with a version.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace kiln {

inline constexpr size_t kDigestBytes = 32;

// A 256-bit content hash. Ordered and comparable as bytes. Value type.
struct Digest {
  std::array<uint8_t, kDigestBytes> bytes{};

  auto operator<=>(const Digest&) const = default;
  bool IsZero() const;
  std::string Hex() const;       // 64 lower-case digits
  std::string ShortHex() const;  // the first 12 digits, for people
  std::span<const uint8_t> Span() const { return bytes; }
};

// Accepts exactly 64 hex digits.
Result<Digest> DigestFromHex(std::string_view hex);
// Accepts exactly 32 bytes.
Result<Digest> DigestFromBytes(std::span<const uint8_t> bytes);
// BLAKE2b-256 of raw bytes, without a domain tag: the identity of a blob.
Digest HashBytes(std::span<const uint8_t> bytes);

// Feeds fields into one BLAKE2b-256 state. Not thread-safe; Finish() once.
class FieldHasher {
 public:
  explicit FieldHasher(std::string_view domain);  // e.g. "kiln.segment.v1"
  ~FieldHasher();
  FieldHasher(const FieldHasher&) = delete;
  FieldHasher& operator=(const FieldHasher&) = delete;

  FieldHasher& U8(uint8_t value);
  FieldHasher& U32(uint32_t value);
  FieldHasher& U64(uint64_t value);
  FieldHasher& I64(int64_t value);
  FieldHasher& F64Bits(double value);                  // by bit pattern
  FieldHasher& Bytes(std::span<const uint8_t> value);  // length-prefixed
  FieldHasher& Text(std::string_view value);           // length-prefixed
  FieldHasher& Id(const Digest& value);
  FieldHasher& Int64s(std::span<const int64_t> values);  // length-prefixed
  Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Fast non-cryptographic 64-bit hash (XXH3) for in-memory tables; never stored, never compared across processes.
uint64_t FastHash(std::span<const uint8_t> bytes);

// For unordered containers keyed by a digest.
struct DigestHash {
  size_t operator()(const Digest& digest) const noexcept;
};

}  // namespace kiln
