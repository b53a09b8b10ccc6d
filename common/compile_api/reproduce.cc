#include "common/compile_api/reproduce.h"

#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "common/compile_api/compile_api.h"
#include "common/messaging/rpc_client.h"
#include "schemas/compile_generated.h"

namespace kiln {

Digest ReproduceRequest::Key() const {
  FieldHasher hasher("kiln.reproduce-request.v1");
  hasher.Bytes(segment).Id(plan_key).Id(contents).Int64s(parameters).U64(seed).U64(inputs.size());
  for (const Dims& dims : inputs) hasher.Int64s(dims.span());
  return hasher.Finish();
}

Message EncodeReproduceRequest(const ReproduceRequest& request) {
  flatbuffers::FlatBufferBuilder builder(request.segment.size() + 1024);
  std::vector<flatbuffers::Offset<fbs::InputDims>> inputs;
  for (const Dims& dims : request.inputs)
    inputs.push_back(fbs::CreateInputDims(builder, builder.CreateVector(dims.begin(), dims.size())));
  builder.Finish(fbs::CreateReproduceRequest(
      builder, builder.CreateVector(request.segment), builder.CreateVector(request.plan_key.bytes.data(), kDigestBytes),
      builder.CreateVector(request.contents.bytes.data(), kDigestBytes), builder.CreateVector(inputs),
      builder.CreateVector(request.parameters), request.seed));
  return {FinishedBytes(builder), {}};
}

Result<ReproduceRequest> DecodeReproduceRequest(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::ReproduceRequest* root,
                   VerifiedRoot<fbs::ReproduceRequest>(message.payload, "reproduce request"));
  ReproduceRequest request;
  const auto segment = BytesOf(root->segment());
  request.segment.assign(segment.begin(), segment.end());
  ASSIGN_OR_RETURN(request.plan_key, DigestFromBytes(BytesOf(root->plan_key())));
  ASSIGN_OR_RETURN(request.contents, DigestFromBytes(BytesOf(root->contents())));
  request.seed = root->seed();
  if (root->inputs() != nullptr) {
    RETURN_IF_ERROR(CheckCount(root->inputs()->size(), limits::kGuardInputsMax, "reproduce request inputs"));
    for (const fbs::InputDims* input : *root->inputs()) {
      Dims& dims = request.inputs.emplace_back();
      if (input->dims() == nullptr) continue;
      RETURN_IF_ERROR(CheckCount(input->dims()->size(), limits::kRankMax, "reproduce request dims"));
      for (const int64_t dim : *input->dims()) dims.push_back(dim);
    }
  }
  if (root->parameters() != nullptr) {
    RETURN_IF_ERROR(CheckCount(root->parameters()->size(), limits::kGuardSymbolsMax, "reproduce request parameters"));
    request.parameters.assign(root->parameters()->begin(), root->parameters()->end());
  }
  return request;
}

Message EncodeReproduceReply(const ReproduceReply& reply) {
  flatbuffers::FlatBufferBuilder builder(256);
  const std::string detail = reply.verdict.detail.substr(0, limits::kErrorTextBytesMax);
  builder.Finish(fbs::CreateReproduceReply(builder, static_cast<uint8_t>(reply.verdict.outcome),
                                           builder.CreateString(detail), reply.quarantined));
  return {FinishedBytes(builder), {}};
}

Result<ReproduceReply> DecodeReproduceReply(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::ReproduceReply* root,
                   VerifiedRoot<fbs::ReproduceReply>(message.payload, "reproduce reply"));
  ReproduceReply reply;
  const std::optional<ReproduceOutcome> outcome = ReproduceOutcomeFromNumber(root->outcome());
  if (!outcome) return Fail(ErrorCode::kMalformed, "unknown outcome " + std::to_string(root->outcome()));
  reply.verdict.outcome = *outcome;
  if (root->detail() != nullptr) reply.verdict.detail = root->detail()->str().substr(0, limits::kErrorTextBytesMax);
  reply.quarantined = root->quarantined();
  return reply;
}

void RequestReproduce(RpcClient& client, const ReproduceRequest& request, int64_t deadline_ms,
                      std::function<void(Result<ReproduceReply>)> done) {
  client.Call(static_cast<uint16_t>(CompileMethod::kReproduce), EncodeReproduceRequest(request), deadline_ms,
              [done = std::move(done)](Result<RpcReply> reply) {
                if (!reply.has_value()) return done(std::unexpected(reply.error()));
                done(DecodeReproduceReply(reply->message));
              });
}

}  // namespace kiln
