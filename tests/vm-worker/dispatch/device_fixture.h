// Plans for a device of the double, over the segment of plan_fixture.h: y = Relu(x), x : f32[n, 4].
#pragma once

#include "tests/support/cuda_driver/double_device.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/device/device_kernels.h"
#include "vm-worker/dispatch/device_instance.h"

namespace kiln::testing {

// One kernel step for min <= n <= max, by a kernel of tests/support/cuda_driver.
inline Plan DeviceReluPlan(int64_t min, int64_t max, const std::string& kernel = "relu") {
  Plan plan = ReluPlan(min, max);
  plan.target = "sm_90";
  plan.kernels = {HashBytes(TestKernel(kernel))};
  const Dim n = plan.symbols.SymbolDim(0);
  const Dim elements = plan.symbols.Mul(n, Dim::Const(4));
  plan.steps = {{KernelStep{0, {0, 1}, {elements}, elements, elements, Dim::Const(0)}, {0}, "relu"}};
  return plan;
}

// What links plans to one device. Outlives them.
struct DeviceLinker {
  explicit DeviceLinker(CudaDevice& on) : device(on) {}
  Result<std::shared_ptr<const LinkedPlan>> Link(Plan plan, const std::vector<std::vector<uint8_t>>& blobs,
                                                 const Segment& segment = ReluSegment(),
                                                 std::span<const TensorRef> weight_tensors = {}) {
    const PlanKey key = ComputePlanKey(plan);
    ASSIGN_OR_RETURN(const auto images, VerifyImages(plan.kernels, blobs, Target::kSm90));
    ASSIGN_OR_RETURN(const auto kernels, modules.Load(*images));
    return LinkedPlan::LinkOnDevice(std::make_shared<const Plan>(std::move(plan)), key, segment, kernels,
                                    weight_tensors, packer, weights);
  }
  std::shared_ptr<const LinkedPlan> Relu(int64_t min, int64_t max, const std::string& kernel = "relu") {
    auto linked = Link(DeviceReluPlan(min, max, kernel), {TestKernel(kernel)});
    EXPECT_TRUE(linked.has_value()) << (linked.has_value() ? "" : ToString(linked.error()));
    return linked.has_value() ? *linked : nullptr;
  }
  CudaDevice& device;
  DeviceModules modules{device};
  DeviceWeights weights{device};
  PackedWeights packer{[](const Program&, std::span<const TensorRef>) -> Result<Tensor> {
    return Fail(ErrorCode::kInternal, "no recipes here");
  }};
};

// One run at n rows; the outputs, or what it says.
inline Result<std::vector<float>> RunOnce(DeviceInstance& instance, DeviceLane& lane, const Tensor& x,
                                          int64_t deadline_ns = 0) {
  HeapMemory memory;
  std::vector<float> y(static_cast<size_t>(instance.output_bytes(0) / 4), -7);
  void* outputs[] = {y.data()};
  void* arena = memory.AllocateScratch(static_cast<size_t>(instance.host_bytes()));
  DeviceCall call{{&x.ref, 1}, outputs, arena, &memory};
  call.deadline_ns = deadline_ns;
  RETURN_IF_ERROR(instance.Run(lane, call));
  return y;
}

inline Tensor Numbers(int64_t rows) {
  Tensor x = Tensor::Allocate(DType::kF32, {rows, 4});
  for (int64_t i = 0; i < rows * 4; ++i) x.ref.as<float>()[i] = static_cast<float>(i % 7) - 3;
  return x;
}

}  // namespace kiln::testing
