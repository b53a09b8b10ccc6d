#include "compile-service/service/compile_service.h"

#include <spdlog/spdlog.h>

#include "common/artifact/kernel_blob.h"
#include "common/compile_api/disassemble.h"
#include "compile-service/jobs/job_codec.h"

namespace kiln {
namespace {

constexpr uint32_t kBusyRetryMs = 250;
constexpr size_t kFailuresMax = 4096;

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
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    const Error stopping{ErrorCode::kUnavailable, "the compile service is stopping; ask another replica or retry", {}};
    for (auto& [client, queue] : queues_)
      for (auto& [priority, work] : queue)
        for (const Replier& reply : work->waiting) reply.Fail(stopping, kBusyRetryMs);
    queues_.clear();
    turns_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompileService::RegisterOn(RpcServer& server) {
  server.Register(static_cast<uint16_t>(CompileMethod::kCompile), kAnyRole,
                  [this](const RequestContext& context, Message message, Replier reply) {
                    Result<CompileRequest> request = DecodeCompileRequest(message);
                    if (!request.has_value()) return reply.Fail(request.error());
                    const Digest key = request->Key();
                    Enqueue(context, {std::move(*request), {}, key}, reply);
                  });
  server.Register(static_cast<uint16_t>(CompileMethod::kDisassemble), kAnyRole,
                  [this](const RequestContext& context, Message message, Replier reply) {
                    Result<std::vector<uint8_t>> code = DecodeDisassembleRequest(message);
                    if (!code.has_value()) return reply.Fail(code.error());
                    if (const auto blob = ParseKernelBlob(*code); !blob.has_value()) return reply.Fail(blob.error());
                    const Digest key = FieldHasher("kiln.disassemble-request.v1").Bytes(*code).Finish();
                    Enqueue(context, {{}, std::move(*code), key}, reply);
                  });
  server.Register(static_cast<uint16_t>(CompileMethod::kStats), kAnyRole,
                  [this](const RequestContext&, Message, Replier reply) { reply.Ok(EncodeCompileStats(Stats())); });
  server.Register(static_cast<uint16_t>(CompileMethod::kPing), kAnyRole,
                  [](const RequestContext&, Message, Replier reply) { reply.Ok({}); });
}

CompileStats CompileService::Stats() const {
  std::lock_guard lock(mutex_);
  CompileStats stats = stats_;
  stats.child_crashes = workshop_.compilers.crashes() + workshop_.validators.crashes();
  stats.queued = queued_;
  stats.running = in_flight_.size() - queued_;
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
    same->second->waiting.push_back(reply);
    same->second->deadline_ns = std::max(same->second->deadline_ns, context.deadline_ns);
    return;
  }
  if (queued_ >= options_.queue_max)
    return reply.Fail({ErrorCode::kBusy,
                       "the compile queue holds " + std::to_string(queued_) + " requests, its limit; retry later",
                       {}},
                      kBusyRetryMs);
  auto work = std::make_shared<Work>(std::move(asked));
  work->deadline_ns = context.deadline_ns;
  work->waiting = {reply};
  in_flight_[key] = work;
  auto& queue = queues_[context.peer];
  if (queue.empty()) turns_.push_back(context.peer);
  queue.emplace(work->request.priority, work);
  ++queued_;
  wake_.notify_one();
}

std::shared_ptr<CompileService::Work> CompileService::NextWork() {
  const std::string client = turns_.front();
  turns_.pop_front();
  auto queue = queues_.find(client);
  std::shared_ptr<Work> work = queue->second.begin()->second;
  queue->second.erase(queue->second.begin());
  if (queue->second.empty()) {
    queues_.erase(queue);
  } else {
    turns_.push_back(client);
  }
  --queued_;
  work->running = true;
  return work;
}

void CompileService::RunJobs() {
  for (;;) {
    std::shared_ptr<Work> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
      if (stopping_) return;
      work = NextWork();
    }
    if (work->deadline_ns < workshop_.clock.NowNs()) {
      Finish(work, Fail(ErrorCode::kDeadlineExceeded, "the request's deadline passed while it was queued"));
      continue;
    }
    if (!work->code.empty()) {
      const Result<Frame> frame =
          workshop_.compilers.Submit(DisassembleFrame(std::move(work->code)), work->request.priority).get();
      Answer(work, frame.has_value() ? ListingFrom(*frame) : std::unexpected(frame.error()));
      continue;
    }
    Finish(work, RunCompileJob(work->request, workshop_));
  }
}

void CompileService::Answer(const std::shared_ptr<Work>& work, const Result<std::string>& listing) {
  std::vector<Replier> waiting;
  {
    std::lock_guard lock(mutex_);
    in_flight_.erase(work->key);
    waiting.swap(work->waiting);
  }
  for (const Replier& reply : waiting) {
    if (listing.has_value()) {
      reply.Ok(EncodeDisassembleReply(*listing));
    } else {
      reply.Fail(listing.error());
    }
  }
}

void CompileService::Finish(const std::shared_ptr<Work>& work, const Result<CompileOutcome>& outcome) {
  std::vector<Replier> waiting;
  {
    std::lock_guard lock(mutex_);
    in_flight_.erase(work->key);
    waiting.swap(work->waiting);
    if (outcome.has_value()) {
      stats_.plans += outcome->reply.already_there ? 0 : 1;
      stats_.kernels += outcome->reply.kernels_compiled;
      stats_.kernels_reused += outcome->kernels_reused;
    } else {
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
    spdlog::info("plan {} {}: {} kernels, {} compiled, {} us (lower {}, kernels {}, validate {}, publish {})",
                 outcome->reply.plan_key.ShortHex(), outcome->reply.already_there ? "was there" : "published",
                 outcome->reply.kernels, outcome->reply.kernels_compiled, outcome->reply.compile_us, outcome->lower_us,
                 outcome->kernels_us, outcome->validate_us, outcome->publish_us);
  } else {
    spdlog::warn("compile request {} failed: {}", work->key.ShortHex(), ToString(outcome.error()));
  }
  for (const Replier& reply : waiting) {
    if (outcome.has_value()) {
      reply.Ok(EncodeCompileReply(outcome->reply));
    } else {
      reply.Fail(outcome.error(), IsPermanent(outcome.error().code) ? options_.failure_backoff_ms : kBusyRetryMs);
    }
  }
}

}  // namespace kiln
