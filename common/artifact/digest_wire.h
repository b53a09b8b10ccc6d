// Digests in FlatBuffers, for codecs.
#pragma once

#include <cstring>

#include "common/base/hash.h"
#include "schemas/digest_generated.h"

namespace kiln {

inline wire::Digest32 ToWire(const Digest& digest) {
  static_assert(sizeof(wire::Digest32) == kDigestBytes);
  wire::Digest32 out;
  std::memcpy(&out, digest.bytes.data(), kDigestBytes);
  return out;
}

inline Digest FromWire(const wire::Digest32& wire) {
  Digest digest;
  std::memcpy(digest.bytes.data(), &wire, kDigestBytes);
  return digest;
}

}  // namespace kiln
