// Windows as generated code, against the naive evaluator: depthwise convolution and pooling over random geometries.
#include <gtest/gtest.h>

#include "tests/compile-service/codegen/spec_cases.h"
#include "tests/support/emulated_kernel.h"

namespace kiln::testing {
namespace {

class WindowCode : public SpecTest {};

TEST_P(WindowCode, AgreesWithTheEvaluatorOnRandomWindows) {
  ExpectAgreement(60, RandomWindow);
}

INSTANTIATE_TEST_SUITE_P(Targets, WindowCode, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

class EmulatedWindowCode : public EmulatedSpecTest {};

TEST_P(EmulatedWindowCode, AgreesOnWindows) {
  ExpectAgreement(12, RandomWindow);
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedWindowCode, ::testing::ValuesIn(EmulatedTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

}  // namespace
}  // namespace kiln::testing
