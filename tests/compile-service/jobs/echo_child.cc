// A child for tests: answers a job with its payload, or does what the payload says: crash, hang, exit, lie.
#include <signal.h>
#include <unistd.h>

#include <string>

#include "compile-service/jobs/child_process.h"

int main() {
  for (;;) {
    auto job = kiln::ReadFrame(kiln::kChildSocket, -1);
    if (!job.has_value()) return 0;
    const std::string order(job->payload.begin(), job->payload.end());
    if (order == "crash") {
      signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
      raise(SIGSEGV);
    }
    if (order == "exit") _exit(3);
    if (order == "hang") pause();
    if (order == "lie") {
      const uint8_t head[5] = {0xff, 0xff, 0xff, 0xff, 1};
      (void)!write(kiln::kChildSocket, head, sizeof head);
      pause();
    }
    if (order == "memory") {
      std::string grown(size_t{2} << 30, 'x');  // more than the test's pool allows
      job->payload.assign(grown.begin(), grown.end());
    }
    if (order == "pid") {
      const std::string pid = std::to_string(getpid());
      job->payload.assign(pid.begin(), pid.end());
    }
    if (!kiln::WriteFrame(kiln::kChildSocket, *job).has_value()) return 0;
  }
}
