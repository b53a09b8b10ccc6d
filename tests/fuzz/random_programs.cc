// Random valid programs, edited. What the verifier accepts, the interpreter answers: with tensors or with an error, the
// same in its variant and in its static form, and prepared as at load or as written. A program that is refused at load
// answers nothing.
#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/bytecode/program_text.h"
#include "common/bytecode/tensor_text.h"
#include "tests/fuzz/edit_program.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/program_checks.h"
#include "tests/support/random_program.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/load/prepare_program.h"

namespace kiln::fuzz {
namespace {

constexpr size_t kArenaBytesMax = size_t{64} << 20;
constexpr int64_t kRunNs = 200'000'000;
constexpr size_t kEditsMax = 8;

using Outputs = Result<std::vector<Tensor>>;

std::string TextOf(const Tensor& tensor) {
  return std::string(DTypeName(tensor.dtype())) + tensor.dims().ToString() + " = " + TensorDataText(tensor, 64);
}

// Empty where both have the same bits, or both failed.
std::string Difference(const Outputs& a, const Outputs& b) {
  if (!a || !b) {
    if (!a && !b) return {};
    return "one form fails, the other does not: " + ToString(a ? b.error() : a.error());
  }
  if (a->size() != b->size()) return std::to_string(a->size()) + " outputs and " + std::to_string(b->size());
  for (size_t i = 0; i < a->size(); ++i) {
    const Tensor &left = (*a)[i], &right = (*b)[i];
    const size_t bytes = static_cast<size_t>(left.ref.bytes());
    if (left.dtype() != right.dtype() || left.dims() != right.dims() ||
        (bytes > 0 && std::memcmp(left.ref.data, right.ref.data, bytes) != 0))
      return "output " + std::to_string(i) + " differs: " + TextOf(left) + " and " + TextOf(right);
  }
  return {};
}

struct Case {
  std::vector<TensorRef> inputs;
  std::vector<int64_t> symbols;
};

Outputs RunOnce(VmContext& context, const LoadedProgram& program, const Case& call, bool static_forms) {
  return context.Run(
      program, call.inputs,
      {.static_forms = static_forms, .symbols = call.symbols, .deadline_ns = SystemClock().NowNs() + kRunNs});
}

// Runs a loaded program in both forms, the static one twice.
Outputs RunForms(const LoadedProgram& program, const Case& call) {
  VmContext context({.arena_limit_bytes = kArenaBytesMax, .random = [] { return uint64_t{1}; }});
  const bool comparable = program.program().FindRandomNode() == nullptr;
  Outputs first = RunOnce(context, program, call, false);
  for (int i = 0; i < 2; ++i) {
    const Outputs other = RunOnce(context, program, call, true);
    if (!comparable) continue;
    if ((!first && first.error().code == ErrorCode::kDeadlineExceeded) ||
        (!other && other.error().code == ErrorCode::kDeadlineExceeded))
      continue;
    ExpectOf(program.program(), Difference(first, other));
  }
  return first;
}

// Precondition: the program does not load. Where that is for what its nodes ask of sizes, they answer no call either.
void CheckAnswersNothing(const Program& program, const Case& call) {
  const auto loaded = LoadedProgram::Load(program, {.entry_requirements = false});
  if (loaded && RunForms(**loaded, call)) ExpectOf(program, "is refused at load, and a call is answered without that");
}

// Values of another form's symbols, by name.
std::vector<int64_t> SymbolsOf(const SymbolTable& to, const SymbolTable& from, const std::vector<int64_t>& values) {
  std::vector<int64_t> result(to.symbol_count(), -1);
  for (size_t i = 0; i < result.size(); ++i)
    if (const auto id = from.FindSymbol(to.symbol(static_cast<SymbolId>(i)).name))
      result[i] = values[static_cast<size_t>(id->symbol())];
  return result;
}

}  // namespace

void RandomPrograms(std::span<const uint8_t> bytes) {
  Choices choices(bytes);
  const uint64_t seed = choices.Word();
  const uint8_t options = choices.Byte();
  Program program = testing::RandomProgram(seed, {.nodes = 1 + options % 16,
                                                  .control_flow = (options & 0x10) != 0,
                                                  .data_dependent = (options & 0x20) != 0,
                                                  .odd_names = false,
                                                  .only_f32 = (options & 0x40) != 0});
  Case call{.inputs = {}, .symbols = testing::RandomSymbolValues(program, seed ^ options)};
  const std::vector<Tensor> tensors = testing::RandomInputs(program, call.symbols, seed);
  for (const Tensor& tensor : tensors) call.inputs.push_back(tensor.ref);

  for (size_t i = 0; i < kEditsMax && !choices.done(); ++i) EditProgram(program, choices);
  if (const Status status = VerifyProgram(program); !status) {
    KILN_CHECK(!status.error().message.empty());
    return;
  }
  CheckForms(program);
  const auto loaded = CheckLoads(program);
  if (!loaded) return CheckAnswersNothing(program, call);
  const Outputs outputs = RunForms(*loaded, call);

  Program prepared = program;
  if (!PrepareProgram(prepared)) return;
  if (const Status status = VerifyProgram(prepared); !status)
    ExpectOf(program, "as prepared: " + ToString(status.error()) + "\n" + PrintProgram(prepared));
  const auto loaded_prepared = CheckLoads(prepared);
  call.symbols = SymbolsOf(prepared.symbols, program.symbols, call.symbols);
  if (!loaded_prepared) return CheckAnswersNothing(prepared, call);
  const Outputs prepared_outputs = RunForms(*loaded_prepared, call);
  if (outputs && prepared_outputs && program.FindRandomNode() == nullptr)
    ExpectOf(program, Difference(outputs, prepared_outputs));
}

}  // namespace kiln::fuzz
