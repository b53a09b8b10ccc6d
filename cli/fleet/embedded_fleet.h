// The embedded default: the three real services on this machine, over ipc sockets in a private directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/fleet/service_process.h"
#include "common/base/result.h"
#include "common/messaging/loop.h"
#include "common/messaging/rpc_client.h"

namespace kiln::cli {

struct FleetOptions {
  std::string directory;          // sockets, keys, logs, the store; made with mode 0700 where there is none
  std::string store = "rocksdb";  // or "memory"
  int compile_children = 2;
  std::string binaries;  // where the services lie; empty: beside this program
  int stop_fd = -1;      // once it is readable no start is waited for: Cancelled
};

struct WorkerOptions {
  int threads = 1;
  std::vector<std::string> arguments;  // further flags of kiln-worker
  bool plans = true;                   // false: no store, no compile service: the interpreter alone
};

// Not thread-safe. Everything it started ends with it.
class EmbeddedFleet {
 public:
  // Starts the cache store and the compile service. InvalidArgument: others can enter the directory, so its
  // sockets could be anybody's.
  static Result<std::unique_ptr<EmbeddedFleet>> Start(FleetOptions options);

  // Starts another worker; returns its index.
  Result<int> StartWorker(const WorkerOptions& options);
  Status RestartWorker(int worker);  // one that ended, with the options and the endpoint it had
  void StopWorker(int worker) { workers_[static_cast<size_t>(worker)]->Stop(); }
  void StopCompile() { compile_->Stop(); }
  void StopCache() { cache_->Stop(); }
  Status StartCache();  // again, on the same store
  Status StartCompile() { return StartCompile({}); }
  Status StartCompile(const std::vector<std::string>& more);  // further flags of kiln-compile
  ServiceProcess& cache() { return *cache_; }
  ServiceProcess& compile() { return *compile_; }
  ServiceProcess& worker(int worker) { return *workers_[static_cast<size_t>(worker)]; }
  int workers() const { return static_cast<int>(workers_.size()); }
  std::string WorkerEndpoint(int worker) const;
  std::string StoreEndpoint() const { return Socket("cache"); }
  std::string BlobEndpoint() const { return Socket("blobs"); }
  std::string CompileEndpoint() const { return Socket("compile"); }
  // The name of a worker that ended without being stopped; empty: none.
  std::string FirstEndedWorker();
  const std::string& directory() const { return options_.directory; }

 private:
  explicit EmbeddedFleet(FleetOptions options) : options_(std::move(options)) {}
  std::string Socket(const std::string& name) const { return "ipc://" + options_.directory + "/" + name + ".sock"; }
  Result<std::unique_ptr<ServiceProcess>> RunWorker(int index, const WorkerOptions& options) const;
  std::string Log(const std::string& name) const { return options_.directory + "/" + name + ".log"; }

  FleetOptions options_;
  std::unique_ptr<ServiceProcess> cache_, compile_;
  std::vector<std::unique_ptr<ServiceProcess>> workers_;
  std::vector<WorkerOptions> worker_options_;  // per worker
};

// A connection of a tool to a service on an ipc or loopback endpoint, or with keys to any. Where nobody listens a call
// ends at once, with connect_wait_ms after that time (RpcClientOptions).
Result<std::unique_ptr<RpcClient>> ConnectTool(Loop& loop, const std::string& endpoint, const std::string& keys,
                                               const std::string& service, int64_t connect_wait_ms = 0);

}  // namespace kiln::cli
