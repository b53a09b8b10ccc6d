// GuardedMemory: bytes between inaccessible pages, for running code that is not trusted yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kiln {

// Whether a forked child's writes are seen by its parent.
enum class GuardedSharing : unsigned char { kPrivate, kShared };

// `data()` is aligned to `alignment` and at most alignment - 1 bytes lie between its end and the guard page behind it;
// less than a page, `before()`, lies between the guard page in front of it and its first byte. nullptr when the system
// gives no memory or no guard pages. Zero-filled. Not copyable.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes, size_t alignment = 64, GuardedSharing sharing = GuardedSharing::kPrivate);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() const { return data_; }
  std::span<uint8_t> before() const;
  // From now on a write ends the process. False when the system refuses.
  bool MakeReadOnly();

 private:
  void* base_ = nullptr;
  size_t mapped_ = 0;
  void* data_ = nullptr;
};

}  // namespace kiln
