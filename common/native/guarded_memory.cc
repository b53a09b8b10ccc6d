#include "common/native/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace kiln {

GuardedMemory::GuardedMemory(size_t bytes, size_t alignment, GuardedSharing sharing) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  mapped_ = (padded + page - 1) / page * page + page;
  const int flags = sharing == GuardedSharing::kShared ? MAP_SHARED : MAP_PRIVATE;
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return;
  base_ = base;
  char* guard = static_cast<char*>(base) + mapped_ - page;
  if (mprotect(guard, page, PROT_NONE) != 0) return;
  data_ = guard - padded;
}

GuardedMemory::~GuardedMemory() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

bool GuardedMemory::MakeReadOnly() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return base_ != nullptr && (mapped_ == page || mprotect(base_, mapped_ - page, PROT_READ) == 0);
}

}  // namespace kiln
