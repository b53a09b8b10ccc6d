// What the interpreter costs beside the ops: a chain of ops on one element, for a signature it knows, for one it does
// not, in variant form, and the same kernel called directly.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "common/bytecode/program_text.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

constexpr int kNodes = 100;

std::shared_ptr<const LoadedProgram> Chain() {
  std::string text =
      "program \"chain\" { symbol n in [1, 1024]\n func main(%v0: f32[n]) -> (%v" + std::to_string(kNodes) + ") {\n";
  for (int i = 0; i < kNodes; ++i)
    text += "%v" + std::to_string(i + 1) + " : f32[n] = Neg(%v" + std::to_string(i) + ")\n";
  return *LoadedProgram::Load(*ParseProgram(text + "} }"));
}

void Count(benchmark::State& state, int per_iteration) {
  state.counters["per_instruction"] =
      benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void KernelAlone(benchmark::State& state) {
  const Attributes none;
  const ReferenceKernel kernel = *FindReferenceKernel(TensorOp::kNeg, DType::kF32);
  const Tensor x = Tensor::Zeros(DType::kF32, {1}), y = Tensor::Zeros(DType::kF32, {1});
  std::vector<TensorRef> in{x.ref}, out{y.ref};
  for (auto _ : state)
    for (int i = 0; i < kNodes; ++i) {
      KernelCall call{
          .op = TensorOp::kNeg, .attributes = &none, .constants = {}, .inputs = in, .outputs = out, .memory = nullptr};
      benchmark::DoNotOptimize(kernel.run(call));
    }
  Count(state, kNodes);
}
BENCHMARK(KernelAlone);

void RunChain(benchmark::State& state, const VmOptions& vm, const RunOptions& run, int shapes) {
  const auto program = Chain();
  VmContext context(vm);
  const Tensor x = Tensor::Zeros(DType::kF32, {64});
  std::vector<TensorRef> inputs{x.ref};
  int n = 0;
  for (auto _ : state) {
    n = n % shapes + 1;
    inputs[0] = MakeRef(DType::kF32, {n}, x.ref.data);
    benchmark::DoNotOptimize(context.RunBorrowed(*program, inputs, run));
  }
  Count(state, kNodes);
}
void KnownSignature(benchmark::State& state) {
  RunChain(state, {}, {}, 1);
}
BENCHMARK(KnownSignature);
void KnownSignaturesInTurn(benchmark::State& state) {
  RunChain(state, {}, {}, 8);
}
BENCHMARK(KnownSignaturesInTurn);
void UnknownSignature(benchmark::State& state) {
  RunChain(state, {.memo_entries = 1}, {}, 8);
}
BENCHMARK(UnknownSignature);
void VariantForm(benchmark::State& state) {
  RunChain(state, {}, {.static_forms = false}, 1);
}
BENCHMARK(VariantForm);

// A program of one node: what a call costs at all.
void EmptyCall(benchmark::State& state) {
  const auto program = *LoadedProgram::Load(
      *ParseProgram("program \"p\" { symbol n in [1, 64]\n func main(%x: f32[n]) -> (%y) { %y : f32[n] = Neg(%x) } }"));
  VmContext context;
  const Tensor x = Tensor::Zeros(DType::kF32, {1});
  const std::vector<TensorRef> inputs{x.ref};
  for (auto _ : state) benchmark::DoNotOptimize(context.RunBorrowed(*program, inputs));
}
BENCHMARK(EmptyCall);

void BuildSignatureOfInputs(benchmark::State& state) {
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 3, 4, 5});
  const std::vector<TensorRef> inputs(static_cast<size_t>(state.range(0)), x.ref);
  Signature signature;
  for (auto _ : state) {
    BuildSignature(inputs, {}, &signature);
    benchmark::DoNotOptimize(signature.hash);
  }
}
BENCHMARK(BuildSignatureOfInputs)->Arg(1)->Arg(4)->Arg(8);

void LoadChain(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Chain());
  Count(state, kNodes);
}
BENCHMARK(LoadChain);

}  // namespace
}  // namespace kiln

BENCHMARK_MAIN();
