#include "cli/fleet/worker_pool.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <optional>

#include "cli/fleet/embedded_fleet.h"

namespace kiln::cli {
namespace {

constexpr std::string_view kTcp = "tcp://";
// Longer than a handshake on any network, shorter than a user's patience with a dead worker.
constexpr int64_t kConnectWaitMs = 2'000;

bool MayRetry(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kBusy || code == ErrorCode::kCancelled;
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
    }
  }
  if (pool->clients_.empty()) return Fail(ErrorCode::kInvalidArgument, "no worker endpoint is given");
  return pool;
}

Result<LoadReply> WorkerPool::LoadEverywhere(const LoadRequest& request, int64_t deadline_ms) {
  std::optional<Result<LoadReply>> first;  // success, once there is one
  for (const auto& client : clients_) {
    Result<LoadReply> reply = CallLoad(*client, request, deadline_ms);
    if (!reply.has_value() && reply.error().code != ErrorCode::kUnavailable) return reply;
    if (!first.has_value() || (!first->has_value() && reply.has_value())) first = std::move(reply);
  }
  return std::move(*first);
}

size_t WorkerPool::NextWorker() {
  for (size_t tried = 0; tried < clients_.size(); ++tried) {
    const size_t worker = next_++ % clients_.size();
    if (clients_[worker]->Stats().connected) return worker;
  }
  return next_++ % clients_.size();
}

Result<RunReply> WorkerPool::Run(const RunRequest& request, int64_t deadline_ms) {
  const size_t first = NextWorker();
  Result<RunReply> reply = CallRun(*clients_[first], request, deadline_ms);
  if (reply.has_value() || !MayRetry(reply.error().code)) return reply;
  ++retried_;
  size_t second = NextWorker();
  if (second == first) second = (first + 1) % clients_.size();
  return CallRun(*clients_[second], request, deadline_ms);
}

}  // namespace kiln::cli
