#include "vm-worker/interp/interpreter.h"

#include <algorithm>

#include "common/tensor/try_tensor.h"
#include "vm-worker/interp/machine.h"

namespace kiln {

VmContext::VmContext(const VmOptions& options) : state_(std::make_unique<VmState>(options)) {}
VmContext::~VmContext() = default;

ProgramState& VmState::StateOf(const LoadedProgram& program) {
  for (auto& [serial, state] : programs) {
    if (serial != program.serial()) continue;
    state->last_used = runs;
    return *state;
  }
  if (programs.size() >= std::max<size_t>(options.programs, 1))
    programs.erase(std::ranges::min_element(programs, {}, [](const auto& entry) { return entry.second->last_used; }));
  programs.emplace_back(program.serial(), std::make_unique<ProgramState>(&memo, program, options.random));
  programs.back().second->last_used = runs;
  return *programs.back().second;
}

Result<std::span<const TensorRef>> VmContext::RunBorrowed(const LoadedProgram& program,
                                                          std::span<const TensorRef> inputs,
                                                          const RunOptions& options) {
  VmState& context = *state_;
  ++context.runs;
  // Whatever an earlier run left, an error included, ends here.
  context.memory.Forget();
  context.arena.Recycle();
  ProgramState& state = context.StateOf(program);
  for (Register& held : state.registers) held.block = kNoBlock;
  const Region& body = program.program().entry().regions[0];
  context.outputs.assign(body.outputs.size(), Register{});
  RETURN_IF_ERROR(BindInputs(program, inputs, options.symbols, state.frame));
  RETURN_IF_ERROR(Machine(context, state, program, inputs, options).Run());
  context.output_refs.clear();
  for (const Register& output : context.outputs) context.output_refs.push_back(output.ref);
  return std::span<const TensorRef>(context.output_refs);
}

Result<std::vector<Tensor>> VmContext::Run(const LoadedProgram& program, std::span<const TensorRef> inputs,
                                           const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::span<const TensorRef> outputs, RunBorrowed(program, inputs, options));
  return CopyOutputs(outputs, state_->options.arena_limit_bytes);
}

Result<std::vector<Tensor>> CopyOutputs(std::span<const TensorRef> outputs, size_t limit_bytes) {
  uint64_t bytes = 0;
  for (const TensorRef& output : outputs) {
    bytes += static_cast<uint64_t>(output.bytes());  // each is below 2^40
    if (bytes > limit_bytes)
      return Fail(ErrorCode::kResourceExhausted, "an output is " + output.dims.ToString() +
                                                     ": the outputs need more than the " + std::to_string(limit_bytes) +
                                                     " bytes that a run may have (--run-memory-bytes)");
  }
  std::vector<Tensor> copies;
  copies.reserve(outputs.size());
  for (const TensorRef& output : outputs) {
    ASSIGN_OR_RETURN(Tensor copy, TryMakeContiguous(output));
    copies.push_back(std::move(copy));
  }
  return copies;
}

VmStats VmContext::stats() const {
  const MemoStats& memo = state_->memo.stats();
  return {.runs = state_->runs,
          .memo_hits = memo.hits,
          .memo_misses = memo.misses,
          .memo_evictions = memo.evictions,
          .memo_entries = state_->memo.entries(),
          .memo_bytes = memo.bytes,
          .arena = state_->arena.stats()};
}

void VmContext::Trim() {
  state_->memory.Forget();
  state_->outputs.clear();
  state_->arena.Recycle();
  state_->arena.Trim();
}

Result<std::vector<Tensor>> RunSegment(VmContext& context, const LoadedProgram& body, const Segment& segment,
                                       std::span<const TensorRef> inputs, std::span<const TensorRef> weights,
                                       std::span<const int64_t> parameters, const RunOptions& options) {
  std::vector<int64_t> symbols(segment.body.symbols.symbol_count(), -1);
  RETURN_IF_ERROR(BindSymbols(segment, inputs, parameters, symbols));
  std::vector<TensorRef> all(inputs.begin(), inputs.end());
  all.insert(all.end(), weights.begin(), weights.end());
  RunOptions with_symbols = options;
  with_symbols.symbols = symbols;
  return context.Run(body, all, with_symbols);
}

}  // namespace kiln
