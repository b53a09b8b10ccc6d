#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/cuda_driver/cuda_double.h"

namespace cuda_double {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
constexpr size_t kWindow = size_t{64} << 30;  // of addresses: none is given out twice
constexpr int kFresh = 0xcd;                  // what memory holds that nobody has written

size_t Up(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

void Memory::Reset(size_t bytes) {
  if (window_ != nullptr) {
    munmap(window_, kWindow);
    munmap(alias_, kWindow);
    close(file_);
  }
  file_ = memfd_create("kiln-device", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kWindow) != 0) abort();
  const auto map = [this](int access) {
    void* at = mmap(nullptr, kWindow, access, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (at == MAP_FAILED) abort();
    return static_cast<char*>(at);
  };
  window_ = map(PROT_NONE);
  alias_ = map(PROT_READ | PROT_WRITE);
  limit_ = bytes;
  next_page_ = 1;
  live_bytes_ = 0;
  live_.clear();
}

// At the end of its pages, so that what lies behind it faults; a page without access before and after.
int Memory::Allocate(size_t bytes, uint64_t* address) {
  if (bytes == 0) return kInvalidValue;
  const size_t rounded = Up(bytes, kAlignment), pages = Up(rounded, kPage) / kPage;
  if (live_bytes_ + rounded > limit_ || (next_page_ + pages + 1) * kPage > kWindow) return kOutOfMemory;
  const size_t offset = (next_page_ + pages) * kPage - rounded;
  *address = reinterpret_cast<uint64_t>(window_) + offset;
  live_[*address] = {rounded, next_page_, pages};
  live_bytes_ += rounded;
  next_page_ += pages + 1;
  memset(alias_ + offset, kFresh, rounded);
  return kSuccess;
}

int Memory::Free(uint64_t address) {
  if (address == 0) return kSuccess;
  const auto it = live_.find(address);
  if (it == live_.end()) return kInvalidValue;
  const Block& block = it->second;
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block.first_page * kPage),
            static_cast<off_t>(block.pages * kPage));
  live_bytes_ -= block.bytes;
  live_.erase(it);
  return kSuccess;
}

char* Memory::Alias(uint64_t address, size_t bytes) {
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return nullptr;
  --it;
  const size_t inside = address - it->first;
  if (inside > it->second.bytes || bytes > it->second.bytes - inside) return nullptr;
  return alias_ + (address - reinterpret_cast<uint64_t>(window_));
}

void Memory::Open(bool access) {
  for (const auto& [address, block] : live_)
    mprotect(window_ + block.first_page * kPage, block.pages * kPage, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace cuda_double
