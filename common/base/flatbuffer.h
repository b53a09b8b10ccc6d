// Verified access to a FlatBuffer from outside, for codecs. Bounds depth and table count, so that hostile bytes cost at
// most linear time.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <span>

#include "common/base/bytes.h"
#include "common/base/check.h"
#include "common/base/result.h"

namespace kiln {

struct FlatBufferBounds {
  uint32_t depth = 32;          // tables within tables
  uint32_t tables = 1'000'000;  // one that is referred to twice counts twice
};

// Bytes that begin at a multiple of 8, as reading in place needs: the given ones where they do, else a copy.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {
    if (reinterpret_cast<uintptr_t>(bytes.data()) % 8 == 0) return;
    copy_.assign(bytes.begin(), bytes.end());
    bytes_ = copy_;
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  std::span<const uint8_t> span() const { return bytes_; }

 private:
  Bytes copy_;
  std::span<const uint8_t> bytes_;
};

// `bytes` begin at a multiple of 8 (the start of a Bytes does; see AlignedBytes). The pointer lives as long as the
// bytes. kMalformed where they do not follow the schema, lack `identifier` or pass the bounds.
template <class Table>
Result<const Table*> VerifiedRoot(std::span<const uint8_t> bytes, const char* what, const char* identifier = nullptr,
                                  FlatBufferBounds bounds = {}) {
  KILN_CHECK(reinterpret_cast<uintptr_t>(bytes.data()) % 8 == 0);
  // A size limit of the FlatBuffers format itself; larger input trips an assertion in the library.
  if (bytes.size() < 8 || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return Fail(ErrorCode::kMalformed,
                std::string(what) + ": " + std::to_string(bytes.size()) + " bytes are no message");
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), bounds.depth, bounds.tables);
  if (!verifier.VerifyBuffer<Table>(identifier))
    return Fail(ErrorCode::kMalformed, std::string(what) + ": the bytes do not follow the schema (cut or damaged)");
  return flatbuffers::GetRoot<Table>(bytes.data());
}

// The bytes of a vector field, in place; empty where the field is absent.
inline std::span<const uint8_t> BytesOf(const flatbuffers::Vector<uint8_t>* field) {
  return field == nullptr ? std::span<const uint8_t>() : std::span<const uint8_t>(field->data(), field->size());
}

// LimitExceeded where a list has more than `limit` entries.
inline Status CheckCount(size_t count, size_t limit, const char* what) {
  if (count <= limit) return {};
  return Fail(ErrorCode::kLimitExceeded,
              std::string(what) + ": " + std::to_string(count) + " entries; the limit is " + std::to_string(limit));
}

inline Bytes FinishedBytes(const flatbuffers::FlatBufferBuilder& builder) {
  return Bytes(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
}

}  // namespace kiln
