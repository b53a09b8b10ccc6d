#include "common/messaging/envelope.h"

#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "schemas/envelope_generated.h"

namespace kiln {
namespace {}  // namespace

Bytes EncodeEnvelope(const Envelope& envelope) {
  flatbuffers::FlatBufferBuilder builder(128 + envelope.payload.size());
  const auto payload = envelope.payload.empty() ? 0 : builder.CreateVector(envelope.payload);
  const auto error =
      envelope.error.empty() ? 0 : builder.CreateString(envelope.error.substr(0, limits::kErrorTextBytesMax));
  wire::EnvelopeBuilder table(builder);
  table.add_version(envelope.version);
  table.add_kind(static_cast<wire::EnvelopeKind>(envelope.kind));
  table.add_request_id(envelope.request_id);
  table.add_method(envelope.method);
  table.add_deadline_ms(envelope.deadline_ms);
  table.add_trace_id(envelope.trace_id);
  table.add_table_rows(envelope.table.rows);
  table.add_table_hash(envelope.table.hash);
  table.add_status(envelope.status);
  if (!error.IsNull()) table.add_error(error);
  table.add_retry_after_ms(envelope.retry_after_ms);
  table.add_log_head(envelope.log_head);
  if (!payload.IsNull()) table.add_payload(payload);
  builder.Finish(table.Finish());
  return FinishedBytes(builder);
}

Result<Envelope> DecodeEnvelope(std::span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const wire::Envelope* table, VerifiedRoot<wire::Envelope>(bytes, "envelope"));
  if (table->kind() != wire::EnvelopeKind::Request && table->kind() != wire::EnvelopeKind::Reply)
    return Fail(ErrorCode::kMalformed, "envelope is neither request nor reply");
  Envelope envelope{.version = table->version(),
                    .kind = static_cast<EnvelopeKind>(table->kind()),
                    .request_id = table->request_id(),
                    .method = table->method(),
                    .deadline_ms = table->deadline_ms(),
                    .trace_id = table->trace_id(),
                    .table = {table->table_rows(), table->table_hash()},
                    .status = table->status(),
                    .retry_after_ms = table->retry_after_ms(),
                    .log_head = table->log_head()};
  if (table->error() != nullptr) envelope.error = table->error()->str().substr(0, limits::kErrorTextBytesMax);
  if (table->payload() != nullptr) envelope.payload.assign(table->payload()->begin(), table->payload()->end());
  return envelope;
}

}  // namespace kiln
