// A message as one string of bytes: each part's length (4 bytes, little-endian) and the part; the payload first, then
// the blobs.
#pragma once

#include <span>

#include "common/messaging/message.h"

namespace kiln::testing {

inline Bytes Flat(const Message& message) {
  Bytes bytes;
  const auto put = [&bytes](const Bytes& part) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(part.size() >> (8 * i)));
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  put(message.payload);
  for (const Bytes& blob : message.blobs) put(blob);
  return bytes;
}

// A length that passes the end means "all the rest", so that every string of bytes is a message.
inline Message Unflat(std::span<const uint8_t> bytes) {
  Message message;
  for (size_t at = 0; at + 4 <= bytes.size();) {
    const size_t size = bytes[at] | bytes[at + 1] << 8 | bytes[at + 2] << 16 | size_t{bytes[at + 3]} << 24;
    const auto rest = bytes.subspan(at + 4);
    const auto part = rest.first(std::min(size, rest.size()));
    (at == 0 ? message.payload : message.blobs.emplace_back()).assign(part.begin(), part.end());
    at += 4 + part.size();
  }
  return message;
}

}  // namespace kiln::testing
