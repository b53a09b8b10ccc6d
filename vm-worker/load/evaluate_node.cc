#include "vm-worker/load/evaluate_node.h"

#include <algorithm>

#include "common/ops/reference_kernel.h"
#include "common/ops/tensor_op.h"

namespace kiln {
namespace {

constexpr int64_t kFoldedBytesFloor = 64 << 10;
constexpr int64_t kFoldedInputBytesMax = 256 << 20;
// Contractions and convolutions cost more than their sizes say.
constexpr int64_t kFoldedContractionBytesMax = 1 << 20;

// Keeps every block until the node is done.
class HeldMemory final : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override {
    blocks_.push_back(Buffer::Allocate(bytes));
    return blocks_.back()->data();
  }
  void* AllocateScratch(size_t bytes) override { return AllocateOutput(bytes); }

 private:
  std::vector<std::shared_ptr<Buffer>> blocks_;
};

std::optional<Dims> StaticDims(const TensorDesc& desc) {
  if (!desc.is_static() || desc.rank() > limits::kRankMax) return std::nullopt;
  Dims dims;
  for (Dim dim : *desc.dims) dims.push_back(dim.value());
  return dims;
}

int64_t InputBytes(std::span<const Tensor* const> inputs) {
  int64_t bytes = 0;
  for (const Tensor* input : inputs) bytes += input == nullptr ? 0 : input->ref.bytes();
  return bytes;
}

bool IsHeavy(OpFamily family) {
  return family == OpFamily::kContraction || family == OpFamily::kConvolution || family == OpFamily::kRecurrent ||
         family == OpFamily::kPooling;
}

// A view's elements, copied: the constant must not depend on the buffer of another one.
std::optional<std::vector<Tensor>> EvaluateView(KernelCall& call, std::span<const Dims> dims) {
  std::vector<Tensor> results;
  for (size_t i = 0; i < dims.size(); ++i) {
    auto view = MakeView(call, static_cast<int>(i), dims[i]);
    if (!view.has_value() || !view->has_value()) return std::nullopt;
    results.push_back(MakeContiguous(**view));
  }
  return results;
}

DType KernelDType(TensorOp op, std::span<const TensorRef> inputs, std::span<const TensorDesc> outputs) {
  const size_t index = op == TensorOp::kWhere ? 1 : 0;
  return index < inputs.size() ? inputs[index].dtype : outputs[0].dtype;
}

}  // namespace

bool MayEvaluate(const Node& node, std::span<const Tensor* const> inputs) {
  const TensorOpInfo& info = OpInfo(node.op);
  if (!node.regions.empty() || node.outputs.empty()) return false;
  switch (info.effects) {
    case OpEffects::kControl:
    case OpEffects::kRandom:
      return false;
    case OpEffects::kPure:
    case OpEffects::kDecision:
    case OpEffects::kDataShape:
      break;
  }
  if (node.op == TensorOp::kConstant || node.op == TensorOp::kShapeVector) return false;
  if (node.op == TensorOp::kCallFunc) return false;  // the code of others runs for requests only
  if (node.op == TensorOp::kDequantizeLinear) {
    return !inputs.empty() && inputs[0] != nullptr &&
           inputs[0]->ref.elements() <= static_cast<int64_t>(limits::kImmediateElementsMax);
  }
  const int64_t bytes = InputBytes(inputs);
  return bytes <= (IsHeavy(info.family) ? kFoldedContractionBytesMax : kFoldedInputBytesMax);
}

std::optional<std::vector<Tensor>> EvaluateNode(const Program& program, const Node& node,
                                                std::span<const Tensor* const> inputs,
                                                std::span<const TensorDesc> outputs) {
  if (!MayEvaluate(node, inputs)) return std::nullopt;
  std::vector<Dims> dims;
  int64_t output_bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) return std::nullopt;
    const std::optional<Dims> output_dims = StaticDims(outputs[i]);
    if (!output_dims) return std::nullopt;
    if (!CheckedElements(*output_dims, outputs[i].dtype).has_value()) return std::nullopt;
    dims.push_back(*output_dims);
    output_bytes += NumElements(dims.back()) * DTypeBytes(outputs[i].dtype);
    if (output_bytes > std::max(kFoldedBytesFloor, InputBytes(inputs))) return std::nullopt;
  }

  std::vector<TensorRef> input_refs;
  for (const Tensor* input : inputs) input_refs.push_back(input == nullptr ? TensorRef{} : input->ref);
  std::vector<TensorRef> output_refs;
  std::vector<Tensor> results;
  HeldMemory memory;
  KernelCall call{node.op, &node.attributes, program.constants, input_refs, output_refs, &memory};
  if (OpInfo(node.op).family == OpFamily::kView) return EvaluateView(call, dims);

  auto kernel = FindReferenceKernel(node.op, KernelDType(node.op, input_refs, outputs));
  if (!kernel.has_value() || kernel->run == nullptr) return std::nullopt;
  for (size_t i = 0; i < dims.size(); ++i) {
    results.push_back(Tensor::Zeros(outputs[i].dtype, dims[i]));
    output_refs.push_back(results.back().ref);
  }
  call.outputs = output_refs;
  std::shared_ptr<const void> prepared;
  if (kernel->prepare != nullptr) {
    prepared = kernel->prepare(node.attributes);
    call.prepared = prepared.get();
  }
  if (!kernel->run(call).has_value()) return std::nullopt;
  return results;
}

}  // namespace kiln
