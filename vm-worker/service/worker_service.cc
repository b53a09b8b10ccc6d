#include "vm-worker/service/worker_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/clock.h"
#include "vm-worker/explain/explain_model.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

constexpr uint32_t kBusyRetryMs = 20;
constexpr size_t kQuestionsMax = 64;

// The tensors in the order of the model's inputs. Errors name the input and what the model declares.
Result<std::vector<TensorRef>> BindInputs(const ServedModel& served, const RunRequest& request) {
  std::vector<TensorRef> inputs(served.inputs.size());
  std::vector<bool> given(served.inputs.size());
  for (const NamedTensor& tensor : request.inputs) {
    const auto it = std::find_if(served.inputs.begin(), served.inputs.end(),
                                 [&](const ValueInfo& info) { return info.name == tensor.name; });
    if (it == served.inputs.end()) {
      std::string known;
      for (const ValueInfo& info : served.inputs) known += (known.empty() ? "" : ", ") + info.name;
      return Fail(ErrorCode::kInvalidArgument, "the model has no input \"" + tensor.name + "\"; its inputs: " + known);
    }
    const auto index = static_cast<size_t>(it - served.inputs.begin());
    if (given[index]) return Fail(ErrorCode::kInvalidArgument, "input \"" + tensor.name + "\" is given twice");
    given[index] = true;
    inputs[index] = tensor.tensor.ref;
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (!given[i])
      return Fail(ErrorCode::kInvalidArgument,
                  "input \"" + served.inputs[i].name + "\" (" + served.inputs[i].text + ") is missing");
  return inputs;
}

}  // namespace

// What a request thread owns.
struct WorkerService::Thread {
  struct PerModel {
    std::weak_ptr<const ServedModel> served;  // tells when the entry is stale
    ModelThread* counters = nullptr;
    std::unique_ptr<CallObserver> observer;
    std::unique_ptr<Dispatcher> dispatcher;
  };
  VmContext context;
  int reader = -1;
  std::unordered_map<const ServedModel*, PerModel> models;
};

WorkerService::WorkerService(ModelRegistry& registry, TierController& tiers, EpochDomain& epochs,
                             WorkerServiceOptions options)
    : registry_(registry), tiers_(tiers), epochs_(epochs), queue_(options.queue_max), questions_(kQuestionsMax) {
  questions_thread_ = std::thread([this] {
    while (std::optional<std::function<void()>> question = questions_.Pop()) (*question)();
  });
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { RunThread(); });
}

WorkerService::~WorkerService() {
  queue_.Close();
  questions_.Close();
  for (std::thread& thread : threads_) thread.join();
  questions_thread_.join();
}

void WorkerService::RegisterOn(RpcServer& server) {
  const auto on = [&server](WorkerMethod method, RpcHandler handler) {
    server.Register(static_cast<uint16_t>(method), kAnyRole, std::move(handler));
  };
  on(WorkerMethod::kRun, [this](const RequestContext& context, Message message, Replier reply) {
    Enqueue(context, std::move(message), reply, false);
  });
  on(WorkerMethod::kLoad, [this](const RequestContext& context, Message message, Replier reply) {
    Enqueue(context, std::move(message), reply, true);
  });
  on(WorkerMethod::kList,
     [this](const RequestContext&, Message, Replier reply) { reply.Ok(Encode(ListReply{registry_.Names()})); });
  const auto ask = [&](WorkerMethod method, Result<Message> (WorkerService::*answer)(const Message&)) {
    on(method, [this, answer](const RequestContext&, Message message, Replier reply) {
      Ask(std::move(message), reply, answer);
    });
  };
  ask(WorkerMethod::kUnload, &WorkerService::Unload);
  ask(WorkerMethod::kStats, &WorkerService::StatsOf);
  ask(WorkerMethod::kExplain, &WorkerService::Explain);
  on(WorkerMethod::kPing, [](const RequestContext&, Message, Replier reply) { reply.Ok({}); });
}

void WorkerService::Enqueue(const RequestContext& context, Message message, const Replier& reply, bool is_load) {
  Work work{context.deadline_ns, SystemClock().NowNs(), std::move(message), reply, is_load, context.trace_id};
  if (queue_.Push(work)) return;
  ++busy_;
  reply.Fail({ErrorCode::kBusy,
              "the worker's request queue is full (" + std::to_string(queue_.size()) + " waiting); retry later",
              {}},
             kBusyRetryMs);
}

void WorkerService::Ask(Message message, const Replier& reply,
                        Result<Message> (WorkerService::*answer)(const Message&)) {
  std::function<void()> question = [this, message = std::move(message), reply, answer] {
    reply.Done((this->*answer)(message));
  };
  if (!questions_.Push(question))
    reply.Fail({ErrorCode::kBusy, "too many questions are waiting; retry later", {}}, kBusyRetryMs);
}

Result<Message> WorkerService::Unload(const Message& message) {
  UnloadRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  RETURN_IF_ERROR(registry_.Unload(request.name));
  return Message{};
}

void WorkerService::RunThread() {
  Thread thread;
  thread.reader = epochs_.RegisterReader();
  if (thread.reader < 0)
    spdlog::error("more than {} request threads: this one runs without plans", EpochDomain::kReadersMax);
  while (std::optional<Work> work = queue_.Pop()) {
    if (work->deadline_ns < SystemClock().NowNs()) {
      ++expired_;
      work->reply->Fail({ErrorCode::kDeadlineExceeded, "the deadline passed while the request was queued", {}});
      continue;
    }
    ++requests_;
    Result<Message> answer = Run(thread, *work);
    if (!answer.has_value()) {
      ++errors_;
      spdlog::info("request {:016x} failed: {}", work->trace_id, ToString(answer.error()));
    }
    work->reply->Done(std::move(answer));
  }
  thread.models.clear();
  if (thread.reader >= 0) epochs_.UnregisterReader(thread.reader);
}

Result<Message> WorkerService::Run(Thread& thread, const Work& work) {
  if (work.is_load) {
    LoadRequest request;
    RETURN_IF_ERROR(Decode(work.message, request));
    ASSIGN_OR_RETURN(LoadReply reply, registry_.Load(request));
    return Encode(reply);
  }
  const int64_t start = SystemClock().NowNs();
  RunRequest request;
  RETURN_IF_ERROR(Decode(work.message, request));
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
  RunReply reply;
  reply.timing.queue_us = static_cast<uint64_t>((start - work.queued_ns) / 1000);
  ASSIGN_OR_RETURN(reply.outputs, Execute(thread, served, request, reply.timing));
  spdlog::debug("request {:016x} of model {}: {} us, segments {} by plan, {} interpreted", work.trace_id, request.model,
                reply.timing.run_us, reply.timing.plan_segments, reply.timing.interpreted_segments);
  return Encode(reply);
}

Result<std::vector<NamedTensor>> WorkerService::Execute(Thread& thread,
                                                        const std::shared_ptr<const ServedModel>& served,
                                                        const RunRequest& request, RunTiming& timing) {
  ASSIGN_OR_RETURN(std::vector<TensorRef> inputs, BindInputs(*served, request));
  std::erase_if(thread.models, [](const auto& entry) { return entry.second.served.expired(); });
  Thread::PerModel& own = thread.models[served.get()];
  Model& model = *served->model;
  if (own.dispatcher == nullptr) {
    own.served = served;
    own.counters = &model.AddThread();
    own.observer = tiers_.MakeObserver(served->model, *own.counters);
    own.dispatcher = std::make_unique<Dispatcher>(model.runtimes(), own.counters->counters, *own.observer);
  }
  struct Sums {
    uint64_t kernel_ns = 0, reference_ns = 0, plan_calls = 0, interpreted_calls = 0;
  };
  const auto sum = [&own] {
    Sums sums;
    for (const SegmentCounters& c : own.counters->counters) {
      sums.kernel_ns += c.kernel_ns.load(std::memory_order_relaxed);
      sums.reference_ns += c.reference_ns.load(std::memory_order_relaxed);
      sums.plan_calls += c.plan_calls.load(std::memory_order_relaxed);
      sums.interpreted_calls += c.interpreted_calls.load(std::memory_order_relaxed);
    }
    return sums;
  };
  const Sums before = sum();
  const int64_t start = SystemClock().NowNs();
  RunOptions options;
  Result<std::vector<Tensor>> outputs = Fail(ErrorCode::kInternal, "not run");
  if (thread.reader >= 0) {
    EpochScope scope(epochs_, thread.reader);
    options.hook = own.dispatcher.get();
    outputs = thread.context.Run(model.program(), inputs, options);
  } else {
    outputs = thread.context.Run(model.program(), inputs, options);
  }
  if (!outputs.has_value()) return std::unexpected(outputs.error());
  timing.run_us = static_cast<uint64_t>((SystemClock().NowNs() - start) / 1000);
  const Sums after = sum();
  timing.kernel_us = (after.kernel_ns - before.kernel_ns) / 1000;
  timing.reference_us = (after.reference_ns - before.reference_ns) / 1000;
  timing.plan_segments = static_cast<uint32_t>(after.plan_calls - before.plan_calls);
  timing.interpreted_segments = static_cast<uint32_t>(after.interpreted_calls - before.interpreted_calls);
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < outputs->size(); ++i) {
    Tensor& tensor = (*outputs)[i];
    named.push_back(
        {served->outputs[i].name, tensor.ref.IsContiguous() ? std::move(tensor) : MakeContiguous(tensor.ref)});
  }
  return named;
}

Result<Message> WorkerService::Explain(const Message& message) {
  ExplainRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
  ASSIGN_OR_RETURN(const ExplainReply reply, ExplainModel(*served->model, tiers_, request));
  return Encode(reply);
}

Result<Message> WorkerService::StatsOf(const Message& message) {
  WorkerStatsRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  WorkerStatsReply reply;
  const auto add = [&reply](std::string name, uint64_t value) { reply.stats.emplace_back(std::move(name), value); };
  if (request.model.empty()) {
    add("requests", requests_.load());
    add("errors", errors_.load());
    add("busy", busy_.load());
    add("expired", expired_.load());
    const TierStats tiers = tiers_.Stats();
    add("compile_requests", tiers.compile_requests);
    add("compiled", tiers.compiled);
    add("compile_failures", tiers.compile_failures);
    add("fetched", tiers.fetched);
    add("fetched_from_disk", tiers.fetched_from_disk);
    add("rejected", tiers.rejected);
    add("published", tiers.published);
    add("shadow_clean", tiers.shadow_clean);
    add("shadow_mismatches", tiers.shadow_mismatches);
    add("quarantined", tiers.quarantined);
    for (size_t i = 1; i < kMissReasons; ++i) {
      const std::string reason(MissReasonText(static_cast<MissReason>(i)));
      add("miss_" + reason, tiers.misses.calls[i]);
      add("miss_ns_" + reason, tiers.misses.ns[i]);
    }
    return Encode(reply);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
  Model::Totals all;
  uint64_t with_plan = 0;
  const std::vector<SegmentStatus> segments = tiers_.Segments(*served->model);
  for (const SegmentStatus& segment : segments) {
    with_plan += segment.published.empty() ? 0 : 1;
    all.interpreted_calls += segment.totals.interpreted_calls;
    all.plan_calls += segment.totals.plan_calls;
    all.interpreted_ns += segment.totals.interpreted_ns;
    all.kernel_ns += segment.totals.kernel_ns;
    all.reference_ns += segment.totals.reference_ns;
    all.guard_misses += segment.totals.guard_misses;
    all.input_copies += segment.totals.input_copies;
  }
  add("segments", segments.size());
  add("segments_with_plan", with_plan);
  add("interpreted_calls", all.interpreted_calls);
  add("plan_calls", all.plan_calls);
  add("interpreted_ns", all.interpreted_ns);
  add("kernel_ns", all.kernel_ns);
  add("reference_ns", all.reference_ns);
  add("guard_misses", all.guard_misses);
  add("input_copies", all.input_copies);
  return Encode(reply);
}

}  // namespace kiln
