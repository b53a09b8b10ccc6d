// RunContained: code that is not trusted yet runs in a forked copy of this process, so that a fault or a wild store
// costs that copy and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace kiln {

struct ContainedLimits {
  int64_t cpu_s = 60;                       // processor time; more is a fault (a loop without end)
  int64_t wall_s = 300;                     // more means that the machine, not the code, is at fault: kNotRun
  const std::atomic<bool>* stop = nullptr;  // once it is set, nobody waits for the run any more: kNotRun
};

struct ContainedEnd {
  enum class Kind : uint8_t {
    kReturned,  // `body` ran to its end
    kFaulted,   // it ended its process: a signal, or processor time without end
    kNotRun,    // no process, no memory, or too little time: says nothing about the code
  };
  Kind kind = Kind::kNotRun;
  std::string detail;  // of kFaulted and kNotRun
};

// Runs `body` in the child and waits for it. Its writes are lost, but for those to shared memory (GuardedMemory,
// kShared). `body` may allocate; it must not log, wait for other threads or start any: only the calling thread exists
// there. Any thread; blocks.
ContainedEnd RunContained(const std::function<void()>& body, const ContainedLimits& limits = {});

}  // namespace kiln
