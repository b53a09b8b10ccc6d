#include "common/native/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace kiln {
namespace {

size_t PageBytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

GuardedMemory::GuardedMemory(size_t bytes, size_t alignment, GuardedSharing sharing) {
  const size_t page = PageBytes();
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  mapped_ = (padded + page - 1) / page * page + 2 * page;
  const int flags = sharing == GuardedSharing::kShared ? MAP_SHARED : MAP_PRIVATE;
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return;
  base_ = base;
  char* behind = static_cast<char*>(base) + mapped_ - page;
  if (mprotect(base, page, PROT_NONE) != 0 || mprotect(behind, page, PROT_NONE) != 0) return;
  data_ = behind - padded;
}

GuardedMemory::~GuardedMemory() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

std::span<uint8_t> GuardedMemory::before() const {
  if (data_ == nullptr) return {};
  uint8_t* first = static_cast<uint8_t*>(base_) + PageBytes();
  return {first, static_cast<uint8_t*>(data_)};
}

bool GuardedMemory::MakeReadOnly() {
  const size_t page = PageBytes();
  return data_ != nullptr &&
         (mapped_ == 2 * page || mprotect(static_cast<char*>(base_) + page, mapped_ - 2 * page, PROT_READ) == 0);
}

}  // namespace kiln
