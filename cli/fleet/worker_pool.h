// Several workers as one: requests take turns, and one that a worker could not answer is tried once on another.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/messaging/loop.h"
#include "common/messaging/rpc_client.h"
#include "common/worker_api/worker_api.h"

namespace kiln::cli {

// Not thread-safe.
class WorkerPool {
 public:
  // A tcp endpoint whose host name resolves to several addresses stands for all of them.
  static Result<std::unique_ptr<WorkerPool>> Connect(Loop& loop, const std::vector<std::string>& endpoints,
                                                     const std::string& keys);

  // On every worker that can be reached; the reply of the first. Fails when none can (naming all), or when one of them
  // cannot load the model. Afterwards unreachable() has the endpoints of the others.
  Result<LoadReply> LoadEverywhere(const LoadRequest& request, int64_t deadline_ms);
  const std::vector<std::string>& unreachable() const { return unreachable_; }
  // The next connected worker's answer. A stateless request that ended with a transient error
  // (common/base/transient.h), such as a lost connection, is sent once to another one within what is left of its
  // deadline; one of a stream is not. Inputs too large for a message travel in shared memory when the worker is on this
  // host, else LimitExceeded.
  Result<RunReply> Run(const RunRequest& request, int64_t deadline_ms);
  // On the next connected worker; runs of the stream go there.
  Result<OpenStreamReply> OpenStream(const OpenStreamRequest& request, int64_t deadline_ms);
  Status CloseStream(uint64_t stream, int64_t deadline_ms);
  size_t size() const { return clients_.size(); }
  // Requests that were sent twice.
  uint64_t retried() const { return retried_; }

 private:
  WorkerPool() = default;
  size_t NextWorker();
  Result<RunReply> RunOn(size_t worker, const RunRequest& request, int64_t deadline_ms);
  std::vector<std::unique_ptr<RpcClient>> clients_;
  std::vector<std::string> endpoints_;  // per client
  std::vector<std::string> unreachable_;
  std::map<uint64_t, size_t> stream_workers_;  // by stream
  size_t next_ = 0;
  uint64_t retried_ = 0;
};

// tcp://name:port for each address of the name; other endpoints as they are.
Result<std::vector<std::string>> ResolveEndpoints(const std::string& endpoint);

}  // namespace kiln::cli
