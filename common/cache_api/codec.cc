// Plans, kernels, claims: what workers and the compile service exchange with the store.
#include "common/base/limits.h"
#include "common/cache_api/codec_parts.h"

namespace kiln::cache {

// --- Variants ---

Message Encode(const VariantsRequest& request) {
  Builder builder;
  const wire::Digest32 segment = ToWire(request.segment);
  const auto targets = builder.CreateVectorOfStrings(request.targets);
  const auto weights = builder.CreateVector(request.weights);
  return Finish(builder, wire::CreateVariantsRequest(builder, &segment, targets, weights));
}

Status Decode(Message message, VariantsRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::VariantsRequest>(message.payload, "Variants request"));
  out.segment = ReadDigest(table->segment());
  if (table->weights() != nullptr) {
    RETURN_IF_ERROR(CheckCount(table->weights()->size(), limits::kMessageWeightFormsMax, "Variants request weights"));
    out.weights.assign(table->weights()->begin(), table->weights()->end());
  }
  if (table->targets() == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(table->targets()->size(), limits::kMessageTargetsMax, "Variants request targets"));
  for (const auto* target : *table->targets()) out.targets.push_back(ReadText(target));
  return {};
}

Message Encode(const VariantsReply& reply) {
  Builder builder;
  std::vector<flatbuffers::Offset<wire::VariantEntry>> entries;
  for (const Variant& variant : reply.variants) {
    const wire::Digest32 plan_key = ToWire(variant.plan_key), codegen_id = ToWire(variant.codegen_id);
    const auto target = builder.CreateString(variant.target);
    const auto guard = builder.CreateVector(variant.guard);
    entries.push_back(wire::CreateVariantEntry(builder, &plan_key, target, variant.abi, variant.numeric_mode, guard,
                                               static_cast<uint8_t>(variant.evidence.validation),
                                               variant.evidence.shadow_runs, &codegen_id, variant.tier,
                                               variant.created_wall_ms, variant.weights));
  }
  return Finish(builder, wire::CreateVariantsReply(builder, builder.CreateVector(entries)));
}

Status Decode(Message message, VariantsReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::VariantsReply>(message.payload, "Variants reply"));
  if (table->variants() == nullptr) return {};
  for (const wire::VariantEntry* entry : *table->variants()) {
    if (out.variants.size() == limits::kVariantsMax) break;  // the best come first; no segment is lost for the rest

    Variant variant{.plan_key = ReadDigest(entry->plan_key()),
                    .target = ReadText(entry->target()),
                    .abi = entry->abi(),
                    .numeric_mode = entry->numeric_mode(),
                    .guard = ReadBytes(entry->guard()),
                    .codegen_id = ReadDigest(entry->codegen_id()),
                    .tier = entry->tier(),
                    .created_wall_ms = entry->created_wall_ms(),
                    .weights = entry->weights()};
    RETURN_IF_ERROR(ReadEvidence(entry->validation(), entry->shadow_runs(), variant.evidence));
    out.variants.push_back(std::move(variant));
  }
  return {};
}

// --- GetPlan ---

Message Encode(const GetPlanRequest& request) {
  return EncodeDigestList({request.plan_key});
}

Status Decode(Message message, GetPlanRequest& out) {
  std::vector<Digest> digests;
  RETURN_IF_ERROR(DecodeDigestList(message, digests, "GetPlan request"));
  if (digests.size() != 1)
    return Fail(ErrorCode::kMalformed,
                "GetPlan request names " + std::to_string(digests.size()) + " plans; one is needed");
  out.plan_key = digests[0];
  return {};
}

Message Encode(const GetPlanReply& reply) {
  return {.payload = {}, .blobs = {reply.record}};
}

Status Decode(Message message, GetPlanReply& out) {
  if (message.blobs.size() != 1) return Fail(ErrorCode::kMalformed, "GetPlan reply has no record");
  out.record = std::move(message.blobs[0]);
  return {};
}

// --- GetBlobs, PublishBlobs ---

Message Encode(const GetBlobsRequest& request) {
  Builder builder;
  return Finish(builder, wire::CreateBlobsRequest(builder, WriteDigests(builder, request.ids), request.offset));
}

Status Decode(Message message, GetBlobsRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::BlobsRequest>(message.payload, "GetBlobs request"));
  out.offset = table->offset();
  return ReadDigests(table->ids(), out.ids, "GetBlobs request");
}

Message Encode(const GetBlobsReply& reply) {
  Builder builder;
  std::vector<flatbuffers::Offset<wire::BlobChunk>> chunks;
  std::vector<Bytes> blobs;
  for (const BlobChunk& chunk : reply.chunks) {
    chunks.push_back(wire::CreateBlobChunk(builder, chunk.index, chunk.offset, chunk.total, chunk.found));
    if (chunk.found) blobs.push_back(chunk.bytes);
  }
  return Finish(builder, wire::CreateBlobsReply(builder, builder.CreateVector(chunks)), std::move(blobs));
}

Status Decode(Message message, GetBlobsReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::BlobsReply>(message.payload, "GetBlobs reply"));
  if (table->chunks() == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(table->chunks()->size(), limits::kMessageKeysMax, "GetBlobs reply"));
  size_t next_blob = 0;
  for (const wire::BlobChunk* entry : *table->chunks()) {
    BlobChunk chunk{.index = entry->index(),
                    .offset = entry->offset(),
                    .total = entry->total(),
                    .found = entry->found(),
                    .bytes = {}};
    if (chunk.found) {
      if (next_blob >= message.blobs.size()) return Fail(ErrorCode::kMalformed, "GetBlobs reply lacks a message part");
      chunk.bytes = std::move(message.blobs[next_blob++]);
      if (chunk.bytes.size() > chunk.total || chunk.offset > chunk.total - chunk.bytes.size())
        return Fail(ErrorCode::kMalformed, "GetBlobs reply: a chunk lies outside its kernel");
    }
    out.chunks.push_back(std::move(chunk));
  }
  return {};
}

Message Encode(const PublishBlobsRequest& request) {
  if (request.index.empty()) return {.payload = {}, .blobs = request.blobs};
  Builder builder;
  const auto kernels = WriteEntries(builder, request.index);
  const auto warrants = WriteWarrants(builder, request.index);
  return Finish(builder, wire::CreatePublishBlobsRequest(builder, kernels, warrants), request.blobs);
}

Status Decode(Message message, PublishBlobsRequest& out) {
  out.index.clear();
  if (!message.payload.empty()) {
    ASSIGN_OR_RETURN(const auto* table,
                     VerifiedRoot<wire::PublishBlobsRequest>(message.payload, "PublishBlobs request"));
    RETURN_IF_ERROR(ReadBindings(table->kernels(), table->warrants(), out.index, "PublishBlobs request"));
  }
  out.blobs = std::move(message.blobs);
  return {};
}

Message Encode(const PublishBlobsReply& reply) {
  return EncodeDigestList(reply.ids);
}
Status Decode(Message message, PublishBlobsReply& out) {
  return DecodeDigestList(message, out.ids, "PublishBlobs reply");
}

// --- LookupKernels ---

Message Encode(const LookupKernelsRequest& request) {
  return EncodeDigestList(request.keys);
}
Status Decode(Message message, LookupKernelsRequest& out) {
  return DecodeDigestList(message, out.keys, "LookupKernels request");
}
Message Encode(const LookupKernelsReply& reply) {
  Builder builder;
  std::vector<Digest> ids;
  for (const KernelBinding& kernel : reply.kernels) ids.push_back(kernel.id);
  const auto digests = WriteDigests(builder, ids);
  const auto warrants = WriteWarrants(builder, reply.kernels);
  return Finish(builder, wire::CreateLookupKernelsReply(builder, digests, warrants));
}

// Keys are not in the reply: whoever asked knows them.
Status Decode(Message message, LookupKernelsReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::LookupKernelsReply>(message.payload, "LookupKernels reply"));
  std::vector<Digest> ids;
  RETURN_IF_ERROR(ReadDigests(table->digests(), ids, "LookupKernels reply"));
  out.kernels.clear();
  for (const Digest& id : ids) out.kernels.push_back({.key = {}, .id = id});
  return ReadWarrants(table->warrants(), out.kernels, "LookupKernels reply");
}

// --- Claim, Release ---

Message Encode(const ClaimRequest& request) {
  Builder builder;
  const auto keys = WriteDigests(builder, request.keys);
  const auto holder = builder.CreateString(request.holder);
  return Finish(builder,
                wire::CreateClaimRequest(builder, static_cast<uint8_t>(request.kind), keys, request.lease_ms, holder));
}

Status Decode(Message message, ClaimRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ClaimRequest>(message.payload, "Claim request"));
  RETURN_IF_ERROR(ReadKind(table->kind(), out.kind, ClaimKindName, "Claim request"));
  out.lease_ms = table->lease_ms();
  out.holder = ReadText(table->holder());
  return ReadDigests(table->keys(), out.keys, "Claim request");
}

Message Encode(const ClaimReply& reply) {
  Builder builder;
  std::vector<flatbuffers::Offset<wire::ClaimEntry>> entries;
  for (const ClaimEntry& entry : reply.entries) {
    const wire::Digest32 kernel_id = ToWire(entry.kernel_id);
    const auto holder = builder.CreateString(entry.holder);
    entries.push_back(
        wire::CreateClaimEntry(builder, static_cast<uint8_t>(entry.state), &kernel_id, entry.remaining_ms, holder));
  }
  return Finish(builder, wire::CreateClaimReply(builder, builder.CreateVector(entries)));
}

Status Decode(Message message, ClaimReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ClaimReply>(message.payload, "Claim reply"));
  if (table->entries() == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(table->entries()->size(), limits::kMessageKeysMax, "Claim reply"));
  for (const wire::ClaimEntry* wire_entry : *table->entries()) {
    ClaimEntry entry{.kernel_id = ReadDigest(wire_entry->kernel_id()),
                     .remaining_ms = wire_entry->remaining_ms(),
                     .holder = ReadText(wire_entry->holder())};
    RETURN_IF_ERROR(ReadKind(wire_entry->state(), entry.state, ClaimStateName, "Claim reply"));
    out.entries.push_back(std::move(entry));
  }
  return {};
}

Message Encode(const ReleaseRequest& request) {
  return Encode(ClaimRequest{.kind = request.kind, .keys = request.keys, .lease_ms = 0, .holder = request.holder});
}

Status Decode(Message message, ReleaseRequest& out) {
  ClaimRequest claim;
  RETURN_IF_ERROR(Decode(std::move(message), claim));
  out = {.kind = claim.kind, .keys = std::move(claim.keys), .holder = std::move(claim.holder)};
  return {};
}

Message Encode(const ReleaseReply&) {
  return {};
}
Status Decode(Message message, ReleaseReply&) {
  return DecodeEmpty(message);
}

// --- PublishPlan ---

Message Encode(const PublishPlanRequest& request) {
  Builder builder;
  const auto kernels = WriteEntries(builder, request.kernels);
  const auto warrants = WriteWarrants(builder, request.kernels);
  return Finish(builder, wire::CreatePublishPlanRequest(builder, kernels, warrants), {request.record});
}

Status Decode(Message message, PublishPlanRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::PublishPlanRequest>(message.payload, "PublishPlan request"));
  if (message.blobs.size() != 1) return Fail(ErrorCode::kMalformed, "PublishPlan request has no record");
  RETURN_IF_ERROR(ReadBindings(table->kernels(), table->warrants(), out.kernels, "PublishPlan request"));
  out.record = std::move(message.blobs[0]);
  return {};
}

Message Encode(const PublishPlanReply& reply) {
  Builder builder;
  const wire::Digest32 plan_key = ToWire(reply.plan_key);
  return Finish(builder, wire::CreatePublishPlanReply(builder, &plan_key, reply.stored));
}

Status Decode(Message message, PublishPlanReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::PublishPlanReply>(message.payload, "PublishPlan reply"));
  out = {ReadDigest(table->plan_key()), table->stored()};
  return {};
}

// --- Report ---

Message Encode(const ReportRequest& request) {
  Builder builder;
  const wire::Digest32 plan_key = ToWire(request.plan_key), contents = ToWire(request.contents);
  const auto reporter = builder.CreateString(request.reporter);
  const auto detail = builder.CreateString(request.detail.substr(0, limits::kMessageTextBytesMax));
  return Finish(builder, wire::CreateReportRequest(builder, &plan_key, static_cast<uint8_t>(request.kind), request.runs,
                                                   reporter, detail, &contents));
}

Status Decode(Message message, ReportRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ReportRequest>(message.payload, "Report request"));
  out.plan_key = ReadDigest(table->plan_key());
  out.runs = table->runs();
  out.reporter = ReadText(table->reporter());
  out.detail = ReadText(table->detail());
  out.contents = ReadDigest(table->contents());
  return ReadKind(table->kind(), out.kind, ReportKindName, "Report request");
}

Message Encode(const ReportReply& reply) {
  Builder builder;
  return Finish(builder, wire::CreateReportReply(builder, reply.quarantined, reply.shadow_runs));
}

Status Decode(Message message, ReportReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ReportReply>(message.payload, "Report reply"));
  out = {table->quarantined(), table->shadow_runs()};
  return {};
}

}  // namespace kiln::cache
