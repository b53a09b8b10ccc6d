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
  if (node.op == TensorOp::kGather) {
    const auto axis = static_cast<size_t>(node.attributes.Int("axis", 0));
    place.offset = symbols().Add(place.offset, symbols().Mul(node.attributes.Dims("starts")[0], strides[axis]));
    place.strides.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(axis));
    for (int64_t step : node.attributes.Ints("steps"))
      place.strides.push_back(symbols().Mul(strides[axis], Dim::Const(step)));
    place.strides.insert(place.strides.end(), strides.begin() + static_cast<std::ptrdiff_t>(axis) + 1, strides.end());
    return place;
  }
  if (std::optional<std::vector<Dim>> reshaped = ReshapeStrides(from, strides, to)) {
    place.strides = std::move(*reshaped);
    return place;
  }
  if (const std::optional<Order> order = ChannelsLastReshape(from, strides, to)) {
    Place copy = AllocateBuffer(graph_.value(id).dtype, from, *order);
    RETURN_IF_ERROR(AddCopy(place, copy, graph_.value(id).dtype, from, {"copy", node.sources}));
    std::optional<std::vector<Dim>> reshaped = ReshapeStrides(from, copy.strides, to);
    if (!reshaped) return Fail(ErrorCode::kInternal, "a channels-last copy does not reshape");
    copy.strides = std::move(*reshaped);
    return copy;
  }
  ASSIGN_OR_RETURN(place, RowMajorPlace(node.inputs[0]));
  place.strides = OrderedStrides(to, RowMajor(static_cast<int>(to.size())));
  return place;
}

// Splits both shapes into the shortest runs of equal products; dims of 1 belong to no run. nullopt when that cannot be
// proven.
std::optional<std::vector<PlanBuilder::ReshapeRun>> PlanBuilder::RunsOf(const std::vector<Dim>& from,
                                                                        const std::vector<Dim>& to) {
  std::vector<ReshapeRun> runs;
  const auto skip_ones = [&](const std::vector<Dim>& dims, size_t at) {
    while (at < dims.size() && graph_.IsOne(dims[at])) ++at;
    return at;
  };
  size_t i = skip_ones(from, 0), o = skip_ones(to, 0);
  while (i < from.size() && o < to.size()) {
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
    runs.push_back({i, i_end, o, o_end});
    i = skip_ones(from, i_end);
    o = skip_ones(to, o_end);
  }
  // What is left over must be ones (or the tensor is empty, and no stride matters).
  if (i < from.size() || o < to.size()) return std::nullopt;
  return runs;
}

// A run of the input must be one strided dim, which the run of the output subdivides.
std::optional<std::vector<Dim>> PlanBuilder::ReshapeStrides(const std::vector<Dim>& from,
                                                            const std::vector<Dim>& strides,
                                                            const std::vector<Dim>& to) {
  const std::optional<std::vector<ReshapeRun>> runs = RunsOf(from, to);
  if (!runs) return std::nullopt;
  std::vector<Dim> result(to.size(), kZero);
  for (const ReshapeRun& run : *runs) {
    Dim stride = kZero, expected = kZero;
    bool first = true;
    for (size_t k = run.from_end; k-- > run.from;) {
      if (graph_.IsOne(from[k])) continue;
      if (first) {
        stride = strides[k];
        first = false;
      } else if (!symbols().ProvenEqual(strides[k], expected)) {
        return std::nullopt;
      }
      expected = symbols().Mul(strides[k], from[k]);
    }
    for (size_t k = run.to_end; k-- > run.to;) {
      result[k] = stride;
      stride = symbols().Mul(stride, to[k]);
    }
  }
  return result;
}

// A reshape of an image whose channels are innermost is copied to channels-last memory, so that convolutions on both
// sides of it (upsampling, pixel shuffles) need no other copy: dims in the order of the result's channels-last order,
// run by run.
std::optional<Order> PlanBuilder::ChannelsLastReshape(const std::vector<Dim>& from, const std::vector<Dim>& strides,
                                                      const std::vector<Dim>& to) {
  const std::optional<std::vector<ReshapeRun>> runs = RunsOf(from, to);
  if (!runs || to.size() < 3 || to.size() > 4) return std::nullopt;
  std::vector<const ReshapeRun*> run_of(to.size(), nullptr);
  for (const ReshapeRun& run : *runs) {
    if (run.to_end != run.to + 1) return std::nullopt;
    run_of[run.to] = &run;
  }
  if (run_of[1] == nullptr || !symbols().ProvenEqual(strides[run_of[1]->from_end - 1], kOne)) return std::nullopt;
  Order order;
  std::vector<bool> placed(from.size(), false);
  for (int dim : ChannelsLast(static_cast<int>(to.size()))) {
    const ReshapeRun* run = run_of[static_cast<size_t>(dim)];
    for (size_t k = run == nullptr ? 0 : run->from; run != nullptr && k < run->from_end; ++k) {
      order.push_back(static_cast<int>(k));
      placed[k] = true;
    }
  }
  for (size_t k = 0; k < from.size(); ++k) {
    if (!placed[k]) order.insert(order.begin(), static_cast<int>(k));  // dims of 1
  }
  return order;
}

}  // namespace kiln::lower
