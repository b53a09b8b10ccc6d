// What the dispatcher costs beside a plan's steps: Enter on a plan that has none, for a signature it saw last, for
// shapes in turn, and beside seven exact plans.
#include <benchmark/benchmark.h>

#include <deque>

#include "common/artifact/kernel_abi.h"
#include "common/base/stopwatch.h"
#include "common/bytecode/program_text.h"
#include "vm-worker/dispatch/dispatcher.h"

namespace kiln {
namespace {

struct NoObserver final : CallObserver {
  void Interpreted(int, const Signature&, int64_t) override {}
  void ShadowCandidate(int, const SegmentEntry&, const LinkedPlan&, bool) override {}
};

struct OneBlock final : SegmentMemory {
  void* AllocateOutput(size_t, size_t) override { return block->data(); }
  void* AllocateScratch(size_t) override { return block->data(); }
  std::shared_ptr<Buffer> block = Buffer::Allocate(1 << 20);
};

const Segment& Relu() {
  static const Segment segment = [] {
    const Program program = *ParseProgram(
        "program \"p\" { symbol n in [0, 4096]\n func main(%x: f32[n, 4]) -> (%y) { %y : f32[n, 4] = Relu(%x) } }");
    return *CanonicalSegment(program, FindSegments(program).at(0));
  }();
  return segment;
}

// Holds for min <= n <= max, and does nothing.
std::shared_ptr<const LinkedPlan> IdlePlan(int64_t min, int64_t max) {
  auto plan = std::make_shared<Plan>();
  plan->segment = Relu().id;
  plan->target = InfoOf(HostTargets().front()).name;
  plan->abi = KILN_KERNEL_ABI;
  plan->symbols = Relu().body.symbols;
  plan->guard.symbols = {{min, max, 1}};
  plan->guard.inputs = {{true, AlignmentClass::kElement}};
  const Dim n = plan->symbols.SymbolDim(0), four = Dim::Const(4), one = Dim::Const(1);
  plan->values = {{StorageKind::kInput, 0, DType::kF32, Dim::Const(0), {n, four}, {four, one}},
                  {StorageKind::kOutput, 0, DType::kF32, Dim::Const(0), {n, four}, {four, one}}};
  plan->outputs = {1};
  static PackedWeights packer([](const Program&, std::span<const TensorRef>) -> Result<Tensor> {
    return Fail(ErrorCode::kInternal, "no recipes here");
  });
  const PlanKey key = ComputePlanKey(*plan);
  return *LinkedPlan::Link(plan, key, Relu(), *CodeMapping::Map({}, {}, HostTargets().front()), {}, packer);
}

struct Call {
  Call(int64_t rows, SegmentMemory& memory) : x(Tensor::Allocate(DType::kF32, {rows, 4})) {
    inputs = {x.ref};
    outputs.resize(1);
    BuildSignature(inputs, {}, &signature);
    entry = {nullptr, 0, inputs, {}, {}, &signature, outputs, &memory};
  }
  Tensor x;
  std::vector<TensorRef> inputs, outputs;
  Signature signature;
  SegmentEntry entry;
};

void Enter(benchmark::State& state, int64_t shapes, int64_t exact_plans) {
  EpochDomain epochs;
  std::vector<std::unique_ptr<SegmentRuntime>> runtimes;
  runtimes.push_back(std::make_unique<SegmentRuntime>(epochs));
  std::vector<std::shared_ptr<const LinkedPlan>> plans{IdlePlan(0, 4096)};
  for (int64_t n = 1; n <= exact_plans; ++n) plans.push_back(IdlePlan(n, n));
  runtimes[0]->slot.Publish(plans);
  std::vector<SegmentCounters> counters(1);
  NoObserver observer;
  Dispatcher dispatcher(runtimes, counters, observer);
  OneBlock memory;
  std::deque<Call> calls;
  for (int64_t n = 1; n <= shapes; ++n) calls.emplace_back(n, memory);
  const int reader = epochs.RegisterReader();
  EpochScope scope(epochs, reader);
  size_t next = 0;
  for (auto _ : state) {
    if (dispatcher.Enter(calls[next].entry) != SegmentVerdict::kExecuted) state.SkipWithError("interpreted");
    if (++next == calls.size()) next = 0;
  }
}
BENCHMARK_CAPTURE(Enter, repeated_shape, 1, 0);
BENCHMARK_CAPTURE(Enter, eight_shapes_in_turn, 8, 0);
BENCHMARK_CAPTURE(Enter, eight_plans, 8, 7);

// What a call by plan costs anyway, without steps: its memory, its outputs and the two clock readings around it. The
// rest of Enter is guard and dispatch.
void RunWithoutDispatch(benchmark::State& state) {
  OneBlock memory;
  Call call(1, memory);
  auto instance = *PlanInstance::Instantiate(IdlePlan(0, 4096), std::vector<int64_t>{1});
  SegmentCallTables tables;
  for (auto _ : state) {
    const int64_t start = Stopwatch().NowNs();
    int64_t reference_ns = 0;
    if (!RunOnEntry(*instance, call.entry, {}, tables, reference_ns).has_value()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(Stopwatch().NowNs() - start);
  }
}
BENCHMARK(RunWithoutDispatch);

}  // namespace
}  // namespace kiln

BENCHMARK_MAIN();
