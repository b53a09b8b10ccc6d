// Views as address arithmetic.
#include "compile-service/lower/fuse.h"
#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

using ir::GraphValue;
using ir::GraphValueId;

namespace {
constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);
}  // namespace

Result<Place> PlanBuilder::ViewPlace(const ir::GraphNode& node, GraphValueId id) {
  ASSIGN_OR_RETURN(Place place, PlaceOf(node.inputs[0]));
  const std::vector<Dim> from = graph_.value(node.inputs[0]).dims;
  const std::vector<Dim> to = graph_.value(id).dims;
  const std::vector<Dim> strides = place.strides;
  if (node.op == TensorOp::kTranspose) {
    const std::span<const int64_t> perm = node.attributes.Ints("perm");
    for (size_t i = 0; i < perm.size(); ++i) place.strides[i] = strides[static_cast<size_t>(perm[i])];
    return place;
  }
  if (node.op == TensorOp::kExpand) {
    ASSIGN_OR_RETURN(const Operand operand, Broadcast(place, graph_.value(id).dtype, from, to));
    place.strides = operand.strides;
    return place;
  }
  if (node.op == TensorOp::kSlice) {
    const std::span<const Dim> starts = node.attributes.Dims("starts");
    const std::span<const int64_t> steps = node.attributes.Ints("steps");
    for (size_t i = 0; i < from.size(); ++i) {
      place.offset = symbols().Add(place.offset, symbols().Mul(starts[i], strides[i]));
      place.strides[i] = symbols().Mul(strides[i], Dim::Const(steps[i]));
    }
    return place;
  }
  if (std::optional<std::vector<Dim>> reshaped = ReshapeStrides(from, strides, to)) {
    place.strides = std::move(*reshaped);
    return place;
  }
  ASSIGN_OR_RETURN(place, RowMajorPlace(node.inputs[0]));
  place.strides = OrderedStrides(to, RowMajor(static_cast<int>(to.size())));
  return place;
}

// Splits both shapes into the shortest runs of equal products; a run of the input must be one strided dim, which the run of the
// output subdivides. Dims of 1 belong to no run.
std::optional<std::vector<Dim>> PlanBuilder::ReshapeStrides(const std::vector<Dim>& from, const std::vector<Dim>& strides,
                                                            const std::vector<Dim>& to) {
  std::vector<Dim> result(to.size(), kZero);
  size_t i = 0, o = 0;
  while (true) {
    while (i < from.size() && graph_.IsOne(from[i])) ++i;
    while (o < to.size() && graph_.IsOne(to[o])) ++o;
    if (i == from.size() || o == to.size()) break;
    size_t i_end = i + 1, o_end = o + 1;
    Dim left = from[i], right = to[o];
    while (!symbols().ProvenEqual(left, right)) {
      // Extend the side that is smaller at the hints; either way the runs end where products agree for every call.
      if (i_end < from.size() && (o_end == to.size() || Hint(left) <= Hint(right))) {
        left = symbols().Mul(left, from[i_end++]);
      } else if (o_end < to.size()) {
        right = symbols().Mul(right, to[o_end++]);
      } else {
        return std::nullopt;
      }
    }
    Dim inner = kZero;   // stride of the run's innermost dim that is not 1
    Dim expected = kZero;
    bool first = true;
    for (size_t k = i_end; k-- > i;) {
      if (graph_.IsOne(from[k])) continue;
      if (first) {
        inner = strides[k];
        first = false;
      } else if (!symbols().ProvenEqual(strides[k], expected)) {
        return std::nullopt;
      }
      expected = symbols().Mul(strides[k], from[k]);
    }
    Dim stride = inner;
    for (size_t k = o_end; k-- > o;) {
      result[k] = stride;
      stride = symbols().Mul(stride, to[k]);
    }
    i = i_end;
    o = o_end;
  }
  // What is left over must be ones (or the tensor is empty, and no stride matters).
  for (; i < from.size(); ++i) {
    if (!graph_.IsOne(from[i])) return std::nullopt;
  }
  for (; o < to.size(); ++o) {
    if (!graph_.IsOne(to[o])) return std::nullopt;
  }
  return result;
}

}  // namespace kiln::lower
