// Canonical bytes: little-endian, length-prefixed writing, and reading that never runs past its input.
//
// For what is hashed or compared byte by byte (guards, kernel specs). Messages and records use FlatBuffers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/hash.h"
#include "common/base/result.h"

namespace kiln {

class ByteWriter {
 public:
  void U8(uint8_t value) { bytes_.push_back(value); }
  void U32(uint32_t value) { Little(value, 4); }
  void U64(uint64_t value) { Little(value, 8); }
  void I64(int64_t value) { Little(static_cast<uint64_t>(value), 8); }
  void F64(double value) { U64(std::bit_cast<uint64_t>(value)); }
  void Text(std::string_view text) {
    U32(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void Bytes(std::span<const uint8_t> bytes) {
    U32(static_cast<uint32_t>(bytes.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void Id(const Digest& digest) { bytes_.insert(bytes_.end(), digest.bytes.begin(), digest.bytes.end()); }
  void Int64s(std::span<const int64_t> values) {
    U32(static_cast<uint32_t>(values.size()));
    for (int64_t value : values) I64(value);
  }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  void Little(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  std::vector<uint8_t> bytes_;
};

// Reads what ByteWriter wrote. After the first failure every read returns zero and `ok()` stays false, so that a
// decoder may read a whole record and check once, as long as it bounds its loops with Count.
class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint8_t U8() { return static_cast<uint8_t>(Little(1)); }
  uint32_t U32() { return static_cast<uint32_t>(Little(4)); }
  uint64_t U64() { return Little(8); }
  int64_t I64() { return static_cast<int64_t>(Little(8)); }
  double F64() { return std::bit_cast<double>(Little(8)); }
  // A list length whose items take at least `item_bytes` each; fails when so many cannot follow or `max` is passed.
  size_t Count(size_t item_bytes, size_t max) {
    const size_t count = U32();
    if (!ok_ || count > max || count > left() / (item_bytes == 0 ? 1 : item_bytes)) {
      ok_ = false;
      return 0;
    }
    return count;
  }
  std::string Text(size_t max) {
    const size_t size = Count(1, max);
    std::string text(reinterpret_cast<const char*>(bytes_.data() + offset_), size);
    offset_ += size;
    return text;
  }
  std::vector<uint8_t> Bytes(size_t max) {
    const size_t size = Count(1, max);
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(offset_);
    offset_ += size;
    return {first, first + static_cast<std::ptrdiff_t>(size)};
  }
  Digest Id() {
    Digest digest;
    for (uint8_t& byte : digest.bytes) byte = U8();
    return digest;
  }
  std::vector<int64_t> Int64s(size_t max) {
    std::vector<int64_t> values(Count(8, max));
    for (int64_t& value : values) value = I64();
    return values;
  }
  void Reject() { ok_ = false; }
  bool ok() const { return ok_; }
  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size() - offset_; }
  bool AtEnd() const { return ok_ && left() == 0; }

 private:
  uint64_t Little(size_t count) {
    if (!ok_ || left() < count) {
      ok_ = false;
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= uint64_t{bytes_[offset_ + i]} << (8 * i);
    offset_ += count;
    return value;
  }
  std::span<const uint8_t> bytes_;
  size_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace kiln
