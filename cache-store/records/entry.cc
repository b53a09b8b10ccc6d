#include "cache-store/records/entry.h"

#include <cstring>

#include "common/base/limits.h"

namespace kiln::store {
namespace {

constexpr size_t kSealBytes = 16;  // of the 32 of BLAKE2b: against damage, not against a writer

Digest SealOf(Space space, std::string_view key, std::span<const uint8_t> value) {
  return FieldHasher("kiln.store.entry.v1").Text(SpaceName(space)).Text(key).Bytes(value).Finish();
}

// The value, if the reader consumed all of its input without a fault.
template <class Value>
Result<Value> Complete(const ByteReader& reader, Value value, const char* what) {
  if (!reader.AtEnd()) return Fail(ErrorCode::kMalformed, std::string("stored ") + what + " has an unknown form");
  return value;
}

// A member of a closed set, whose name function knows all of them. One of a later version would be refused by every
// peer that is told of it, with all that the reply tells besides.
template <class Kind>
void ReadKind(ByteReader& reader, Kind& kind, std::optional<std::string_view> (*name)(Kind)) {
  kind = static_cast<Kind>(reader.U8());
  if (!name(kind)) reader.Reject();
}

}  // namespace

Bytes Seal(Space space, std::string_view key, Bytes value) {
  const Digest seal = SealOf(space, key, value);
  value.insert(value.end(), seal.bytes.begin(), seal.bytes.begin() + kSealBytes);
  return value;
}

Result<Bytes> Unseal(Space space, std::string_view key, std::span<const uint8_t> sealed) {
  if (sealed.size() >= kSealBytes) {
    const auto value = sealed.first(sealed.size() - kSealBytes);
    const Digest seal = SealOf(space, key, value);
    if (std::memcmp(seal.bytes.data(), sealed.data() + value.size(), kSealBytes) == 0)
      return Bytes(value.begin(), value.end());
  }
  return Fail(ErrorCode::kIntegrityFailure,
              "an entry of " + std::string(SpaceName(space)) + " does not match its checksum");
}

std::string DigestKey(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), kDigestBytes};
}
std::string SegmentIndexKey(const Digest& segment, const Digest& plan_key) {
  return DigestKey(segment) + DigestKey(plan_key);
}

std::string SequenceKey(uint64_t sequence) {
  std::string key;
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(sequence >> shift));
  return key;
}

std::string LeaseKey(cache::ClaimKind kind, const Digest& key) {
  return static_cast<char>(kind) + DigestKey(key);
}
std::string StateKey(const Digest& plan_key) {
  return std::string(kStatePrefix) + DigestKey(plan_key);
}
std::string KernelSizeKey(const Digest& kernel_id) {
  return std::string(kKernelPrefix) + DigestKey(kernel_id);
}
std::string QuarantineKey(const Digest& plan_key) {
  return std::string(kQuarantinePrefix) + DigestKey(plan_key);
}
std::string WitnessKey(const Digest& plan_key) {
  return std::string(kWitnessPrefix) + DigestKey(plan_key);
}

std::optional<Digest> DigestAfter(std::string_view key, std::string_view prefix) {
  if (key.size() != prefix.size() + kDigestBytes || !key.starts_with(prefix)) return std::nullopt;
  Digest digest;
  std::memcpy(digest.bytes.data(), key.data() + prefix.size(), kDigestBytes);
  return digest;
}

uint64_t BytesOf(const PlanInfo& info) {
  uint64_t bytes = info.record_bytes;
  for (const KernelRef& kernel : info.kernels) bytes += kernel.size;
  return bytes;
}

PlanInfo InfoOf(const PlanRecord& record, uint64_t record_bytes) {
  return {.segment = record.segment,
          .target = record.target,
          .abi = record.abi,
          .numeric_mode = record.numeric_mode,
          .weights = record.weights,
          .guard = record.guard,
          .evidence = record.evidence,
          .provenance = record.provenance,
          .kernels = record.kernels,
          .record_bytes = record_bytes};
}

Bytes EncodeInfo(const PlanInfo& info) {
  ByteWriter writer;
  writer.Id(info.segment);
  writer.Text(info.target);
  writer.U32(info.abi);
  writer.U8(info.numeric_mode);
  writer.Bytes(info.guard);
  writer.U8(static_cast<uint8_t>(info.evidence.validation));
  writer.U32(info.evidence.shadow_runs);
  writer.Id(info.provenance.codegen_id);
  writer.U64(info.provenance.compile_us);
  writer.I64(info.provenance.created_wall_ms);
  writer.U8(info.provenance.tier);
  writer.U32(static_cast<uint32_t>(info.kernels.size()));
  for (const KernelRef& kernel : info.kernels) {
    writer.Id(kernel.id);
    writer.U64(kernel.size);
  }
  writer.U64(info.record_bytes);
  if (info.weights != 0) writer.U8(info.weights);  // packed is what entries without it mean
  return writer.Take();
}

Result<PlanInfo> DecodeInfo(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  PlanInfo info;
  info.segment = reader.Id();
  info.target = reader.Text(limits::kEntryTextBytesMax);
  info.abi = reader.U32();
  info.numeric_mode = reader.U8();
  info.guard = reader.Bytes(limits::kEntryGuardBytesMax);
  ReadKind(reader, info.evidence.validation, ValidationKindName);
  info.evidence.shadow_runs = reader.U32();
  info.provenance.codegen_id = reader.Id();
  info.provenance.compile_us = reader.U64();
  info.provenance.created_wall_ms = reader.I64();
  info.provenance.tier = reader.U8();
  info.kernels.resize(reader.Count(kDigestBytes + 8, limits::kPlanKernelsMax));
  for (KernelRef& kernel : info.kernels) {
    kernel.id = reader.Id();
    kernel.size = reader.U64();
  }
  info.record_bytes = reader.U64();
  if (!reader.AtEnd()) info.weights = reader.U8();
  return Complete(reader, std::move(info), "plan info");
}

Bytes EncodeState(const PlanState& state) {
  ByteWriter writer;
  writer.F64(state.use);
  writer.I64(state.use_wall_ms);
  writer.U32(state.shadow_runs);
  writer.U8(state.pinned ? 1 : 0);
  return writer.Take();
}

Result<PlanState> DecodeState(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  PlanState state;
  state.use = reader.F64();
  state.use_wall_ms = reader.I64();
  state.shadow_runs = reader.U32();
  state.pinned = reader.U8() != 0;
  return Complete(reader, state, "plan state");
}

Bytes EncodeLease(const Lease& lease) {
  ByteWriter writer;
  writer.Text(lease.holder);
  writer.I64(lease.expires_wall_ms);
  return writer.Take();
}

Result<Lease> DecodeLease(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  Lease lease;
  lease.holder = reader.Text(limits::kEntryTextBytesMax);
  lease.expires_wall_ms = reader.I64();
  return Complete(reader, std::move(lease), "lease");
}

Bytes EncodeChange(const cache::ChangeEntry& entry) {
  ByteWriter writer;
  writer.U64(entry.sequence);
  writer.U8(static_cast<uint8_t>(entry.kind));
  writer.Id(entry.plan_key);
  writer.Id(entry.segment);
  writer.Text(entry.target);
  return writer.Take();
}

Result<cache::ChangeEntry> DecodeChange(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  cache::ChangeEntry entry;
  entry.sequence = reader.U64();
  ReadKind(reader, entry.kind, cache::ChangeKindName);
  entry.plan_key = reader.Id();
  entry.segment = reader.Id();
  entry.target = reader.Text(limits::kEntryTextBytesMax);
  return Complete(reader, std::move(entry), "change");
}

Bytes EncodeWitnesses(const Witnesses& witnesses) {
  ByteWriter writer;
  writer.U32(static_cast<uint32_t>(witnesses.reporters.size()));
  for (const std::string& machine : witnesses.reporters) writer.Text(machine);
  writer.U32(static_cast<uint32_t>(witnesses.clean_runs.size()));
  for (const auto& [machine, runs] : witnesses.clean_runs) {
    writer.Text(machine);
    writer.U32(runs);
  }
  return writer.Take();
}

Result<Witnesses> DecodeWitnesses(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  Witnesses witnesses;
  for (size_t left = reader.Count(4, limits::kMachinesKeptMax); left > 0; --left)
    witnesses.reporters.insert(reader.Text(limits::kEntryTextBytesMax));
  for (size_t left = reader.Count(8, limits::kMachinesKeptMax); left > 0; --left) {
    std::string machine = reader.Text(limits::kEntryTextBytesMax);
    witnesses.clean_runs[std::move(machine)] = reader.U32();
  }
  return Complete(reader, std::move(witnesses), "witnesses");
}

Bytes EncodeBinding(const KernelBinding& binding) {
  ByteWriter writer;
  writer.Id(binding.id);
  writer.U8(static_cast<uint8_t>(binding.validation));
  for (uint8_t byte : binding.signer.bytes) writer.U8(byte);
  for (uint8_t byte : binding.signature) writer.U8(byte);
  return writer.Take();
}

Result<KernelBinding> DecodeBinding(const Digest& key, std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  KernelBinding binding{.key = key, .id = reader.Id()};
  if (reader.AtEnd()) return binding;
  ReadKind(reader, binding.validation, ValidationKindName);
  for (uint8_t& byte : binding.signer.bytes) byte = reader.U8();
  for (uint8_t& byte : binding.signature) byte = reader.U8();
  return Complete(reader, binding, "kernel binding");
}

Bytes EncodeDigest(const Digest& digest) {
  ByteWriter writer;
  writer.Id(digest);
  return writer.Take();
}

Result<Digest> DecodeDigest(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  const Digest digest = reader.Id();
  return Complete(reader, digest, "digest");
}

Bytes EncodeU64(uint64_t value) {
  ByteWriter writer;
  writer.U64(value);
  return writer.Take();
}

Result<uint64_t> DecodeU64(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  const uint64_t value = reader.U64();
  return Complete(reader, value, "number");
}

}  // namespace kiln::store
