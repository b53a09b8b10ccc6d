#include "compile-service/lower/lookup.h"

#include <algorithm>
#include <ranges>

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::ScalarOp;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr int64_t kTupleMax = 8;  // indices of one position

// Which axes of the data the indices name.
struct LookupAxes {
  size_t first = 0;    // axis of the data
  size_t count = 1;    // consecutive axes, one index of a tuple each
  bool tuple = false;  // the last dim of the indices are tuples
};

LookupAxes AxesOf(const ir::Graph& graph, const GraphNode& node) {
  const GraphValue& data = graph.value(node.inputs[0]);
  if (node.op == TensorOp::kGatherND) {
    const std::vector<Dim>& indices = graph.value(node.inputs[1]).dims;
    return {static_cast<size_t>(node.attributes.Int("batch_dims", 0)), static_cast<size_t>(indices.back().value()),
            true};
  }
  return {static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), data.rank())), 1, false};
}

// Whether every position along the other dims of the indices is one of the data.
bool FitsBesideAxis(const ir::Graph& graph, const GraphNode& node, size_t axis) {
  const std::vector<Dim>& data = graph.value(node.inputs[0]).dims;
  const std::vector<Dim>& indices = graph.value(node.inputs[1]).dims;
  const auto fits = [&](size_t d) {
    if (d == axis || graph.symbols.ProvenEqual(data[d], indices[d])) return true;
    SymbolTable symbols = graph.symbols;  // the difference is made only to be looked at
    return symbols.Bounds(symbols.Sub(data[d], indices[d])).min >= 0;
  };
  return std::ranges::all_of(std::views::iota(size_t{0}, data.size()), fits);
}

// Strides of the data over the dims of the output.
std::vector<Dim> DataStrides(const GraphNode& node, const std::vector<Dim>& strides, const LookupAxes& axes,
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

// Strides of the indices over the dims of the output.
std::vector<Dim> IndexStrides(const GraphNode& node, std::vector<Dim> strides, const LookupAxes& axes, size_t rank) {
  if (axes.tuple) strides.pop_back();
  const size_t before = node.op == TensorOp::kGather ? axes.first : 0;
  std::vector<Dim> over(before, kZero);
  over.insert(over.end(), strides.begin(), strides.end());
  over.resize(rank, kZero);
  return over;
}

// Of the axes that are looked up, those that an index moves along: an axis of one entry has any stride, and is never
// moved along. The last axis where all are such.
std::vector<size_t> MovedAlong(const std::vector<Dim>& dims, const LookupAxes& axes) {
  std::vector<size_t> moved;
  for (size_t d = axes.first; d < axes.first + axes.count; ++d)
    if (!(dims[d] == Dim::Const(1))) moved.push_back(d);
  if (moved.empty()) moved.push_back(axes.first + axes.count - 1);
  return moved;
}

// The data where tuples of indices are one number: dims [first, first + count) without gaps.
Result<Place> DataPlace(PlanBuilder& b, const GraphNode& node, const LookupAxes& axes) {
  ASSIGN_OR_RETURN(Place place, b.PlaceOf(node.inputs[0]));
  const std::vector<Dim> dims = b.graph().value(node.inputs[0]).dims;
  const std::vector<size_t> moved = MovedAlong(dims, axes);
  for (size_t i = 0; i + 1 < moved.size(); ++i) {
    const size_t outer = moved[i], inner = moved[i + 1];
    if (!b.symbols().ProvenEqual(place.strides[outer], b.symbols().Mul(place.strides[inner], dims[inner])))
      return b.RowMajorPlace(node.inputs[0]);
  }
  return place;
}

class LookupBody {
 public:
  LookupBody(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments, const GraphNode& node)
      : b_(builder), body_(body), arguments_(arguments), node_(node), axes_(AxesOf(builder.graph(), node)) {}

  Status Add(DType type) {
    const GraphValue data = b_.graph().value(node_.inputs[0]), indices = b_.graph().value(node_.inputs[1]);
    const size_t rank = b_.graph().value(node_.outputs[0]).dims.size();
    RETURN_IF_ERROR(b_.AddIndexCheck(node_.inputs[1], node_.inputs[0], axes_.first, axes_.tuple, node_.sources));
    ASSIGN_OR_RETURN(const Place index_place, b_.RowMajorPlace(node_.inputs[1]));
    ASSIGN_OR_RETURN(const Place place, DataPlace(b_, node_, axes_));
    int32_t position = -1;
    Dim entries = Dim::Const(1);
    for (size_t j = 0; j < axes_.count; ++j) {
      const Dim size = data.dims[axes_.first + j];
      entries = b_.symbols().Mul(entries, size);
      const int32_t index = Index(index_place, indices, j, rank, scalars().Integer(arguments_.Argument(size)));
      position = position < 0 ? index
                              : scalars().Op(ScalarOp::kAdd, DType::kI64,
                                             scalars().Op(ScalarOp::kMul, DType::kI64, position,
                                                          scalars().Integer(arguments_.Argument(size))),
                                             index);
    }
    Operand operand{place, data.dtype, data.dims, DataStrides(node_, place.strides, axes_, indices.dims.size()), true};
    const int32_t access = body_.AddOperand(std::move(operand));
    const int32_t extent = scalars().Integer(arguments_.Argument(entries));
    const int32_t stride = scalars().Integer(arguments_.Stride(place.strides[MovedAlong(data.dims, axes_).back()]));
    body_.Define(node_.outputs[0], scalars().Add({ScalarOp::kLoadAt, type, position, extent, stride, access}));
    return {};
  }

 private:
  ScalarBuilder& scalars() { return body_.scalars(); }

  // The j-th index of a position, counted from the front.
  int32_t Index(Place place, const GraphValue& indices, size_t j, size_t rank, int32_t size) {
    std::vector<Dim> dims = indices.dims;
    if (axes_.tuple) {
      place.offset = b_.symbols().Add(place.offset, Dim::Const(static_cast<int64_t>(j)));
      dims.pop_back();
      const std::vector<Dim> strides = IndexStrides(node_, place.strides, axes_, rank);
      place.strides.pop_back();
      return Wrapped(body_.AddOperand({place, indices.dtype, dims, strides, true}), size);
    }
    return Wrapped(
        body_.AddOperand({place, indices.dtype, dims, IndexStrides(node_, place.strides, axes_, rank), true}), size);
  }

  int32_t Wrapped(int32_t access, int32_t size) {
    return scalars().FromFront(scalars().Load(DType::kI64, access), size);
  }

  PlanBuilder& b_;
  GroupBody& body_;
  KernelArguments& arguments_;
  const GraphNode& node_;
  const LookupAxes axes_;
};

}  // namespace

bool IsLookup(const ir::Graph& graph, const GraphNode& node) {
  const bool gather = node.op == TensorOp::kGather && !node.attributes.Has("starts");
  if (!gather && node.op != TensorOp::kGatherElements && node.op != TensorOp::kGatherND) return false;
  const GraphValue& data = graph.value(node.inputs[0]);
  const GraphValue& indices = graph.value(node.inputs[1]);
  if (data.rank() == 0 || (indices.dtype != DType::kI32 && indices.dtype != DType::kI64)) return false;
  if (node.op == TensorOp::kGatherElements) return FitsBesideAxis(graph, node, AxesOf(graph, node).first);
  if (gather) return true;
  if (indices.rank() == 0 || !indices.dims.back().is_const()) return false;
  return indices.dims.back().value() >= 1 && indices.dims.back().value() <= kTupleMax;
}

Status AddLookup(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments, const GraphNode& node, DType type) {
  return LookupBody(builder, body, arguments, node).Add(type);
}

}  // namespace kiln::lower
