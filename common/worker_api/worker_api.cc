#include "common/worker_api/worker_api.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "common/base/checked_math.h"
#include "common/base/flatbuffer.h"
#include "common/messaging/rpc_client.h"
#include "schemas/worker_generated.h"

namespace kiln {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

std::string Text(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

Result<DType> DTypeOf(uint8_t number, const std::string& name) {
  const std::optional<DType> dtype = DTypeFromNumber(number);
  if (!dtype)
    return Fail(ErrorCode::kMalformed, "tensor \"" + name + "\" has unknown dtype number " + std::to_string(number));
  return *dtype;
}

std::vector<Offset<fbs::TensorPart>> EncodeTensors(FlatBufferBuilder& builder, const std::vector<NamedTensor>& tensors,
                                                   std::vector<Bytes>& blobs) {
  std::vector<Offset<fbs::TensorPart>> list;
  for (const NamedTensor& named : tensors) {
    const TensorRef& ref = named.tensor.ref;
    const auto* data = ref.as<const uint8_t>();
    const auto dims = builder.CreateVector(ref.dims.begin(), ref.dims.size());
    list.push_back(fbs::CreateTensorPart(builder, builder.CreateString(named.name), static_cast<uint8_t>(ref.dtype),
                                         dims, static_cast<int32_t>(blobs.size())));
    blobs.emplace_back(data, data + ref.bytes());
  }
  return list;
}

// A shared memory object of this process's making, removed at the end.
class SharedObject {
 public:
  static Result<std::unique_ptr<SharedObject>> Create(int64_t bytes) {
    static std::atomic<uint64_t> next{0};
    const std::string name = "/kiln-" + std::to_string(getpid()) + "-" + std::to_string(next++);
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return Fail(ErrorCode::kIoError, "cannot make shared memory " + name + ": " + std::strerror(errno));
    std::unique_ptr<SharedObject> object(new SharedObject(name, file));
    if (ftruncate(file, std::max<int64_t>(bytes, 1)) != 0)
      return Fail(ErrorCode::kResourceExhausted,
                  "shared memory has no room for " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
    return object;
  }
  ~SharedObject() {
    close(file_);
    shm_unlink(name_.c_str());
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  Status Write(const TensorRef& tensor, int64_t offset) {
    const char* next = tensor.as<const char>();
    for (int64_t left = tensor.bytes(); left > 0;) {
      const ssize_t put = pwrite(file_, next, static_cast<size_t>(left), offset);
      if (put <= 0)
        return Fail(ErrorCode::kIoError, "cannot write shared memory " + name_ + ": " + std::strerror(errno));
      next += put;
      left -= put;
      offset += put;
    }
    return {};
  }
  const std::string& name() const { return name_; }

 private:
  SharedObject(std::string name, int file) : name_(std::move(name)), file_(file) {}
  std::string name_;
  int file_;
};

// Bytes of an open shared memory object, by reading rather than by mapping: a peer that shortens the object meanwhile
// causes an error, not a fault. Nothing is allocated before the object is known to hold the tensor.
Result<Tensor> ReadTensorFrom(int file, const std::string& object, uint64_t offset, DType dtype, const Dims& dims) {
  struct stat about{};
  const uint64_t bytes = static_cast<uint64_t>(NumElements(dims) * DTypeBytes(dtype));
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || static_cast<uint64_t>(about.st_size) < bytes ||
      offset > static_cast<uint64_t>(about.st_size) - bytes)
    return Fail(ErrorCode::kInvalidArgument, "shared memory " + object + " has no " + std::to_string(bytes) +
                                                 " bytes at offset " + std::to_string(offset));
  Tensor tensor = Tensor::Allocate(dtype, dims);
  auto* next = tensor.ref.as<char>();
  for (uint64_t left = bytes; left > 0;) {
    const ssize_t got = pread(file, next, left, static_cast<off_t>(offset));
    if (got <= 0) return Fail(ErrorCode::kInvalidArgument, "shared memory " + object + " ends before the tensor does");
    next += got;
    left -= static_cast<uint64_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return tensor;
}

Result<Tensor> ReadSharedMemory(const std::string& object, uint64_t offset, DType dtype, const Dims& dims) {
  if (object.size() < 2 || object[0] != '/' || object.find('/', 1) != std::string::npos)
    return Fail(ErrorCode::kInvalidArgument, "shared memory name \"" + object + "\" must be / followed by a name");
  const int file = shm_open(object.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (file < 0) return Fail(ErrorCode::kNotFound, "cannot open shared memory " + object + ": " + std::strerror(errno));
  Result<Tensor> tensor = ReadTensorFrom(file, object, offset, dtype, dims);
  close(file);
  return tensor;
}

Status DecodeTensors(const flatbuffers::Vector<Offset<fbs::TensorPart>>* list, const std::vector<Bytes>& blobs,
                     std::vector<NamedTensor>& tensors) {
  tensors.clear();
  if (list == nullptr) return {};
  for (const fbs::TensorPart* part : *list) {
    NamedTensor named;
    named.name = Text(part->name());
    const std::string label = "tensor \"" + named.name + "\"";
    ASSIGN_OR_RETURN(DType dtype, DTypeOf(part->dtype(), named.name));
    const size_t rank = part->dims() == nullptr ? 0 : part->dims()->size();
    if (rank > static_cast<size_t>(limits::kRankMax))
      return Fail(ErrorCode::kLimitExceeded,
                  label + " has rank " + std::to_string(rank) + "; the limit is " + std::to_string(limits::kRankMax));
    Dims dims;
    for (size_t d = 0; d < rank; ++d) dims.push_back(part->dims()->Get(static_cast<flatbuffers::uoffset_t>(d)));
    const Result<int64_t> elements = CheckedElements(dims, dtype);
    if (!elements.has_value()) return FailIn(label, elements.error());
    const int64_t bytes = *elements * DTypeBytes(dtype);
    if (part->shm_name() != nullptr) {
      if (bytes > static_cast<int64_t>(limits::kModelBytesMax))
        return Fail(ErrorCode::kLimitExceeded, label + " is too large");
      ASSIGN_OR_RETURN(named.tensor, ReadSharedMemory(Text(part->shm_name()), part->shm_offset(), dtype, dims));
    } else {
      if (part->part() < 0 || static_cast<size_t>(part->part()) >= blobs.size())
        return Fail(ErrorCode::kMalformed, label + " refers to message part " + std::to_string(part->part()) + " of " +
                                               std::to_string(blobs.size()));
      const Bytes& blob = blobs[static_cast<size_t>(part->part())];
      if (static_cast<int64_t>(blob.size()) != bytes)
        return Fail(ErrorCode::kMalformed, label + " needs " + std::to_string(bytes) + " bytes for " + dims.ToString() +
                                               ", its part has " + std::to_string(blob.size()));
      named.tensor = Tensor::Allocate(dtype, dims);
      if (bytes > 0) std::memcpy(named.tensor.ref.data, blob.data(), blob.size());
    }
    tensors.push_back(std::move(named));
  }
  return {};
}

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
  builder.Finish(fbs::CreateLoadReply(builder, inputs, outputs, reply.segments, reply.nodes, reply.load_us));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, LoadReply& reply) {
  ASSIGN_OR_RETURN(const fbs::LoadReply* root, VerifiedRoot<fbs::LoadReply>(message.payload, "load reply"));
  RETURN_IF_ERROR(DecodeValues(root->inputs(), reply.inputs));
  RETURN_IF_ERROR(DecodeValues(root->outputs(), reply.outputs));
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
  builder.Finish(fbs::CreateRunRequest(builder, builder.CreateString(request.model), inputs));
  message.payload = FinishedBytes(builder);
  return message;
}

Status Decode(const Message& message, RunRequest& request) {
  ASSIGN_OR_RETURN(const fbs::RunRequest* root, VerifiedRoot<fbs::RunRequest>(message.payload, "run request"));
  request.model = Text(root->model());
  return DecodeTensors(root->inputs(), message.blobs, request.inputs);
}

Message Encode(const RunReply& reply) {
  FlatBufferBuilder builder(1024);
  Message message;
  const auto outputs = builder.CreateVector(EncodeTensors(builder, reply.outputs, message.blobs));
  const RunTiming& t = reply.timing;
  builder.Finish(fbs::CreateRunReply(builder, outputs, t.queue_us, t.run_us, t.kernel_us, t.reference_us,
                                     t.plan_segments, t.interpreted_segments));
  message.payload = FinishedBytes(builder);
  return message;
}

Status Decode(const Message& message, RunReply& reply) {
  ASSIGN_OR_RETURN(const fbs::RunReply* root, VerifiedRoot<fbs::RunReply>(message.payload, "run reply"));
  RETURN_IF_ERROR(DecodeTensors(root->outputs(), message.blobs, reply.outputs));
  reply.timing = {root->queue_us(),     root->run_us(),        root->kernel_us(),
                  root->reference_us(), root->plan_segments(), root->interpreted_segments()};
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

Result<RunReply> CallRun(RpcClient& client, const RunRequest& request, int64_t deadline_ms) {
  return CallFor<RunReply>(client, WorkerMethod::kRun, request, deadline_ms);
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
  builder.Finish(fbs::CreateRunRequest(builder, builder.CreateString(request.model), builder.CreateVector(parts)));
  ASSIGN_OR_RETURN(RpcReply raw, client.CallSync(static_cast<uint16_t>(WorkerMethod::kRun),
                                                 {FinishedBytes(builder), {}}, deadline_ms));
  RunReply reply;
  RETURN_IF_ERROR(Decode(raw.message, reply));
  return reply;
}

Result<WorkerStatsReply> CallStats(RpcClient& client, const WorkerStatsRequest& request, int64_t deadline_ms) {
  return CallFor<WorkerStatsReply>(client, WorkerMethod::kStats, request, deadline_ms);
}

}  // namespace kiln
