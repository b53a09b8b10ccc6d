#include "compile-service/jobs/child_pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/caught.h"
#include "common/base/limits.h"
#include "compile-service/jobs/job_codec.h"
#include "compile-service/jobs/replay_files.h"

namespace kiln {
Result<std::unique_ptr<ChildPool>> ChildPool::Start(ChildPoolOptions options) {
  std::unique_ptr<ChildPool> pool(new ChildPool(std::move(options)));
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < pool->options_.children; ++i) {
    ASSIGN_OR_RETURN(auto child, pool->Spawn());
    children.push_back(std::move(child));
  }
  for (auto& child : children)
    pool->feeders_.emplace_back(
        [raw = pool.get(), child = std::move(child)]() mutable { raw->Feed(std::move(child)); });
  return pool;
}

ChildPool::~ChildPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    for (auto& [priority, job] : jobs_)
      job.answer.set_value(Fail(ErrorCode::kCancelled, "the compile service is stopping"));
    jobs_.clear();
  }
  wake_.notify_all();
  for (std::thread& feeder : feeders_) feeder.join();
}

ChildAnswer ChildPool::Submit(Frame job, uint32_t priority, std::shared_ptr<const JobControl> control) {
  std::lock_guard lock(mutex_);
  Job entry{std::move(job), {}, std::move(control), std::make_shared<std::atomic<bool>>(false)};
  ChildAnswer answer(entry.answer.get_future(), entry.dropped);
  if (stopping_) {
    entry.answer.set_value(Fail(ErrorCode::kCancelled, "the compile service is stopping"));
  } else if (jobs_.size() >= limits::kChildJobsQueuedMax) {
    entry.answer.set_value(Fail(ErrorCode::kBusy, std::to_string(limits::kChildJobsQueuedMax) +
                                                      " jobs wait for a child, as many as may; retry later"));
  } else {
    jobs_.emplace(priority, std::move(entry));
    wake_.notify_one();
  }
  return answer;
}

Status ChildPool::Wanted(const Job& job) const {
  if (stopping_.load()) return Fail(ErrorCode::kCancelled, "the compile service is stopping");
  return job.control == nullptr ? Status() : job.control->Check(options_.clock->NowNs());
}

Result<std::unique_ptr<ChildProcess>> ChildPool::Spawn() const {
  return ChildProcess::Spawn(options_.binary, options_.arguments, options_.limits);
}

bool ChildPool::Next(Job& job) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
  if (stopping_) return false;
  auto next = jobs_.begin();
  job = std::move(next->second);
  jobs_.erase(next);
  return true;
}

void ChildPool::Feed(std::unique_ptr<ChildProcess> child) {
  for (Job job; Next(job);) {
    if (job.dropped->load()) continue;
    if (const Status wanted = Wanted(job); !wanted.has_value()) {
      job.answer.set_value(std::unexpected(wanted.error()));
      continue;
    }
    bool done = false;
    Result<Frame> answer = Caught([&] {
      Result<Frame> frame = Work(child, job);
      done = true;
      return frame;
    });
    if (!done) child.reset();  // it may be in the middle of a frame
    job.answer.set_value(std::move(answer));
  }
}

Result<Frame> ChildPool::Work(std::unique_ptr<ChildProcess>& child, const Job& job) {
  if (child != nullptr && !child->Alive()) {
    spdlog::warn("{}: a child ended between jobs; another takes its place", options_.binary);
    child.reset();
  }
  if (child == nullptr) {
    auto spawned = Spawn();
    if (!spawned.has_value())  // of this host now, not of the job
      return Fail(ErrorCode::kUnavailable, "no child could be started: " + ToString(spawned.error()));
    child = *std::move(spawned);
  }
  Result<Frame> answer = child->Exchange(job.frame, options_.job_deadline_ms, [&] { return Wanted(job).has_value(); });
  if (answer.has_value()) {
    if (options_.one_job_each) child.reset();
    if (const std::optional<Error> error = ReportedError(*answer);
        options_.keeps_refused && error && error->code == ErrorCode::kCompileFailed) {
      refused_.fetch_add(1);
      Keep(job.frame, *error);
    }
    return answer;
  }
  if (answer.error().code == ErrorCode::kLimitExceeded) return answer;  // it never reached the child
  child.reset();
  // Ended because nobody wants the result: no fault of the job.
  if (const Status wanted = Wanted(job); !wanted.has_value() && answer.error().code == ErrorCode::kCancelled)
    return std::unexpected(wanted.error());
  crashes_.fetch_add(1);
  Keep(job.frame, answer.error());
  return answer;
}

void ChildPool::Keep(const Frame& job, const Error& error) const {
  spdlog::warn("{}: job of kind {} failed: {}", options_.binary, job.kind, error.message);
  if (options_.replay_directory.empty()) return;
  if (const Status status = WriteReplay(options_.replay_directory, job); !status.has_value())
    spdlog::warn("the job is not kept: {}", ToString(status.error()));
}

}  // namespace kiln
