// Attention as generated code, against the naive evaluator: random sizes around the tiles, layouts, masks.
#include <gtest/gtest.h>

#include "tests/compile-service/codegen/spec_cases.h"
#include "tests/support/emulated_kernel.h"

namespace kiln::testing {
namespace {

class AttentionCode : public SpecTest {};

TEST_P(AttentionCode, AgreesWithTheEvaluatorOnRandomSpecs) {
  ExpectAgreement(60, RandomAttention);
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionCode, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

class EmulatedAttentionCode : public EmulatedSpecTest {};

TEST_P(EmulatedAttentionCode, AgreesOnRandomSpecs) {
  ExpectAgreement(12, RandomAttention);
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedAttentionCode, ::testing::ValuesIn(EmulatedTargets()),
                         [](const auto& info) { return TargetTestName(info.param); });

}  // namespace
}  // namespace kiln::testing
