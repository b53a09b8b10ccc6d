// The worker's front: execute API on a loop, a bounded queue, request threads with a VM context each.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/messaging/rpc_server.h"
#include "vm-worker/service/model_registry.h"
#include "vm-worker/service/request_queue.h"

namespace kiln {

struct WorkerServiceOptions {
  int threads = 1;
  size_t queue_max = limits::kRequestQueueDefault;
};

// Thread-safe. End it before the registry and the tiers.
class WorkerService {
 public:
  WorkerService(ModelRegistry& registry, TierController& tiers, EpochDomain& epochs, WorkerServiceOptions options);
  ~WorkerService();  // running and waiting requests are answered first

  // Registers the methods; call before server.Serve().
  void RegisterOn(RpcServer& server);

 private:
  struct Thread;  // what a request thread owns
  struct Work {
    int64_t deadline_ns = 0;
    int64_t queued_ns = 0;
    Message message;
    std::optional<Replier> reply;
    bool is_load = false;
    uint64_t trace_id = 0;
  };

  void Enqueue(const RequestContext& context, Message message, const Replier& reply, bool is_load);
  void RunThread();
  // `answer` runs on the questions thread.
  void Ask(Message message, const Replier& reply, Result<Message> (WorkerService::*answer)(const Message&));
  Result<Message> Unload(const Message& message);
  Result<Message> Run(Thread& thread, const Work& work);
  Result<std::vector<NamedTensor>> Execute(Thread& thread, const std::shared_ptr<const ServedModel>& served,
                                           const RunRequest& request, RunTiming& timing);
  Result<Message> Explain(const Message& message);
  Result<Message> StatsOf(const Message& message);

  ModelRegistry& registry_;
  TierController& tiers_;
  EpochDomain& epochs_;
  RequestQueue<Work> queue_;
  std::atomic<uint64_t> requests_{0}, errors_{0}, busy_{0}, expired_{0};
  std::vector<std::thread> threads_;
  // Questions about the worker wait for the control thread, which may wait for the loop: never answered on the loop.
  RequestQueue<std::function<void()>> questions_;
  std::thread questions_thread_;
};

}  // namespace kiln
