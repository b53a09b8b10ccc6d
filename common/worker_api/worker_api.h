// The execute API of a worker: requests and replies as plain structs, and a blocking client for tools and tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/messaging/admission.h"
#include "common/messaging/message.h"
#include "common/security/role.h"
#include "common/tensor/tensor.h"
#include "common/worker_api/request_room.h"

namespace kiln {

class RpcClient;

enum class WorkerMethod : uint16_t {
#define KILN_WORKER_METHOD(value, name, roles, admission, doc) k##name = value,
#include "common/worker_api/worker_methods.def"
#undef KILN_WORKER_METHOD
};
RoleSet MethodRoles(WorkerMethod method);
Admission MethodAdmission(WorkerMethod method);
std::string_view MethodText(WorkerMethod method);  // for people

struct NamedTensor {
  std::string name;
  Tensor tensor;  // contiguous
};

// A declared input or output. Dims that vary are -1; `text` shows symbols.
struct ValueInfo {
  std::string name;
  DType dtype = DType::kF32;
  bool has_rank = true;
  std::vector<int64_t> dims;
  std::string text;
};

struct LoadRequest {
  std::string name, path;
};
struct LoadReply {
  std::vector<ValueInfo> inputs, outputs;
  uint32_t segments = 0, nodes = 0;
  uint64_t load_us = 0;
  std::vector<ValueInfo> optional_inputs;  // have a value of the model's own, which a run may replace
};
struct UnloadRequest {
  std::string name;
};
struct ListReply {
  std::vector<std::string> names;
};

struct RunRequest {
  std::string model;
  std::vector<NamedTensor> inputs;
  uint64_t stream = 0;           // of OpenStreamReply; 0: none
  bool knows_state_lost = true;  // a lost stream is answered as the error StateLost; else by RunReply::state_lost
};
struct RunTiming {
  uint64_t queue_us = 0, run_us = 0, kernel_us = 0, reference_us = 0;
  uint32_t plan_segments = 0, interpreted_segments = 0;
};
struct RunReply {
  std::vector<NamedTensor> outputs;
  RunTiming timing;
  uint64_t stream_runs = 0;  // of the stream, with this one
  // The stream is not kept there (any more): nothing ran. Of a worker, or for a caller, that does not know StateLost.
  bool state_lost = false;
};

// A model's output that is its input in the stream's next run.
struct StateLink {
  std::string input, output;
};
// INPUT=OUTPUT, as flags have it.
Result<StateLink> ParseStateLink(std::string_view text);

struct OpenStreamRequest {
  std::string model;
  std::vector<StateLink> links;
  std::vector<NamedTensor> state;
};
struct OpenStreamReply {
  uint64_t stream = 0, idle_ms = 0;
};
struct CloseStreamRequest {
  uint64_t stream = 0;
};
struct WorkerStatsRequest {
  std::string model;
};
struct WorkerStatsReply {
  std::vector<std::pair<std::string, uint64_t>> stats;
  uint64_t Value(std::string_view name) const;  // 0 when absent
};

// Encoding copies tensor bytes into message parts; decoding places them 64-byte aligned. Decoders check names, dtypes,
// dims (64-bit products) and that every part has exactly the bytes its dims say; with a `room`, errors of
// ChargeRequest.
Message Encode(const LoadRequest& request);
Message Encode(const LoadReply& reply);
Message Encode(const UnloadRequest& request);
Message Encode(const ListReply& reply);
Message Encode(const RunRequest& request);
Message Encode(const RunReply& reply);
Message Encode(const OpenStreamRequest& request);
Message Encode(const OpenStreamReply& reply);
Message Encode(const CloseStreamRequest& request);
Message Encode(const WorkerStatsRequest& request);
Message Encode(const WorkerStatsReply& reply);
Status Decode(const Message& message, LoadRequest& request);
Status Decode(const Message& message, LoadReply& reply);
Status Decode(const Message& message, UnloadRequest& request);
Status Decode(const Message& message, ListReply& reply);
Status Decode(const Message& message, RunRequest& request, TensorRoom* room = nullptr);
Status Decode(const Message& message, RunReply& reply);
Status Decode(const Message& message, OpenStreamRequest& request, TensorRoom* room = nullptr);
Status Decode(const Message& message, OpenStreamReply& reply);
Status Decode(const Message& message, CloseStreamRequest& request);
Status Decode(const Message& message, WorkerStatsRequest& request);
Status Decode(const Message& message, WorkerStatsReply& reply);

// Blocking calls; not on the client's loop thread.
Result<LoadReply> CallLoad(RpcClient& client, const LoadRequest& request, int64_t deadline_ms);
Status CallUnload(RpcClient& client, const UnloadRequest& request, int64_t deadline_ms);
Result<ListReply> CallList(RpcClient& client, int64_t deadline_ms);
Result<RunReply> CallRun(RpcClient& client, const RunRequest& request, int64_t deadline_ms);
// As CallRun for a worker on this host: inputs travel in a shared memory object that lives as long as the call. The
// reply's tensors come back as message parts.
Result<RunReply> CallRunShared(RpcClient& client, const RunRequest& request, int64_t deadline_ms);
// Calls that run: StateLost when the stream is not kept there (any more).
Result<OpenStreamReply> CallOpenStream(RpcClient& client, const OpenStreamRequest& request, int64_t deadline_ms);
Status CallCloseStream(RpcClient& client, const CloseStreamRequest& request, int64_t deadline_ms);
Result<WorkerStatsReply> CallStats(RpcClient& client, const WorkerStatsRequest& request, int64_t deadline_ms);

}  // namespace kiln
