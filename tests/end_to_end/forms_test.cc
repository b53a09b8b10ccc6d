// Old forms of operators in strictly compiled plans: their answers are those of the later forms, interpreted.
#include <gtest/gtest.h>

#include "cli/onnx_test/interpreter_runner.h"
#include "tests/end_to_end/compiled_services.h"
#include "tests/vm-worker/onnx/form_pairs.h"

namespace kiln {
namespace {

class CompiledForms : public testing::CompiledServicesTest, public ::testing::WithParamInterface<onnx::FormPair> {
 protected:
  static std::vector<Tensor> Answers(const onnx::OperatorForm& form, const onnx_test::RunnerMode& mode, bool dynamic) {
    auto imported = GetParam().ModelOf(form).Import({.all_dims_dynamic = dynamic});
    EXPECT_TRUE(imported.has_value()) << ToString(imported.error());
    if (!imported.has_value()) return {};
    const auto runner = mode.load(std::move(imported->program));
    EXPECT_TRUE(runner.has_value()) << ToString(runner.error());
    if (!runner.has_value()) return {};
    const std::vector<Tensor> data = GetParam().Inputs();
    std::vector<TensorRef> inputs;
    for (const Tensor& tensor : data) inputs.push_back(tensor.ref);
    auto outputs = (*runner)->Run(inputs);
    EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
    if (!outputs.has_value()) return {};
    for (Tensor& output : *outputs) output = MakeContiguous(output.ref);  // a runner's memory ends with it
    return *std::move(outputs);
  }
};

TEST_P(CompiledForms, AnswerAsTheLaterForms) {
  const std::vector<Tensor> later = Answers(GetParam().later_form, onnx_test::InterpretedMode(), false);
  ASSERT_FALSE(later.empty());
  const onnx_test::RunnerMode compiled = services_->Mode(cli::StrictTier::kGeneric);
  onnx::ExpectSameAnswers(Answers(GetParam().old_form, compiled, false), later);
  onnx::ExpectSameAnswers(Answers(GetParam().old_form, compiled, true), later);
}

INSTANTIATE_TEST_SUITE_P(All, CompiledForms, ::testing::ValuesIn(onnx::AllFormPairs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kiln
