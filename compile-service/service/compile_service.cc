#include "compile-service/service/compile_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/artifact/kernel_blob.h"
#include "common/base/caught.h"
#include "common/base/transient.h"
#include "common/compile_api/disassemble.h"
#include "compile-service/jobs/job_codec.h"

namespace kiln {
namespace {

constexpr uint32_t kBusyRetryMs = 250;
constexpr int64_t kListingPollMs = 50;
// Held work is looked at again after this long, then twice as long, up to the most.
constexpr int64_t kHoldNs = 50'000'000, kHoldMaxNs = 2'000'000'000;
constexpr uint32_t kAccusedPriority = UINT32_MAX;  // others may use the plan
constexpr size_t kReproductionsMax = 4;            // accused plans that wait or are in work
constexpr size_t kTuningMax = 16;                  // requests of the tuned tier at once: they wait for everything else

Error Stopping() {
  return {ErrorCode::kUnavailable, "the compile service is stopping; ask another replica or retry", {}};
}

}  // namespace

CompileService::CompileService(CompileWorkshop workshop, CompileServiceOptions options)
    : workshop_(std::move(workshop)),
      options_(options),
      client_buckets_(options.client_rate, limits::kPeerAccountsMax),
      reproduce_buckets_(options.reproduce_rate, limits::kPeerAccountsMax) {
  workshop_.in_work->OnEnd([this](const Digest& key) { LookAgain(key); });
  for (int i = 0; i < options_.job_threads; ++i) threads_.emplace_back([this] { RunJobs(); });
}

CompileService::~CompileService() {
  Stop(0);
  workshop_.in_work->OnEnd({});
}

void CompileService::Stop(int64_t grace_ms) {
  const auto answer = [](const std::vector<Waiter>& waiting) {
    for (const Waiter& waiter : waiting) waiter.reply.Fail(Stopping(), kBusyRetryMs);
  };
  std::vector<std::shared_ptr<Work>> dropped;  // their leases are given back without the lock
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    for (auto& [client, queue] : queues_)
      for (auto& [priority, work] : queue) dropped.push_back(work);
    for (auto& [when, work] : held_) dropped.push_back(work);
    queues_.clear();
    turns_.clear();
    held_.clear();
    queued_ = 0;
    for (const auto& work : dropped) {
      in_flight_.erase(work->key);
      answer(std::exchange(work->waiting, {}));
    }
    wake_.notify_all();
    idle_.wait_for(lock, std::chrono::milliseconds(grace_ms), [this] { return running_.empty(); });
    for (const auto& work : running_) {
      answer(std::exchange(work->waiting, {}));
      work->control->Cancel();
    }
  }
  dropped.clear();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void CompileService::RegisterOn(RpcServer& server) {
  const auto on = [&server](CompileMethod method, RpcHandler handler) {
    server.Register(static_cast<uint16_t>(method), MethodRoles(method), std::move(handler), MethodAdmission(method),
                    MethodText(method));
  };
  on(CompileMethod::kCompile, [this](const RequestContext& context, Message message, Replier reply) {
    Result<CompileRequest> request = DecodeCompileRequest(message);
    if (!request.has_value()) return reply.Fail(request.error());
    const Digest key = request->Key();
    const size_t bytes = request->segment.size();
    Enqueue(context, {.request = std::move(*request), .key = key, .bytes = bytes}, reply);
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
    if (workshop_.disassemblers == nullptr)
      return reply.Fail({ErrorCode::kUnsupported, "this compile service makes no listings", {}});
    if (const auto blob = ParseKernelBlob(*code); !blob.has_value()) return reply.Fail(blob.error());
    const Digest key = FieldHasher("kiln.disassemble-request.v1").Bytes(*code).Finish();
    const size_t bytes = code->size();
    Enqueue(context, {.code = std::move(*code), .key = key, .bytes = bytes}, reply);
  });
  on(CompileMethod::kReproduce, [this](const RequestContext& context, Message message, Replier reply) {
    Result<ReproduceRequest> accused = DecodeReproduceRequest(message);
    if (!accused.has_value()) return reply.Fail(accused.error());
    const Digest key = accused->Key();
    const size_t bytes = accused->segment.size();
    Enqueue(context, {.accused = std::move(*accused), .key = key, .bytes = bytes}, reply);
  });
  on(CompileMethod::kStats,
     [this](const RequestContext&, Message, Replier reply) { reply.Ok(EncodeCompileStats(Stats())); });
  on(CompileMethod::kPing, [](const RequestContext&, Message, Replier reply) { reply.Ok({}); });
}

CompileStats CompileService::Stats() const {
  std::lock_guard lock(mutex_);
  CompileStats stats = stats_;
  stats.child_crashes = workshop_.compilers.crashes() + workshop_.validators.crashes();
  stats.kernels_refused = workshop_.validators.refused();
  stats.queued = queued_;
  stats.running = running_.size();
  return stats;
}

void CompileService::Enqueue(const RequestContext& context, Work asked, const Replier& reply) {
  const Digest key = asked.key;
  std::lock_guard lock(mutex_);
  if (stopping_) return reply.Fail(Stopping(), kBusyRetryMs);
  if (asked.compiles()) ++stats_.requests;
  const int64_t now = workshop_.clock.NowNs();
  // A mark may have been lifted, which its job asks the store.
  if (const Failure* failure = Remembered(key, now); failure != nullptr && !failure->mark)
    return reply.Fail(failure->error, static_cast<uint32_t>((failure->until_ns - now) / 1'000'000 + 1));
  if (auto same = in_flight_.find(key); same != in_flight_.end()) {
    ++stats_.joined;
    same->second->waiting.push_back({reply, context.peer});
    same->second->control->Extend(context.deadline_ns);
    return;
  }
  if (const auto refusal = Refused(context, asked, now)) return reply.Fail(refusal->error, refusal->retry_ms);
  auto work = std::make_shared<Work>(std::move(asked));
  work->control = std::make_shared<JobControl>(context.deadline_ns);
  work->peer = context.peer;
  work->waiting.push_back({reply, context.peer});
  in_flight_[key] = work;
  ++queued_;
  bytes_ += work->bytes;
  Queue(work);
}

std::optional<CompileService::Refusal> CompileService::Refused(const RequestContext& context, const Work& asked,
                                                               int64_t now) {
  const auto busy = [](const std::string& why, uint32_t retry_ms = kBusyRetryMs) {
    return Refusal{{ErrorCode::kBusy, why + "; retry later", {}}, retry_ms};
  };
  const auto in_flight = [this](const auto& is) {
    return static_cast<size_t>(std::ranges::count_if(in_flight_, [&](const auto& work) { return is(*work.second); }));
  };
  if (asked.request.tier == PlanTier::kTuned &&
      in_flight([](const Work& work) { return work.request.tier == PlanTier::kTuned; }) >= kTuningMax)
    return busy(std::to_string(kTuningMax) + " requests wait to be tuned, as many as may");
  if (asked.accused && in_flight([](const Work& work) { return work.accused.has_value(); }) >= kReproductionsMax)
    return busy(std::to_string(kReproductionsMax) + " accused plans wait to be run, as many as may");
  if (queued_ >= options_.queue_max)
    return busy("the compile queue holds " + std::to_string(queued_) + " requests, its limit");
  if (bytes_ + asked.bytes > options_.bytes_max)
    return busy("the requests that wait or are in work have " + std::to_string(bytes_) + " bytes, " +
                std::to_string(asked.bytes) + " more are above the limit of " + std::to_string(options_.bytes_max));
  // Last, so that what is refused for another reason costs nothing.
  TokenBucket& bucket = (asked.accused ? reproduce_buckets_ : client_buckets_).Of(context.machine, now);
  if (bucket.Take(now)) return std::nullopt;
  ++stats_.throttled;
  return busy(asked.accused ? "this machine accuses more plans than it may"
                            : "this machine asks for more than it may (--client-rate)",
              static_cast<uint32_t>(std::min<int64_t>(bucket.WaitNs(now) / 1'000'000 + 1, UINT32_MAX)));
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
  queue.emplace(work->accused ? kAccusedPriority : PriorityOf(work->request), work);
  wake_.notify_one();
}

std::shared_ptr<CompileService::Work> CompileService::NextWork() {
  // Tuning waits until nobody waits for anything else and nothing else is in work, which would disturb it, too.
  const auto is_tuning = [&](const std::string& client) {
    return queues_.find(client)->second.begin()->first == kTunedPriority;
  };
  auto turn = std::ranges::find_if_not(turns_, is_tuning);
  if (turn == turns_.end() && !running_.empty()) return nullptr;
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
  running_.insert(work);
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
    if (work->compiles()) {
      Compile(work);
    } else if (work->accused) {
      Reproduce(work);
    } else {
      Disassemble(work);
    }
  }
}

// The failure that is remembered while the mark that it was for stands; one that was lifted is forgotten.
Status CompileService::CheckMark(const Work& work) {
  std::optional<Failure> failure;
  {
    std::lock_guard lock(mutex_);
    if (const Failure* known = Remembered(work.key, workshop_.clock.NowNs())) failure = *known;
  }
  if (!failure || !failure->mark) return {};
  ASSIGN_OR_RETURN(const bool stands, StillStands(*failure->mark, workshop_, *work.control));
  if (stands) return std::unexpected(failure->error);
  std::lock_guard lock(mutex_);
  failures_.erase(work.key);
  return {};
}

void CompileService::Compile(const std::shared_ptr<Work>& work) {
  bool renewable = false;
  const auto outcome = Caught([&]() -> Result<std::optional<CompileOutcome>> {
    if (work->job == nullptr) {
      RETURN_IF_ERROR(CheckMark(*work));
      work->job = std::make_unique<CompileJob>(std::move(work->request), workshop_, work->control);
    }
    auto advanced = work->job->Advance();
    if (!advanced.has_value()) work->request = work->job->request();
    if (!advanced.has_value() && advanced.error().code == ErrorCode::kQuarantined) work->mark = work->job->mark();
    renewable = !advanced.has_value();
    return advanced;
  });
  if (outcome.has_value() && !outcome->has_value()) return Hold(work);
  work->job.reset();  // gives leases back before anybody hears of a failure
  if (renewable && Renew(work)) return;
  Finish(work, outcome.has_value() ? Result<CompileOutcome>(**outcome) : std::unexpected(outcome.error()));
}

void CompileService::Hold(const std::shared_ptr<Work>& work) {
  const CompileWait wait = work->job->waits_for();
  work->held_for = wait.key;
  work->hold_ns = work->hold_ns == 0 ? kHoldNs : std::min(2 * work->hold_ns, kHoldMaxNs);
  int64_t after_ns = work->hold_ns;
  if (wait.ready) after_ns = work->hold_ns = 0;
  if (wait.remaining_ms > 0) after_ns = std::clamp(int64_t{wait.remaining_ms} * 1'000'000, kHoldNs, after_ns);
  std::lock_guard lock(mutex_);
  running_.erase(work);
  idle_.notify_all();
  if (stopping_) {
    for (const Waiter& waiter : std::exchange(work->waiting, {})) waiter.reply.Fail(Stopping(), kBusyRetryMs);
    return;
  }
  ++queued_;
  held_.emplace(workshop_.clock.NowNs() + after_ns, work);
  wake_.notify_one();
}

void CompileService::LookAgain(const Digest& key) {
  std::lock_guard lock(mutex_);
  for (auto held = held_.begin(); held != held_.end();) {
    if (held->second->held_for != key) {
      ++held;
      continue;
    }
    held->second->hold_ns = 0;
    Queue(held->second);
    held = held_.erase(held);
  }
}

// Somebody with a later deadline may have joined while the request was given up at an earlier one.
bool CompileService::Renew(const std::shared_ptr<Work>& work) {
  std::lock_guard lock(mutex_);
  const std::optional<int64_t> missed = work->control->missed_deadline_ns();
  if (stopping_ || !missed || work->control->deadline_ns() <= *missed || work->waiting.empty()) return false;
  work->control = std::make_shared<JobControl>(work->control->deadline_ns());
  running_.erase(work);
  ++queued_;
  Queue(work);
  return true;
}

void CompileService::Disassemble(const std::shared_ptr<Work>& work) {
  const auto listing = Caught([&]() -> Result<std::string> {
    ChildAnswer answer = workshop_.disassemblers->Submit(DisassembleFrame(std::move(work->code)), 0, work->control);
    while (!answer.IsThereWithin(kListingPollMs)) RETURN_IF_ERROR(work->control->Check(workshop_.clock.NowNs()));
    ASSIGN_OR_RETURN(const Frame frame, answer.get());
    return ListingFrom(frame);
  });
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

void CompileService::Reproduce(const std::shared_ptr<Work>& work) {
  const ReproduceRequest& accused = *work->accused;
  const auto reply = Caught([&] { return ReproducePlan(accused, workshop_, work->control); });
  std::vector<Waiter> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = Leave(work);
    if (reply.has_value()) {
      ++stats_.reproductions;
      stats_.reproduced += reply->verdict.IsReproduced() ? 1 : 0;
    }
  }
  if (reply.has_value()) {
    spdlog::log(reply->verdict.IsReproduced() ? spdlog::level::warn : spdlog::level::info, "accused plan {}: {}: {}{}",
                accused.plan_key.ShortHex(), ReproduceOutcomeText(reply->verdict.outcome), reply->verdict.detail,
                reply->quarantined ? "; the fleet does not use it" : "");
  } else {
    spdlog::warn("accused plan {} was not tried: {}", accused.plan_key.ShortHex(), ToString(reply.error()));
  }
  for (const Waiter& waiter : waiting) {
    if (reply.has_value()) {
      waiter.reply.Ok(EncodeReproduceReply(*reply));
    } else {
      waiter.reply.Fail(reply.error(), IsTransient(reply.error().code) ? kBusyRetryMs : 0);
    }
  }
}

std::vector<CompileService::Waiter> CompileService::Leave(const std::shared_ptr<Work>& work) {
  running_.erase(work);
  bytes_ -= work->bytes;
  idle_.notify_all();
  wake_.notify_one();  // tuning may wait for that
  if (const auto found = in_flight_.find(work->key); found != in_flight_.end() && found->second == work)
    in_flight_.erase(found);
  return std::exchange(work->waiting, {});
}

const CompileService::Failure* CompileService::Remembered(const Digest& key, int64_t now) const {
  const auto known = failures_.find(key);
  return known != failures_.end() && known->second.until_ns > now ? &known->second : nullptr;
}

// One that may be tried again stays known: should it fail again, it waits for longer.
void CompileService::NoteFailure(const Work& work, const Error& error) {
  const int64_t now = workshop_.clock.NowNs();
  if (Remembered(work.key, now) != nullptr) return;  // it was answered from memory
  ++stats_.failures;
  if (IsTransient(error.code)) return;
  // Of the request itself, or of a mark: the same bytes fail again.
  const auto known = failures_.find(work.key);
  const uint32_t pause_ms = known == failures_.end()
                                ? options_.failure_backoff_ms
                                : std::min(2 * known->second.pause_ms, options_.failure_backoff_max_ms);
  if (known == failures_.end() && failures_.size() >= limits::kFailuresRememberedMax) failures_.clear();
  failures_.insert_or_assign(work.key, Failure{error, now + int64_t{pause_ms} * 1'000'000, pause_ms, work.mark});
}

void CompileService::Finish(const std::shared_ptr<Work>& work, const Result<CompileOutcome>& outcome) {
  std::vector<Waiter> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = Leave(work);
    if (outcome.has_value()) {
      failures_.erase(work->key);
      stats_.plans += outcome->reply.already_there ? 0 : 1;
      stats_.kernels_timed += outcome->kernels_timed;
      stats_.forms_taken += outcome->forms_taken;
      stats_.kernels += outcome->reply.kernels_compiled;
      stats_.kernels_reused += outcome->kernels_reused;
    } else if (outcome.error().code == ErrorCode::kCancelled) {
      // counted when it was cancelled
    } else if (work->control->missed_deadline_ns().has_value()) {
      ++stats_.cancelled;  // all who waited have given up
    } else {
      NoteFailure(*work, outcome.error());
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
                        IsTransient(outcome.error().code) ? kBusyRetryMs : options_.failure_backoff_ms);
    }
  }
}

}  // namespace kiln
