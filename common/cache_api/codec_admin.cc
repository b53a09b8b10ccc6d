// Change log and its hint, maintenance, inspection.
#include "common/base/byte_io.h"
#include "common/base/limits.h"
#include "common/cache_api/codec_parts.h"

namespace kiln::cache {
namespace {

Message EncodeMark(const Digest& key, bool on) {
  Builder builder;
  const wire::Digest32 plan_key = ToWire(key);
  return Finish(builder, wire::CreateMarkRequest(builder, &plan_key, on));
}

Status DecodeMark(const Message& message, Digest& key, bool& on, const char* what) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::MarkRequest>(message.payload, what));
  key = ReadDigest(table->plan_key());
  on = table->on();
  return {};
}

}  // namespace

// --- Ping ---

Message Encode(const PingRequest&) {
  return {};
}
Status Decode(Message message, PingRequest&) {
  return DecodeEmpty(message);
}

Message Encode(const PingReply& reply) {
  Builder builder;
  const auto version = builder.CreateString(reply.version);
  return Finish(builder, wire::CreatePingReply(builder, version, reply.uptime_ms));
}

Status Decode(Message message, PingReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::PingReply>(message.payload, "Ping reply"));
  out = {ReadText(table->version()), table->uptime_ms()};
  return {};
}

// --- ChangeLog ---

Message Encode(const ChangeLogRequest& request) {
  Builder builder;
  return Finish(builder, wire::CreateChangeLogRequest(builder, request.since, request.limit));
}

Status Decode(Message message, ChangeLogRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ChangeLogRequest>(message.payload, "ChangeLog request"));
  out = {table->since(), table->limit()};
  return {};
}

Message Encode(const ChangeLogReply& reply) {
  Builder builder;
  std::vector<flatbuffers::Offset<wire::ChangeEntry>> entries;
  for (const ChangeEntry& entry : reply.entries) {
    const wire::Digest32 plan_key = ToWire(entry.plan_key), segment = ToWire(entry.segment);
    const auto target = builder.CreateString(entry.target);
    entries.push_back(wire::CreateChangeEntry(builder, entry.sequence, static_cast<uint8_t>(entry.kind), &plan_key,
                                              &segment, target));
  }
  return Finish(builder, wire::CreateChangeLogReply(builder, builder.CreateVector(entries), reply.head, reply.gap));
}

Status Decode(Message message, ChangeLogReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ChangeLogReply>(message.payload, "ChangeLog reply"));
  out.head = table->head();
  out.gap = table->gap();
  if (table->entries() == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(table->entries()->size(), limits::kMessageKeysMax, "ChangeLog reply"));
  for (const wire::ChangeEntry* wire_entry : *table->entries()) {
    ChangeEntry entry{.sequence = wire_entry->sequence(),
                      .plan_key = ReadDigest(wire_entry->plan_key()),
                      .segment = ReadDigest(wire_entry->segment()),
                      .target = ReadText(wire_entry->target())};
    RETURN_IF_ERROR(ReadKind(wire_entry->kind(), entry.kind, ChangeKindName, "ChangeLog reply"));
    out.entries.push_back(std::move(entry));
  }
  return {};
}

// --- the change log's hint ---

Bytes EncodeHint(uint64_t head) {
  ByteWriter writer;
  writer.U64(head);
  return writer.Take();
}

Result<uint64_t> DecodeHint(std::span<const uint8_t> hint) {
  ByteReader reader(hint);
  const uint64_t head = reader.U64();
  if (!reader.AtEnd())
    return Fail(ErrorCode::kMalformed, "a hint of the change log has 8 bytes, not " + std::to_string(hint.size()));
  return head;
}

// --- Purge, Pin, Quarantine ---

Message Encode(const PurgeRequest& request) {
  Builder builder;
  const wire::Digest32 digest = ToWire(request.digest);
  const auto target = builder.CreateString(request.target);
  return Finish(
      builder, wire::CreatePurgeRequest(builder, static_cast<uint8_t>(request.kind), &digest, target, request.dry_run));
}

Status Decode(Message message, PurgeRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::PurgeRequest>(message.payload, "Purge request"));
  out.digest = ReadDigest(table->digest());
  out.target = ReadText(table->target());
  out.dry_run = table->dry_run();
  return ReadKind(table->kind(), out.kind, PurgeKindName, "Purge request");
}

Message Encode(const PurgeReply& reply) {
  Builder builder;
  return Finish(builder, wire::CreatePurgeReply(builder, reply.plans));
}

Status Decode(Message message, PurgeReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::PurgeReply>(message.payload, "Purge reply"));
  out.plans = table->plans();
  return {};
}

Message Encode(const PinRequest& request) {
  return EncodeMark(request.plan_key, request.on);
}
Status Decode(Message message, PinRequest& out) {
  return DecodeMark(message, out.plan_key, out.on, "Pin request");
}
Message Encode(const PinReply&) {
  return {};
}
Status Decode(Message message, PinReply&) {
  return DecodeEmpty(message);
}

Message Encode(const QuarantineRequest& request) {
  return EncodeMark(request.plan_key, request.on);
}
Status Decode(Message message, QuarantineRequest& out) {
  return DecodeMark(message, out.plan_key, out.on, "Quarantine request");
}
Message Encode(const QuarantineReply&) {
  return {};
}
Status Decode(Message message, QuarantineReply&) {
  return DecodeEmpty(message);
}

// --- Stats, List ---

Message Encode(const StatsRequest&) {
  return {};
}
Status Decode(Message message, StatsRequest&) {
  return DecodeEmpty(message);
}

Message Encode(const StatsReply& reply) {
  Builder builder;
  std::vector<flatbuffers::Offset<wire::Stat>> stats;
  for (const Stat& stat : reply.stats) {
    const auto name = builder.CreateString(stat.name);
    stats.push_back(wire::CreateStat(builder, name, stat.value));
  }
  return Finish(builder, wire::CreateStatsReply(builder, builder.CreateVector(stats)));
}

Status Decode(Message message, StatsReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::StatsReply>(message.payload, "Stats reply"));
  if (table->stats() == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(table->stats()->size(), limits::kMessageKeysMax, "Stats reply"));
  for (const wire::Stat* stat : *table->stats()) out.stats.push_back({ReadText(stat->name()), stat->value()});
  return {};
}

Message Encode(const ListRequest& request) {
  Builder builder;
  const wire::Digest32 after = ToWire(request.after), segment = ToWire(request.segment);
  return Finish(builder, wire::CreateListRequest(builder, &after, request.limit, &segment));
}

Status Decode(Message message, ListRequest& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ListRequest>(message.payload, "List request"));
  out = {ReadDigest(table->after()), table->limit(), ReadDigest(table->segment())};
  return {};
}

Message Encode(const ListReply& reply) {
  Builder builder;
  std::vector<flatbuffers::Offset<wire::PlanSummary>> plans;
  for (const PlanSummary& plan : reply.plans) {
    const wire::Digest32 plan_key = ToWire(plan.plan_key), segment = ToWire(plan.segment),
                         codegen_id = ToWire(plan.codegen_id);
    const auto target = builder.CreateString(plan.target);
    plans.push_back(wire::CreatePlanSummary(builder, &plan_key, &segment, target, plan.tier,
                                            static_cast<uint8_t>(plan.evidence.validation), plan.evidence.shadow_runs,
                                            plan.kernels, plan.bytes, plan.uses, plan.compile_us, plan.created_wall_ms,
                                            &codegen_id, plan.pinned, plan.quarantined));
  }
  return Finish(builder, wire::CreateListReply(builder, builder.CreateVector(plans)));
}

Status Decode(Message message, ListReply& out) {
  ASSIGN_OR_RETURN(const auto* table, VerifiedRoot<wire::ListReply>(message.payload, "List reply"));
  if (table->plans() == nullptr) return {};
  RETURN_IF_ERROR(CheckCount(table->plans()->size(), limits::kMessageKeysMax, "List reply"));
  for (const wire::PlanSummary* plan : *table->plans()) {
    PlanSummary summary{.plan_key = ReadDigest(plan->plan_key()),
                        .segment = ReadDigest(plan->segment()),
                        .target = ReadText(plan->target()),
                        .tier = plan->tier(),
                        .kernels = plan->kernels(),
                        .bytes = plan->bytes(),
                        .uses = plan->uses(),
                        .compile_us = plan->compile_us(),
                        .created_wall_ms = plan->created_wall_ms(),
                        .codegen_id = ReadDigest(plan->codegen_id()),
                        .pinned = plan->pinned(),
                        .quarantined = plan->quarantined()};
    RETURN_IF_ERROR(ReadEvidence(plan->validation(), plan->shadow_runs(), summary.evidence));
    out.plans.push_back(std::move(summary));
  }
  return {};
}

}  // namespace kiln::cache
