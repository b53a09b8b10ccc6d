#include "compile-service/lower/group_body.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "compile-service/lower/kernel_cost.h"
#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/scalar_nodes.h"

namespace kiln::lower {

using ir::GraphValue;
using ir::GraphValueId;

namespace {

// Numbers that belong to a formula (3, 0.5, 1/6) become part of the code; learned ones are read from memory, so that
// layers that differ only in them share a kernel.
bool BelongsToFormula(float number) {
  const auto simple = [](float v) { return std::abs(v) <= 1024 && v * 64 == std::round(v * 64); };
  if (!std::isfinite(number)) return true;
  if (simple(number)) return true;
  const float inverse = std::round(1.0f / number);
  return simple(inverse) && inverse != 0 && 1.0f / inverse == number;
}

}  // namespace

GroupBody::GroupBody(PlanBuilder& builder, const Group& group, std::vector<Dim> space)
    : builder_(builder), group_(group), space_(std::move(space)) {
  for (int32_t n : group.nodes) {
    for (GraphValueId output : builder.graph().nodes[static_cast<size_t>(n)].outputs) {
      if (output >= 0 && builder.Escapes(output, group.nodes)) escaping_.push_back(output);
    }
  }
}

Result<int32_t> GroupBody::Scalar(GraphValueId id) {
  if (const auto found = scalar_of_.find(id); found != scalar_of_.end()) return found->second;
  const GraphValue value = builder_.graph().value(id);
  if (value.origin == ir::Origin::kImmediate) {
    const Tensor& tensor = builder_.graph().immediates[static_cast<size_t>(value.index)];
    if (const std::optional<float> number = builder_.graph().ScalarOf(id); number && BelongsToFormula(*number)) {
      return scalars_.Number(DType::kF32, *number);
    }
    if (tensor.ref.elements() == 1 && value.dtype == DType::kI64) {
      return scalars_.Integer(tensor.values<int64_t>()[0]);
    }
    if (tensor.ref.elements() == 1 && value.dtype == DType::kI32)
      return scalars_.Number(DType::kI32, tensor.values<int32_t>()[0]);
    if (tensor.ref.elements() == 1 && value.dtype == DType::kU8)
      return scalars_.Number(DType::kI32, tensor.values<uint8_t>()[0]);
    if (tensor.ref.elements() == 1 && value.dtype == DType::kI8)
      return scalars_.Number(DType::kI32, tensor.values<int8_t>()[0]);
    if (tensor.ref.elements() == 1 && value.dtype == DType::kBool)
      return scalars_.Number(DType::kBool, tensor.values<bool>()[0]);
  }
  if (load_of_.find(id) == load_of_.end()) {
    ASSIGN_OR_RETURN(Operand operand, builder_.BroadcastValue(id, space_));
    load_of_[id] = AddOperand(std::move(operand));
  }
  return scalars_.Load(*WideType(value.dtype), load_of_[id]);
}

Status GroupBody::AddNode(const ir::GraphNode& node) {
  std::vector<int32_t> operands;
  for (GraphValueId input : node.inputs) {
    if (input < 0) {
      operands.push_back(-1);
      continue;
    }
    ASSIGN_OR_RETURN(const int32_t scalar, Scalar(input));
    operands.push_back(scalar);
  }
  Define(node.outputs[0], AddScalarNode(scalars_, builder_.graph(), node, operands));
  return {};
}

int32_t GroupBody::AddOperand(Operand operand) {
  operands_.push_back(std::move(operand));
  return static_cast<int32_t>(operands_.size() - 1);
}

int32_t GroupBody::Position(size_t dim) {
  if (std::ranges::find(positions_, dim) == positions_.end()) positions_.push_back(dim);
  return scalars_.Add({ir::ScalarOp::kCoordinate, DType::kI64, -1, -1, -1, static_cast<int32_t>(dim)});
}

Result<Order> GroupBody::PreferredOrder() {
  for (const Operand& operand : operands_) {
    if (!operand.lookup && operand.dims.size() == space_.size() && builder_.graph().SameDims(operand.dims, space_)) {
      return builder_.MemoryOrder(space_, operand.strides);
    }
  }
  // What is read at positions along one of its dims keeps its order, too.
  for (const Operand& operand : operands_) {
    if (operand.lookup && operand.dims.size() == space_.size() && operand.place.strides.size() == space_.size())
      return builder_.MemoryOrder(operand.dims, operand.place.strides);
  }
  return RowMajor(static_cast<int>(space_.size()));
}

Result<std::vector<ir::Store>> GroupBody::StoreEscaping(const Order& order) {
  std::vector<ir::Store> stores;
  for (GraphValueId id : escaping_) {
    const GraphValue value = builder_.graph().value(id);
    const bool full = value.rank() == static_cast<int>(order.size());
    const Place place = builder_.Allocate(id, full ? order : RowMajor(value.rank()));
    ASSIGN_OR_RETURN(Operand operand, builder_.Broadcast(place, value.dtype, value.dims, space_));
    ASSIGN_OR_RETURN(const int32_t scalar, Scalar(id));
    stores.push_back({AddOperand(std::move(operand)), scalar});
  }
  return stores;
}

int32_t GroupBody::Pointer(const Operand& operand) {
  const int32_t value = builder_.AddPlanValue(operand.place, operand.dtype, operand.dims);
  const auto found = std::ranges::find(pointers_, value);
  if (found != pointers_.end()) return static_cast<int32_t>(found - pointers_.begin());
  pointers_.push_back(value);
  return static_cast<int32_t>(pointers_.size() - 1);
}

Dim GroupBody::Cost() {
  const auto operations = static_cast<int64_t>(std::max<size_t>(group_.nodes.size(), 1));
  return CostOfElements(builder_, space_, operations, operands_);
}

StepText GroupBody::Text(const std::string& head) const {
  StepText text{head, {}};
  size_t shown = 0;
  for (int32_t n : group_.nodes) {
    const ir::GraphNode& node = builder_.graph().nodes[static_cast<size_t>(n)];
    text.nodes.insert(text.nodes.end(), node.sources.begin(), node.sources.end());
    if (n == group_.nodes.front() && !head.empty()) continue;
    if (++shown > 6) continue;
    if (!text.label.empty()) text.label += " + ";
    for (char c : OpInfo(node.op).name) text.label += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (shown > 6) text.label += " + " + std::to_string(shown - 6) + " more";
  std::ranges::sort(text.nodes);
  text.nodes.erase(std::unique(text.nodes.begin(), text.nodes.end()), text.nodes.end());
  return text;
}

}  // namespace kiln::lower
