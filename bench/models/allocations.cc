#include "bench/models/allocations.h"

#include <cstdlib>
#include <new>

namespace {

thread_local int64_t allocations = 0;

void* Counted(size_t bytes, size_t alignment) {
  ++allocations;
  void* data = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) {
  return Counted(bytes, 16);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept {
  std::free(data);
}
void operator delete(void* data, size_t) noexcept {
  std::free(data);
}
void operator delete(void* data, std::align_val_t) noexcept {
  std::free(data);
}
void operator delete(void* data, size_t, std::align_val_t) noexcept {
  std::free(data);
}

namespace kiln::bench {

int64_t ThreadAllocations() {
  return allocations;
}

}  // namespace kiln::bench
