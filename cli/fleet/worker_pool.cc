#include "cli/fleet/worker_pool.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <optional>

#include "cli/fleet/embedded_fleet.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/transient.h"

namespace kiln::cli {
namespace {

constexpr std::string_view kTcp = "tcp://";
// Longer than a handshake on any network, shorter than a user's patience with a dead worker.
constexpr int64_t kConnectWaitMs = 2'000;
constexpr int64_t kNsPerMs = 1'000'000;

bool IsLocal(const std::string& endpoint) {
  return endpoint.starts_with("ipc://") || endpoint.starts_with("tcp://127.") || endpoint.starts_with("tcp://[::1]");
}

}  // namespace

Result<std::vector<std::string>> ResolveEndpoints(const std::string& endpoint) {
  if (!endpoint.starts_with(kTcp)) return std::vector<std::string>{endpoint};
  const size_t colon = endpoint.rfind(':');
  if (colon <= kTcp.size())
    return Fail(ErrorCode::kInvalidArgument, "endpoint \"" + endpoint + "\" is not tcp://HOST:PORT");
  const std::string host = endpoint.substr(kTcp.size(), colon - kTcp.size()), port = endpoint.substr(colon);
  if (host.starts_with('[')) return std::vector<std::string>{endpoint};
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &found); failed != 0)
    return Fail(ErrorCode::kUnavailable, "cannot resolve \"" + host + "\": " + gai_strerror(failed));
  std::vector<std::string> endpoints;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(info->ai_addr)->sin_addr, text, sizeof text);
    endpoints.push_back(std::string(kTcp) + text + port);
  }
  freeaddrinfo(found);
  std::sort(endpoints.begin(), endpoints.end());
  endpoints.erase(std::unique(endpoints.begin(), endpoints.end()), endpoints.end());
  return endpoints;
}

Result<std::unique_ptr<WorkerPool>> WorkerPool::Connect(Loop& loop, const std::vector<std::string>& endpoints,
                                                        const std::string& keys) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool());
  for (const std::string& endpoint : endpoints) {
    ASSIGN_OR_RETURN(std::vector<std::string> resolved, ResolveEndpoints(endpoint));
    for (const std::string& address : resolved) {
      ASSIGN_OR_RETURN(auto client, ConnectTool(loop, address, keys, "worker", kConnectWaitMs));
      pool->clients_.push_back(std::move(client));
      pool->endpoints_.push_back(address);
    }
  }
  if (pool->clients_.empty()) return Fail(ErrorCode::kInvalidArgument, "no worker endpoint is given");
  return pool;
}

Result<LoadReply> WorkerPool::LoadEverywhere(const LoadRequest& request, int64_t deadline_ms) {
  std::optional<LoadReply> first;
  std::string troubles;
  unreachable_.clear();
  for (size_t i = 0; i < clients_.size(); ++i) {
    Result<LoadReply> reply = CallLoad(*clients_[i], request, deadline_ms);
    if (reply.has_value()) {
      if (!first.has_value()) first = *std::move(reply);
      continue;
    }
    if (reply.error().code != ErrorCode::kUnavailable) return FailIn(endpoints_[i], reply.error());
    unreachable_.push_back(endpoints_[i]);
    troubles += (troubles.empty() ? "" : "; ") + endpoints_[i] + ": " + reply.error().message;
  }
  if (!first.has_value()) return Fail(ErrorCode::kUnavailable, "no worker answers: " + troubles);
  return *std::move(first);
}

size_t WorkerPool::NextWorker() {
  for (size_t tried = 0; tried < clients_.size(); ++tried) {
    const size_t worker = next_++ % clients_.size();
    if (clients_[worker]->Stats().connected) return worker;
  }
  return next_++ % clients_.size();
}

Result<RunReply> WorkerPool::RunOn(size_t worker, const RunRequest& request, int64_t deadline_ms) {
  int64_t bytes = 0;
  for (const NamedTensor& input : request.inputs) bytes += input.tensor.ref.bytes();
  if (bytes <= limits::kMessageTensorBytesMax) return CallRun(*clients_[worker], request, deadline_ms);
  if (IsLocal(endpoints_[worker])) return CallRunShared(*clients_[worker], request, deadline_ms);
  return Fail(ErrorCode::kLimitExceeded,
              "the inputs have " + std::to_string(bytes) + " bytes; a message to " + endpoints_[worker] + " holds " +
                  std::to_string(limits::kMessageTensorBytesMax) +
                  ". Larger ones travel in shared memory, to a worker on ipc:// or a loopback address");
}

Result<OpenStreamReply> WorkerPool::OpenStream(const OpenStreamRequest& request, int64_t deadline_ms) {
  const size_t worker = NextWorker();
  ASSIGN_OR_RETURN(OpenStreamReply reply, CallOpenStream(*clients_[worker], request, deadline_ms));
  stream_workers_[reply.stream] = worker;
  return reply;
}

Status WorkerPool::CloseStream(uint64_t stream, int64_t deadline_ms) {
  const auto it = stream_workers_.find(stream);
  if (it == stream_workers_.end()) return Fail(ErrorCode::kNotFound, "no stream " + std::to_string(stream));
  const size_t worker = it->second;
  stream_workers_.erase(it);
  return CallCloseStream(*clients_[worker], {stream}, deadline_ms);
}

Result<RunReply> WorkerPool::Run(const RunRequest& request, int64_t deadline_ms) {
  if (request.stream != 0) {
    const auto it = stream_workers_.find(request.stream);
    if (it == stream_workers_.end()) return Fail(ErrorCode::kNotFound, "no stream " + std::to_string(request.stream));
    return RunOn(it->second, request, deadline_ms);
  }
  const int64_t deadline_ns = SystemClock().NowNs() + deadline_ms * kNsPerMs;
  const size_t first = NextWorker();
  Result<RunReply> reply = RunOn(first, request, deadline_ms);
  if (reply.has_value() || !IsTransient(reply.error().code)) return reply;
  const int64_t left_ms = (deadline_ns - SystemClock().NowNs()) / kNsPerMs;
  if (left_ms < 1) return reply;
  ++retried_;
  size_t second = NextWorker();
  if (second == first) second = (first + 1) % clients_.size();
  return RunOn(second, request, left_ms);
}

}  // namespace kiln::cli
