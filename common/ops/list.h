// Lists of one kernel call: elements of operands, sizes per axis, what was found so far. Their memory is the thread's
// and is reused from call to call, so that a call like one before makes no heap allocation.
#pragma once

#include <cstddef>
#include <vector>

namespace kiln {

// 16-byte aligned; throws std::bad_alloc. Memory of this thread goes back to it, in any order.
void* TakeListMemory(size_t bytes);
void ReturnListMemory(void* memory, size_t bytes);

template <class T>
struct ListAllocator {
  using value_type = T;
  ListAllocator() = default;
  template <class U>
  ListAllocator(const ListAllocator<U>&) {}  // any two are equal
  T* allocate(size_t count) { return static_cast<T*>(TakeListMemory(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) { ReturnListMemory(memory, count * sizeof(T)); }
  bool operator==(const ListAllocator&) const { return true; }
};

// Lives on one thread and no longer than the call that made it: memory is reused only when no list of the thread is
// left.
template <class T>
using List = std::vector<T, ListAllocator<T>>;

}  // namespace kiln
