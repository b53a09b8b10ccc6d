// Pieces shared by the codec's source files; not for others.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/artifact/digest_wire.h"
#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "common/cache_api/codec.h"
#include "schemas/cache_generated.h"

namespace kiln::cache {

using Builder = flatbuffers::FlatBufferBuilder;
using WireDigests = flatbuffers::Vector<const wire::Digest32*>;

template <class Table>
Message Finish(Builder& builder, flatbuffers::Offset<Table> root, std::vector<Bytes> blobs = {}) {
  builder.Finish(root);
  return {FinishedBytes(builder), std::move(blobs)};
}

inline Digest ReadDigest(const wire::Digest32* digest) {
  return digest == nullptr ? Digest{} : FromWire(*digest);
}

inline std::string ReadText(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str().substr(0, limits::kMessageTextBytesMax);
}

inline Bytes ReadBytes(const flatbuffers::Vector<uint8_t>* bytes) {
  return bytes == nullptr ? Bytes() : Bytes(bytes->begin(), bytes->end());
}

inline flatbuffers::Offset<WireDigests> WriteDigests(Builder& builder, const std::vector<Digest>& digests) {
  std::vector<wire::Digest32> wire;
  wire.reserve(digests.size());
  for (const Digest& digest : digests) wire.push_back(ToWire(digest));
  return builder.CreateVectorOfStructs(wire);
}

inline Status ReadDigests(const WireDigests* wire, std::vector<Digest>& out, const char* what) {
  out.clear();
  if (wire == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(wire->size(), limits::kMessageKeysMax, what));
  for (const wire::Digest32* digest : *wire) out.push_back(FromWire(*digest));
  return {};
}

inline Message EncodeDigestList(const std::vector<Digest>& digests) {
  Builder builder;
  return Finish(builder, wire::CreateDigestList(builder, WriteDigests(builder, digests)));
}

inline Status DecodeDigestList(const Message& message, std::vector<Digest>& out, const char* what) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::DigestList>(message.payload, what));
  return ReadDigests(table->digests(), out, what);
}

// A number from the wire as an enumerator of a closed set, whose name function knows all members.
template <class Enum>
Status ReadKind(uint8_t wire, Enum& out, std::optional<std::string_view> (*name)(Enum), const char* what) {
  out = static_cast<Enum>(wire);
  if (!name(out))
    return Fail(ErrorCode::kUnsupported, std::string(what) + ": kind " + std::to_string(wire) + " is unknown");
  return {};
}

inline Status ReadEvidence(uint8_t validation, uint32_t shadow_runs, Evidence& out) {
  out.shadow_runs = shadow_runs;
  return ReadKind(validation, out.validation, ValidationKindName, "validation");
}

using WireEntries = flatbuffers::Vector<const wire::KernelIndexEntry*>;
using WireWarrants = flatbuffers::Vector<const wire::KernelWarrant*>;

inline flatbuffers::Offset<WireEntries> WriteEntries(Builder& builder, const std::vector<KernelBinding>& bindings) {
  std::vector<wire::KernelIndexEntry> entries;
  for (const KernelBinding& binding : bindings) entries.emplace_back(ToWire(binding.key), ToWire(binding.id));
  return builder.CreateVectorOfStructs(entries);
}

inline flatbuffers::Offset<WireWarrants> WriteWarrants(Builder& builder, const std::vector<KernelBinding>& bindings) {
  std::vector<wire::KernelWarrant> warrants;
  for (const KernelBinding& binding : bindings)
    warrants.emplace_back(static_cast<uint8_t>(binding.validation),
                          flatbuffers::span<const uint8_t, 32>(binding.signer.bytes),
                          flatbuffers::span<const uint8_t, 64>(binding.signature));
  return builder.CreateVectorOfStructs(warrants);
}

// Keys and ids are in `bindings` already; without warrants the entries stay unsigned.
inline Status ReadWarrants(const WireWarrants* wire, std::vector<KernelBinding>& bindings, const char* what) {
  if (wire == nullptr || wire->size() == 0) return {};
  if (wire->size() != bindings.size())
    return Fail(ErrorCode::kMalformed, std::string(what) + ": " + std::to_string(wire->size()) + " warrants for " +
                                           std::to_string(bindings.size()) + " kernels");
  for (size_t i = 0; i < bindings.size(); ++i) {
    const wire::KernelWarrant& warrant = *wire->Get(static_cast<flatbuffers::uoffset_t>(i));
    RETURN_IF_ERROR(ReadKind(warrant.validation(), bindings[i].validation, ValidationKindName, what));
    std::copy_n(warrant.signer()->data(), bindings[i].signer.bytes.size(), bindings[i].signer.bytes.begin());
    std::copy_n(warrant.signature()->data(), bindings[i].signature.size(), bindings[i].signature.begin());
  }
  return {};
}

inline Status ReadBindings(const WireEntries* entries, const WireWarrants* warrants, std::vector<KernelBinding>& out,
                           const char* what) {
  out.clear();
  if (entries != nullptr) {
    RETURN_IF_ERROR(CheckCount(entries->size(), limits::kMessageKeysMax, what));
    for (const wire::KernelIndexEntry* entry : *entries)
      out.push_back({.key = FromWire(entry->key()), .id = FromWire(entry->id())});
  }
  return ReadWarrants(warrants, out, what);
}

// Messages without fields.
inline Status DecodeEmpty(const Message&) {
  return {};
}

}  // namespace kiln::cache
