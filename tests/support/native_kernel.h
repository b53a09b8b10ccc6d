// NativeKernel: a kernel blob mapped for execution in the test process.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "common/artifact/kernel_abi.h"

namespace kiln::testing {

class NativeKernel {
 public:
  // `blob`: as kernel_blob.h says, and trusted.
  explicit NativeKernel(std::span<const uint8_t> blob) : size_(blob.size()) {
    uint32_t entry = 0;
    constexpr size_t kEntryField = 16;
    std::memcpy(&entry, blob.data() + kEntryField, sizeof entry);
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    code_ = static_cast<uint8_t*>(memory);
    std::memcpy(code_, blob.data(), size_);
    if (mprotect(code_, size_, PROT_READ | PROT_EXEC) != 0) std::abort();
    entry_ = reinterpret_cast<KilnKernel>(code_ + entry);
  }
  ~NativeKernel() { munmap(code_, size_); }
  NativeKernel(const NativeKernel&) = delete;
  NativeKernel& operator=(const NativeKernel&) = delete;

  void Run(std::span<void* const> pointers, std::span<const int64_t> dims, int64_t begin, int64_t end,
           void* scratch = nullptr) const {
    const KilnKernelArgs args{pointers.data(), dims.data(), scratch};
    entry_(&args, begin, end);
  }

 private:
  size_t size_;
  uint8_t* code_;
  KilnKernel entry_;
};

}  // namespace kiln::testing
