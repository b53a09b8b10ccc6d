// A service started as a child: its ready line, its end.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace kiln::cli {

// Not thread-safe. The service gets SIGTERM when this process ends, however it ends.
class ServiceProcess {
 public:
  // Runs `binary` with `arguments`; its stderr is appended to `log_path`. Waits until it prints its ready line, at most
  // timeout_ms. Unavailable (with the end of the log) when it exits or says nothing in time; InvalidArgument when it
  // exits because of its flags or surroundings (status 2); Cancelled, and it is ended at once, when `stop_fd` becomes
  // readable before it is ready (-1: nothing cancels it).
  static Result<std::unique_ptr<ServiceProcess>> Start(const std::string& binary,
                                                       const std::vector<std::string>& arguments,
                                                       const std::string& log_path, int timeout_ms, int stop_fd = -1);
  ~ServiceProcess();  // Stop()
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  // SIGTERM, then SIGKILL after `grace_ms`. Does nothing when it is gone already.
  void Stop(int grace_ms = 3000);
  bool Running();
  // How it ended, once Running() is false: "exit status 5", "signal 9".
  std::string EndText() const;
  pid_t pid() const { return pid_; }

 private:
  ServiceProcess(pid_t pid, int output, std::string name) : pid_(pid), output_(output), name_(std::move(name)) {}
  Status WaitReady(int timeout_ms, const std::string& log_path, int stop_fd);
  pid_t pid_;
  int output_;
  std::string name_;
  int end_ = 0;  // wait status, once it has ended
};

// The directory of the running executable, where its siblings lie.
Result<std::string> OwnDirectory();

}  // namespace kiln::cli
