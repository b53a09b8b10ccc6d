// No right plan is called wrong, and plans with a kernel that does nothing are: of real models, at the sizes that their
// tests use, and of random programs.
#include <gtest/gtest.h>

#include <iostream>

#include "common/artifact/kernel_blob.h"
#include "compile-service/validate/try_plan.h"
#include "tests/compile-service/validate/compiled_plan.h"
#include "tests/support/random_program.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/importer.h"

namespace kiln {
namespace {

constexpr int64_t kBudgetMs = 60'000;

struct Counts {
  int agreed = 0, undecided = 0, not_lowered = 0;
  int damaged = 0, found = 0;  // plans with a kernel that does nothing
};

#ifdef __x86_64__
// The plan with one kernel after the other doing nothing: its outputs, or what later steps read, are never written.
void TryDamaged(const PlanTrial& right, testing::CompiledPlan compiled, Counts& counts) {
  const std::vector<uint8_t> returns = BuildKernelBlob(HostTargets().front(), 0, std::vector<uint8_t>{0xc3});
  const size_t kernels = compiled.code.size(), stride = std::max<size_t>(1, kernels / 3);
  for (size_t k = 0; k < kernels; k += stride) {
    testing::CompiledPlan damaged = compiled;
    damaged.code[k] = returns;
    damaged.plan.kernels[k] = KernelIdOf(returns);
    const auto verdict = TryPlan({.plan = damaged.plan,
                                  .segment = right.segment,
                                  .code = damaged.code,
                                  .inputs = right.inputs,
                                  .parameters = right.parameters,
                                  .seed = right.seed,
                                  .own_seed = right.own_seed,
                                  .budget_ms = right.budget_ms});
    ++counts.damaged;
    counts.found += verdict.has_value() && verdict->IsReproduced() ? 1 : 0;
  }
}
#else
void TryDamaged(const PlanTrial&, const testing::CompiledPlan&, Counts&) {}
#endif

void Try(const Segment& segment, const std::vector<int64_t>& values, uint64_t seed, Counts& counts) {
  std::vector<int64_t> hints;
  std::vector<int64_t> parameters(static_cast<size_t>(segment.parameters));
  for (size_t s = 0; s < segment.symbols.size(); ++s) {
    const SymbolSource& source = segment.symbols[s];
    hints.push_back(source.kind == SymbolSource::Kind::kValueDim ? -1 : values[s]);
    if (source.kind == SymbolSource::Kind::kParameter) parameters[static_cast<size_t>(source.index)] = values[s];
  }
  const auto compiled = testing::CompilePlan(segment, hints, HostTargets().front());
  if (!compiled.has_value()) {
    ++counts.not_lowered;
    return;
  }
  PlanTrial trial{.plan = compiled->plan,
                  .segment = segment,
                  .code = compiled->code,
                  .parameters = parameters,
                  .seed = seed,
                  .own_seed = seed + 1,
                  .budget_ms = kBudgetMs};
  for (int i = 0; i < segment.runtime_inputs; ++i)
    trial.inputs.push_back(testing::ConcreteDims(segment.input(i), segment.body.symbols, values));
  const auto verdict = TryPlan(trial);
  if (!verdict.has_value()) {  // sizes that contradict the program's constraints
    ++counts.undecided;
    return;
  }
  EXPECT_FALSE(verdict->IsReproduced()) << segment.id.ShortHex() << ": " << verdict->detail;
  counts.agreed += verdict->outcome == ReproduceOutcome::kAgrees ? 1 : 0;
  if (verdict->outcome == ReproduceOutcome::kAgrees) TryDamaged(trial, *compiled, counts);
  counts.undecided += verdict->outcome == ReproduceOutcome::kUndecided ? 1 : 0;
  if (verdict->outcome == ReproduceOutcome::kUndecided)
    std::cout << "  undecided " << segment.id.ShortHex() << ": " << verdict->detail << "\n";
}

struct Model {
  const char* name;
  const char* path;  // under shared/models
  int64_t size;      // of every symbol that callers give, where its range allows
  int reference_nodes_max;
  bool compare;
};
const Model kModels[] = {
#include "tests/compile-service/lower/models.inc"
};

class TryModels : public ::testing::TestWithParam<Model> {};

TEST_P(TryModels, OnlyWhatIsWrongIsCalledSo) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const auto path = SharedDirectory() / "models" / GetParam().path;
  KILN_NEEDS_SHARED(path);
  const Result<ImportedModel> imported = ImportOnnx(path);
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  Counts counts;
  for (const SegmentSite& site : FindSegments(imported->program)) {
    const Segment segment = CanonicalSegment(imported->program, site).value();
    bool ranked = true;
    for (int i = 0; i < segment.runtime_inputs; ++i) ranked &= segment.input(i).has_rank();
    if (ranked) Try(segment, testing::SymbolValuesNear(segment.body, GetParam().size), 1, counts);
  }
  std::cout << GetParam().name << ": " << counts.agreed << " segments agree, " << counts.undecided << " undecided, "
            << counts.not_lowered << " not lowered; of " << counts.damaged << " damaged plans " << counts.found
            << " are found\n";
  EXPECT_GT(counts.agreed, 0);
  EXPECT_GE(10 * counts.found, 7 * counts.damaged) << "others write truth values, numbers behind decisions, or nothing";
}

INSTANTIATE_TEST_SUITE_P(Models, TryModels, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TryPrograms, OnlyWhatIsWrongIsCalledSo) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  Counts counts;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Program program =
        testing::RandomProgram(9'000 + seed, {.nodes = 10, .odd_names = false, .only_f32 = seed % 2 == 0});
    for (const SegmentSite& site : FindSegments(program)) {
      const Segment segment = CanonicalSegment(program, site).value();
      SCOPED_TRACE("seed " + std::to_string(seed));
      Try(segment, testing::RandomSymbolValues(segment.body, seed), seed, counts);
    }
  }
  std::cout << counts.agreed << " segments agree, " << counts.undecided << " undecided, " << counts.not_lowered
            << " not lowered; of " << counts.damaged << " damaged plans " << counts.found << " are found\n";
  EXPECT_GE(10 * counts.found, 7 * counts.damaged) << "others write truth values, numbers behind decisions, or nothing";
  EXPECT_GT(counts.agreed, 2 * (counts.undecided + counts.not_lowered));
}

}  // namespace
}  // namespace kiln
