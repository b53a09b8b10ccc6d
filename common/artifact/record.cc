#include "common/artifact/record.h"

#include <cstring>

#include "common/artifact/digest_wire.h"
#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "schemas/artifact_record_generated.h"

namespace kiln {
namespace {

constexpr char kRecordMagic[4] = {'K', 'P', 'L', 'R'};
constexpr char kBlobMagic[4] = {'K', 'K', 'R', 'N'};
constexpr uint32_t kRecordVersion = 1;
constexpr uint32_t kBlobVersion = 1;
constexpr size_t kHeaderBytes = 16;  // magic, version, length
constexpr size_t kRecordTailBytes = 32 + 64 + kDigestBytes;
constexpr char kSignatureDomain[] = "kiln.plan_record";

void AppendHeader(Bytes& out, const char (&magic)[4], uint32_t version, uint64_t length) {
  out.insert(out.end(), magic, magic + 4);
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(version >> (8 * i)));
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<uint8_t>(length >> (8 * i)));
}

void AppendChecksum(Bytes& out) {
  const Digest checksum = HashBytes(out);
  out.insert(out.end(), checksum.bytes.begin(), checksum.bytes.end());
}

// The length field of a frame: checks magic, version and total size.
Result<size_t> CheckHeader(std::span<const uint8_t> bytes, const char (&magic)[4], uint32_t version, size_t tail_bytes,
                           const char* what) {
  if (bytes.size() < kHeaderBytes + tail_bytes || std::memcmp(bytes.data(), magic, 4) != 0)
    return Fail(ErrorCode::kMalformed,
                std::string(what) + ": " + std::to_string(bytes.size()) + " bytes without its magic");
  uint32_t found_version = 0;
  for (int i = 0; i < 4; ++i) found_version |= static_cast<uint32_t>(bytes[4 + i]) << (8 * i);
  if (found_version != version)
    return Fail(ErrorCode::kUnsupported, std::string(what) + ": format version " + std::to_string(found_version) +
                                             "; this build reads " + std::to_string(version));
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(bytes[8 + i]) << (8 * i);
  if (length != bytes.size() - kHeaderBytes - tail_bytes)
    return Fail(ErrorCode::kMalformed, std::string(what) + ": length field contradicts the size");
  return static_cast<size_t>(length);
}

Bytes EncodeBody(const PlanRecord& record) {
  flatbuffers::FlatBufferBuilder builder(512 + record.guard.size() + record.plan.size());
  std::vector<wire::KernelRef> kernels;
  for (const KernelRef& kernel : record.kernels) kernels.emplace_back(ToWire(kernel.id), kernel.size);
  const auto target = builder.CreateString(record.target);
  const auto guard = builder.CreateVector(record.guard);
  const auto plan = builder.CreateVector(record.plan);
  const auto refs = builder.CreateVectorOfStructs(kernels);
  const wire::Digest32 plan_key = ToWire(record.plan_key), segment = ToWire(record.segment),
                       codegen_id = ToWire(record.provenance.codegen_id);
  wire::PlanRecordBuilder table(builder);
  table.add_plan_key(&plan_key);
  table.add_segment(&segment);
  table.add_target(target);
  table.add_abi(record.abi);
  table.add_numeric_mode(record.numeric_mode);
  table.add_guard(guard);
  table.add_plan(plan);
  table.add_kernels(refs);
  table.add_validation(static_cast<uint8_t>(record.evidence.validation));
  table.add_shadow_runs(record.evidence.shadow_runs);
  table.add_codegen_id(&codegen_id);
  table.add_compile_us(record.provenance.compile_us);
  table.add_created_wall_ms(record.provenance.created_wall_ms);
  table.add_tier(record.provenance.tier);
  table.add_weights(record.weights);
  builder.Finish(table.Finish());
  return FinishedBytes(builder);
}

Result<PlanRecord> DecodeBody(std::span<const uint8_t> bytes) {
  const AlignedBytes aligned(bytes);
  ASSIGN_OR_RETURN(const wire::PlanRecord* table, VerifiedRoot<wire::PlanRecord>(aligned.span(), "plan record"));
  if (table->plan_key() == nullptr || table->segment() == nullptr || table->codegen_id() == nullptr ||
      table->target() == nullptr || table->guard() == nullptr || table->plan() == nullptr ||
      table->kernels() == nullptr)
    return Fail(ErrorCode::kMalformed, "plan record: a required field is missing");
  if (table->kernels()->size() > limits::kPlanKernelsMax)
    return Fail(ErrorCode::kLimitExceeded, "plan record: names " + std::to_string(table->kernels()->size()) +
                                               " kernels; the limit is " + std::to_string(limits::kPlanKernelsMax));
  if (table->target()->size() > limits::kTargetBytesMax ||
      !ValidationKindName(static_cast<ValidationKind>(table->validation())))
    return Fail(ErrorCode::kMalformed, "plan record: target or validation is out of bounds");
  PlanRecord record{
      .plan_key = FromWire(*table->plan_key()),
      .segment = FromWire(*table->segment()),
      .target = table->target()->str(),
      .abi = table->abi(),
      .numeric_mode = table->numeric_mode(),
      .weights = table->weights(),
      .guard = Bytes(table->guard()->begin(), table->guard()->end()),
      .plan = Bytes(table->plan()->begin(), table->plan()->end()),
      .kernels = {},
      .evidence = {static_cast<ValidationKind>(table->validation()), table->shadow_runs()},
      .provenance = {FromWire(*table->codegen_id()), table->compile_us(), table->created_wall_ms(), table->tier()}};
  for (const wire::KernelRef* kernel : *table->kernels())
    record.kernels.push_back({FromWire(kernel->id()), kernel->size()});
  return record;
}

}  // namespace

Bytes EncodeAndSign(const PlanRecord& record, const SigningKey& key) {
  const Bytes body = EncodeBody(record);
  Bytes out;
  out.reserve(kHeaderBytes + body.size() + kRecordTailBytes);
  AppendHeader(out, kRecordMagic, kRecordVersion, body.size());
  out.insert(out.end(), body.begin(), body.end());
  const SignPublicKey& signer = key.public_key();
  out.insert(out.end(), signer.bytes.begin(), signer.bytes.end());
  const SignatureBytes signature = key.Sign(kSignatureDomain, out);
  out.insert(out.end(), signature.begin(), signature.end());
  AppendChecksum(out);
  return out;
}

Result<SignedRecord> DecodeUnverified(std::span<const uint8_t> bytes) {
  if (bytes.size() > limits::kRecordBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "plan record has " + std::to_string(bytes.size()) + " bytes; the limit is " +
                                               std::to_string(limits::kRecordBytesMax));
  ASSIGN_OR_RETURN(const size_t length,
                   CheckHeader(bytes, kRecordMagic, kRecordVersion, kRecordTailBytes, "plan record"));
  const Digest checksum = HashBytes(bytes.first(bytes.size() - kDigestBytes));
  if (std::memcmp(checksum.bytes.data(), bytes.data() + bytes.size() - kDigestBytes, kDigestBytes) != 0)
    return Fail(ErrorCode::kIntegrityFailure, "plan record: checksum does not match");
  SignedRecord decoded;
  ASSIGN_OR_RETURN(decoded.record, DecodeBody(bytes.subspan(kHeaderBytes, length)));
  std::memcpy(decoded.signer.bytes.data(), bytes.data() + kHeaderBytes + length, decoded.signer.bytes.size());
  return decoded;
}

Result<SignedRecord> DecodeAndVerify(std::span<const uint8_t> bytes, const TrustedSigners& trusted) {
  ASSIGN_OR_RETURN(SignedRecord decoded, DecodeUnverified(bytes));
  bool known = false;
  for (const SignPublicKey& key : trusted) known = known || key == decoded.signer;
  if (!known)
    return Fail(ErrorCode::kIntegrityFailure,
                "plan record is signed by " + decoded.signer.Hex() + ", which is not in the list of trusted signers");
  SignatureBytes signature;
  const size_t signed_bytes = bytes.size() - kDigestBytes - signature.size();
  std::memcpy(signature.data(), bytes.data() + signed_bytes, signature.size());
  if (!VerifySignature(decoded.signer, kSignatureDomain, bytes.first(signed_bytes), signature))
    return Fail(ErrorCode::kIntegrityFailure,
                "plan record: the signature of " + decoded.signer.Hex() + " does not match");
  return decoded;
}

Bytes FrameKernelBlob(std::span<const uint8_t> payload) {
  Bytes out;
  out.reserve(kHeaderBytes + payload.size() + kDigestBytes);
  AppendHeader(out, kBlobMagic, kBlobVersion, payload.size());
  out.insert(out.end(), payload.begin(), payload.end());
  const Digest id = KernelIdOf(payload);
  out.insert(out.end(), id.bytes.begin(), id.bytes.end());
  return out;
}

Result<Bytes> UnframeKernelBlob(std::span<const uint8_t> frame, const Digest& id) {
  ASSIGN_OR_RETURN(const size_t length, CheckHeader(frame, kBlobMagic, kBlobVersion, kDigestBytes, "kernel blob"));
  const auto payload = frame.subspan(kHeaderBytes, length);
  const Digest hash = KernelIdOf(payload);
  if (hash != id || std::memcmp(hash.bytes.data(), frame.data() + frame.size() - kDigestBytes, kDigestBytes) != 0)
    return Fail(ErrorCode::kIntegrityFailure, "kernel blob is damaged or not the kernel " + id.ShortHex());
  return Bytes(payload.begin(), payload.end());
}

}  // namespace kiln
