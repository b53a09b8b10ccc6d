// The envelope of every message as a plain struct, and its encoding. Decoding is the trust boundary: the bytes are
// verified, bounded and copied.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/messaging/message.h"

namespace kiln {

// This build's protocol. A peer that speaks it or the version before it is accepted (1 is the first).
inline constexpr uint16_t kProtocolVersion = 1;
constexpr bool ProtocolAccepted(uint16_t peer, uint16_t own = kProtocolVersion) {
  return peer != 0 && (peer == own || peer + 1 == own);
}

// How many rows of the op table a peer knows, and their hash. Peers are compatible if one's table is a prefix of the
// other's.
struct TablePrefix {
  uint32_t rows = 0;  // 0: not carried
  uint64_t hash = 0;
};

enum class EnvelopeKind : uint8_t { kRequest = 1, kReply = 2 };

struct Envelope {
  uint16_t version = kProtocolVersion;
  EnvelopeKind kind = EnvelopeKind::kRequest;
  uint64_t request_id = 0;
  uint16_t method = 0;
  uint32_t deadline_ms = 0;  // time left when it was sent
  uint64_t trace_id = 0;
  TablePrefix table;
  uint8_t status = 0;  // 0 = ok, else an ErrorCode
  std::string error;
  uint32_t retry_after_ms = 0;
  uint64_t log_head = 0;
  Bytes payload;
};

Bytes EncodeEnvelope(const Envelope& envelope);
Result<Envelope> DecodeEnvelope(std::span<const uint8_t> bytes);

}  // namespace kiln
