#include <thread>

#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

// Results made on one thread are read and let go on another while the first goes on: a run's temporaries belong to its
// context alone.
TEST(Origin, TemporaryOfAnotherThread) {
  const auto program = LoadedProgram::Load(ParseProgram(R"(program "p" {
    symbol n
    func main(%x: f32[n, 4]) -> (%y, %v) {
      %a : f32[n, 4] = Relu(%x)
      %y : f32[n, 4] = Neg(%a)
      %v : f32[4, n] = Transpose(%y) {perm = [1, 0]}
    }
  })")
                                               .value())
                           .value();
  std::vector<std::vector<Tensor>> made(64);
  const auto run = [&](size_t first) {
    VmContext context;
    for (size_t i = first; i < made.size(); i += 2) {
      const auto rows = static_cast<int64_t>(1 + i % 7);
      Tensor x = Tensor::Allocate(DType::kF32, {rows, 4});
      for (float& value : x.values<float>()) value = static_cast<float>(i);
      made[i] = context.Run(*program, {&x.ref, 1}).value();
    }
  };
  std::thread even(run, 0), odd(run, 1);
  even.join();
  odd.join();  // both contexts are gone now
  std::thread reader([&] {
    for (size_t i = 0; i < made.size(); ++i)
      for (const Tensor& tensor : made[i]) {
        const Tensor dense = MakeContiguous(tensor.ref);
        for (int64_t k = 0; k < dense.ref.elements(); ++k) ASSERT_EQ(dense.ref.as<float>()[k], -static_cast<float>(i));
      }
    made.clear();
  });
  reader.join();
}

}  // namespace
}  // namespace kiln
