// The worker's front: execute API on a loop, a bounded queue, request threads with a VM context each. Loads have a
// thread of their own, and so have questions about the worker: neither holds up a request. A run of a variant that is
// not loaded yet waits among the loads, and not on a request thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/messaging/rpc_server.h"
#include "common/telemetry/metrics.h"
#include "vm-worker/dispatch/kernel_pool.h"
#include "vm-worker/service/line_budget.h"
#include "vm-worker/service/model_registry.h"
#include "vm-worker/service/request_queue.h"
#include "vm-worker/service/stream_store.h"

namespace kiln {

struct WorkerServiceOptions {
  int threads = 1;
  int kernel_threads = 1;  // that large kernels run on at a time, over all requests
  size_t queue_max = limits::kRequestQueueDefault;
  // Temporary memory of runs, all request threads together; each may use an equal share of it.
  size_t run_memory_bytes = size_t{1} << 40;
  MemoryBudget* budget = nullptr;  // of the whole worker; null: no limit. Outlives the service
  CudaDevice* device = nullptr;    // where plans run that are for it; outlives the service
  DeviceState device_state{};      // why there is none
  StreamOptions streams;
  std::vector<std::pair<std::string, StateLink>> states;  // model, and a link of streams that name none
};

// Thread-safe. End it before the registry and the tiers.
class WorkerService {
 public:
  WorkerService(ModelRegistry& registry, TierController& tiers, EpochDomain& epochs, WorkerServiceOptions options);
  ~WorkerService();  // running and waiting requests are answered first

  // Registers the methods; call before server.Serve().
  void RegisterOn(RpcServer& server);
  // For metrics; may wait for the tier controller, so not on a loop.
  MetricsSnapshot Snapshot();

 private:
  struct Thread;  // what a request thread owns
  struct Variant {
    std::string model;
    std::vector<std::string> overrides;
  };
  // What a message is about, for the log; empty before it is decoded.
  struct Subject {
    std::string model;
    uint64_t stream = 0;
  };
  // A message that waits for a thread. `answer` is null for a run, which needs a request thread's context.
  using Answer = Result<Message> (WorkerService::*)(const Message&, Subject&);
  struct Work {
    int64_t deadline_ns = 0;
    int64_t queued_ns = 0;
    Message message;
    Replier reply;
    Answer answer = nullptr;
    uint64_t trace_id = 0;
    MemoryCharge charge;            // of the message
    std::optional<Variant> awaits;  // a run: what has to be loaded before
  };

  RpcHandler HandlerInto(RequestQueue<Work>& queue, Answer answer);
  // Tells the caller, where the deadline of a message has passed while it waited.
  bool IsExpired(const Work& work);
  void RunThread();
  void AnswerThread(RequestQueue<Work>& queue);
  // Puts it into the queue, or tells the caller that it is full.
  void Enqueue(RequestQueue<Work>& queue, Work work);
  void LogFailure(const Work& work, const Subject& subject, const Error& error);
  Result<Message> Load(const Message& message, Subject& subject);
  Result<Message> Unload(const Message& message, Subject& subject);
  Result<Message> Run(Thread& thread, const Work& work, Subject& subject);
  // The outputs lie in the thread's arena, in an input or in a constant, until the thread's next run.
  Result<std::span<const TensorRef>> Execute(Thread& thread, const std::shared_ptr<const ServedModel>& served,
                                             std::span<const TensorRef> inputs, int64_t deadline_ns, RunTiming& timing);
  // `served` becomes the variant whose optional inputs the request gives, and keeps what the reply's outputs lie in.
  Status RunStateless(Thread& thread, std::shared_ptr<const ServedModel>& served, const RunRequest& request,
                      int64_t deadline_ns, RunReply& reply);
  Status RunStream(Thread& thread, const std::shared_ptr<const ServedModel>& served, const RunRequest& request,
                   int64_t deadline_ns, RunReply& reply);
  Result<Message> OpenStream(const Message& message, Subject& subject);
  Result<Message> CloseStream(const Message& message, Subject& subject);
  Result<Message> Explain(const Message& message, Subject& subject);
  std::vector<MetricSample> Counts();
  Result<Message> StatsOf(const Message& message, Subject& subject);

  ModelRegistry& registry_;
  TierController& tiers_;
  EpochDomain& epochs_;
  KernelPool kernel_pool_;
  RequestQueue<Work> queue_;
  const size_t arena_bytes_;  // of one request thread
  MemoryBudget* budget_;
  CudaDevice* device_;
  const DeviceState device_state_;
  const std::vector<std::pair<std::string, StateLink>> states_;
  StreamStore streams_;
  const uint64_t idle_ms_;
  std::atomic<uint64_t> requests_{0}, errors_{0}, busy_{0}, expired_{0};
  Latency queue_wait_, run_;
  LineBudget failures_logged_;
  std::vector<std::thread> threads_;
  RequestQueue<Work> loads_;  // and unloads, in order
  std::thread loads_thread_;
  // Questions about the worker wait for the control thread's state: never answered on the loop.
  RequestQueue<Work> questions_;
  std::thread questions_thread_;
};

}  // namespace kiln
