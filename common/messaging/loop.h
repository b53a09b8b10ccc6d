// The loop thread of a service: owns the sockets' I/O, timers and callbacks, and the ZeroMQ context of everything that
// lives on it.
//
// A task that throws is given up, with a line on standard error; the thread goes on.
//
// Everything built on a loop (RpcServer, RpcClient, hints) must be destroyed before it. inproc:// endpoints reach only
// peers on the same loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"

namespace kiln {

class Loop {
 public:
  using Task = std::function<void()>;
  using TimerId = uint64_t;

  // Starts the thread. `name` is the thread's name (15 characters at most are shown).
  static Result<std::unique_ptr<Loop>> Start(const std::string& name);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Any thread: runs `task` on the loop thread, in order of posting. After destruction began, tasks are dropped.
  void Post(Task task);
  // Any thread: runs `task` on the loop thread and returns when it is done. On the loop thread: runs it at once.
  // What it throws reaches the caller.
  void RunSync(const Task& task);
  bool OnLoopThread() const;

  // Loop thread only. One shot; 0 or less means the next turn. Cancel of a timer that fired already does nothing.
  TimerId After(int64_t delay_ms, Task task);
  void Cancel(TimerId timer);

  struct Impl;
  Impl& impl() { return *impl_; }  // for this folder

 private:
  Loop();
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
