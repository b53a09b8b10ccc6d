// Verified access to a FlatBuffer from outside, for codecs. Bounds depth and table count, so that hostile bytes cost at
// most linear time.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <span>

#include "common/base/bytes.h"
#include "common/base/result.h"

namespace kiln {

inline constexpr int kFlatBufferDepthMax = 32;
inline constexpr int kFlatBufferTablesMax = 1'000'000;

// `bytes` must be aligned to 8 (the start of a Bytes is). The pointer lives as long as the bytes.
template <class Table>
Result<const Table*> VerifiedRoot(std::span<const uint8_t> bytes, const char* what) {
  // A size limit of the FlatBuffers format itself; larger input trips an assertion in the library.
  if (bytes.size() < 8 || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return Fail(ErrorCode::kMalformed,
                std::string(what) + ": " + std::to_string(bytes.size()) + " bytes are no message");
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), kFlatBufferDepthMax, kFlatBufferTablesMax);
  if (!verifier.VerifyBuffer<Table>(nullptr))
    return Fail(ErrorCode::kMalformed, std::string(what) + ": the bytes do not follow the schema");
  return flatbuffers::GetRoot<Table>(bytes.data());
}

// The bytes of a vector field, in place; empty where the field is absent.
inline std::span<const uint8_t> BytesOf(const flatbuffers::Vector<uint8_t>* field) {
  return field == nullptr ? std::span<const uint8_t>() : std::span<const uint8_t>(field->data(), field->size());
}

inline Bytes FinishedBytes(const flatbuffers::FlatBufferBuilder& builder) {
  return Bytes(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
}

}  // namespace kiln
