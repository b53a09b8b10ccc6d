#include "compile-service/lower/index_position.h"

#include <algorithm>
#include <ranges>

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::ScalarOp;

namespace {

constexpr Dim kZero = Dim::Const(0);

// Of the axes that are looked up, those that an index moves along: an axis of one entry has any stride, and is never
// moved along. The last axis where all are such.
std::vector<size_t> MovedAlong(const std::vector<Dim>& dims, const IndexAxes& axes) {
  std::vector<size_t> moved;
  for (size_t d = axes.first; d < axes.first + axes.count; ++d)
    if (!(dims[d] == Dim::Const(1))) moved.push_back(d);
  if (moved.empty()) moved.push_back(axes.first + axes.count - 1);
  return moved;
}

}  // namespace

// Dims [first, first + count) without gaps.
Result<Place> IndexedPlace(PlanBuilder& b, const GraphNode& node, const IndexAxes& axes) {
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

Result<IndexPosition> AddIndexPosition(PlanBuilder& b, GroupBody& body, KernelArguments& arguments,
                                       const GraphNode& node, const IndexAxes& axes, const Place& data, size_t before,
                                       size_t rank) {
  ScalarBuilder& scalars = body.scalars();
  const std::vector<Dim> dims = b.graph().value(node.inputs[0]).dims;
  const GraphValue indices = b.graph().value(node.inputs[1]);
  ASSIGN_OR_RETURN(Place place, b.RowMajorPlace(node.inputs[1]));
  std::vector<Dim> index_dims = indices.dims;
  if (axes.tuple) {
    index_dims.pop_back();
    place.strides.pop_back();
  }
  std::vector<Dim> strides(before, kZero);
  strides.insert(strides.end(), place.strides.begin(), place.strides.end());
  strides.resize(rank, kZero);
  IndexPosition at;
  Dim entries = Dim::Const(1);
  for (size_t j = 0; j < axes.count; ++j) {
    const Dim size = dims[axes.first + j];
    entries = b.symbols().Mul(entries, size);
    const int32_t access = body.AddOperand({place, indices.dtype, index_dims, strides, true});
    const int32_t index =
        scalars.FromFront(scalars.Load(DType::kI64, access), scalars.Integer(arguments.Argument(size)));
    if (j == 0) {
      at.position = index;
    } else {
      const int32_t rows =
          scalars.Op(ScalarOp::kMul, DType::kI64, at.position, scalars.Integer(arguments.Argument(size)));
      at.position = scalars.Op(ScalarOp::kAdd, DType::kI64, rows, index);
    }
    place.offset = b.symbols().Add(place.offset, Dim::Const(1));
  }
  at.extent = scalars.Integer(arguments.Argument(entries));
  at.stride = scalars.Integer(arguments.Stride(data.strides[MovedAlong(dims, axes).back()]));
  return at;
}

bool FitsBesideAxis(const ir::Graph& graph, const GraphNode& node, size_t axis) {
  const std::vector<Dim>& data = graph.value(node.inputs[0]).dims;
  const std::vector<Dim>& indices = graph.value(node.inputs[1]).dims;
  const auto fits = [&](size_t d) { return d == axis || ir::IsAtMost(graph.symbols, indices[d], data[d]); };
  return std::ranges::all_of(std::views::iota(size_t{0}, data.size()), fits);
}

}  // namespace kiln::lower
