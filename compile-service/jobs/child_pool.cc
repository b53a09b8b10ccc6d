#include "compile-service/jobs/child_pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/base/clock.h"
#include "common/base/hash.h"

namespace kiln {
namespace {

constexpr char kReplaySuffix[] = ".job";

}  // namespace

Result<std::unique_ptr<ChildPool>> ChildPool::Start(ChildPoolOptions options) {
  std::unique_ptr<ChildPool> pool(new ChildPool(std::move(options)));
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < pool->options_.children; ++i) {
    ASSIGN_OR_RETURN(auto child,
                     ChildProcess::Spawn(pool->options_.binary, pool->options_.arguments, pool->options_.limits));
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
    stopping_ = true;
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
  } else if (jobs_.size() >= kChildJobsQueuedMax) {
    entry.answer.set_value(Fail(
        ErrorCode::kBusy, std::to_string(kChildJobsQueuedMax) + " jobs wait for a child, as many as may; retry later"));
  } else {
    jobs_.emplace(priority, std::move(entry));
    wake_.notify_one();
  }
  return answer;
}

Status ChildPool::Job::Wanted() const {
  return control == nullptr ? Status() : control->Check(SystemClock().NowNs());
}

uint64_t ChildPool::crashes() const {
  std::lock_guard lock(mutex_);
  return crashes_;
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
    if (const Status wanted = job.Wanted(); !wanted.has_value()) {
      job.answer.set_value(std::unexpected(wanted.error()));
      continue;
    }
    job.answer.set_value(Work(child, job));
  }
}

Result<Frame> ChildPool::Work(std::unique_ptr<ChildProcess>& child, const Job& job) {
  if (child != nullptr && !child->Alive()) {
    spdlog::warn("{}: a child ended between jobs; another takes its place", options_.binary);
    child.reset();
  }
  if (child == nullptr) {
    ASSIGN_OR_RETURN(child, ChildProcess::Spawn(options_.binary, options_.arguments, options_.limits));
  }
  Result<Frame> answer =
      child->Exchange(job.frame, options_.job_deadline_ms, [&job] { return job.Wanted().has_value(); });
  if (answer.has_value()) return answer;
  child.reset();
  // Ended because nobody wants the result: no fault of the job.
  if (const Status wanted = job.Wanted(); !wanted.has_value() && answer.error().code == ErrorCode::kCancelled)
    return std::unexpected(wanted.error());
  {
    std::lock_guard lock(mutex_);
    ++crashes_;
  }
  WriteReplay(job.frame, answer.error());
  return answer;
}

namespace {

// Makes room for one more.
void RemoveOldReplays(const std::string& directory) {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != kReplaySuffix) continue;
    std::error_code unreadable;
    const auto written = entry->last_write_time(unreadable);
    if (!unreadable) files.emplace_back(written, entry->path());
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kReplayFilesMax <= files.size(); ++i) std::filesystem::remove(files[i].second, error);
}

}  // namespace

void ChildPool::WriteReplay(const Frame& job, const Error& error) {
  spdlog::warn("{}: job of kind {} failed: {}", options_.binary, job.kind, error.message);
  if (options_.replay_directory.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(options_.replay_directory, ignored);
  RemoveOldReplays(options_.replay_directory);
  const std::string path = options_.replay_directory + "/" + HashBytes(job.payload).ShortHex() + "." +
                           std::to_string(job.kind) + kReplaySuffix;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(job.payload.data()), static_cast<std::streamsize>(job.payload.size()));
  spdlog::warn("the job is kept in {}", path);
}

}  // namespace kiln
