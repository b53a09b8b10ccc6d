#include "cli/fleet/worker_pool.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>

#include "cli/fleet/embedded_fleet.h"

namespace kiln::cli {
namespace {

constexpr std::string_view kTcp = "tcp://";

bool MayRetry(ErrorCode code) { return code == ErrorCode::kUnavailable || code == ErrorCode::kBusy || code == ErrorCode::kCancelled; }

}  // namespace

Result<std::vector<std::string>> ResolveEndpoints(const std::string& endpoint) {
  if (!endpoint.starts_with(kTcp)) return std::vector<std::string>{endpoint};
  const size_t colon = endpoint.rfind(':');
  if (colon <= kTcp.size()) return Fail(ErrorCode::kInvalidArgument, "endpoint \"" + endpoint + "\" is not tcp://HOST:PORT");
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

Result<std::unique_ptr<WorkerPool>> WorkerPool::Connect(Loop& loop, const std::vector<std::string>& endpoints, const std::string& keys) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool());
  for (const std::string& endpoint : endpoints) {
    ASSIGN_OR_RETURN(std::vector<std::string> resolved, ResolveEndpoints(endpoint));
    for (const std::string& address : resolved) {
      ASSIGN_OR_RETURN(auto client, ConnectTool(loop, address, keys, "worker"));
      pool->clients_.push_back(std::move(client));
    }
  }
  if (pool->clients_.empty()) return Fail(ErrorCode::kInvalidArgument, "no worker endpoint is given");
  return pool;
}

Result<LoadReply> WorkerPool::LoadEverywhere(const LoadRequest& request, int64_t deadline_ms) {
  Result<LoadReply> first = Fail(ErrorCode::kInternal, "no worker");
  for (size_t i = 0; i < clients_.size(); ++i) {
    Result<LoadReply> reply = CallLoad(*clients_[i], request, deadline_ms);
    if (!reply.has_value()) return reply;
    if (i == 0) first = std::move(reply);
  }
  return first;
}

Result<RunReply> WorkerPool::Run(const RunRequest& request, int64_t deadline_ms) {
  RpcClient& client = *clients_[next_++ % clients_.size()];
  Result<RunReply> reply = CallRun(client, request, deadline_ms);
  if (reply.has_value() || !MayRetry(reply.error().code)) return reply;
  return CallRun(*clients_[next_++ % clients_.size()], request, deadline_ms);
}

}  // namespace kiln::cli
