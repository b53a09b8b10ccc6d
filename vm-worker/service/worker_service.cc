#include "vm-worker/service/worker_service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/base/caught.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/printable.h"
#include "common/native/fault_handler.h"
#include "common/tensor/try_tensor.h"
#include "vm-worker/explain/explain_model.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/service/streams.h"

namespace kiln {
namespace {

constexpr uint32_t kBusyRetryMs = 20;

// Outputs as they lie in the arena, until the answer is encoded; views are made contiguous. LimitExceeded, before
// anything is copied, if they do not fit an answer.
Status AnswerWith(const ServedModel& served, std::span<const TensorRef> outputs, const std::vector<bool>& kept,
                  RunReply& reply) {
  int64_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!kept[i]) bytes += outputs[i].bytes();
  if (bytes > limits::kMessageTensorBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "the outputs have " + std::to_string(bytes) + " bytes; an answer holds " +
                                               std::to_string(limits::kMessageTensorBytesMax) +
                                               ". Run the model on a part of the batch at a time");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (kept[i]) continue;
    Tensor tensor{outputs[i], nullptr};
    if (!outputs[i].IsContiguous()) {
      ASSIGN_OR_RETURN(tensor, TryMakeContiguous(outputs[i]));
    }
    reply.outputs.push_back({served.outputs[i].name, std::move(tensor)});
  }
  return {};
}

int64_t BytesOf(const Message& message) {
  size_t bytes = message.payload.size();
  for (const Bytes& blob : message.blobs) bytes += blob.size();
  return static_cast<int64_t>(bytes);
}

void Answered(const Replier& reply, Result<Message> answer) {
  if (answer.has_value() || answer.error().code != ErrorCode::kBusy) return reply.Done(std::move(answer));
  reply.Fail(answer.error(), kBusyRetryMs);
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
  Thread(size_t arena_bytes, MemoryBudget* budget) : context({.arena_limit_bytes = arena_bytes, .budget = budget}) {}
  VmContext context;
  std::unique_ptr<DeviceLane> lane;  // null: the thread runs no plans of a device
  int reader = -1;
  std::unordered_map<const ServedModel*, PerModel> models;
  std::optional<Variant> awaited;  // by the run that has just been tried
};

WorkerService::WorkerService(ModelRegistry& registry, TierController& tiers, EpochDomain& epochs,
                             WorkerServiceOptions options)
    : registry_(registry),
      tiers_(tiers),
      epochs_(epochs),
      kernel_pool_(options.kernel_threads),
      queue_(options.queue_max),
      arena_bytes_(options.run_memory_bytes / static_cast<size_t>(options.threads)),
      budget_(options.budget),
      device_(options.device),
      device_state_(options.device_state),
      states_(std::move(options.states)),
      streams_(options.streams),
      idle_ms_(static_cast<uint64_t>(options.streams.idle_ns / 1'000'000)),
      loads_(limits::kLoadsQueuedMax),
      questions_(limits::kQuestionsQueuedMax) {
  loads_thread_ = std::thread([this] { AnswerThread(loads_); });
  questions_thread_ = std::thread([this] { AnswerThread(questions_); });
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { RunThread(); });
}

WorkerService::~WorkerService() {
  queue_.Close();
  loads_.Close();
  questions_.Close();
  for (std::thread& thread : threads_) thread.join();
  loads_thread_.join();
  questions_thread_.join();
}

void WorkerService::RegisterOn(RpcServer& server) {
  const auto on = [&server](WorkerMethod method, RpcHandler handler) {
    server.Register(static_cast<uint16_t>(method), MethodRoles(method), std::move(handler), MethodAdmission(method),
                    MethodText(method));
  };
  on(WorkerMethod::kRun, HandlerInto(queue_, nullptr));
  on(WorkerMethod::kOpenStream, HandlerInto(queue_, &WorkerService::OpenStream));
  on(WorkerMethod::kCloseStream, HandlerInto(queue_, &WorkerService::CloseStream));
  on(WorkerMethod::kLoad, HandlerInto(loads_, &WorkerService::Load));
  on(WorkerMethod::kUnload, HandlerInto(loads_, &WorkerService::Unload));
  on(WorkerMethod::kStats, HandlerInto(questions_, &WorkerService::StatsOf));
  on(WorkerMethod::kExplain, HandlerInto(questions_, &WorkerService::Explain));
  on(WorkerMethod::kList,
     [this](const RequestContext&, Message, Replier reply) { reply.Ok(Encode(ListReply{registry_.Names()})); });
  on(WorkerMethod::kPing, [](const RequestContext&, Message, Replier reply) { reply.Ok({}); });
}

RpcHandler WorkerService::HandlerInto(RequestQueue<Work>& queue, Answer answer) {
  return [this, &queue, answer](const RequestContext& context, Message message, Replier reply) {
    Result<MemoryCharge> charge = ChargeRequest(budget_, BytesOf(message));
    if (!charge.has_value()) {
      if (charge.error().code == ErrorCode::kBusy) ++busy_;
      return Answered(reply, std::unexpected(charge.error()));
    }
    Work work{context.deadline_ns, SystemClock().NowNs(), std::move(message), reply, answer,
              context.trace_id,    *std::move(charge)};
    Enqueue(queue, std::move(work));
  };
}

void WorkerService::Enqueue(RequestQueue<Work>& queue, Work work) {
  if (queue.Push(work)) return;
  ++busy_;
  work.reply.Fail(
      {ErrorCode::kBusy, "the worker's queue is full (" + std::to_string(queue.size()) + " waiting); retry later", {}},
      kBusyRetryMs);
}

bool WorkerService::IsExpired(const Work& work) {
  if (work.deadline_ns >= SystemClock().NowNs()) return false;
  ++expired_;
  work.reply.Fail({ErrorCode::kDeadlineExceeded, "the deadline passed while the request was queued", {}});
  return true;
}

void WorkerService::AnswerThread(RequestQueue<Work>& queue) {
  while (std::optional<Work> work = queue.Pop()) {
    if (IsExpired(*work)) continue;
    Subject subject;
    Result<Message> answer = Caught([&]() -> Result<Message> {
      if (!work->awaits) return (this->*work->answer)(work->message, subject);
      subject.model = work->awaits->model;
      RETURN_IF_ERROR(registry_.LoadVariant(work->awaits->model, work->awaits->overrides));
      return Message{};
    });
    if (answer.has_value() && work->awaits) {
      Enqueue(queue_, *std::move(work));
      continue;
    }
    if (!answer.has_value()) LogFailure(*work, subject, answer.error());
    StopIfFaulted();
    Answered(work->reply, std::move(answer));
  }
}

// Bad requests may come in any number; a line for each would hold up their thread.
void WorkerService::LogFailure(const Work& work, const Subject& subject, const Error& error) {
  const std::optional<uint64_t> held_back = failures_logged_.Take(SystemClock().NowNs());
  if (!held_back) return;
  std::string of = subject.model.empty() ? "" : " of model " + Printable(subject.model);
  if (subject.stream != 0) of += (of.empty() ? " of stream " : ", stream ") + std::to_string(subject.stream);
  spdlog::info("request {:016x}{} failed: {}{}", work.trace_id, of, ToString(error),
               *held_back == 0 ? "" : fmt::format(" ({} more failed before it)", *held_back));
}

Result<Message> WorkerService::Load(const Message& message, Subject& subject) {
  LoadRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  subject.model = request.name;
  ASSIGN_OR_RETURN(LoadReply reply, registry_.Load(request));
  return Encode(reply);
}

Result<Message> WorkerService::Unload(const Message& message, Subject& subject) {
  UnloadRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  subject.model = request.name;
  RETURN_IF_ERROR(registry_.Unload(request.name));
  return Message{};
}

Result<Message> WorkerService::OpenStream(const Message& message, Subject& subject) {
  TensorRoom room{budget_, static_cast<int64_t>(arena_bytes_), {}};
  OpenStreamRequest request;
  RETURN_IF_ERROR(Decode(message, request, &room));
  subject.model = request.model;
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
  if (request.links.empty())
    for (const auto& [model, link] : states_)
      if (model == request.model) request.links.push_back(link);
  ASSIGN_OR_RETURN(std::vector<StreamLink> links, ResolveLinks(*served, request.links));
  ASSIGN_OR_RETURN(std::vector<Tensor> state, FirstState(*served, links, request.state));
  ASSIGN_OR_RETURN(const uint64_t id, streams_.Open(served, std::move(links), std::move(state)));
  return Encode(OpenStreamReply{id, idle_ms_});
}

Result<Message> WorkerService::CloseStream(const Message& message, Subject& subject) {
  CloseStreamRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  subject.stream = request.stream;
  if (!streams_.Close(request.stream))
    return Fail(ErrorCode::kNotFound, "stream " + std::to_string(request.stream) + " is not kept here");
  return Message{};
}

void WorkerService::RunThread() {
  Thread thread(arena_bytes_, budget_);
  thread.reader = epochs_.RegisterReader();
  if (thread.reader < 0)
    spdlog::error("more than {} request threads: this one runs without plans", limits::kEpochReadersMax);
  if (device_ != nullptr) {
    auto lane = DeviceLane::Open(*device_);
    if (lane.has_value()) {
      thread.lane = std::move(*lane);
    } else {
      spdlog::warn("a request thread runs without the device: {}", ToString(lane.error()));
    }
  }
  while (std::optional<Work> work = queue_.Pop()) {
    if (IsExpired(*work)) continue;
    ++requests_;
    const int64_t started_ns = SystemClock().NowNs();
    queue_wait_.Record(started_ns - work->queued_ns);
    const bool is_run = work->answer == nullptr;
    Subject subject;
    Result<Message> answer =
        Caught([&] { return is_run ? Run(thread, *work, subject) : (this->*work->answer)(work->message, subject); });
    if (std::optional<Variant> awaited = std::exchange(thread.awaited, std::nullopt)) {
      work->awaits = std::move(awaited);
      Enqueue(loads_, *std::move(work));
      continue;
    }
    if (is_run) run_.Record(SystemClock().NowNs() - started_ns);
    if (!answer.has_value()) {
      ++errors_;
      LogFailure(*work, subject, answer.error());
    }
    StopIfFaulted();
    Answered(work->reply, std::move(answer));
    if (budget_ != nullptr && budget_->IsTight()) thread.context.Trim();
  }
  thread.models.clear();
  if (thread.reader >= 0) epochs_.UnregisterReader(thread.reader);
}

Result<Message> WorkerService::Run(Thread& thread, const Work& work, Subject& subject) {
  const int64_t start = SystemClock().NowNs();
  TensorRoom room{budget_, static_cast<int64_t>(arena_bytes_), {}};
  RunRequest request;
  RETURN_IF_ERROR(Decode(work.message, request, &room));
  subject = {request.model, request.stream};
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
  RunReply reply;
  reply.timing.queue_us = static_cast<uint64_t>((start - work.queued_ns) / 1000);
  if (request.stream == 0) {
    RETURN_IF_ERROR(RunStateless(thread, served, request, work.deadline_ns, reply));
  } else {
    RETURN_IF_ERROR(RunStream(thread, served, request, work.deadline_ns, reply));
  }
  spdlog::debug("request {:016x} of model {}: {} us, segments {} by plan, {} interpreted", work.trace_id, request.model,
                reply.timing.run_us, reply.timing.plan_segments, reply.timing.interpreted_segments);
  return Encode(reply);
}

Status WorkerService::RunStateless(Thread& thread, std::shared_ptr<const ServedModel>& served,
                                   const RunRequest& request, int64_t deadline_ns, RunReply& reply) {
  if (const std::vector<std::string> overrides = Overrides(*served, request); !overrides.empty()) {
    ASSIGN_OR_RETURN(served, registry_.FindVariant(request.model, overrides));
    if (served == nullptr) {
      thread.awaited = Variant{request.model, overrides};
      return Fail(ErrorCode::kBusy, "the variant of the model is being loaded");
    }
  }
  ASSIGN_OR_RETURN(std::vector<TensorRef> inputs, BindInputs(*served, request, {}, {}));
  ASSIGN_OR_RETURN(const std::span<const TensorRef> outputs,
                   Execute(thread, served, inputs, deadline_ns, reply.timing));
  return AnswerWith(*served, outputs, std::vector<bool>(outputs.size()), reply);
}

Status WorkerService::RunStream(Thread& thread, const std::shared_ptr<const ServedModel>& served,
                                const RunRequest& request, int64_t deadline_ns, RunReply& reply) {
  Result<StreamStore::Lease> lease = streams_.Take(request.stream, served);
  if (!lease.has_value()) {
    if (lease.error().code != ErrorCode::kStateLost || request.knows_state_lost) return std::unexpected(lease.error());
    reply.state_lost = true;
    return {};
  }
  ASSIGN_OR_RETURN(std::vector<TensorRef> inputs, BindInputs(*served, request, lease->links(), lease->state()));
  ASSIGN_OR_RETURN(const std::span<const TensorRef> outputs,
                   Execute(thread, served, inputs, deadline_ns, reply.timing));
  std::vector<TensorRef> state;
  std::vector<bool> kept(outputs.size());
  for (const StreamLink& link : lease->links()) {
    state.push_back(outputs[link.output]);
    kept[link.output] = true;
  }
  RETURN_IF_ERROR(AnswerWith(*served, outputs, kept, reply));  // before the stream moves on
  ASSIGN_OR_RETURN(std::vector<Tensor> owned, CopyOutputs(state, arena_bytes_));
  ASSIGN_OR_RETURN(reply.stream_runs, streams_.Commit(*std::move(lease), std::move(owned)));
  return {};
}

Result<std::span<const TensorRef>> WorkerService::Execute(Thread& thread,
                                                          const std::shared_ptr<const ServedModel>& served,
                                                          std::span<const TensorRef> inputs, int64_t deadline_ns,
                                                          RunTiming& timing) {
  std::erase_if(thread.models, [](const auto& entry) { return entry.second.served.expired(); });
  Thread::PerModel& own = thread.models[served.get()];
  Model& model = *served->model;
  if (own.dispatcher == nullptr) {
    own.served = served;
    own.counters = &model.AddThread();
    own.observer = tiers_.MakeObserver(served->model, *own.counters);
    own.dispatcher = std::make_unique<Dispatcher>(
        model.runtimes(), own.counters->counters, *own.observer,
        DispatcherOptions{.lane = thread.lane.get(), .pool = &kernel_pool_, .budget = budget_});
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
  options.deadline_ns = deadline_ns;
  Result<std::span<const TensorRef>> outputs = Fail(ErrorCode::kInternal, "not run");
  if (thread.reader >= 0) {
    EpochScope scope(epochs_, thread.reader);
    options.hook = own.dispatcher.get();
    outputs = thread.context.RunBorrowed(model.program(), inputs, options);
  } else {
    outputs = thread.context.RunBorrowed(model.program(), inputs, options);
  }
  if (!outputs.has_value()) return std::unexpected(outputs.error());
  timing.run_us = static_cast<uint64_t>((SystemClock().NowNs() - start) / 1000);
  const Sums after = sum();
  timing.kernel_us = (after.kernel_ns - before.kernel_ns) / 1000;
  timing.reference_us = (after.reference_ns - before.reference_ns) / 1000;
  timing.plan_segments = static_cast<uint32_t>(after.plan_calls - before.plan_calls);
  timing.interpreted_segments = static_cast<uint32_t>(after.interpreted_calls - before.interpreted_calls);
  return outputs;
}

Result<Message> WorkerService::Explain(const Message& message, Subject& subject) {
  ExplainRequest request;
  RETURN_IF_ERROR(Decode(message, request));
  subject.model = request.model;
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry_.Find(request.model));
  ASSIGN_OR_RETURN(const ExplainReply reply, ExplainModel(*served->model, tiers_, request));
  return Encode(reply);
}

}  // namespace kiln
