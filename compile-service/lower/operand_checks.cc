// Which indices and divisors a plan checks, and which indices are known to be right.
#include <algorithm>

#include "common/ops/kernels/operands.h"
#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

using ir::GraphValueId;

namespace {

// Integer contents that are the same in every call.
std::optional<std::vector<int64_t>> FixedIntegers(const ir::Graph& graph, GraphValueId id) {
  const ir::GraphValue& value = graph.value(id);
  if (value.origin == ir::Origin::kImmediate)
    return kernels::ReadInts(graph.immediates[static_cast<size_t>(value.index)].ref);
  if (!value.known) return std::nullopt;
  std::vector<int64_t> integers;
  for (Dim dim : *value.known) {
    if (!dim.is_const()) return std::nullopt;
    integers.push_back(dim.value());
  }
  return integers;
}

}  // namespace

Status PlanBuilder::AddIndexCheck(GraphValueId indices, GraphValueId data, size_t axis, bool tuple,
                                  const std::vector<int32_t>& nodes) {
  const ir::GraphValue value = graph_.value(indices), read = graph_.value(data);
  const auto length = tuple ? static_cast<size_t>(value.dims.back().value()) : 1;
  const std::vector<Dim> sizes(read.dims.begin() + static_cast<std::ptrdiff_t>(axis),
                               read.dims.begin() + static_cast<std::ptrdiff_t>(axis + length));
  if (const std::optional<std::vector<int64_t>> fixed = FixedIntegers(graph_, indices)) {
    bool inside = true;
    for (size_t i = 0; i < fixed->size(); ++i) {
      const Interval size = symbols().Bounds(sizes[i % length]);
      inside = inside && (*fixed)[i] >= -size.min && (*fixed)[i] < size.min;
    }
    if (inside) return {};
  }
  const bool checked = std::ranges::any_of(index_checks_, [&](const IndexCheck& check) {
    return check.indices == indices && check.tuple == tuple && graph_.SameDims(check.sizes, sizes);
  });
  if (checked) return {};
  index_checks_.push_back({indices, tuple, sizes});
  ASSIGN_OR_RETURN(const Place place, RowMajorPlace(indices));
  ASSIGN_OR_RETURN(const Place data_place, PlaceOf(data));
  ReferenceStep step{TensorOp::kCheckIndices, {}, {}, {}};
  step.attributes.Set("axis", static_cast<int64_t>(axis));
  if (tuple) step.attributes.Set("tuple", int64_t{1});
  step.inputs = {AddPlanValue(place, value.dtype, value.dims), AddPlanValue(data_place, read.dtype, read.dims)};
  step.outputs = {-1};  // nobody asks how many there are
  AddReference(std::move(step), {"check indices", nodes});
  return {};
}

Status PlanBuilder::AddDivisorCheck(GraphValueId divisor, const std::vector<Dim>& quotient,
                                    const std::vector<int32_t>& nodes) {
  const bool checked = std::ranges::any_of(divisor_checks_, [&](const auto& check) {
    return check.first == divisor && graph_.SameDims(check.second, quotient);
  });
  if (checked) return {};
  divisor_checks_.emplace_back(divisor, quotient);
  const ir::GraphValue value = graph_.value(divisor);
  ASSIGN_OR_RETURN(Place place, RowMajorPlace(divisor));
  // As the division reads it, so that there is nothing to check where there is nothing to divide.
  std::vector<Dim> strides(quotient.size(), Dim::Const(0));
  const size_t front = quotient.size() - value.dims.size();
  for (size_t d = 0; d < value.dims.size(); ++d)
    if (!graph_.IsOne(value.dims[d])) strides[front + d] = place.strides[d];
  place.strides = std::move(strides);
  ReferenceStep step{TensorOp::kCheckDivisors, {}, {}, {}};
  step.inputs = {AddPlanValue(place, value.dtype, quotient)};
  step.outputs = {-1};  // nobody asks how many there are
  AddReference(std::move(step), {"check divisors", nodes});
  return {};
}

}  // namespace kiln::lower
