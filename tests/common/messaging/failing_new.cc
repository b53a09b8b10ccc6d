#include "tests/common/messaging/failing_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace kiln {
namespace {

thread_local bool large_fail = false;
std::atomic<int> failed{0};

}  // namespace

void FailLargeAllocations(bool fail) {
  large_fail = fail;
}
int FailedAllocations() {
  return failed;
}

void* AllocateOrFail(size_t bytes) {
  if (large_fail && bytes >= kFailingBytes) {
    ++failed;
    throw std::bad_alloc();
  }
  if (void* block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}

}  // namespace kiln

void* operator new(size_t bytes) {
  return kiln::AllocateOrFail(bytes);
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, size_t) noexcept {
  std::free(block);
}
