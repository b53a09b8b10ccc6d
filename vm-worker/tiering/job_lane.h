// JobLane: jobs that block, one after another, away from the thread that orders them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace kiln {

// Thread-safe. What a job throws is logged and ends that job only.
class JobLane {
 public:
  // own_thread false: jobs wait for Step.
  JobLane(size_t jobs_max, bool own_thread);
  ~JobLane();  // jobs that wait are dropped, the one in work is waited for
  JobLane(const JobLane&) = delete;
  JobLane& operator=(const JobLane&) = delete;

  // `what` it does, for the log. False when jobs_max wait already: the job is dropped.
  bool Post(std::string what, std::function<void()> job);
  // Runs the oldest waiting job on the calling thread; false: none waits.
  bool Step();

 private:
  const size_t jobs_max_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  struct Job {
    std::string what;
    std::function<void()> run;
  };
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kiln
