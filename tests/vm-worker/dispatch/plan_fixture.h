// A small segment and hand-written plans for it: y = Relu(x) with x : f32[n, 4], as one reference step.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "common/artifact/kernel_abi.h"
#include "common/artifact/target.h"
#include "common/bytecode/program_text.h"
#include "vm-worker/dispatch/plan_instance.h"

namespace kiln::testing {

inline const Segment& ReluSegment() {
  static const Segment segment = [] {
    Program program = ParseProgram(R"(program "p" {
      symbol n in [0, 4096]
      func main(%x: f32[n, 4]) -> (%y) {
        %y : f32[n, 4] = Relu(%x)
      }
    })")
                          .value();
    const std::vector<SegmentSite> sites = FindSegments(program);
    return CanonicalSegment(program, sites.at(0)).value();
  }();
  return segment;
}

// A plan that holds for min <= n <= max. `op` other than Relu makes a plan that is wrong on purpose.
inline Plan ReluPlan(int64_t min, int64_t max, TensorOp op = TensorOp::kRelu) {
  const Segment& segment = ReluSegment();
  Plan plan;
  plan.segment = segment.id;
  plan.target = InfoOf(HostTargets().front()).name;
  plan.abi = KILN_KERNEL_ABI;
  plan.numeric_mode = NumericMode::kDefault;
  plan.symbols = segment.body.symbols;
  plan.guard.symbols = {{min, max, 1}};
  plan.guard.inputs = {{true, AlignmentClass::kElement}};
  const Dim n = plan.symbols.SymbolDim(0), four = Dim::Const(4), one = Dim::Const(1);
  plan.values = {{StorageKind::kInput, 0, DType::kF32, Dim::Const(0), {n, four}, {four, one}},
                 {StorageKind::kOutput, 0, DType::kF32, Dim::Const(0), {n, four}, {four, one}}};
  plan.outputs = {1};
  plan.steps = {{ReferenceStep{op, {}, {0}, {1}}, {0}, "relu"}};
  return plan;
}

inline std::shared_ptr<const LinkedPlan> Linked(Plan plan, const std::vector<std::vector<uint8_t>>& blobs = {}) {
  static PackedWeights packer([](const Program&, std::span<const TensorRef>) -> Result<Tensor> {
    return Fail(ErrorCode::kInternal, "no recipes here");
  });
  const PlanKey key = ComputePlanKey(plan);
  std::shared_ptr<const CodeMapping> code =
      CodeMapping::Map(plan.kernels, std::vector<std::span<const uint8_t>>(blobs.begin(), blobs.end()),
                       HostTargets().front())
          .value();
  auto linked = LinkedPlan::Link(std::make_shared<const Plan>(std::move(plan)), key, ReluSegment(), code, {}, packer);
  EXPECT_TRUE(linked.has_value()) << (linked.has_value() ? "" : ToString(linked.error()));
  return linked.has_value() ? *linked : nullptr;
}

// Memory of one run for reference steps.
class HeapMemory final : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override { return AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override {
    buffers_.push_back(Buffer::Allocate(bytes));
    return buffers_.back()->data();
  }

 private:
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

}  // namespace kiln::testing
