// A plan with the kernels of another one: it computes something else than it says.
#pragma once

#include <gtest/gtest.h>

#include "cli/compare/compare_hook.h"
#include "cli/onnx_test/compiled_runner.h"
#include "tests/end_to_end/small_model.h"
#include "vm-worker/dispatch/segment_call.h"

namespace kiln::testing {

inline void RunWithHook(const SmallModel& model, SegmentHook& hook) {
  const Tensor x = model.Input(5);
  VmContext context;
  RunOptions options;
  options.hook = &hook;
  EXPECT_TRUE(context.Run(*model.program(), {&x.ref, 1}, options).has_value());
}

// The compiled plan of the model's only segment.
inline std::shared_ptr<const LinkedPlan> CompiledPlanOf(onnx_test::CompiledServices& services,
                                                        const SmallModel& model) {
  std::shared_ptr<const LinkedPlan> plan;
  cli::CompareHook hook([&](const SegmentEntry& entry, const Segment& segment,
                            const std::vector<int64_t>& values) -> Result<std::shared_ptr<const LinkedPlan>> {
    ASSIGN_OR_RETURN(auto obtained,
                     cli::ObtainPlan(services.plan_services(), cli::StrictTier::kGeneric, entry, segment, values));
    plan = obtained.plan;
    return plan;
  });
  RunWithHook(model, hook);
  EXPECT_TRUE(hook.findings().empty()) << "the plan as it was compiled";
  EXPECT_NE(plan, nullptr);
  return plan;
}

struct SeededPlan {
  Plan plan;
  std::vector<Bytes> code;
  int wrong_step = -1;
};

// The plan of `model` with the code of another activation's kernels: relu's plan runs |x|.
inline void SeedPlan(onnx_test::CompiledServices& services, const SmallModel& model, SeededPlan& seeded) {
  const SmallModel other(24, "Abs");
  const auto right = CompiledPlanOf(services, model), wrong = CompiledPlanOf(services, other);
  ASSERT_TRUE(right != nullptr && wrong != nullptr);
  ASSERT_EQ(right->plan().kernels.size(), wrong->plan().kernels.size());
  ASSERT_EQ(right->plan().steps.size(), wrong->plan().steps.size());
  ASSERT_NE(right->plan().kernels, wrong->plan().kernels);
  for (size_t i = 0; i < wrong->code().kernels(); ++i)
    seeded.code.emplace_back(wrong->code().blob(i).begin(), wrong->code().blob(i).end());
  seeded.plan = right->plan();
  seeded.plan.kernels = wrong->plan().kernels;
  for (size_t i = 0; i < seeded.plan.steps.size() && seeded.wrong_step < 0; ++i)
    if (const auto* step = std::get_if<KernelStep>(&seeded.plan.steps[i].step))
      if (right->plan().kernels[static_cast<size_t>(step->kernel)] !=
          seeded.plan.kernels[static_cast<size_t>(step->kernel)])
        seeded.wrong_step = static_cast<int>(i);
  ASSERT_GE(seeded.wrong_step, 0);
}

}  // namespace kiln::testing
