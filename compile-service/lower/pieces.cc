// Concatenations made in place: pieces stored by their producers where they belong in the whole.
#include <algorithm>

#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValueId;

namespace {

// Whether the emitter of a group can store into a part of a tensor cut along `axis`. A convolution's rows must stay
// linear over its pixels.
bool StoresParts(GroupKind kind, int axis) {
  switch (kind) {
    case GroupKind::kElementwise:
    case GroupKind::kRow:
    case GroupKind::kProduct:
    case GroupKind::kWideProduct:
    case GroupKind::kAttention:
    case GroupKind::kCopies:
    case GroupKind::kRecurrent:
    case GroupKind::kScan:
      return true;
    case GroupKind::kConvolution:
    case GroupKind::kWindow:
      return axis <= 1;
    case GroupKind::kShape:
    case GroupKind::kTaps:
    case GroupKind::kScatter:
    case GroupKind::kReference:
      return false;
  }
  return false;
}

}  // namespace

void PlanBuilder::FindPieces(const std::vector<Group>& groups) {
  std::map<int32_t, GroupKind> kind_of;
  for (const Group& group : groups) {
    for (int32_t n : group.nodes) kind_of[n] = group.kind;
  }
  for (const Group& group : groups) {
    if (group.kind != GroupKind::kCopies) continue;
    const GraphNode& concat = graph_.nodes[static_cast<size_t>(group.nodes.front())];
    if (concat.op != TensorOp::kConcat) continue;
    const GraphValueId whole = concat.outputs[0];
    const int axis = ir::NormalAxis(concat.attributes.Int("axis", 0), graph_.value(whole).rank());
    for (size_t i = 0; i < concat.inputs.size(); ++i) {
      GraphValueId id = concat.inputs[i];
      const auto maker = [&] { return graph_.value(id).origin == ir::Origin::kNode ? graph_.value(id).index : -1; };
      while (maker() >= 0 && graph_.nodes[static_cast<size_t>(maker())].op == TensorOp::kReshape) {
        id = graph_.nodes[static_cast<size_t>(maker())].inputs[0];
      }
      const auto kind = kind_of.find(maker());
      const bool direct = id == concat.inputs[i];
      if (kind == kind_of.end() || !StoresParts(kind->second, axis) || output_of_[static_cast<size_t>(id)] >= 0)
        continue;
      if (!direct && (kind->second == GroupKind::kConvolution || kind->second == GroupKind::kWindow)) continue;
      piece_of_.emplace(id, Piece{whole, i});
    }
  }
}

bool PlanBuilder::SameOrder(const std::vector<Dim>& dims, const Order& a, const Order& b) const {
  const auto significant = [&](const Order& order) {
    Order result;
    std::ranges::copy_if(order, std::back_inserter(result),
                         [&](int dim) { return !graph_.IsOne(dims[static_cast<size_t>(dim)]); });
    return result;
  };
  return significant(a) == significant(b);
}

std::optional<Place> PlanBuilder::PiecePlace(GraphValueId id, const Order& order) {
  const auto found = piece_of_.find(id);
  if (found == piece_of_.end()) return std::nullopt;
  const auto [whole, input] = found->second;
  const GraphNode concat = graph_.nodes[static_cast<size_t>(graph_.value(whole).index)];
  const std::vector<Dim> whole_dims = graph_.value(whole).dims, dims = graph_.value(id).dims;
  const GraphValueId part = concat.inputs[input];
  const Order row_major = RowMajor(static_cast<int>(whole_dims.size()));
  if (part != id && !SameOrder(dims, order, RowMajor(static_cast<int>(dims.size())))) return std::nullopt;
  Place place = AllocateWhole(whole, part == id ? order : row_major);
  if (!SameOrder(whole_dims, whole_order_.at(whole), part == id ? order : row_major)) return std::nullopt;
  const auto axis =
      static_cast<size_t>(ir::NormalAxis(concat.attributes.Int("axis", 0), static_cast<int>(whole_dims.size())));
  for (size_t i = 0; i < input; ++i) {
    const Dim extent = graph_.value(concat.inputs[i]).dims[axis];
    place.offset = symbols().Add(place.offset, symbols().Mul(extent, place.strides[axis]));
  }
  if (part != id) {
    std::optional<std::vector<Dim>> strides = ReshapeStrides(graph_.value(part).dims, place.strides, dims);
    if (!strides) return std::nullopt;
    place.strides = std::move(*strides);
  }
  places_[static_cast<size_t>(id)] = place;
  return place;
}

Place PlanBuilder::AllocateWhole(GraphValueId id, const Order& order) {
  if (whole_order_.contains(id)) return *places_[static_cast<size_t>(id)];
  const Place place = Allocate(id, order);
  whole_order_.emplace(id, order);
  return place;
}

}  // namespace kiln::lower
