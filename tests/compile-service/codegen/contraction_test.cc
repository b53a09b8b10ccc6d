// Contractions as generated code, against the naive evaluator: random sizes around the tiles, layouts, epilogues and
// geometries.
#include <gtest/gtest.h>

#include "tests/compile-service/codegen/spec_cases.h"
#include "tests/support/emulated_kernel.h"

namespace kiln::testing {
namespace {

class ContractionCode : public SpecTest {};

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnRandomMatmuls) {
  ExpectAgreement(90, RandomMatmul);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnLongSums) {
  ExpectAgreement(8, LongMatmul);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnFewRowsOfLargeWeights) {
  ExpectAgreement(8, StreamedMatmul);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnRandomConvolutions) {
  ExpectAgreement(40, RandomConvolution);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnWinogradConvolutions) {
  ExpectAgreement(30, FiniteWinogradConvolution);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnWinogradConvolutionsOfSpecialValues) {
  ExpectAgreement(20, WinogradConvolutionOfSpecialValues);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnBytes) {
  ExpectAgreement(20, RandomByteProduct);
  ExpectAgreement(20, RandomByteConvolution);
}

TEST_P(ContractionCode, AgreesWithTheEvaluatorOnRowsInBlocks) {
  ExpectAgreement(8, MatmulInRowBlocks);
  ExpectAgreement(8, ConvolutionInRowBlocks);
}

INSTANTIATE_TEST_SUITE_P(Targets, ContractionCode, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

class EmulatedContractionCode : public EmulatedSpecTest {};

TEST_P(EmulatedContractionCode, AgreesOnMatmuls) {
  ExpectAgreement(10, RandomMatmul);
}

TEST_P(EmulatedContractionCode, AgreesOnLongSums) {
  ExpectAgreement(2, LongMatmul);
}

TEST_P(EmulatedContractionCode, AgreesOnRowsInBlocks) {
  ExpectAgreement(2, MatmulInRowBlocks);
}

TEST_P(EmulatedContractionCode, AgreesOnConvolutions) {
  ExpectAgreement(8, RandomConvolution);
}

TEST_P(EmulatedContractionCode, AgreesOnWinogradConvolutions) {
  ExpectAgreement(4, FiniteWinogradConvolution);
  ExpectAgreement(2, WinogradConvolutionOfSpecialValues);
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedContractionCode, ::testing::ValuesIn(EmulatedTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

}  // namespace
}  // namespace kiln::testing
