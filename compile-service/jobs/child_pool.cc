#include "compile-service/jobs/child_pool.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>

#include "common/base/hash.h"

namespace kiln {

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

std::future<Result<Frame>> ChildPool::Submit(Frame job, uint32_t priority) {
  std::lock_guard lock(mutex_);
  Job entry{std::move(job), {}};
  std::future<Result<Frame>> answer = entry.answer.get_future();
  if (stopping_) {
    entry.answer.set_value(Fail(ErrorCode::kCancelled, "the compile service is stopping"));
  } else {
    jobs_.emplace(priority, std::move(entry));
    wake_.notify_one();
  }
  return answer;
}

uint64_t ChildPool::crashes() const {
  std::lock_guard lock(mutex_);
  return crashes_;
}

void ChildPool::Feed(std::unique_ptr<ChildProcess> child) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      auto next = jobs_.begin();
      job = std::move(next->second);
      jobs_.erase(next);
    }
    if (child != nullptr && !child->Alive()) {
      spdlog::warn("{}: a child ended between jobs; another takes its place", options_.binary);
      child.reset();
    }
    if (child == nullptr) {
      auto spawned = ChildProcess::Spawn(options_.binary, options_.arguments, options_.limits);
      if (!spawned.has_value()) {
        job.answer.set_value(std::unexpected(spawned.error()));
        continue;
      }
      child = std::move(*spawned);
    }
    Result<Frame> answer = child->Exchange(job.frame, options_.job_deadline_ms);
    if (!answer.has_value()) {
      child.reset();
      {
        std::lock_guard lock(mutex_);
        ++crashes_;
      }
      WriteReplay(job.frame, answer.error());
    }
    job.answer.set_value(std::move(answer));
  }
}

void ChildPool::WriteReplay(const Frame& job, const Error& error) {
  spdlog::warn("{}: job of kind {} failed: {}", options_.binary, job.kind, error.message);
  if (options_.replay_directory.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(options_.replay_directory, ignored);
  const std::string path =
      options_.replay_directory + "/" + HashBytes(job.payload).ShortHex() + "." + std::to_string(job.kind) + ".job";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(job.payload.data()), static_cast<std::streamsize>(job.payload.size()));
  spdlog::warn("the job is kept in {}", path);
}

}  // namespace kiln
