// The models of shared/ in strictly compiled plans, through the real services, as declared and with every dim a symbol;
// and how much of them generated kernels compute. Skipped, visibly, where shared/ is absent.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cli/onnx_test/compiled_runner.h"
#include "cli/onnx_test/onnx_test.h"
#include "tests/support/shared_material.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

struct ModelCase {
  const char* path;
  uint32_t reference_nodes_max;  // may only fall
};

class CompiledModel : public ::testing::TestWithParam<ModelCase> {
 protected:
  static void SetUpTestSuite() {
    const auto directory = fs::temp_directory_path() / ("kiln-models-" + std::to_string(getpid()));
    auto services = onnx_test::CompiledServices::Start(directory.string(), KILN_BIN_DIR);
    ASSERT_TRUE(services.has_value()) << ToString(services.error());
    services_ = std::move(*services).release();
  }
  static void TearDownTestSuite() {
    delete services_;
    services_ = nullptr;
  }

  static void ExpectVectorsPass(bool dynamic, bool check_floor) {
    const fs::path model = SharedDirectory() / "models" / GetParam().path;
    KILN_NEEDS_SHARED(model);
    const auto cases = onnx_test::FindCases(model.parent_path() / "vectors" / model.stem(), model);
    ASSERT_TRUE(cases.has_value()) << ToString(cases.error());
    const onnx_test::TestOptions options{.dynamic = dynamic,
                                         .tolerance = {.relative = 1e-3, .absolute = VectorTolerance(model)}};
    const cli::StrictCoverage before = services_->coverage();
    for (const onnx_test::VectorCase& test : *cases) {
      const auto result = RunCase(test, services_->Mode(cli::StrictTier::kGeneric), options);
      EXPECT_EQ(result.outcome, onnx_test::Outcome::kPassed) << result.detail;
    }
    const uint32_t reference = services_->coverage().reference_nodes - before.reference_nodes;
    std::printf("%s: %u nodes in kernels, %u in reference steps, %u kernels\n", GetParam().path,
                services_->coverage().generated_nodes - before.generated_nodes, reference,
                services_->coverage().kernels - before.kernels);
    if (check_floor) {
      EXPECT_LE(reference, GetParam().reference_nodes_max);
    }
  }
  static onnx_test::CompiledServices* services_;
};
onnx_test::CompiledServices* CompiledModel::services_ = nullptr;

TEST_P(CompiledModel, AnswersItsVectors) {
  ExpectVectorsPass(false, true);
}

TEST_P(CompiledModel, AnswersItsVectorsWithEveryDimASymbol) {
  ExpectVectorsPass(true, false);
}

std::string NameOf(const ::testing::TestParamInfo<ModelCase>& info) {
  std::string name = fs::path(info.param.path).stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Shared, CompiledModel,
    ::testing::Values(
        ModelCase{"silero-vad/silero_vad_op18_ifless.onnx", 1}, ModelCase{"silero-vad/silero_vad_16k_op15.onnx", 2},
        ModelCase{"silero-vad/silero_vad.onnx", 4}, ModelCase{"silero-vad/silero_vad_legacy.onnx", 3},
        ModelCase{"ppocr/ch_PP-OCRv4_rec_infer.onnx", 0}, ModelCase{"ppocr/ch_PP-OCRv4_det_infer.onnx", 0},
        ModelCase{"ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", 0}, ModelCase{"bert-qa-tf/bert_toy_optimized.onnx", 6},
        ModelCase{"bert-qa-tf/TFBertForQuestionAnswering.onnx", 2}, ModelCase{"gpt2-past/gpt2_past.onnx", 2},
        ModelCase{"mnist/opt-mnist.onnx", 0}, ModelCase{"super-resolution/pytorch_super_resolution.onnx", 0},
        ModelCase{"mtcnn/pnet.onnx", 0}, ModelCase{"mtcnn/rnet.onnx", 0}, ModelCase{"mtcnn/onet.onnx", 0},
        ModelCase{"gtcrn/gtcrn.onnx", 51}, ModelCase{"gtcrn/gtcrn_simple.onnx", 51},
        ModelCase{"pythainlp/thai2rom_encoder.onnx", 7}, ModelCase{"pythainlp/thai2rom_decoder.onnx", 2},
        ModelCase{"micro-kws/micro_kws_m_static_qoperator.onnx", 23}, ModelCase{"micro-kws/micro_kws_m_qdq.onnx", 0},
        ModelCase{"composed/ultraface_nms.onnx", 5}),
    NameOf);

}  // namespace
}  // namespace kiln
