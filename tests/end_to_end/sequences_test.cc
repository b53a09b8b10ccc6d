// Sequences whose length only running tells, in strictly compiled plans: what is computed, and what is an error, is
// what the interpreter's tests say, as declared and with every dim a symbol.
#include <gtest/gtest.h>

#include "tests/end_to_end/compiled_services.h"
#include "tests/vm-worker/onnx/sequence_cases.h"

namespace kiln {
namespace {

class CompiledSequences : public testing::CompiledServicesTest,
                          public ::testing::WithParamInterface<onnx::SequenceCase> {
 protected:
  static void ExpectAnswersOf(const ImportOptions& options) {
    auto imported = GetParam().model.Import(options);
    ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
    const auto runner = services_->Mode(cli::StrictTier::kGeneric).load(std::move(imported->program));
    ASSERT_TRUE(runner.has_value()) << ToString(runner.error());
    onnx::ExpectAnswers(GetParam(), [&](std::span<const TensorRef> inputs) { return (*runner)->Run(inputs); });
  }
};

TEST_P(CompiledSequences, AnswerAsDeclared) {
  ExpectAnswersOf({});
}

TEST_P(CompiledSequences, AnswerWithEveryDimASymbol) {
  ExpectAnswersOf({.all_dims_dynamic = true});
}

INSTANTIATE_TEST_SUITE_P(All, CompiledSequences, ::testing::ValuesIn(onnx::SequenceCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kiln
