#include "common/worker_api/worker_api.h"

#include "common/base/checked_math.h"
#include "common/base/flatbuffer.h"
#include "common/messaging/rpc_client.h"
#include "common/worker_api/tensor_parts.h"

namespace kiln {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

std::vector<Offset<fbs::ValueInfo>> EncodeValues(FlatBufferBuilder& builder, const std::vector<ValueInfo>& values) {
  std::vector<Offset<fbs::ValueInfo>> list;
  for (const ValueInfo& value : values)
    list.push_back(fbs::CreateValueInfo(builder, builder.CreateString(value.name), static_cast<uint8_t>(value.dtype),
                                        value.has_rank, builder.CreateVector(value.dims),
                                        builder.CreateString(value.text)));
  return list;
}

Status DecodeValues(const flatbuffers::Vector<Offset<fbs::ValueInfo>>* list, std::vector<ValueInfo>& values) {
  values.clear();
  if (list == nullptr) return {};
  for (const fbs::ValueInfo* info : *list) {
    ValueInfo value;
    value.name = Text(info->name());
    ASSIGN_OR_RETURN(value.dtype, DTypeOf(info->dtype(), value.name));
    value.has_rank = info->has_rank();
    if (info->dims() != nullptr) value.dims.assign(info->dims()->begin(), info->dims()->end());
    if (value.dims.size() > static_cast<size_t>(limits::kRankMax))
      return Fail(ErrorCode::kLimitExceeded, "\"" + value.name + "\" has rank " + std::to_string(value.dims.size()) +
                                                 "; the limit is " + std::to_string(limits::kRankMax));
    value.text = Text(info->text());
    values.push_back(std::move(value));
  }
  return {};
}

template <class Reply, class Request>
Result<Reply> CallFor(RpcClient& client, WorkerMethod method, const Request& request, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply raw, client.CallSync(static_cast<uint16_t>(method), Encode(request), deadline_ms));
  Reply reply;
  RETURN_IF_ERROR(Decode(raw.message, reply));
  return reply;
}

}  // namespace

uint64_t WorkerStatsReply::Value(std::string_view name) const {
  for (const auto& [key, value] : stats)
    if (key == name) return value;
  return 0;
}

Message Encode(const LoadRequest& request) {
  FlatBufferBuilder builder(512);
  builder.Finish(
      fbs::CreateLoadRequest(builder, builder.CreateString(request.name), builder.CreateString(request.path)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, LoadRequest& request) {
  ASSIGN_OR_RETURN(const fbs::LoadRequest* root, VerifiedRoot<fbs::LoadRequest>(message.payload, "load request"));
  request = {Text(root->name()), Text(root->path())};
  return {};
}

Message Encode(const LoadReply& reply) {
  FlatBufferBuilder builder(2048);
  const auto inputs = builder.CreateVector(EncodeValues(builder, reply.inputs));
  const auto outputs = builder.CreateVector(EncodeValues(builder, reply.outputs));
  const auto optional = builder.CreateVector(EncodeValues(builder, reply.optional_inputs));
  builder.Finish(fbs::CreateLoadReply(builder, inputs, outputs, reply.segments, reply.nodes, reply.load_us, optional));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, LoadReply& reply) {
  ASSIGN_OR_RETURN(const fbs::LoadReply* root, VerifiedRoot<fbs::LoadReply>(message.payload, "load reply"));
  RETURN_IF_ERROR(DecodeValues(root->inputs(), reply.inputs));
  RETURN_IF_ERROR(DecodeValues(root->outputs(), reply.outputs));
  RETURN_IF_ERROR(DecodeValues(root->optional_inputs(), reply.optional_inputs));
  reply.segments = root->segments();
  reply.nodes = root->nodes();
  reply.load_us = root->load_us();
  return {};
}

Message Encode(const UnloadRequest& request) {
  FlatBufferBuilder builder(256);
  builder.Finish(fbs::CreateUnloadRequest(builder, builder.CreateString(request.name)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, UnloadRequest& request) {
  ASSIGN_OR_RETURN(const fbs::UnloadRequest* root, VerifiedRoot<fbs::UnloadRequest>(message.payload, "unload request"));
  request.name = Text(root->name());
  return {};
}

Message Encode(const ListReply& reply) {
  FlatBufferBuilder builder(512);
  builder.Finish(fbs::CreateListReply(builder, builder.CreateVectorOfStrings(reply.names)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, ListReply& reply) {
  ASSIGN_OR_RETURN(const fbs::ListReply* root, VerifiedRoot<fbs::ListReply>(message.payload, "list reply"));
  reply.names.clear();
  if (root->names() != nullptr)
    for (const flatbuffers::String* name : *root->names()) reply.names.push_back(name->str());
  return {};
}

Message Encode(const RunRequest& request) {
  FlatBufferBuilder builder(1024);
  Message message;
  const auto inputs = builder.CreateVector(EncodeTensors(builder, request.inputs, message.blobs));
  builder.Finish(fbs::CreateRunRequest(builder, builder.CreateString(request.model), inputs, request.stream,
                                       request.knows_state_lost));
  message.payload = FinishedBytes(builder);
  return message;
}

Status Decode(const Message& message, RunRequest& request, TensorRoom* room) {
  ASSIGN_OR_RETURN(const fbs::RunRequest* root, VerifiedRoot<fbs::RunRequest>(message.payload, "run request"));
  request.model = Text(root->model());
  request.stream = root->stream();
  request.knows_state_lost = root->knows_state_lost();
  return DecodeTensors(root->inputs(), message.blobs, request.inputs, room);
}

Message Encode(const RunReply& reply) {
  FlatBufferBuilder builder(1024);
  Message message;
  const auto outputs = builder.CreateVector(EncodeTensors(builder, reply.outputs, message.blobs));
  const RunTiming& t = reply.timing;
  builder.Finish(fbs::CreateRunReply(builder, outputs, t.queue_us, t.run_us, t.kernel_us, t.reference_us,
                                     t.plan_segments, t.interpreted_segments, reply.stream_runs, reply.state_lost));
  message.payload = FinishedBytes(builder);
  return message;
}

Status Decode(const Message& message, RunReply& reply) {
  ASSIGN_OR_RETURN(const fbs::RunReply* root, VerifiedRoot<fbs::RunReply>(message.payload, "run reply"));
  RETURN_IF_ERROR(DecodeTensors(root->outputs(), message.blobs, reply.outputs));
  reply.timing = {root->queue_us(),     root->run_us(),        root->kernel_us(),
                  root->reference_us(), root->plan_segments(), root->interpreted_segments()};
  reply.stream_runs = root->stream_runs();
  reply.state_lost = root->state_lost();
  return {};
}

Message Encode(const WorkerStatsRequest& request) {
  FlatBufferBuilder builder(256);
  builder.Finish(fbs::CreateWorkerStatsRequest(builder, builder.CreateString(request.model)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, WorkerStatsRequest& request) {
  ASSIGN_OR_RETURN(const fbs::WorkerStatsRequest* root,
                   VerifiedRoot<fbs::WorkerStatsRequest>(message.payload, "stats request"));
  request.model = Text(root->model());
  return {};
}

Message Encode(const WorkerStatsReply& reply) {
  FlatBufferBuilder builder(2048);
  std::vector<Offset<fbs::WorkerStat>> stats;
  for (const auto& [name, value] : reply.stats)
    stats.push_back(fbs::CreateWorkerStat(builder, builder.CreateString(name), value));
  builder.Finish(fbs::CreateWorkerStatsReply(builder, builder.CreateVector(stats)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, WorkerStatsReply& reply) {
  ASSIGN_OR_RETURN(const fbs::WorkerStatsReply* root,
                   VerifiedRoot<fbs::WorkerStatsReply>(message.payload, "stats reply"));
  reply.stats.clear();
  if (root->stats() != nullptr)
    for (const fbs::WorkerStat* stat : *root->stats()) reply.stats.emplace_back(Text(stat->name()), stat->value());
  return {};
}

RoleSet MethodRoles(WorkerMethod method) {
  switch (method) {
#define KILN_WORKER_METHOD(value, name, roles, admission, doc) \
  case WorkerMethod::k##name:                                  \
    return roles;
#include "common/worker_api/worker_methods.def"
#undef KILN_WORKER_METHOD
  }
  return 0;
}

Admission MethodAdmission(WorkerMethod method) {
  switch (method) {
#define KILN_WORKER_METHOD(value, name, roles, admission, doc) \
  case WorkerMethod::k##name:                                  \
    return Admission::admission;
#include "common/worker_api/worker_methods.def"
#undef KILN_WORKER_METHOD
  }
  return Admission::kQueued;
}

std::string_view MethodText(WorkerMethod method) {
  switch (method) {
#define KILN_WORKER_METHOD(value, name, roles, admission, doc) \
  case WorkerMethod::k##name:                                  \
    return #name " (" doc ")";
#include "common/worker_api/worker_methods.def"
#undef KILN_WORKER_METHOD
  }
  return "";
}

Result<LoadReply> CallLoad(RpcClient& client, const LoadRequest& request, int64_t deadline_ms) {
  return CallFor<LoadReply>(client, WorkerMethod::kLoad, request, deadline_ms);
}

Status CallUnload(RpcClient& client, const UnloadRequest& request, int64_t deadline_ms) {
  const auto reply = client.CallSync(static_cast<uint16_t>(WorkerMethod::kUnload), Encode(request), deadline_ms);
  if (!reply.has_value()) return std::unexpected(reply.error());
  return {};
}

Result<ListReply> CallList(RpcClient& client, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply raw, client.CallSync(static_cast<uint16_t>(WorkerMethod::kList), {}, deadline_ms));
  ListReply reply;
  RETURN_IF_ERROR(Decode(raw.message, reply));
  return reply;
}

namespace {

Result<RunReply> FinishRun(const Result<RpcReply>& raw, uint64_t stream) {
  if (!raw.has_value()) return std::unexpected(raw.error());
  RunReply reply;
  RETURN_IF_ERROR(Decode(raw->message, reply));
  if (reply.state_lost)
    return Fail(ErrorCode::kStateLost, "stream " + std::to_string(stream) +
                                           " is not kept by the worker: it ended, expired, or the worker restarted");
  return reply;
}

}  // namespace

Result<RunReply> CallRun(RpcClient& client, const RunRequest& request, int64_t deadline_ms) {
  return FinishRun(client.CallSync(static_cast<uint16_t>(WorkerMethod::kRun), Encode(request), deadline_ms),
                   request.stream);
}

Result<RunReply> CallRunShared(RpcClient& client, const RunRequest& request, int64_t deadline_ms) {
  constexpr int64_t kAlignment = 64;
  int64_t bytes = 0;
  std::vector<int64_t> offsets;
  for (const NamedTensor& input : request.inputs) {
    offsets.push_back(bytes);
    bytes += RoundUp(input.tensor.ref.bytes(), kAlignment);
  }
  ASSIGN_OR_RETURN(auto object, SharedObject::Create(bytes));
  FlatBufferBuilder builder(1024);
  std::vector<Offset<fbs::TensorPart>> parts;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const NamedTensor& input = request.inputs[i];
    RETURN_IF_ERROR(object->Write(input.tensor.ref, offsets[i]));
    parts.push_back(fbs::CreateTensorPart(builder, builder.CreateString(input.name),
                                          static_cast<uint8_t>(input.tensor.dtype()),
                                          builder.CreateVector(input.tensor.dims().begin(), input.tensor.dims().size()),
                                          -1, builder.CreateString(object->name()), static_cast<uint64_t>(offsets[i])));
  }
  builder.Finish(fbs::CreateRunRequest(builder, builder.CreateString(request.model), builder.CreateVector(parts),
                                       request.stream, request.knows_state_lost));
  return FinishRun(
      client.CallSync(static_cast<uint16_t>(WorkerMethod::kRun), {FinishedBytes(builder), {}}, deadline_ms),
      request.stream);
}

Result<WorkerStatsReply> CallStats(RpcClient& client, const WorkerStatsRequest& request, int64_t deadline_ms) {
  return CallFor<WorkerStatsReply>(client, WorkerMethod::kStats, request, deadline_ms);
}

}  // namespace kiln
