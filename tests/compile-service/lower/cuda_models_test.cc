// Real models lowered for a GPU: every kernel of the plan as CUDA C++ that the processor runs (tests/support/cuda), and
// the plan's answers are the interpreter's. Skipped, visibly, where shared/ is absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/segment/segment.h"
#include "compile-service/codegen/cuda/cuda_source.h"
#include "tests/compile-service/lower/check_program.h"
#include "tests/support/cuda/shim_kernels.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {
namespace {

constexpr Target kTarget = Target::kSm90;

// Kernels of many specs in one library.
class ShimRunner {
 public:
  // Equal specs are one kernel.
  Status Add(const ir::KernelSpec& spec) {
    const std::vector<uint8_t> key = ir::EncodeSpec(spec);
    if (kernels_.contains(key)) return {};
    ASSIGN_OR_RETURN(codegen::cuda::CudaSource source, codegen::cuda::EmitCuda(spec));
    kernels_[key] = shim_.Add(std::move(source));
    return {};
  }
  std::optional<std::string> Build() { return shim_.Build(); }
  SpecRunner runner() {
    return [this](const ir::KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                  int64_t begin, int64_t end) -> Status {
      const auto found = kernels_.find(ir::EncodeSpec(spec));
      if (found == kernels_.end()) return Fail(ErrorCode::kNotFound, "a spec that was not prepared");
      ++runs_;
      const auto fault = shim_.Run(found->second, pointers, dims, begin, end, kShimSchedules[runs_ % 3], runs_);
      if (fault) return Fail(ErrorCode::kInternal, *fault + "\n" + ir::PrintSpec(spec));
      return {};
    };
  }
  size_t kernels() const { return kernels_.size(); }

 private:
  ShimKernels shim_;
  std::map<std::vector<uint8_t>, size_t> kernels_;
  uint64_t runs_ = 0;
};

struct Model {
  const char* name;
  const char* path;  // under shared/models
  int64_t size;      // of every symbol that callers give, where its range allows
};

// A product and convolutions; depthwise ones, softmax and windows; a recurrence; an attention.
const Model kModels[] = {{"Mnist", "mnist/opt-mnist.onnx", 1},
                         {"PpOcrCls", "ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", 48},
                         {"PpOcrRec", "ppocr/ch_PP-OCRv4_rec_infer.onnx", 40},
                         {"Gtcrn", "gtcrn/gtcrn_simple.onnx", 1},
                         {"BertToy", "bert-qa-tf/bert_toy_optimized.onnx", 7}};

std::vector<int64_t> ShapeAt(const Segment& segment, int64_t size) {
  std::vector<int64_t> shape;
  for (size_t s = 0; s < segment.symbols.size(); ++s) {
    if (segment.symbols[s].kind == SymbolSource::Kind::kValueDim) continue;
    const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(s));
    const int64_t value = std::clamp(size, symbol.range.min, symbol.range.max);
    shape.push_back(std::max(value / symbol.divisor * symbol.divisor, symbol.divisor));
  }
  return shape;
}

std::vector<int64_t> HintsAt(const Segment& segment, const std::vector<int64_t>& shape) {
  std::vector<int64_t> hints;
  size_t next = 0;
  for (const SymbolSource& source : segment.symbols)
    hints.push_back(source.kind == SymbolSource::Kind::kValueDim ? -1 : shape[next++]);
  return hints;
}

class CudaModelsTest : public ::testing::TestWithParam<Model> {};

TEST_P(CudaModelsTest, PlansForAGpuAgreeWithTheInterpreter) {
  const Model& model = GetParam();
  const std::filesystem::path path = SharedDirectory() / "models" / model.path;
  KILN_NEEDS_SHARED(path);
  const Result<ImportedModel> imported = ImportOnnx(path);
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const Program& program = imported->program;
  std::vector<std::pair<Segment, SegmentSite>> segments;
  ShimRunner shim;
  int reference_nodes = 0, kernel_nodes = 0;
  for (const SegmentSite& site : FindSegments(program)) {
    Result<Segment> segment = CanonicalSegment(program, site);
    ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
    const std::vector<int64_t> hints = HintsAt(*segment, ShapeAt(*segment, model.size));
    const auto lowered = lower::LowerSegment({*segment, kTarget, NumericMode::kDefault, hints, {}});
    ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
    reference_nodes += lowered->coverage.reference_nodes;
    kernel_nodes += lowered->coverage.kernel_nodes;
    for (const ir::KernelSpec& spec : lowered->specs) {
      const Status added = shim.Add(spec);
      ASSERT_TRUE(added.has_value()) << ToString(added.error()) << "\n" << ir::PrintSpec(spec);
      const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel);
      EXPECT_FALSE(product != nullptr && (product->winograd || product->few_rows)) << "made of vector registers";
    }
    segments.emplace_back(std::move(*segment), site);
  }
  const auto failure = shim.Build();
  ASSERT_FALSE(failure.has_value()) << *failure;
  for (const auto& [segment, site] : segments) {
    CheckOptions options{
        .shapes = {ShapeAt(segment, model.size)}, .targets = {kTarget}, .exact = false, .tolerance = 2e-3};
    for (ConstantId id : site.weights) options.weights.push_back(program.constants[static_cast<size_t>(id)].tensor.ref);
    options.runner = [&](Target) { return shim.runner(); };
    CheckSegment(segment, options);
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << model.name << ": " << kernel_nodes << " nodes in " << shim.kernels() << " kernels, " << reference_nodes
            << " in reference steps\n";
  EXPECT_EQ(reference_nodes, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaModelsTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing
