#include "common/base/flatbuffer.h"
#include "common/messaging/rpc_client.h"
#include "common/worker_api/tensor_parts.h"

namespace kiln {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Result<StateLink> ParseStateLink(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    return Fail(ErrorCode::kInvalidArgument, "a state is INPUT=OUTPUT, not \"" + std::string(text) + "\"");
  return StateLink{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

Message Encode(const OpenStreamRequest& request) {
  FlatBufferBuilder builder(1024);
  Message message;
  std::vector<Offset<fbs::StateLink>> links;
  for (const StateLink& link : request.links)
    links.push_back(fbs::CreateStateLink(builder, builder.CreateString(link.input), builder.CreateString(link.output)));
  const auto state = builder.CreateVector(EncodeTensors(builder, request.state, message.blobs));
  builder.Finish(
      fbs::CreateOpenStreamRequest(builder, builder.CreateString(request.model), builder.CreateVector(links), state));
  message.payload = FinishedBytes(builder);
  return message;
}

Status Decode(const Message& message, OpenStreamRequest& request, TensorRoom* room) {
  ASSIGN_OR_RETURN(const fbs::OpenStreamRequest* root,
                   VerifiedRoot<fbs::OpenStreamRequest>(message.payload, "open stream request"));
  request.model = Text(root->model());
  request.links.clear();
  if (root->links() != nullptr)
    for (const fbs::StateLink* link : *root->links())
      request.links.push_back({Text(link->input()), Text(link->output())});
  return DecodeTensors(root->state(), message.blobs, request.state, room);
}

Message Encode(const OpenStreamReply& reply) {
  FlatBufferBuilder builder(128);
  builder.Finish(fbs::CreateOpenStreamReply(builder, reply.stream, reply.idle_ms));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, OpenStreamReply& reply) {
  ASSIGN_OR_RETURN(const fbs::OpenStreamReply* root,
                   VerifiedRoot<fbs::OpenStreamReply>(message.payload, "open stream reply"));
  reply = {root->stream(), root->idle_ms()};
  if (reply.stream == 0) return Fail(ErrorCode::kMalformed, "open stream reply without a stream");
  return {};
}

Message Encode(const CloseStreamRequest& request) {
  FlatBufferBuilder builder(128);
  builder.Finish(fbs::CreateCloseStreamRequest(builder, request.stream));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, CloseStreamRequest& request) {
  ASSIGN_OR_RETURN(const fbs::CloseStreamRequest* root,
                   VerifiedRoot<fbs::CloseStreamRequest>(message.payload, "close stream request"));
  request.stream = root->stream();
  return {};
}

Result<OpenStreamReply> CallOpenStream(RpcClient& client, const OpenStreamRequest& request, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply raw,
                   client.CallSync(static_cast<uint16_t>(WorkerMethod::kOpenStream), Encode(request), deadline_ms));
  OpenStreamReply reply;
  RETURN_IF_ERROR(Decode(raw.message, reply));
  return reply;
}

Status CallCloseStream(RpcClient& client, const CloseStreamRequest& request, int64_t deadline_ms) {
  const auto reply = client.CallSync(static_cast<uint16_t>(WorkerMethod::kCloseStream), Encode(request), deadline_ms);
  if (!reply.has_value()) return std::unexpected(reply.error());
  return {};
}

}  // namespace kiln
