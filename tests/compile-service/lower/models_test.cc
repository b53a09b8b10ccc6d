// Real models: what lowering covers with kernels, and that compiled plans answer as the interpreter does. Skipped,
// visibly, where shared/ is absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "common/segment/segment.h"
#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

struct Model {
  const char* name;
  const char* path;         // under shared/models
  int64_t size;             // of every symbol that callers give, where its range allows
  int reference_nodes_max;  // coverage may only get better
  bool compare;             // run plans against the interpreter
};
std::ostream& operator<<(std::ostream& out, const Model& m) {
  return out << m.name;
}

const Model kModels[] = {
#include "tests/compile-service/lower/models.inc"
};

fs::path ModelsDirectory() {
  return SharedDirectory() / "models";
}

// Callers' symbols at `size`, clamped into range and divisor.
std::vector<int64_t> ShapeAt(const Segment& segment, int64_t size) {
  std::vector<int64_t> shape;
  for (size_t s = 0; s < segment.symbols.size(); ++s) {
    if (segment.symbols[s].kind == SymbolSource::Kind::kValueDim) continue;
    const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(s));
    int64_t value = std::clamp(size, symbol.range.min, symbol.range.max);
    value = std::max(value / symbol.divisor * symbol.divisor, symbol.divisor);
    shape.push_back(value);
  }
  return shape;
}

class ModelsTest : public ::testing::TestWithParam<Model> {};

TEST_P(ModelsTest, PlansCoverTheModelAndAgreeWithTheInterpreter) {
  const Model& model = GetParam();
  const fs::path path = ModelsDirectory() / model.path;
  KILN_NEEDS_SHARED(path);
  const Result<ImportedModel> imported = ImportOnnx(path);
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const Program& program = imported->program;
  const Target target = HostTargets().empty() ? Target::kX86V2 : HostTargets().front();
  CompiledRunner compiled(target);
  lower::Coverage total;
  size_t specs = 0, steps = 0, failed = 0;
  int reference_as_given = 0;
  std::map<std::string, int> reference_ops;
  for (const SegmentSite& site : FindSegments(program)) {
    const Result<Segment> segment = CanonicalSegment(program, site);
    ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
    std::vector<int64_t> hints;
    size_t next = 0;
    const std::vector<int64_t> shape = ShapeAt(*segment, model.size);
    for (const SymbolSource& source : segment->symbols) {
      hints.push_back(source.kind == SymbolSource::Kind::kValueDim ? -1 : shape[next++]);
    }
    const Result<lower::LoweredSegment> lowered =
        lower::LowerSegment({*segment, target, NumericMode::kDefault, hints, {}});
    if (!lowered) {
      ++failed;
      std::cout << model.name << ": a segment of " << site.end_node - site.first_node
                << " nodes: " << ToString(lowered.error()) << "\n";
      continue;
    }
    total.kernel_nodes += lowered->coverage.kernel_nodes;
    total.reference_nodes += lowered->coverage.reference_nodes;
    total.free_nodes += lowered->coverage.free_nodes;
    for (const std::string& op : lowered->coverage.reference_ops) ++reference_ops[op];
    for (const std::string& reason : lowered->coverage.fallbacks) ADD_FAILURE() << reason;
    specs += lowered->specs.size();
    steps += lowered->plan.steps.size();
    if (std::getenv("KILN_DESCRIBE") != nullptr) std::cout << Describe(*lowered);
    if (!model.compare) continue;
    CheckOptions options{.shapes = {shape}, .targets = {target}, .exact = false, .tolerance = 2e-3};
    for (ConstantId id : site.weights) options.weights.push_back(program.constants[static_cast<size_t>(id)].tensor.ref);
    options.runner = [&](Target) { return compiled.runner(); };
    CheckSegment(*segment, options);
    options.form = WeightForm::kAsGiven;
    const lower::LoweredSegment given = CheckSegment(*segment, options);
    EXPECT_FALSE(given.plan.PacksWeights()) << Describe(given);
    reference_as_given += given.coverage.reference_nodes;
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << model.name << ": nodes in kernels " << total.kernel_nodes << ", in reference steps "
            << total.reference_nodes << " (with weights as given " << reference_as_given << "), free "
            << total.free_nodes << "; steps " << steps << ", kernels " << specs << ", segments not lowered " << failed
            << "\n";
  for (const auto& [op, count] : reference_ops) std::cout << "  reference " << op << " x" << count << "\n";
  EXPECT_LE(total.reference_nodes, model.reference_nodes_max);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing
