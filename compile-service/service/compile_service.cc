#include "compile-service/service/compile_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/artifact/kernel_blob.h"
#include "common/compile_api/disassemble.h"
#include "compile-service/jobs/job_codec.h"

namespace kiln {
namespace {

constexpr uint32_t kBusyRetryMs = 250;
constexpr size_t kFailuresMax = 4096;
constexpr int64_t kHeldPollNs = 50'000'000;
constexpr size_t kTuningMax = 16;  // requests of the tuned tier at once: they wait for everything else

// Errors of the request itself: the same bytes fail again, so they are remembered.
bool IsPermanent(ErrorCode code) {
  return ErrorExitCode(code) == 2 || code == ErrorCode::kCompileFailed;
}

}  // namespace

CompileService::CompileService(CompileWorkshop workshop, CompileServiceOptions options)
    : workshop_(std::move(workshop)), options_(options) {
  for (int i = 0; i < options_.job_threads; ++i) threads_.emplace_back([this] { RunJobs(); });
}

CompileService::~CompileService() {
  const Error stopping{ErrorCode::kUnavailable, "the compile service is stopping; ask another replica or retry", {}};
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [client, queue] : queues_)
      for (auto& [priority, work] : queue)
        for (const Waiter& waiter : work->waiting) waiter.reply.Fail(stopping, kBusyRetryMs);
    queues_.clear();
    turns_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (auto& [when, work] : held_)
    for (const Waiter& waiter : work->waiting) waiter.reply.Fail(stopping, kBusyRetryMs);
  held_.clear();  // gives their leases back
}

void CompileService::RegisterOn(RpcServer& server) {
  const auto on = [&server](CompileMethod method, RpcHandler handler) {
    server.Register(static_cast<uint16_t>(method), MethodRoles(method), std::move(handler));
  };
  on(CompileMethod::kCompile, [this](const RequestContext& context, Message message, Replier reply) {
    Result<CompileRequest> request = DecodeCompileRequest(message);
    if (!request.has_value()) return reply.Fail(request.error());
    const Digest key = request->Key();
    Enqueue(context, {std::move(*request), {}, key}, reply);
  });
  on(CompileMethod::kCancel, [this](const RequestContext& context, Message message, Replier reply) {
    const Result<Digest> key = DecodeCancelRequest(message);
    if (!key.has_value()) return reply.Fail(key.error());
    Cancel(context, *key);
    reply.Ok({});
  });
  on(CompileMethod::kDisassemble, [this](const RequestContext& context, Message message, Replier reply) {
    Result<std::vector<uint8_t>> code = DecodeDisassembleRequest(message);
    if (!code.has_value()) return reply.Fail(code.error());
    if (const auto blob = ParseKernelBlob(*code); !blob.has_value()) return reply.Fail(blob.error());
    const Digest key = FieldHasher("kiln.disassemble-request.v1").Bytes(*code).Finish();
    Enqueue(context, {{}, std::move(*code), key}, reply);
  });
  on(CompileMethod::kStats,
     [this](const RequestContext&, Message, Replier reply) { reply.Ok(EncodeCompileStats(Stats())); });
  on(CompileMethod::kPing, [](const RequestContext&, Message, Replier reply) { reply.Ok({}); });
}

CompileStats CompileService::Stats() const {
  std::lock_guard lock(mutex_);
  CompileStats stats = stats_;
  stats.child_crashes = workshop_.compilers.crashes() + workshop_.validators.crashes();
  stats.queued = queued_;
  stats.running = running_;
  return stats;
}

void CompileService::Enqueue(const RequestContext& context, Work asked, const Replier& reply) {
  const Digest key = asked.key;
  std::lock_guard lock(mutex_);
  ++stats_.requests;
  if (auto failure = failures_.find(key); failure != failures_.end()) {
    if (failure->second.until_ns > workshop_.clock.NowNs())
      return reply.Fail(failure->second.error, options_.failure_backoff_ms);
    failures_.erase(failure);
  }
  if (auto same = in_flight_.find(key); same != in_flight_.end()) {
    ++stats_.joined;
    same->second->waiting.push_back({reply, context.peer});
    same->second->control->Extend(context.deadline_ns);
    return;
  }
  if (asked.request.tier == PlanTier::kTuned && std::ranges::count_if(in_flight_, [](const auto& work) {
                                                  return work.second->request.tier == PlanTier::kTuned;
                                                }) >= static_cast<ptrdiff_t>(kTuningMax))
    return reply.Fail(
        {ErrorCode::kBusy, std::to_string(kTuningMax) + " requests wait to be tuned, as many as may; retry later", {}},
        kBusyRetryMs);
  if (queued_ >= options_.queue_max)
    return reply.Fail({ErrorCode::kBusy,
                       "the compile queue holds " + std::to_string(queued_) + " requests, its limit; retry later",
                       {}},
                      kBusyRetryMs);
  auto work = std::make_shared<Work>(std::move(asked));
  work->control = std::make_shared<JobControl>(context.deadline_ns);
  work->peer = context.peer;
  work->waiting.push_back({reply, context.peer});
  in_flight_[key] = work;
  ++queued_;
  Queue(work);
}

void CompileService::Cancel(const RequestContext& context, const Digest& key) {
  std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(key);
  if (found == in_flight_.end()) return;
  Work& work = *found->second;
  std::erase_if(work.waiting, [&](const Waiter& waiter) {
    if (waiter.peer != context.peer) return false;
    waiter.reply.Fail({ErrorCode::kCancelled, "cancelled by the caller", {}});
    return true;
  });
  if (!work.waiting.empty()) return;
  work.control->Cancel();
  in_flight_.erase(found);  // who asks from now on asks anew
  ++stats_.cancelled;
}

void CompileService::Queue(const std::shared_ptr<Work>& work) {
  auto& queue = queues_[work->peer];
  if (queue.empty()) turns_.push_back(work->peer);
  queue.emplace(PriorityOf(work->request), work);
  wake_.notify_one();
}

std::shared_ptr<CompileService::Work> CompileService::NextWork() {
  // Tuning waits until nobody waits for anything else and nothing else is in work, which would disturb it, too.
  const auto is_tuning = [&](const std::string& client) {
    return queues_.find(client)->second.begin()->first == kTunedPriority;
  };
  auto turn = std::ranges::find_if_not(turns_, is_tuning);
  if (turn == turns_.end() && running_ > 0) return nullptr;
  if (turn == turns_.end()) turn = turns_.begin();
  const std::string client = *turn;
  turns_.erase(turn);
  auto queue = queues_.find(client);
  std::shared_ptr<Work> work = queue->second.begin()->second;
  queue->second.erase(queue->second.begin());
  if (queue->second.empty()) {
    queues_.erase(queue);
  } else {
    turns_.push_back(client);
  }
  --queued_;
  ++running_;
  return work;
}

std::shared_ptr<CompileService::Work> CompileService::WaitForWork() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return nullptr;
    const int64_t now = workshop_.clock.NowNs();
    while (!held_.empty() && held_.begin()->first <= now) {
      Queue(held_.begin()->second);
      held_.erase(held_.begin());
    }
    if (!turns_.empty())
      if (std::shared_ptr<Work> work = NextWork()) return work;
    if (held_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, std::chrono::nanoseconds(held_.begin()->first - now));
    }
  }
}

void CompileService::RunJobs() {
  while (const std::shared_ptr<Work> work = WaitForWork()) {
    if (work->code.empty()) {
      Compile(work);
    } else {
      Disassemble(work);
    }
  }
}

void CompileService::Compile(const std::shared_ptr<Work>& work) {
  if (work->job == nullptr) work->job = std::make_unique<CompileJob>(work->request, workshop_, work->control);
  const Result<std::optional<CompileOutcome>> outcome = work->job->Advance();
  if (outcome.has_value() && !outcome->has_value()) {
    std::lock_guard lock(mutex_);
    --running_;
    ++queued_;
    held_.emplace(workshop_.clock.NowNs() + kHeldPollNs, work);
    wake_.notify_one();
    return;
  }
  work->job.reset();  // gives leases back before anybody hears of a failure
  Finish(work, outcome.has_value() ? Result<CompileOutcome>(**outcome) : std::unexpected(outcome.error()));
}

void CompileService::Disassemble(const std::shared_ptr<Work>& work) {
  const Result<Frame> frame =
      workshop_.compilers.Submit(DisassembleFrame(std::move(work->code)), work->request.priority, work->control).get();
  const Result<std::string> listing = frame.has_value() ? ListingFrom(*frame) : std::unexpected(frame.error());
  std::vector<Waiter> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = Leave(work);
  }
  for (const Waiter& waiter : waiting) {
    if (listing.has_value()) {
      waiter.reply.Ok(EncodeDisassembleReply(*listing));
    } else {
      waiter.reply.Fail(listing.error());
    }
  }
}

std::vector<CompileService::Waiter> CompileService::Leave(const std::shared_ptr<Work>& work) {
  --running_;
  wake_.notify_one();  // tuning may wait for that
  if (const auto found = in_flight_.find(work->key); found != in_flight_.end() && found->second == work)
    in_flight_.erase(found);
  return std::exchange(work->waiting, {});
}

void CompileService::Finish(const std::shared_ptr<Work>& work, const Result<CompileOutcome>& outcome) {
  std::vector<Waiter> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = Leave(work);
    if (outcome.has_value()) {
      stats_.plans += outcome->reply.already_there ? 0 : 1;
      stats_.kernels_timed += outcome->kernels_timed;
      stats_.forms_taken += outcome->forms_taken;
      stats_.kernels += outcome->reply.kernels_compiled;
      stats_.kernels_reused += outcome->kernels_reused;
    } else if (outcome.error().code != ErrorCode::kCancelled) {
      ++stats_.failures;
      if (IsPermanent(outcome.error().code)) {
        if (failures_.size() >= kFailuresMax) failures_.clear();
        failures_.insert_or_assign(
            work->key,
            Failure{outcome.error(), workshop_.clock.NowNs() + int64_t{options_.failure_backoff_ms} * 1'000'000});
      }
    }
  }
  if (outcome.has_value()) {
    spdlog::info("plan {} {}: {} kernels, {} compiled, {} us (lower {}, tune {}, kernels {}, validate {}, publish {})",
                 outcome->reply.plan_key.ShortHex(), outcome->reply.already_there ? "was there" : "published",
                 outcome->reply.kernels, outcome->reply.kernels_compiled, outcome->reply.compile_us, outcome->lower_us,
                 outcome->tune_us, outcome->kernels_us, outcome->validate_us, outcome->publish_us);
  } else {
    spdlog::warn("compile request {} failed: {}", work->key.ShortHex(), ToString(outcome.error()));
  }
  for (const Waiter& waiter : waiting) {
    if (outcome.has_value()) {
      waiter.reply.Ok(EncodeCompileReply(outcome->reply));
    } else {
      waiter.reply.Fail(outcome.error(),
                        IsPermanent(outcome.error().code) ? options_.failure_backoff_ms : kBusyRetryMs);
    }
  }
}

}  // namespace kiln
