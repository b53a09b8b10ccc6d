// The models of shared/ in strictly compiled plans, through the real services, as declared and with every dim a symbol;
// and how much of them generated kernels compute. Skipped, visibly, where shared/ is absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cli/onnx_test/onnx_test.h"
#include "tests/end_to_end/compiled_services.h"
#include "tests/support/shared_material.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

struct ModelCase {
  const char* path;
  // What may only fall: nodes in reference steps, as declared and with every dim a symbol.
  uint32_t reference_nodes_max, dynamic_reference_nodes_max;
};

class CompiledModel : public testing::CompiledServicesTest, public ::testing::WithParamInterface<ModelCase> {
 protected:
  static void ExpectVectorsPass(bool dynamic) {
    const fs::path model = SharedDirectory() / "models" / GetParam().path;
    KILN_NEEDS_SHARED(model);
    const auto cases = onnx_test::FindCases(model.parent_path() / "vectors" / model.stem(), model);
    ASSERT_TRUE(cases.has_value()) << ToString(cases.error());
    ASSERT_FALSE(cases->empty()) << model << " has no vectors";
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
    for (const auto& [op, count] : services_->coverage().ops) {
      const auto known = before.ops.find(op);
      const uint32_t more = count.reference - (known == before.ops.end() ? 0 : known->second.reference);
      if (more > 0) std::printf("  %u times %s\n", more, std::string(OpInfo(op).name).c_str());
    }
    EXPECT_LE(reference, dynamic ? GetParam().dynamic_reference_nodes_max : GetParam().reference_nodes_max);
  }
};

TEST_P(CompiledModel, AnswersItsVectors) {
  ExpectVectorsPass(false);
}

TEST_P(CompiledModel, AnswersItsVectorsWithEveryDimASymbol) {
  ExpectVectorsPass(true);
}

std::string NameOf(const ::testing::TestParamInfo<ModelCase>& info) {
  std::string name = fs::path(info.param.path).stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

const ModelCase kModels[] = {{"silero-vad/silero_vad_op18_ifless.onnx", 0, 0},
                             {"silero-vad/silero_vad_16k_op15.onnx", 0, 0},
                             {"silero-vad/silero_vad.onnx", 0, 0},
                             {"silero-vad/silero_vad_legacy.onnx", 0, 0},
                             {"ppocr/ch_PP-OCRv4_rec_infer.onnx", 0, 0},
                             {"ppocr/ch_PP-OCRv4_det_infer.onnx", 0, 0},
                             {"ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", 0, 0},
                             {"bert-qa-tf/bert_toy_optimized.onnx", 0, 0},
                             {"bert-qa-tf/TFBertForQuestionAnswering.onnx", 0, 0},
                             {"gpt2-past/gpt2_past.onnx", 0, 0},
                             {"mnist/opt-mnist.onnx", 0, 0},
                             {"super-resolution/pytorch_super_resolution.onnx", 0, 0},
                             {"mtcnn/pnet.onnx", 0, 0},
                             {"mtcnn/rnet.onnx", 0, 0},
                             {"mtcnn/onet.onnx", 0, 0},
                             {"gtcrn/gtcrn.onnx", 0, 0},
                             {"gtcrn/gtcrn_simple.onnx", 0, 0},
                             {"pythainlp/thai2rom_encoder.onnx", 4, 4},
                             {"pythainlp/thai2rom_decoder.onnx", 0, 0},
                             {"micro-kws/micro_kws_m_static_qoperator.onnx", 0, 0},
                             {"micro-kws/micro_kws_m_qdq.onnx", 0, 0},
                             {"composed/ultraface_nms.onnx", 0, 0}};
INSTANTIATE_TEST_SUITE_P(Shared, CompiledModel, ::testing::ValuesIn(kModels), NameOf);

// Vector sets that shared/ holds. May only rise.
constexpr size_t kVectorSetsMin = 57;

TEST(CompiledModels, EveryFolderOfVectorsHasACase) {
  const fs::path models = SharedDirectory() / "models";
  KILN_NEEDS_SHARED(models);
  size_t sets = 0;
  for (const fs::directory_entry& family : fs::directory_iterator(models)) {
    if (!fs::is_directory(family.path() / "vectors")) continue;
    for (const fs::directory_entry& folder : fs::directory_iterator(family.path() / "vectors")) {
      const fs::path model = family.path() / (folder.path().filename().string() + ".onnx");
      const std::string name = fs::relative(model, models).string();
      EXPECT_TRUE(std::ranges::any_of(kModels, [&](const ModelCase& known) { return known.path == name; })) << name;
      const auto cases = onnx_test::FindCases(folder.path(), model);
      ASSERT_TRUE(cases.has_value()) << ToString(cases.error());
      for (const onnx_test::VectorCase& test : *cases) sets += test.data_sets.size();
    }
  }
  EXPECT_GE(sets, kVectorSetsMin);
}

}  // namespace
}  // namespace kiln
