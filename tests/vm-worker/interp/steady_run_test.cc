// A steady run makes no heap allocation. A program of its own: it counts every operator new.
#include <cstdlib>
#include <new>

#include "tests/vm-worker/interp/run_text.h"

namespace {
thread_local int64_t allocations = 0;
void* Counted(size_t bytes, size_t alignment) {
  ++allocations;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!data) throw std::bad_alloc();
  return data;
}
}  // namespace

void* operator new(size_t bytes) {
  return Counted(bytes ? bytes : 1, 16);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Counted(bytes ? bytes : 1, static_cast<size_t>(alignment));
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

namespace kiln {
namespace {

TEST(SteadyRun, MakesNoHeapAllocation) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [1, 64]
    constant w : f32[4, 24] = splat 0.5
    constant shape : i64[3] = [-1, 2, 12]
    func main(%trips: i64[], %x: f32[n, 4]) -> (%v, %last) {
      %c : f32[4, 24] = Constant() {value = @w}
      %s : i64[3] = Constant() {value = @shape}
      %y : f32[n, 24] = MatMul(%x, %c)
      %r : f32[n, 2, 12] = Reshape(%y, %s)
      %t : f32[2, n, 12] = Transpose(%r) {perm = [1, 0, 2]}
      %u : f32[2, n, 12] = Softmax(%t)
      %v : f32[2, n, 12] = Add(%u, %u)
      %last : f32[n, 4] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %a: f32[n, 4]) -> (%go, %next) {
        %m : f32[n, 4] = Relu(%a)
        %next : f32[n, 4] = Add(%m, %x)
      }
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor trips = Ints({}, {5}), small = Iota({3, 4}), large = Iota({50, 4});
  const std::vector<TensorRef> a{trips.ref, small.ref}, b{trips.ref, large.ref};
  for (int i = 0; i < 3; ++i)
    for (const auto* inputs : {&a, &b}) ASSERT_TRUE(context.RunBorrowed(*program, *inputs));
  const int64_t before = allocations;
  for (int i = 0; i < 10; ++i)
    for (const auto* inputs : {&a, &b})
      if (!context.RunBorrowed(*program, *inputs)) std::abort();
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace kiln
