// ChildPool: a fixed number of children of one kind, jobs in priority order, a deadline per job, replay files for what
// went wrong.
#pragma once

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

#include "compile-service/jobs/child_process.h"

namespace kiln {

struct ChildPoolOptions {
  std::string binary;  // absolute path
  std::vector<std::string> arguments;
  int children = 1;
  int64_t job_deadline_ms = 20'000;
  ChildLimits limits;
  std::string replay_directory;  // empty: no replay files
};

// Thread-safe. Each child has a thread that feeds it; a child that dies is replaced before the next job. Children are
// started at once, so that the first job finds them warm.
class ChildPool {
 public:
  static Result<std::unique_ptr<ChildPool>> Start(ChildPoolOptions options);
  ~ChildPool();  // jobs not begun end with Cancelled

  // The answer of a child, or why there is none. Higher priority first, then first come.
  std::future<Result<Frame>> Submit(Frame job, uint32_t priority);
  uint64_t crashes() const;

 private:
  explicit ChildPool(ChildPoolOptions options) : options_(std::move(options)) {}
  struct Job {
    Frame frame;
    std::promise<Result<Frame>> answer;
  };
  void Feed(std::unique_ptr<ChildProcess> child);
  void WriteReplay(const Frame& job, const Error& error);

  const ChildPoolOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::multimap<uint32_t, Job, std::greater<>> jobs_;
  bool stopping_ = false;
  uint64_t crashes_ = 0;
  std::vector<std::thread> feeders_;
};

}  // namespace kiln
