// ChildPool: a fixed number of children of one kind, a bounded queue of jobs in priority order, a deadline per job,
// replay files for what went wrong.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "compile-service/jobs/child_process.h"
#include "compile-service/jobs/job_control.h"

namespace kiln {

struct ChildPoolOptions {
  std::string binary;  // absolute path
  std::vector<std::string> arguments;
  int children = 1;
  int64_t job_deadline_ms = 20'000;
  ChildLimits limits;
  std::string replay_directory;         // empty: no replay files (replay_files.h)
  bool one_job_each = false;            // a child ends after its job: what one does to it, the next does not meet
  bool keeps_refused = false;           // an answer that is CompileFailed is counted and kept like a crash
  const Clock* clock = &SystemClock();  // of the deadlines of requests
};

// What a submitted job will answer. Destroying it drops the job, unless a child works on it already: so a failure among
// several jobs drops those that wait. Used from one thread.
class ChildAnswer {
 public:
  ChildAnswer(std::future<Result<Frame>> answer, std::shared_ptr<std::atomic<bool>> dropped)
      : answer_(std::move(answer)), dropped_(std::move(dropped)) {}
  ~ChildAnswer() {
    if (dropped_ != nullptr) dropped_->store(true);
  }
  ChildAnswer(ChildAnswer&&) = default;
  ChildAnswer& operator=(ChildAnswer&&) = delete;

  bool IsThereWithin(int64_t ms) const {
    return answer_.wait_for(std::chrono::milliseconds(ms)) == std::future_status::ready;
  }
  Result<Frame> get() { return answer_.get(); }  // waits; once

 private:
  std::future<Result<Frame>> answer_;
  std::shared_ptr<std::atomic<bool>> dropped_;
};

// Thread-safe. Each child has a thread that feeds it; a child that dies is replaced before the next job. Children are
// started at once, so that the first job finds them warm.
class ChildPool {
 public:
  static Result<std::unique_ptr<ChildPool>> Start(ChildPoolOptions options);
  ~ChildPool();  // jobs not done end with Cancelled

  // The answer of a child, or why there is none: the child's end, its deadline, Busy when the queue is full, and what
  // `control` says once it ends the request (a child that works on it then is ended too). Higher priority first, then
  // first come.
  ChildAnswer Submit(Frame job, uint32_t priority, std::shared_ptr<const JobControl> control = nullptr);
  // Writes a job's replay file, if there is a directory for it, and says so.
  void Keep(const Frame& job, const Error& error) const;
  uint64_t crashes() const { return crashes_.load(); }
  uint64_t refused() const { return refused_.load(); }
  int64_t job_deadline_ms() const { return options_.job_deadline_ms; }

 private:
  explicit ChildPool(ChildPoolOptions options) : options_(std::move(options)) {}
  struct Job {
    Frame frame;
    std::promise<Result<Frame>> answer;
    std::shared_ptr<const JobControl> control;  // null: the deadline of jobs alone
    std::shared_ptr<std::atomic<bool>> dropped;
  };
  bool Next(Job& job);  // waits; false when the pool stops
  Result<Frame> Work(std::unique_ptr<ChildProcess>& child, const Job& job);
  void Feed(std::unique_ptr<ChildProcess> child);
  Status Wanted(const Job& job) const;  // why nobody waits for it any more
  Result<std::unique_ptr<ChildProcess>> Spawn() const;

  const ChildPoolOptions options_;
  std::atomic<bool> stopping_{false};  // changes with mutex_ held
  std::atomic<uint64_t> crashes_{0}, refused_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::multimap<uint32_t, Job, std::greater<>> jobs_;
  std::vector<std::thread> feeders_;
};

}  // namespace kiln
