// Recurrent kernels as generated code, against the naive evaluator: stages with and without products, lengths, both
// directions, tiles of rows, over random sizes.
#include <gtest/gtest.h>

#include "tests/compile-service/codegen/spec_cases.h"
#include "tests/support/emulated_kernel.h"

namespace kiln::testing {
namespace {

class RecurrentCode : public SpecTest {};

TEST_P(RecurrentCode, AgreesWithTheEvaluatorOnRandomRecurrences) {
  ExpectAgreement(60, RandomRecurrence);
}

INSTANTIATE_TEST_SUITE_P(Targets, RecurrentCode, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

class EmulatedRecurrentCode : public EmulatedSpecTest {};

TEST_P(EmulatedRecurrentCode, AgreesOnRandomRecurrences) {
  ExpectAgreement(12, RandomRecurrence);
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedRecurrentCode, ::testing::ValuesIn(EmulatedTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

}  // namespace
}  // namespace kiln::testing
