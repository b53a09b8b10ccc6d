#include "vm-worker/tiering/job_lane.h"

#include <spdlog/spdlog.h>

#include "common/base/caught.h"

namespace kiln {

JobLane::JobLane(size_t jobs_max, bool own_thread) : jobs_max_(jobs_max) {
  if (!own_thread) return;
  thread_ = std::thread([this] {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
        if (stopping_) return;
      }
      Step();
    }
  });
}

JobLane::~JobLane() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool JobLane::Post(std::string what, std::function<void()> job) {
  std::lock_guard lock(mutex_);
  if (stopping_ || jobs_.size() >= jobs_max_) return false;
  jobs_.push_back({std::move(what), std::move(job)});
  wake_.notify_one();
  return true;
}

bool JobLane::Step() {
  Job job;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.empty()) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  const Status done = Caught([&]() -> Status {
    job.run();
    return {};
  });
  if (!done.has_value()) spdlog::error("{} ended early: {}", job.what, ToString(done.error()));
  return true;
}

}  // namespace kiln
