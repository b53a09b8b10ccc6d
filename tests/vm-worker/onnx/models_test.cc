// Every model in shared/models imports, and answers its vectors. Skipped, visibly, where shared/ is absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/onnx_test/interpreter_runner.h"
#include "cli/onnx_test/onnx_test.h"
#include "common/ops/tensor_op.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/importer.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

fs::path ModelsDirectory() {
  return SharedDirectory() / "models";
}

std::vector<fs::path> Models() {
  std::vector<fs::path> models;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(ModelsDirectory(), error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".onnx") models.push_back(entry->path());
  }
  std::ranges::sort(models);
  return models;
}

std::string TestName(const testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class Model : public testing::TestWithParam<fs::path> {
 protected:
  // Data sets lie in vectors/<model name> beside the model.
  static Result<std::vector<onnx_test::VectorCase>> Cases() {
    const fs::path vectors = GetParam().parent_path() / "vectors" / GetParam().stem();
    if (!fs::exists(vectors)) return std::vector<onnx_test::VectorCase>{};
    return onnx_test::FindCases(vectors, GetParam());
  }
  static void ExpectVectorsPass(bool dynamic) {
    const auto cases = Cases();
    ASSERT_TRUE(cases.has_value()) << ToString(cases.error());
    if (cases->empty()) GTEST_SKIP() << "the model has no vectors";
    const onnx_test::TestOptions options{.dynamic = dynamic,
                                         .tolerance = {.relative = 1e-3, .absolute = VectorTolerance(GetParam())}};
    for (const onnx_test::VectorCase& test : *cases) {
      const onnx_test::CaseResult result = RunCase(test, onnx_test::InterpretedMode(), options);
      EXPECT_EQ(result.outcome, onnx_test::Outcome::kPassed) << result.detail;
    }
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Model);

TEST_P(Model, IsImported) {
  const auto imported = ImportOnnx(GetParam());
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  EXPECT_FALSE(imported->outputs.empty());
}

TEST_P(Model, AnswersItsVectors) {
  ExpectVectorsPass(false);
}

TEST_P(Model, GivesTheSameBitsWithEveryDimASymbol) {
  ExpectVectorsPass(true);
}

INSTANTIATE_TEST_SUITE_P(Shared, Model, testing::ValuesIn(Models()), TestName);

// What is left of shape arithmetic after load.
struct FoldCase {
  const char* model;
  int shape_nodes_max;
};

class FoldedModel : public testing::TestWithParam<FoldCase> {};

TEST_P(FoldedModel, HasNoShapeArithmeticThatFollowsFromItsInputs) {
  const fs::path path = ModelsDirectory() / GetParam().model;
  KILN_NEEDS_SHARED(path);
  const auto imported = ImportOnnx(path);
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  int shape_nodes = 0;
  for (const Region& region : imported->program.entry().regions) {
    for (const Node& node : region.nodes) shape_nodes += node.op == TensorOp::kShape || node.op == TensorOp::kSize;
  }
  EXPECT_LE(shape_nodes, GetParam().shape_nodes_max);
}

INSTANTIATE_TEST_SUITE_P(Shared, FoldedModel,
                         testing::Values(FoldCase{"ppocr/ch_PP-OCRv4_rec_infer.onnx", 0},
                                         FoldCase{"ppocr/ch_PP-OCRv4_det_infer.onnx", 0},
                                         FoldCase{"bert-qa-tf/bert_toy_optimized.onnx", 0},
                                         FoldCase{"bert-qa-tf/TFBertForQuestionAnswering.onnx", 0},
                                         FoldCase{"gpt2-past/gpt2_past.onnx", 0}, FoldCase{"gtcrn/gtcrn.onnx", 0}));

TEST(SharedModels, AreAllPresent) {
  KILN_NEEDS_SHARED(ModelsDirectory());
  EXPECT_EQ(Models().size(), 30u);
}

}  // namespace
}  // namespace kiln
