// Shape arithmetic of real models (Shape → Gather → Unsqueeze → Concat → Reshape, by the hundred in large exports) is
// folded at load: no node, no instruction and no step of a plan computes with sizes. Skipped, visibly, where shared/ is
// absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/bytecode/compact.h"
#include "common/bytecode/program_text.h"
#include "common/segment/segment.h"
#include "compile-service/lower/lower_segment.h"
#include "tests/compile-service/lower/run_lowered.h"
#include "tests/support/shared_material.h"
#include "vm-worker/interp/loaded_program.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {
namespace {

// A tensor of sizes: a few integers, as many for every input.
bool IsSizes(const TensorDesc& desc) {
  if (desc.dtype != DType::kI64 && desc.dtype != DType::kI32) return false;
  if (!desc.has_rank() || desc.rank() > 1) return false;
  return desc.rank() == 0 || (*desc.dims)[0].is_const();
}

// Nodes by what they do with sizes that follow from shapes.
class SizeNodes {
 public:
  explicit SizeNodes(const Function& function) : function_(function), sizes_(function.values.size(), false) {
    // To a fixed point: a region's nodes may stand before those it reads from.
    for (size_t before = 1, now = 0; before != now;) {
      before = now;
      for (const Region& region : function.regions)
        for (const Node& node : region.nodes) Mark(node);
      now = static_cast<size_t>(std::ranges::count(sizes_, true));
    }
  }

  // Whether the node's results are such sizes: taken from a shape, stated, or computed from others.
  bool Gives(const Node& node) const {
    return std::ranges::any_of(node.outputs, [&](ValueId output) { return Is(output); });
  }
  // Whether work is left at run time: everything but stating them.
  bool Computes(const Node& node) const { return node.op != TensorOp::kShapeVector && Gives(node); }
  int computing() const {
    int count = 0;
    for (const Region& region : function_.regions)
      for (const Node& node : region.nodes) count += Computes(node);
    return count;
  }

 private:
  bool Is(ValueId value) const { return value != kNoValue && sizes_[static_cast<size_t>(value)]; }
  void Mark(const Node& node) {
    const bool source = node.op == TensorOp::kShape || node.op == TensorOp::kSize || node.op == TensorOp::kShapeVector;
    if (!source && std::ranges::none_of(node.inputs, [&](ValueId input) { return Is(input); })) return;
    for (ValueId output : node.outputs) {
      if (output != kNoValue && IsSizes(function_.values[static_cast<size_t>(output)].desc))
        sizes_[static_cast<size_t>(output)] = true;
    }
  }

  const Function& function_;
  std::vector<bool> sizes_;
};

TEST(SizeNodesTest, CountsAChainThatNobodyFolded) {
  const Result<Program> program = ParseProgram(
      R"(program "p" { symbol n
      constant zero : i64[] = [0]
      constant axes : i64[1] = [0]
      constant rest : i64[1] = [-1]
      func main(%x: f32[n, 4]) -> (%y) {
        %zero : i64[] = Constant() {value = @zero}
        %axes : i64[1] = Constant() {value = @axes}
        %rest : i64[1] = Constant() {value = @rest}
        %s : i64[2] = Shape(%x)
        %g : i64[] = Gather(%s, %zero) {axis = 0}
        %u : i64[1] = Unsqueeze(%g, %axes)
        %c : i64[2] = Concat(%u, %rest) {axis = 0}
        %y : f32[n, 4] = Reshape(%x, %c) } })");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  EXPECT_EQ(SizeNodes(program->entry()).computing(), 4);
}

struct Model {
  const char* name;
  const char* path;  // under shared/models
  size_t nodes;      // of the file's graph, about: what there was to fold
};
std::ostream& operator<<(std::ostream& out, const Model& model) {
  return out << model.name;
}

class ShapeArithmeticTest : public ::testing::TestWithParam<Model> {};

TEST_P(ShapeArithmeticTest, IsGoneFromProgramSegmentsInstructionsAndPlans) {
  const std::filesystem::path path = SharedDirectory() / "models" / GetParam().path;
  KILN_NEEDS_SHARED(path);
  const Result<ImportedModel> imported = ImportOnnx(path);
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const Program& program = imported->program;
  EXPECT_EQ(SizeNodes(program.entry()).computing(), 0);

  size_t steps = 0, instructions = 0;
  for (const SegmentSite& site : FindSegments(program)) {
    const Result<Segment> segment = CanonicalSegment(program, site);
    ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
    const SizeNodes sizes(segment->body.entry());
    EXPECT_EQ(sizes.computing(), 0);
    const std::vector<Node>& nodes = segment->body.entry().regions[0].nodes;

    // What the interpreter runs: instructions belong to nodes.
    const auto loaded = LoadSegmentBody(*segment);
    ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
    const SizeNodes loaded_sizes((*loaded)->program().entry());
    for (const NodePlace& place : (*loaded)->code().nodes) {
      const Node& node = place.In((*loaded)->program());
      EXPECT_FALSE(loaded_sizes.Computes(node)) << OpInfo(node.op).name;
      ++instructions;
    }

    // What a plan runs: no step for nothing but sizes, stated ones included.
    std::vector<int64_t> hints(segment->symbols.size(), 5);
    for (size_t s = 0; s < hints.size(); ++s) {
      const Symbol& symbol = segment->body.symbols.symbol(static_cast<SymbolId>(s));
      hints[s] = std::clamp(hints[s], symbol.range.min, symbol.range.max) / symbol.divisor * symbol.divisor;
      hints[s] = std::max(hints[s], symbol.divisor);
      if (segment->symbols[s].kind == SymbolSource::Kind::kValueDim) hints[s] = -1;
    }
    const auto lowered = lower::LowerSegment({*segment, Target::kX86V4, NumericMode::kDefault, hints, {}});
    ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
    for (const PlanStep& step : lowered->plan.steps) {
      ++steps;
      const bool only_sizes = !step.nodes.empty() && std::ranges::all_of(step.nodes, [&](int32_t n) {
        return sizes.Gives(nodes[static_cast<size_t>(n)]);
      });
      EXPECT_FALSE(only_sizes) << step.label << "\n" << Describe(*lowered);
    }
  }
  EXPECT_GT(steps, 0u);
  EXPECT_LT(steps, GetParam().nodes / 4);  // most of what the graph had was shape arithmetic and fused
  EXPECT_LT(instructions, GetParam().nodes);
}

constexpr Model kModels[] = {
    {"Gpt2Past", "gpt2-past/gpt2_past.onnx", 3069},
    {"TfBert", "bert-qa-tf/TFBertForQuestionAnswering.onnx", 3836},
    {"PpOcrRec", "ppocr/ch_PP-OCRv4_rec_infer.onnx", 765},
};
INSTANTIATE_TEST_SUITE_P(Shared, ShapeArithmeticTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing
