// One oracle: variant form = static form = segments run alone, bit for bit, on random programs, shapes and strides.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "common/bytecode/emit.h"
#include "tests/support/random_program.h"
#include "tests/vm-worker/interp/run_text.h"
#include "tests/vm-worker/interp/strided.h"

namespace kiln {
namespace {

// Runs every segment from its canonical form in a context of its own, as a shadow check does.
class AloneHook : public SegmentHook {
 public:
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
    auto& body = bodies_[segment.id];
    if (!body) {
      auto bytes = EncodeSegment(segment);
      EXPECT_TRUE(bytes.has_value());
      auto decoded = DecodeSegment(*bytes);
      EXPECT_TRUE(decoded.has_value()) << ToString(decoded.error());
      EXPECT_EQ(decoded->id, segment.id);
      auto loaded = LoadSegmentBody(*decoded, {.verify_code = true});
      if (!loaded) {
        failures.push_back(ToString(loaded.error()));
        return SegmentVerdict::kInterpret;
      }
      body = *loaded;
    }
    auto outputs = RunSegment(context_, *body, segment, entry.inputs, entry.weights, entry.parameters);
    if (!outputs) {
      failures.push_back(ToString(outputs.error()));
      return SegmentVerdict::kInterpret;
    }
    EXPECT_EQ(outputs->size(), entry.outputs.size());
    for (size_t i = 0; i < outputs->size(); ++i) {
      const TensorRef& from = (*outputs)[i].ref;
      entry.outputs[i] =
          MakeRef(from.dtype, from.dims, entry.memory->AllocateOutput(i, static_cast<size_t>(from.bytes())));
      CopyElements(from, entry.outputs[i]);
    }
    ++executed;
    return SegmentVerdict::kExecuted;
  }
  void Leave(const SegmentEntry&, int64_t) override {}

  int executed = 0;
  std::vector<std::string> failures;

 private:
  VmContext context_;
  std::map<SegmentId, std::shared_ptr<const LoadedProgram>> bodies_;
};

void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].dims(), b[i].dims()) << "output " << i;
    EXPECT_EQ(0, std::memcmp(a[i].ref.data, b[i].ref.data, static_cast<size_t>(a[i].ref.bytes()))) << "output " << i;
  }
}

void CheckSeed(uint64_t seed, const testing::RandomProgramOptions& options, int* executed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  auto loaded = LoadedProgram::Load(testing::RandomProgram(seed, options), {.verify_code = true});
  ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
  const Program& program = (*loaded)->program();
  VmContext context;
  std::vector<std::vector<int64_t>> shapes{testing::SymbolValuesNear(program, 0),
                                           testing::SymbolValuesNear(program, 1)};
  for (uint64_t i = 0; i < 3; ++i) shapes.push_back(testing::RandomSymbolValues(program, seed * 31 + i));
  for (const std::vector<int64_t>& values : shapes) {
    const std::vector<Tensor> tensors = testing::RandomInputs(program, values, seed);
    std::vector<TensorRef> inputs, spread;
    std::vector<Tensor> memory(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      inputs.push_back(tensors[i].ref);
      spread.push_back(Spread(tensors[i].ref, &memory[i]));
    }
    const auto outputs = RunEveryWay(context, **loaded, inputs, values);
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error()) << "\n" << PrintProgram(program);
    const auto from_spread = RunEveryWay(context, **loaded, spread, values);
    ASSERT_TRUE(from_spread.has_value()) << ToString(from_spread.error());
    ExpectSame(*outputs, *from_spread);
    AloneHook hook;
    const auto alone = context.Run(**loaded, inputs, {.hook = &hook, .symbols = values});
    ASSERT_TRUE(alone.has_value()) << ToString(alone.error());
    EXPECT_EQ(hook.failures, std::vector<std::string>());
    ExpectSame(*outputs, *alone);
    *executed += hook.executed;
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RandomPrograms, AgreeInEveryForm) {
  int executed = 0;
  for (uint64_t seed = 1; seed <= 120 && !HasFailure(); ++seed) CheckSeed(seed, {}, &executed);
  EXPECT_GT(executed, 500);
}

TEST(RandomPrograms, StraightLinesAgreeInEveryForm) {
  int executed = 0;
  const testing::RandomProgramOptions options{.nodes = 40, .control_flow = false, .data_dependent = false};
  for (uint64_t seed = 1000; seed < 1060 && !HasFailure(); ++seed) CheckSeed(seed, options, &executed);
  EXPECT_GT(executed, 250);
}

// One stated size of one node's output becomes another: a constant, another symbol, an expression.
struct Falsified {
  Program program;
  ValueId value = kNoValue;
  size_t dim = 0;
};
std::optional<Falsified> FalsifyOne(uint64_t seed, const testing::RandomProgramOptions& options) {
  Falsified falsified{.program = testing::RandomProgram(seed, options)};
  Program& program = falsified.program;
  Function& function = program.functions[0];
  std::mt19937_64 random(seed);
  std::vector<ValueId> candidates;
  for (const Region& region : function.regions)
    for (const Node& node : region.nodes) {
      if (IsRematerialised(node.op)) continue;
      for (ValueId output : node.outputs)
        if (output != kNoValue && function.values[static_cast<size_t>(output)].desc.rank() > 0)
          candidates.push_back(output);
    }
  if (candidates.empty()) return std::nullopt;
  falsified.value = candidates[random() % candidates.size()];
  std::vector<Dim>& dims = *function.values[static_cast<size_t>(falsified.value)].desc.dims;
  falsified.dim = random() % dims.size();
  Dim& dim = dims[falsified.dim];
  SymbolTable& symbols = program.symbols;
  const Dim other = symbols.SymbolDim(static_cast<SymbolId>(random() % symbols.symbol_count()));
  const Dim wrong[] = {Dim::Const(static_cast<int64_t>(random() % 5)),
                       other,
                       symbols.Add(dim, Dim::Const(1)),
                       symbols.Mul(dim, Dim::Const(2)),
                       symbols.Add(other, dim),
                       symbols.Min(dim, other)};
  const Dim before = dim;
  dim = wrong[random() % std::size(wrong)];
  if (dim == before) return std::nullopt;
  if (!VerifyProgram(program)) return std::nullopt;
  return falsified;
}

// Only symbols that inputs show, in the body of the entry: the size that is stated can be told from outside.
bool IsTold(const Program& program, ValueId value) {
  const Function& function = program.entry();
  std::set<SymbolId> shown;
  for (ValueId input : function.regions[0].inputs)
    for (Dim dim : *function.values[static_cast<size_t>(input)].desc.dims)
      if (dim.kind() == Dim::Kind::kSymbol) shown.insert(dim.symbol());
  for (Dim dim : *function.values[static_cast<size_t>(value)].desc.dims)
    for (SymbolId id : program.symbols.SymbolsOf(dim))
      if (!shown.contains(id)) return false;
  return std::ranges::any_of(function.regions[0].nodes, [&](const Node& node) {
    return std::ranges::find(node.outputs, value) != node.outputs.end();
  });
}

// With one stated size falsified a program is refused, answered with an error, or (where the size happens to be right)
// answered as before; never with another shape.
TEST(RandomPrograms, AFalseSizeIsNeverBelieved) {
  int at_load = 0, at_run = 0, true_by_chance = 0;
  for (uint64_t seed = 1; seed <= 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const testing::RandomProgramOptions options{.nodes = 8, .odd_names = false};
    std::optional<Falsified> falsified = FalsifyOne(seed, options);
    if (!falsified) continue;
    const Program honest = testing::RandomProgram(seed, options);
    const auto known = LoadedProgram::Load(honest);
    ASSERT_TRUE(known.has_value()) << ToString(known.error());
    const Program claimed = falsified->program;
    const auto loaded = LoadedProgram::Load(std::move(falsified->program), {.verify_code = true});
    if (!loaded) {
      ++at_load;
      continue;
    }
    const bool told = IsTold(honest, falsified->value) && IsTold(claimed, falsified->value);
    const auto dim_of = [&](const Program& program, std::span<const int64_t> values) {
      const TensorDesc& desc = program.entry().values[static_cast<size_t>(falsified->value)].desc;
      return *program.symbols.Evaluate((*desc.dims)[falsified->dim], values);
    };
    VmContext context;
    for (uint64_t i = 0; i < 3; ++i) {
      const std::vector<int64_t> values = testing::RandomSymbolValues(honest, seed * 31 + i);
      const std::vector<Tensor> tensors = testing::RandomInputs(honest, values, seed);
      std::vector<TensorRef> inputs;
      for (const Tensor& tensor : tensors) inputs.push_back(tensor.ref);
      const auto expected = context.Run(**known, inputs);
      ASSERT_TRUE(expected.has_value()) << ToString(expected.error());
      const auto outputs = RunEveryWay(context, **loaded, inputs);
      AloneHook hook;
      const auto alone = context.Run(**loaded, inputs, {.hook = &hook});
      EXPECT_EQ(outputs.has_value(), alone.has_value())
          << PrintProgram(claimed) << (outputs ? "" : ToString(outputs.error()));
      if (told) {
        EXPECT_EQ(outputs.has_value(), dim_of(honest, values) == dim_of(claimed, values)) << PrintProgram(claimed);
      }
      outputs ? ++true_by_chance : ++at_run;
      if (outputs) ExpectSame(*expected, *outputs);
      if (alone) ExpectSame(*expected, *alone);
    }
  }
  EXPECT_GT(at_load, 40);
  EXPECT_GT(at_run, 100);
  EXPECT_GT(true_by_chance, 20);
}

}  // namespace
}  // namespace kiln
