// GuardedBuffer: memory whose end (and, page-wise, beginning) borders on inaccessible pages, so that code that reads or
// writes past the last byte faults.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace kiln::testing {

class GuardedBuffer {
 public:
  // `bytes` of zeros ending at a guard page. The start is aligned to the largest power of two that divides `bytes`, as
  // the guard allows no more.
  explicit GuardedBuffer(size_t bytes) : size_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    base_ = static_cast<uint8_t*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || (inside > 0 && mprotect(base_ + page, inside, PROT_READ | PROT_WRITE) != 0))
      std::abort();
    data_ = base_ + page + inside - bytes;
  }
  ~GuardedBuffer() {
    if (base_) munmap(base_, mapped_);
  }
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : size_(other.size_), mapped_(other.mapped_), base_(std::exchange(other.base_, nullptr)), data_(other.data_) {}
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  size_t size_;
  size_t mapped_;
  uint8_t* base_;
  uint8_t* data_;
};

}  // namespace kiln::testing
