#include "vm-worker/dispatch/evaluated_plan.h"

#include <algorithm>

#include "common/base/checked_math.h"
#include "common/segment/shape_rule.h"

namespace kiln {
namespace {

// Evaluates a list of Dims; the error says what was evaluated.
Result<Dims> EvaluateDims(const SymbolTable& symbols, const std::vector<Dim>& list, std::span<const int64_t> values) {
  if (list.size() > static_cast<size_t>(limits::kRankMax))
    return Fail(ErrorCode::kMalformed,
                "rank " + std::to_string(list.size()) + " exceeds " + std::to_string(limits::kRankMax));
  Dims dims;
  for (Dim dim : list) {
    ASSIGN_OR_RETURN(int64_t value, symbols.Evaluate(dim, values));
    dims.push_back(value);
  }
  return dims;
}

// Lowest and highest element offset a view touches, relative to its offset; nullopt on overflow. Empty views touch
// nothing.
struct Reach {
  int64_t low = 0, high = 0;
  bool empty = false;
};
std::optional<Reach> ReachOf(const Dims& dims, const Dims& strides) {
  Reach reach;
  for (int d = 0; d < dims.rank(); ++d) {
    if (dims[d] < 0) return std::nullopt;
    if (dims[d] == 0) reach.empty = true;
  }
  if (reach.empty) return reach;
  for (int d = 0; d < dims.rank(); ++d) {
    const auto span = CheckedMul(dims[d] - 1, strides[d]);
    if (!span) return std::nullopt;
    const auto moved = CheckedAdd(*span < 0 ? reach.low : reach.high, *span);
    if (!moved) return std::nullopt;
    (*span < 0 ? reach.low : reach.high) = *moved;
  }
  return reach;
}

Status CheckInside(const TensorRef& view, int64_t offset, int64_t storage_bytes, size_t index) {
  const auto reach = ReachOf(view.dims, view.strides);
  if (!reach)
    return Fail(ErrorCode::kLimitExceeded, "plan value " + std::to_string(index) + " overflows 64-bit addressing");
  if (reach->empty) return {};
  const auto low = CheckedAdd(offset, reach->low), high = CheckedAdd(offset, reach->high);
  const int64_t elements = storage_bytes / DTypeBytes(view.dtype);
  if (!low || !high || *low < 0 || *high >= elements)
    return Fail(ErrorCode::kIntegrityFailure, "plan value " + std::to_string(index) +
                                                  " reaches outside its storage of " + std::to_string(elements) +
                                                  " elements; the plan is not used");
  return {};
}

// The shapes of the outputs; they must be the segment's.
Status AddOutputs(const LinkedPlan& linked, std::span<const int64_t> symbol_values, EvaluatedPlan& evaluated) {
  const Plan& plan = linked.plan();
  const Program& body = linked.segment().body;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanValue& value = plan.values[static_cast<size_t>(plan.outputs[i])];
    const TensorDesc& desc = body.entry().values[static_cast<size_t>(body.entry().regions[0].outputs[i])].desc;
    ASSIGN_OR_RETURN(Dims dims, EvaluateDims(plan.symbols, value.dims, symbol_values));
    for (int d = 0; d < (desc.has_rank() ? dims.rank() : 0); ++d) {
      ASSIGN_OR_RETURN(const std::optional<int64_t> wanted,
                       EvaluateInFrame(body.symbols, (*desc.dims)[static_cast<size_t>(d)], symbol_values));
      if (wanted && *wanted != dims[d])
        return Fail(ErrorCode::kIntegrityFailure, "plan output " + std::to_string(i) + " is " + dims.ToString() +
                                                      ", the segment's is " + ToString(desc, body.symbols) +
                                                      "; the plan is not used");
    }
    ASSIGN_OR_RETURN(int64_t elements, CheckedElements(dims, value.dtype));
    evaluated.outputs.push_back({MakeRef(value.dtype, dims, nullptr), elements * DTypeBytes(value.dtype)});
  }
  evaluated.is_empty = std::ranges::all_of(evaluated.outputs, [](const EvaluatedOutput& o) { return o.bytes == 0; });
  return {};
}

Result<int64_t> InputBytes(const Segment& segment, int32_t input, std::span<const int64_t> symbol_values) {
  const TensorDesc& desc = segment.input(input);
  ASSIGN_OR_RETURN(const Dims dims, EvaluateDims(segment.body.symbols, *desc.dims, symbol_values));
  ASSIGN_OR_RETURN(int64_t elements, CheckedElements(dims, desc.dtype));
  return elements * DTypeBytes(desc.dtype);
}

Result<int64_t> StorageBytes(const LinkedPlan& linked, const PlanValue& value, std::span<const int64_t> symbol_values,
                             EvaluatedPlan& evaluated) {
  const auto index = static_cast<size_t>(value.index);
  switch (value.storage) {
    case StorageKind::kInput: {
      ASSIGN_OR_RETURN(const int64_t bytes, InputBytes(linked.segment(), value.index, symbol_values));
      evaluated.input_bytes[index] = bytes;
      return bytes;
    }
    case StorageKind::kOutput:
      return evaluated.outputs[index].bytes;
    case StorageKind::kWeight:
      return linked.weights()[index].bytes();
    case StorageKind::kPrepacked:
      return linked.packed_bytes(index);
    case StorageKind::kArena:
      return evaluated.buffer_bytes[index];
  }
  return Fail(ErrorCode::kInternal, "a plan value lies in no storage");
}

}  // namespace

Result<EvaluatedPlan> EvaluatePlan(const LinkedPlan& linked, std::span<const int64_t> symbol_values) {
  const Plan& plan = linked.plan();
  EvaluatedPlan evaluated;
  for (const PlanBuffer& buffer : plan.buffers) {
    ASSIGN_OR_RETURN(const int64_t bytes, plan.symbols.Evaluate(buffer.bytes, symbol_values));
    evaluated.buffer_bytes.push_back(bytes);
  }
  evaluated.input_bytes.assign(static_cast<size_t>(linked.segment().runtime_inputs), 0);
  RETURN_IF_ERROR(AddOutputs(linked, symbol_values, evaluated));
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const PlanValue& value = plan.values[i];
    TensorRef view;
    view.dtype = value.dtype;
    ASSIGN_OR_RETURN(view.dims, EvaluateDims(plan.symbols, value.dims, symbol_values));
    ASSIGN_OR_RETURN(view.strides, EvaluateDims(plan.symbols, value.strides, symbol_values));
    ASSIGN_OR_RETURN(int64_t offset, plan.symbols.Evaluate(value.offset, symbol_values));
    ASSIGN_OR_RETURN(const int64_t bytes, StorageBytes(linked, value, symbol_values, evaluated));
    RETURN_IF_ERROR(CheckInside(view, offset, bytes, i));
    const bool empty = view.elements() == 0;
    evaluated.values.push_back({view, value.storage, value.index, empty ? 0 : offset * DTypeBytes(view.dtype)});
  }
  return evaluated;
}

Result<EvaluatedKernel> EvaluateKernel(const Plan& plan, size_t step, std::span<const int64_t> symbol_values) {
  const auto& kernel = std::get<KernelStep>(plan.steps[step].step);
  EvaluatedKernel evaluated;
  for (Dim dim : kernel.dims) {
    ASSIGN_OR_RETURN(const int64_t extent, plan.symbols.Evaluate(dim, symbol_values));
    evaluated.dims.push_back(extent);
  }
  ASSIGN_OR_RETURN(evaluated.range, plan.symbols.Evaluate(kernel.range, symbol_values));
  ASSIGN_OR_RETURN(evaluated.scratch_bytes, plan.symbols.Evaluate(kernel.scratch_bytes, symbol_values));
  if (evaluated.scratch_bytes < 0 || evaluated.scratch_bytes > limits::kTensorBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "step " + std::to_string(step) + " wants " +
                                               std::to_string(evaluated.scratch_bytes) + " bytes of scratch");
  ASSIGN_OR_RETURN(evaluated.cost, plan.symbols.Evaluate(kernel.cost, symbol_values));
  return evaluated;
}

}  // namespace kiln
