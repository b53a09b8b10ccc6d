// GuardedMemory: bytes that end at an inaccessible page, for running code that is not trusted yet.
#pragma once

#include <cstddef>

namespace kiln {

// Whether a forked child's writes are seen by its parent.
enum class GuardedSharing : unsigned char { kPrivate, kShared };

// `data()` is aligned to `alignment` and at most alignment - 1 bytes lie between its end and the guard page; nullptr
// when the system gives no memory or no guard page. Zero-filled. Not copyable.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes, size_t alignment = 64, GuardedSharing sharing = GuardedSharing::kPrivate);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() const { return data_; }
  // From now on a write ends the process. False when the system refuses.
  bool MakeReadOnly();

 private:
  void* base_ = nullptr;
  size_t mapped_ = 0;
  void* data_ = nullptr;
};

}  // namespace kiln
