// A kernel blob as callable code, for tests: memory is written first and made executable afterwards, never both.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <span>
#include <vector>

#include "common/artifact/kernel_abi.h"
#include "common/artifact/kernel_blob.h"

namespace kiln::testing {

class ExecutableKernel {
 public:
  // Precondition: `blob` is a well-formed kernel for this host.
  explicit ExecutableKernel(std::span<const uint8_t> blob) : size_(blob.size()) {
    auto view = ParseKernelBlob(blob);
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED || !view) {
      memory_ = nullptr;
      return;
    }
    std::memcpy(memory_, blob.data(), size_);
    mprotect(memory_, size_, PROT_READ | PROT_EXEC);
    entry_ = reinterpret_cast<KilnKernel>(static_cast<uint8_t*>(memory_) + view->entry_offset);
  }
  ~ExecutableKernel() {
    if (memory_ != nullptr) munmap(memory_, size_);
  }
  ExecutableKernel(const ExecutableKernel&) = delete;
  ExecutableKernel& operator=(const ExecutableKernel&) = delete;

  bool ok() const { return entry_ != nullptr; }
  void Run(std::span<void* const> pointers, std::span<const int64_t> dims, int64_t begin, int64_t end) const {
    const KilnKernelArgs args{pointers.data(), dims.data(), nullptr};
    entry_(&args, begin, end);
  }

 private:
  size_t size_;
  void* memory_ = nullptr;
  KilnKernel entry_ = nullptr;
};

}  // namespace kiln::testing
