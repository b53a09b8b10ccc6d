// Memory of real models' temporaries: how close packing comes to the least that can do, and what in place saves.
// Skipped, visibly, where shared/ is absent.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/segment/segment.h"
#include "compile-service/lower/lower_segment.h"
#include "tests/compile-service/lower/run_lowered.h"
#include "tests/support/shared_material.h"
#include "vm-worker/dispatch/plan_blocks.h"
#include "vm-worker/interp/static_form.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

// Memory that workers reserve, beside the least that could do.
constexpr double kPackingMax = 1.1;
// Of every symbol that callers give: plans are packed at those that their guards admit.
constexpr int64_t kSizes[] = {1, 2, 5, 7, 48, 64, 320, 512};

std::vector<int64_t> SymbolsAt(const Segment& segment, int64_t size) {
  std::vector<int64_t> values;
  for (size_t s = 0; s < segment.symbols.size(); ++s) {
    const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(s));
    const int64_t value = std::clamp(size, symbol.range.min, symbol.range.max);
    const bool given = segment.symbols[s].kind != SymbolSource::Kind::kValueDim;
    values.push_back(given ? std::max(value / symbol.divisor * symbol.divisor, symbol.divisor) : -1);
  }
  return values;
}

// Worst plan by ratio; sums of bytes over segments and sizes, for the table.
struct Figures {
  int plans = 0, in_place = 0;
  int64_t least = 0, packed = 0, separate = 0, shared = 0, reserved = 0;
  double worst = 1;

  void Add(const Plan& plan, std::span<const int64_t> symbols) {
    for (bool together : {false, true}) {
      const Result<ArenaBlocks> blocks = BlocksOf(plan, symbols, together);
      ASSERT_TRUE(blocks.has_value()) << ToString(blocks.error());
      const Result<ArenaPacking> packing = PackArena(blocks->blocks);
      ASSERT_TRUE(packing.has_value()) << ToString(packing.error());
      Add(PeakBytes(blocks->blocks), packing->bytes);
      (together ? shared : separate) += packing->bytes;
      if (together) in_place += static_cast<int>(plan.buffers.size() - blocks->blocks.size());
    }
    const Result<BufferPlaces> places = PlaceBuffers(plan, symbols);
    ASSERT_TRUE(places.has_value()) << ToString(places.error());
    reserved += places->arena_bytes;
  }
  void Add(int64_t peak, int64_t bytes) {
    ++plans;
    least += peak;
    packed += bytes;
    if (peak > 0) worst = std::max(worst, static_cast<double>(bytes) / static_cast<double>(peak));
  }
};

// The interpreter's memoised form of the segment at `symbols`; shapes are all that it is resolved from.
void AddForm(const Segment& segment, std::span<const int64_t> symbols, Figures* interpreted) {
  const auto body = LoadSegmentBody(segment);
  ASSERT_TRUE(body.has_value()) << ToString(body.error());
  if ((*body)->code().segments.size() != 1) return;
  std::vector<TensorRef> inputs;
  for (ValueId id : (*body)->sites()[0].inputs) {
    const TensorDesc& desc = segment.body.entry().values[static_cast<size_t>(id)].desc;
    Dims dims;
    for (Dim dim : *desc.dims) {
      const Result<int64_t> extent = segment.body.symbols.Evaluate(dim, symbols);
      if (!extent.has_value() || *extent < 0) return;
      dims.push_back(*extent);
    }
    inputs.push_back(MakeRef(desc.dtype, dims, nullptr));
  }
  std::vector<int64_t> frame(symbols.begin(), symbols.end());
  ShapeRule rule;
  const auto form = ResolveSegment(**body, 0, inputs, frame, &rule);
  if (!form.has_value() || *form == nullptr) return;
  interpreted->Add(static_cast<int64_t>((*form)->alive_bytes), static_cast<int64_t>((*form)->temporary_bytes));
}

// At every size: the plan with symbols, lowered with the size as its hint, and the exact one of the last size.
void AddSegment(const Segment& segment, Target target, Figures* with_symbols, Figures* exact, Figures* interpreted) {
  std::vector<std::vector<int64_t>> seen;
  for (int64_t size : kSizes) {
    const std::vector<int64_t> symbols = SymbolsAt(segment, size);
    if (std::ranges::find(seen, symbols) != seen.end()) continue;
    const auto generic = lower::LowerSegment({segment, target, NumericMode::kDefault, symbols, {}});
    // Not every size is one that the model can run at, and models_test says which segments have no plan.
    if (!generic.has_value() || !GuardAdmits(generic->plan.guard, generic->plan.symbols, symbols)) continue;
    seen.push_back(symbols);
    with_symbols->Add(generic->plan, symbols);
    AddForm(segment, symbols, interpreted);
    // What the hints were shows in strides and orders, not in the guard.
    for (int64_t other : kSizes)
      if (const auto values = SymbolsAt(segment, other);
          GuardAdmits(generic->plan.guard, generic->plan.symbols, values))
        with_symbols->Add(generic->plan, values);
  }
  if (seen.empty()) return;
  lower::LowerRequest request{segment, target, NumericMode::kDefault, seen.back(), {}};
  for (int64_t value : seen.back()) {
    const auto kind = value < 0 ? lower::SymbolChoice::Kind::kFree : lower::SymbolChoice::Kind::kExact;
    request.symbols.push_back({kind, value, value, 1});
  }
  const auto lowered = lower::LowerSegment(request);
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  exact->Add(lowered->plan, seen.back());
}

void Report(const std::string& model, const char* form, const Figures& f) {
  if (f.plans == 0) return;
  const double ratio = f.least == 0 ? 1 : static_cast<double>(f.packed) / static_cast<double>(f.least);
  const auto less = [&f](int64_t bytes) {
    return f.separate == 0 ? 0 : 100 - 100 * static_cast<double>(bytes) / static_cast<double>(f.separate);
  };
  fmt::print("{:<36} {:<11} packed / least {:.3f}, worst {:.3f}", model, form, ratio, f.worst);
  if (f.separate > 0)
    fmt::print("; apart {} KiB, {} buffers in place need {:.0f} % less, instances take {:.0f} % less",
               f.separate / 1024, f.in_place, less(f.shared), less(f.reserved));
  fmt::print("\n");
}

TEST(Packing, OfEveryRealModelIsWithinATenthOfTheLeastThatCanDo) {
  const fs::path models = SharedDirectory() / "models";
  KILN_NEEDS_SHARED(models);
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(models))
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path());
  std::ranges::sort(paths);
  ASSERT_FALSE(paths.empty());
  Figures all;
  for (const fs::path& path : paths) {
    const Result<ImportedModel> imported = ImportOnnx(path);
    if (!imported.has_value()) {
      fmt::print("{}: {}\n", path.filename().string(), ToString(imported.error()));
      continue;
    }
    Figures with_symbols, exact, interpreted;
    for (const SegmentSite& site : FindSegments(imported->program)) {
      const Result<Segment> segment = CanonicalSegment(imported->program, site);
      ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
      AddSegment(*segment, Target::kX86V3, &with_symbols, &exact, &interpreted);
    }
    Report(path.filename().string(), "symbols", with_symbols);
    Report(path.filename().string(), "exact", exact);
    Report(path.filename().string(), "interpreter", interpreted);
    EXPECT_LE(std::max({with_symbols.worst, exact.worst, interpreted.worst}), kPackingMax) << path;
    all.plans += with_symbols.plans + exact.plans;
    all.in_place += with_symbols.in_place + exact.in_place;
  }
  EXPECT_GT(all.plans, 0);
  EXPECT_GT(all.in_place, 0);
}

}  // namespace
}  // namespace kiln::testing
