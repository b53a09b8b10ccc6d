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
  ~WorkerService();   // running and waiting requests are answered first

  // Registers the methods; call before server.Serve().
  void RegisterOn(RpcServer& server);

 private:
  struct Thread;   // what a request thread owns
  struct Work {
    int64_t deadline_ns = 0;
    int64_t queued_ns = 0;
    Message message;
    std::optional<Replier> reply;
    bool is_load = false;
  };

  void Ask(const Replier& reply, std::function<Result<Message>()> answer);
  void Enqueue(const RequestContext& context, Message message, const Replier& reply, bool is_load);
  void RunThread();
  Result<Message> Run(Thread& thread, const Work& work);
  Result<std::vector<NamedTensor>> Execute(Thread& thread, const std::shared_ptr<const ServedModel>& served, const RunRequest& request,
                                           RunTiming& timing);
  Result<Message> StatsOf(const Message& message) const;

  ModelRegistry& registry_;
  TierController& tiers_;
  EpochDomain& epochs_;
  RequestQueue<Work> queue_;
  std::atomic<uint64_t> requests_{0}, errors_{0}, busy_{0}, expired_{0};
  std::vector<std::thread> threads_;
  // Questions about tiers and models wait for the control thread, which may itself wait for an answer that the loop brings: they are
  // answered on a thread of their own, never on the loop.
  RequestQueue<std::function<void()>> questions_{limits::kRequestQueueDefault};
  std::thread questioner_;
};

}  // namespace kiln
