#include "compile-service/lower/lookup.h"

#include "compile-service/lower/index_position.h"
#include "compile-service/passes/pad_axes.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::ScalarOp;

namespace {

constexpr Dim kZero = Dim::Const(0);

IndexAxes AxesOf(const ir::Graph& graph, const GraphNode& node) {
  const GraphValue& data = graph.value(node.inputs[0]);
  if (node.op == TensorOp::kGatherND) {
    const std::vector<Dim>& indices = graph.value(node.inputs[1]).dims;
    return {static_cast<size_t>(node.attributes.Int("batch_dims", 0)), static_cast<size_t>(indices.back().value()),
            true};
  }
  return {static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), data.rank())), 1, false};
}

// Strides of the data over the dims of the output.
std::vector<Dim> DataStrides(const GraphNode& node, const std::vector<Dim>& strides, const IndexAxes& axes,
                             size_t index_rank) {
  if (node.op == TensorOp::kGatherElements) {
    std::vector<Dim> over = strides;
    over[axes.first] = kZero;
    return over;
  }
  const auto first = static_cast<std::ptrdiff_t>(axes.first), count = static_cast<std::ptrdiff_t>(axes.count);
  std::vector<Dim> over(strides.begin(), strides.begin() + first);
  const size_t between = axes.tuple ? index_rank - 1 - axes.first : index_rank;
  over.insert(over.end(), between, kZero);
  over.insert(over.end(), strides.begin() + first + count, strides.end());
  return over;
}

// Element (position - before) modulo the size of the dim.
Status AddWrapped(PlanBuilder& b, GroupBody& body, KernelArguments& arguments, const GraphNode& node,
                  const passes::PadAxis& axis, DType type) {
  ScalarBuilder& s = body.scalars();
  const GraphValue data = b.graph().value(node.inputs[0]);
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(node.inputs[0]));
  const auto whole = [&](ScalarOp op, int32_t left, int32_t right) { return s.Op(op, DType::kI64, left, right); };
  const int32_t size = s.Integer(arguments.Argument(axis.dim));
  const int32_t at = whole(ScalarOp::kSub, body.Position(axis.axis), s.Integer(axis.before));
  const int32_t turns = whole(ScalarOp::kMul, whole(ScalarOp::kDiv, at, size), size);
  const int32_t position = s.FromFront(whole(ScalarOp::kSub, at, turns), size);
  const int32_t stride = s.Integer(arguments.Stride(place.strides[axis.axis]));
  std::vector<Dim> strides = place.strides;
  strides[axis.axis] = kZero;
  const int32_t access = body.AddOperand({place, data.dtype, data.dims, std::move(strides), true});
  body.Define(node.outputs[0], s.Add({ScalarOp::kLoadAt, type, position, size, stride, access}));
  return {};
}

}  // namespace

bool IsLookup(const ir::Graph& graph, const GraphNode& node) {
  if (node.op == TensorOp::kPad) return passes::WrappedAxis(graph, node).has_value();
  const bool gather = node.op == TensorOp::kGather && !node.attributes.Has("starts");
  if (!gather && node.op != TensorOp::kGatherElements && node.op != TensorOp::kGatherND) return false;
  const GraphValue& data = graph.value(node.inputs[0]);
  const GraphValue& indices = graph.value(node.inputs[1]);
  if (data.rank() == 0 || (indices.dtype != DType::kI32 && indices.dtype != DType::kI64)) return false;
  if (node.op == TensorOp::kGatherElements) return FitsBesideAxis(graph, node, AxesOf(graph, node).first);
  if (gather) return true;
  if (indices.rank() == 0 || !indices.dims.back().is_const()) return false;
  return indices.dims.back().value() >= 1 && indices.dims.back().value() <= kIndexTupleMax;
}

Status AddLookup(PlanBuilder& b, GroupBody& body, KernelArguments& arguments, const GraphNode& node, DType type) {
  if (const auto axis = passes::WrappedAxis(b.graph(), node)) return AddWrapped(b, body, arguments, node, *axis, type);
  const IndexAxes axes = AxesOf(b.graph(), node);
  const GraphValue data = b.graph().value(node.inputs[0]), indices = b.graph().value(node.inputs[1]);
  const size_t rank = b.graph().value(node.outputs[0]).dims.size();
  RETURN_IF_ERROR(b.AddIndexCheck(node.inputs[1], node.inputs[0], axes.first, axes.tuple, node.sources));
  ASSIGN_OR_RETURN(const Place place, IndexedPlace(b, node, axes));
  const size_t before = node.op == TensorOp::kGather ? axes.first : 0;
  ASSIGN_OR_RETURN(const IndexPosition at, AddIndexPosition(b, body, arguments, node, axes, place, before, rank));
  Operand operand{place, data.dtype, data.dims, DataStrides(node, place.strides, axes, indices.dims.size()), true};
  const int32_t access = body.AddOperand(std::move(operand));
  body.Define(node.outputs[0],
              body.scalars().Add({ScalarOp::kLoadAt, type, at.position, at.extent, at.stride, access}));
  return {};
}

}  // namespace kiln::lower
