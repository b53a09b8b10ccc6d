// Sequences whose length only running tells, in strictly compiled plans: what is computed, and what is an error, is
// what the interpreter's tests say, as declared and with every dim a symbol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/end_to_end/compiled_services.h"
#include "tests/vm-worker/onnx/sequence_cases.h"

namespace kiln {
namespace {

class CompiledSequences : public testing::CompiledServicesTest,
                          public ::testing::WithParamInterface<onnx::SequenceCase> {
 protected:
  static void ExpectAnswers(const ImportOptions& options) {
    auto imported = GetParam().model.Import(options);
    ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
    const auto runner = services_->Mode(cli::StrictTier::kGeneric).load(std::move(imported->program));
    ASSERT_TRUE(runner.has_value()) << ToString(runner.error());
    for (size_t r = 0; r < GetParam().runs.size(); ++r) {
      SCOPED_TRACE("run " + std::to_string(r));
      const onnx::SequenceRun& run = GetParam().runs[r];
      std::vector<TensorRef> refs;
      for (const Tensor& input : run.inputs) refs.push_back(input.ref);
      const auto outputs = (*runner)->Run(refs);
      if (!run.error.empty()) {
        ASSERT_FALSE(outputs.has_value());
        EXPECT_THAT(ToString(outputs.error()), ::testing::HasSubstr(run.error));
        continue;
      }
      ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
      ASSERT_EQ(outputs->size(), run.outputs.size());
      for (size_t i = 0; i < outputs->size(); ++i) ExpectEqual((*outputs)[i].ref, run.outputs[i].ref, i);
    }
  }

  // Whole numbers all of them, so that sums and products are exact.
  static void ExpectEqual(const TensorRef& got, const TensorRef& expected, size_t output) {
    SCOPED_TRACE("output " + std::to_string(output));
    ASSERT_EQ(got.dtype, expected.dtype);
    ASSERT_EQ(got.dims, expected.dims);
    const Tensor whole = MakeContiguous(got);
    if (got.bytes() == 0) return;
    EXPECT_EQ(std::memcmp(whole.ref.data, expected.data, static_cast<size_t>(expected.bytes())), 0);
  }
};

TEST_P(CompiledSequences, AnswerAsDeclared) {
  ExpectAnswers({});
}

TEST_P(CompiledSequences, AnswerWithEveryDimASymbol) {
  ExpectAnswers({.all_dims_dynamic = true});
}

INSTANTIATE_TEST_SUITE_P(All, CompiledSequences, ::testing::ValuesIn(onnx::SequenceCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kiln
