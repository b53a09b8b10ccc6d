// A directory of this process, below the system's temporary directory.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "common/base/result.h"

namespace kiln::cli {

// Goes, with all that is in it, when the object ends and also when SIGINT or SIGTERM ends the process; the process then
// ends by that signal. Make it before any other thread starts: it blocks the two signals for its thread and all later
// ones.
class ScratchDirectory {
 public:
  static Result<std::unique_ptr<ScratchDirectory>> Make(const std::string& prefix);
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  ScratchDirectory(std::string path, int stop_event);
  void WatchSignals();

  std::string path_;
  int stop_event_;
  std::thread watcher_;
};

}  // namespace kiln::cli
