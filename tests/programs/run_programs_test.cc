// Every text program gives its expected values: from contiguous and strided inputs, in the variant and the memoised
// form, and through the binary form. Random programs give the dims that their descs promise, the same bits each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "common/bytecode/symbol_definitions.h"
#include "common/segment/segment.h"
#include "tests/support/program_file.h"
#include "tests/support/random_program.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

std::vector<TensorRef> RefsOf(const std::vector<Tensor>& tensors) {
  std::vector<TensorRef> refs;
  for (const Tensor& tensor : tensors) refs.push_back(tensor.ref);
  return refs;
}

// The same elements, laid out with the first axis innermost and every second element unused.
Tensor Strided(const Tensor& tensor) {
  const Dims& dims = tensor.dims();
  Tensor block = Tensor::Zeros(tensor.dtype(), {2 * NumElements(dims) + 1});
  TensorRef view = block.ref;
  view.dims = dims;
  view.strides = Dims::Filled(dims.rank(), 0);
  int64_t stride = 2;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    view.strides[axis] = stride;
    stride *= dims[axis];
  }
  CopyElements(tensor.ref, view);
  return {view, block.buffer};
}

std::vector<Tensor> Strided(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(Strided(tensor));
  return result;
}

void ExpectRun(VmContext& context, const LoadedProgram& program, const testing::ProgramRun& run,
               const std::vector<Tensor>& inputs, bool static_forms) {
  const auto outputs = context.Run(program, RefsOf(inputs), {.static_forms = static_forms});
  if (run.error) {
    ASSERT_FALSE(outputs.has_value()) << "an error " << run.error->code << " is expected";
    EXPECT_EQ(ErrorCodeName(outputs.error().code), run.error->code) << outputs.error().message;
    EXPECT_NE(outputs.error().message.find(run.error->part), std::string::npos) << outputs.error().message;
    return;
  }
  ASSERT_TRUE(outputs.has_value()) << outputs.error().message;
  ASSERT_EQ(outputs->size(), run.outputs.size());
  for (size_t i = 0; i < outputs->size(); ++i) {
    EXPECT_EQ(testing::DifferenceOf(run.outputs[i].tensor.ref, (*outputs)[i].ref, run.outputs[i].tolerance), "")
        << "output " << i;
  }
}

TEST(RunPrograms, GiveTheirExpectedValues) {
  for (const std::string& path : testing::ProgramFilesIn(KILN_SOURCE_DIR "/tests/programs")) {
    SCOPED_TRACE(path);
    const auto file = testing::ReadProgramFile(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto loaded =
        LoadedProgram::Load(DecodeProgram(EncodeProgram(file->program).value()).value(), {.verify_code = true});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    VmContext context;
    for (const bool static_forms : {false, true, true}) {
      for (const testing::ProgramRun& run : file->runs) {
        SCOPED_TRACE("run \"" + run.name + (static_forms ? "\", static" : "\", variant"));
        ExpectRun(context, **loaded, run, run.inputs, static_forms);
        ExpectRun(context, **loaded, run, Strided(run.inputs), static_forms);
      }
    }
  }
}

// Between layouts a kernel may add in another order.
double LayoutTolerance(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? 2e-2 : IsFloat(dtype) ? 1e-4 : 0;
}

// Output dims are what the descs say at the symbol values, where an input shows the symbols.
void ExpectPromisedDims(const Program& program, std::span<const int64_t> values, const std::vector<Tensor>& outputs) {
  const Region& body = program.entry().regions[0];
  ASSERT_EQ(outputs.size(), body.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value& value = program.entry().values[static_cast<size_t>(body.outputs[i])];
    ASSERT_EQ(outputs[i].dtype(), value.desc.dtype) << "output " << i;
    ASSERT_EQ(outputs[i].dims().rank(), value.desc.rank()) << "output " << i;
    for (int axis = 0; axis < value.desc.rank(); ++axis) {
      const Dim dim = (*value.desc.dims)[static_cast<size_t>(axis)];
      // The generator's own symbols are the first five; the rest are bound by the run.
      const auto symbols = program.symbols.SymbolsOf(dim);
      if (std::any_of(symbols.begin(), symbols.end(), [](SymbolId symbol) { return symbol >= 5; })) continue;
      EXPECT_EQ(outputs[i].dims()[axis], program.symbols.Evaluate(dim, values).value())
          << "output " << i << ", axis " << axis;
    }
  }
}

void CheckRandomProgram(uint64_t seed) {
  const Program program = testing::RandomProgram(seed);
  const std::string text = PrintProgram(program);
  SCOPED_TRACE(text);
  const auto loaded = LoadedProgram::Load(program, {.verify_code = true});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  VmContext context;
  for (const auto& values :
       {testing::SymbolValuesNear(program, 0), testing::SymbolValuesNear(program, 1),
        testing::RandomSymbolValues(program, seed), testing::RandomSymbolValues(program, seed + 1)}) {
    const auto inputs = testing::RandomInputs(program, values, seed);
    const auto first = context.Run(**loaded, RefsOf(inputs), {.static_forms = false});
    ASSERT_TRUE(first.has_value()) << first.error().message;
    ExpectPromisedDims(program, values, *first);
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (const bool strided : {false, true}) {
        const auto given = strided ? Strided(inputs) : inputs;
        const auto again = context.Run(**loaded, RefsOf(given));
        ASSERT_TRUE(again.has_value()) << again.error().message;
        for (size_t i = 0; i < first->size(); ++i) {
          const double tolerance = strided ? LayoutTolerance((*first)[i].dtype()) : 0;
          ASSERT_EQ(testing::DifferenceOf((*first)[i].ref, (*again)[i].ref, tolerance), "")
              << "output " << i << (strided ? ", strided" : "");
        }
      }
    }
  }
}

// Symbols that only tensors inside the segment show: they have no value behind it when a plan or a memoised form ran.
std::set<SymbolId> HiddenBy(const Program& program, const SymbolDefinitions& definitions, const SegmentSite& site) {
  std::set<SymbolId> hidden;
  const Function& function = program.functions[static_cast<size_t>(site.function)];
  for (int i = site.first_node; i < site.end_node; ++i) {
    for (ValueId output : function.regions[static_cast<size_t>(site.region)].nodes[static_cast<size_t>(i)].outputs) {
      if (output == kNoValue || std::ranges::count(site.outputs, output) > 0) continue;
      const auto& defines = definitions.defines[static_cast<size_t>(site.function)][static_cast<size_t>(output)];
      for (size_t dim = 0; dim < defines.size(); ++dim)
        if (defines[dim]) hidden.insert((*function.values[static_cast<size_t>(output)].desc.dims)[dim].symbol());
    }
  }
  return hidden;
}

void ExpectParametersAreShown(const Program& program) {
  const SymbolDefinitions definitions = FindSymbolDefinitions(program);
  const std::vector<SegmentSite> sites = FindSegments(program);
  for (const SegmentSite& hiding : sites) {
    const std::set<SymbolId> hidden = HiddenBy(program, definitions, hiding);
    for (const SegmentSite& asking : sites)
      for (Dim parameter : asking.parameters)
        for (SymbolId symbol : program.symbols.SymbolsOf(parameter))
          EXPECT_FALSE(hidden.contains(symbol))
              << "nodes from " << asking.first_node << " need " << program.symbols.SymbolText(symbol)
              << ", which stays inside the segment from node " << hiding.first_node;
  }
}

TEST(Segments, NeedNoSymbolThatAnotherKeepsInside) {
  for (const std::string& path : testing::ProgramFilesIn(KILN_SOURCE_DIR "/tests/programs")) {
    SCOPED_TRACE(path);
    const auto file = testing::ReadProgramFile(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    ExpectParametersAreShown(file->program);
  }
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectParametersAreShown(testing::RandomProgram(seed));
  }
}

TEST(RunPrograms, RandomProgramsKeepTheirPromises) {
  constexpr uint64_t kSeed = 777;
  for (uint64_t seed = kSeed; seed < kSeed + 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CheckRandomProgram(seed);
    if (HasFailure()) return;
  }
}

// With every value an output, the shape rule of every op is held against the generator's own shapes, and nothing is
// fused or forgotten.
TEST(RunPrograms, EveryValueHasThePromisedDims) {
  constexpr uint64_t kSeed = 99000;
  for (uint64_t seed = kSeed; seed < kSeed + 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program program = testing::RandomProgram(seed, {.nodes = 20});
    Region& body = program.functions[0].regions[0];
    body.outputs.clear();
    for (const Node& node : body.nodes) {
      for (ValueId output : node.outputs) body.outputs.push_back(output);
    }
    SCOPED_TRACE(PrintProgram(program));
    const auto loaded = LoadedProgram::Load(program);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    VmContext context;
    for (int64_t size : {0, 1, 3}) {
      const auto values = testing::SymbolValuesNear(program, size);
      const auto inputs = testing::RandomInputs(program, values, seed);
      const auto outputs = context.Run(**loaded, RefsOf(inputs));
      ASSERT_TRUE(outputs.has_value()) << outputs.error().message;
      ExpectPromisedDims(program, values, *outputs);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace kiln
