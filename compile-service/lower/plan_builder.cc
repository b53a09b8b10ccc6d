#include "compile-service/lower/plan_builder.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compile-service/ir/spec_form.h"
#include "compile-service/lower/emit.h"
#include "compile-service/lower/take_places.h"

namespace kiln::lower {

using ir::GraphValue;
using ir::GraphValueId;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);
// Sizes 0 and 1 say nothing about which stride is larger.
constexpr int64_t kSampleMin = 5;

}  // namespace

Order RowMajor(int rank) {
  Order order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order ChannelsLast(int rank) {
  Order order = RowMajor(rank);
  if (rank > 2) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

PlanBuilder::PlanBuilder(ir::Graph& graph, const std::vector<Group>& groups, Target target, NumericMode mode,
                         std::span<const int64_t> hints)
    : graph_(graph),
      target_(target),
      mode_(mode),
      hints_(hints.begin(), hints.end()),
      sample_(hints.begin(), hints.end()) {
  for (int64_t& value : sample_) value = std::max(value, kSampleMin);
  places_.resize(graph_.values.size());
  output_of_.assign(graph_.values.size(), -1);
  for (size_t o = graph_.outputs.size(); o-- > 0;)
    output_of_[static_cast<size_t>(graph_.outputs[o])] = static_cast<int>(o);
  // A row-major tensor and its reshape are the same bytes: what is only reshaped before it leaves is made in place.
  for (size_t o = 0; o < graph_.outputs.size(); ++o) {
    GraphValueId id = graph_.outputs[o];
    if (output_of_[static_cast<size_t>(id)] != static_cast<int>(o)) continue;
    while (graph_.value(id).origin == ir::Origin::kNode && !graph_.value(id).prepack) {
      const ir::GraphNode& node = graph_.nodes[static_cast<size_t>(graph_.value(id).index)];
      if (node.op != TensorOp::kReshape) break;
      id = node.inputs[0];
    }
    if (output_of_[static_cast<size_t>(id)] < 0) output_of_[static_cast<size_t>(id)] = static_cast<int>(o);
  }
  output_written_.assign(graph_.outputs.size(), false);
  readers_.resize(graph_.values.size());
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (GraphValueId input : graph_.nodes[n].inputs) {
      if (input >= 0) readers_[static_cast<size_t>(input)].push_back(static_cast<int32_t>(n));
    }
  }
  FindPieces(groups);
}

bool PlanBuilder::Escapes(GraphValueId id, const std::vector<int32_t>& nodes) const {
  if (output_of_[static_cast<size_t>(id)] >= 0) return true;
  return std::ranges::any_of(readers_[static_cast<size_t>(id)],
                             [&](int32_t reader) { return std::ranges::find(nodes, reader) == nodes.end(); });
}

int64_t PlanBuilder::Hint(Dim dim) const {
  const Result<int64_t> value = graph_.symbols.Evaluate(dim, sample_);
  return value ? *value : 0;
}

int64_t PlanBuilder::RawHint(Dim dim) const {
  const Result<int64_t> value = graph_.symbols.Evaluate(dim, hints_);
  return value ? *value : 0;
}

Order PlanBuilder::MemoryOrder(const std::vector<Dim>& dims, const std::vector<Dim>& strides) const {
  Order order = RowMajor(static_cast<int>(dims.size()));
  std::vector<int64_t> sizes;
  for (Dim stride : strides) sizes.push_back(std::abs(Hint(stride)));
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(-sizes[static_cast<size_t>(a)], a) < std::pair(-sizes[static_cast<size_t>(b)], b);
  });
  return order;
}

std::vector<Dim> PlanBuilder::OrderedStrides(const std::vector<Dim>& dims, const Order& order) {
  std::vector<Dim> strides(dims.size());
  Dim stride = kOne;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t dim = static_cast<size_t>(order[i]);
    strides[dim] = stride;
    // In an empty tensor no stride matters; 0 would look like a broadcast.
    if (dims[dim] != kZero) stride = symbols().Mul(stride, dims[dim]);
  }
  return strides;
}

bool PlanBuilder::IsOrdered(const Place& place, const std::vector<Dim>& dims, const Order& order) {
  const std::vector<Dim> wanted = OrderedStrides(dims, order);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!graph_.IsOne(dims[i]) && !symbols().ProvenEqual(place.strides[i], wanted[i])) return false;
  }
  return true;
}

bool PlanBuilder::IsSame(const Place& a, const Place& b, const std::vector<Dim>& dims) const {
  if (a.storage != b.storage || a.index != b.index || !graph_.symbols.ProvenEqual(a.offset, b.offset)) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!graph_.IsOne(dims[i]) && !graph_.symbols.ProvenEqual(a.strides[i], b.strides[i])) return false;
  }
  return true;
}

Place PlanBuilder::AllocateBuffer(DType dtype, const std::vector<Dim>& dims, const Order& order) {
  const Dim bytes = symbols().Mul(graph_.Elements(dims), Dim::Const(DTypeBytes(dtype)));
  plan_.buffers.push_back({bytes, -1, -1});
  return {StorageKind::kArena, static_cast<int32_t>(plan_.buffers.size() - 1), kZero, OrderedStrides(dims, order)};
}

Place PlanBuilder::Allocate(GraphValueId id, const Order& order) {
  if (const std::optional<Place> piece = PiecePlace(id, order)) return *piece;
  return AllocateDense(id, order);
}

Place PlanBuilder::AllocateDense(GraphValueId id, const Order& order) {
  const GraphValue& value = graph_.value(id);
  const int output = output_of_[static_cast<size_t>(id)];
  Place place{StorageKind::kOutput, output, kZero, OrderedStrides(value.dims, order)};
  if (output < 0 || !IsOrdered(place, value.dims, RowMajor(value.rank()))) {
    place = AllocateBuffer(value.dtype, value.dims, order);
  } else {
    output_written_[static_cast<size_t>(output)] = true;
  }
  places_[static_cast<size_t>(id)] = place;
  return place;
}

Result<Place> PlanBuilder::PlaceOf(GraphValueId id) {
  if (static_cast<size_t>(id) >= places_.size()) places_.resize(graph_.values.size());
  if (places_[static_cast<size_t>(id)]) return *places_[static_cast<size_t>(id)];
  const GraphValue& value = graph_.value(id);
  const std::vector<Dim> row_major = OrderedStrides(value.dims, RowMajor(value.rank()));
  Place place{StorageKind::kInput, value.index, kZero, row_major};
  switch (value.origin) {
    case ir::Origin::kInput:
      break;
    case ir::Origin::kWeight:
      place.storage = StorageKind::kWeight;
      break;
    case ir::Origin::kImmediate: {
      ASSIGN_OR_RETURN(place, Recipe(id));
      break;
    }
    case ir::Origin::kNode: {
      const ir::GraphNode node = graph_.nodes[static_cast<size_t>(value.index)];
      if (IsView(node)) {
        ASSIGN_OR_RETURN(place, ViewPlace(node, id));
      } else if (value.prepack) {
        ASSIGN_OR_RETURN(place, Recipe(id));
      } else {
        return Fail(ErrorCode::kInternal, "value " + std::to_string(id) + " is read before its group was emitted");
      }
      break;
    }
  }
  places_.resize(std::max(places_.size(), graph_.values.size()));
  places_[static_cast<size_t>(id)] = place;
  return place;
}

Result<Place> PlanBuilder::OrderedPlace(GraphValueId id, const Order& order, std::map<GraphValueId, Place>* copies) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(id));
  const GraphValue value = graph_.value(id);
  if (IsOrdered(place, value.dims, order)) return place;
  if (const auto found = copies->find(id); found != copies->end()) return found->second;
  // A view of weights (a transposed table of embeddings) is made once, not copied in every call.
  if (value.prepack && SameOrder(value.dims, order, RowMajor(value.rank()))) return Recipe(id);
  const Place copy = AllocateBuffer(value.dtype, value.dims, order);
  RETURN_IF_ERROR(AddCopy(place, copy, value.dtype, value.dims, {"copy", {}}));
  copies->emplace(id, copy);
  return copy;
}

Result<Place> PlanBuilder::RowMajorPlace(GraphValueId id) {
  return OrderedPlace(id, RowMajor(graph_.value(id).rank()), &row_major_);
}

Result<Place> PlanBuilder::ChannelsLastPlace(GraphValueId id) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(id));
  const GraphValue& value = graph_.value(id);
  if (graph_.IsOne(value.dims[1]) || symbols().ProvenEqual(place.strides[1], kOne)) return place;
  return OrderedPlace(id, ChannelsLast(value.rank()), &channels_last_);
}

Status PlanBuilder::PreferChannelsLast(GraphValueId id, const Group& group) {
  const GraphValue& value = graph_.value(id);
  if (value.prepack || !graph_.SameDims(value.dims, group.dims)) return {};
  const bool inside = std::ranges::any_of(
      group.nodes, [&](int32_t n) { return std::ranges::count(graph_.nodes[static_cast<size_t>(n)].outputs, id) > 0; });
  if (inside) return {};
  ASSIGN_OR_RETURN(places_[static_cast<size_t>(id)], ChannelsLastPlace(id));
  return {};
}

Result<Operand> PlanBuilder::Broadcast(const Place& place, DType dtype, const std::vector<Dim>& dims,
                                       const std::vector<Dim>& space) {
  Operand operand{place, dtype, dims, std::vector<Dim>(space.size(), kZero)};
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t at = i + space.size() - dims.size();
    if (symbols().ProvenEqual(dims[i], space[at])) {
      operand.strides[at] = graph_.IsOne(dims[i]) ? kZero : place.strides[i];
    } else if (!graph_.IsOne(dims[i])) {
      return Fail(ErrorCode::kUnsupported, "dim " + symbols().ToString(dims[i]) + " is neither 1 nor known to be " +
                                               symbols().ToString(space[at]));
    }
  }
  return operand;
}

Result<Operand> PlanBuilder::BroadcastValue(GraphValueId id, const std::vector<Dim>& space) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(id));
  return Broadcast(place, graph_.value(id).dtype, graph_.value(id).dims, space);
}

GraphValueId PlanBuilder::AddMade(DType dtype, std::vector<Dim> dims, const Place& place) {
  const GraphValueId id = graph_.AddValue(dtype, std::move(dims));
  places_.resize(graph_.values.size());
  places_[static_cast<size_t>(id)] = place;
  return id;
}

int32_t PlanBuilder::AddPlanValue(const Place& place, DType dtype, const std::vector<Dim>& dims) {
  const auto same = [&](const PlanValue& value) {
    return value.storage == place.storage && value.index == place.index && value.dtype == dtype &&
           value.offset == place.offset && value.dims == dims && value.strides == place.strides;
  };
  const auto found = std::ranges::find_if(plan_.values, same);
  if (found != plan_.values.end()) return static_cast<int32_t>(found - plan_.values.begin());
  plan_.values.push_back({place.storage, place.index, dtype, place.offset, dims, place.strides});
  return static_cast<int32_t>(plan_.values.size() - 1);
}

Status PlanBuilder::AddKernel(ir::KernelSpec spec, std::vector<int32_t> pointers, KernelArguments arguments, Dim range,
                              Dim cost, StepText text) {
  spec.pointers = static_cast<int32_t>(pointers.size());
  spec.dims = static_cast<int32_t>(arguments.dims.size());
  if (Status status = ir::VerifySpec(spec); !status) return FailIn("kernel for " + text.label, status.error());
  text.label += "; " + ir::SpecForm(spec);
  auto found = std::find(specs_.begin(), specs_.end(), spec);
  if (found == specs_.end()) found = specs_.insert(specs_.end(), std::move(spec));
  const auto kernel = static_cast<int32_t>(found - specs_.begin());
  step_groups_.push_back(group_);
  plan_.steps.push_back({KernelStep{kernel, std::move(pointers), std::move(arguments.dims), range, cost, kZero},
                         std::move(text.nodes), std::move(text.label)});
  return {};
}

void PlanBuilder::AddReference(ReferenceStep step, StepText text) {
  step_groups_.push_back(group_);
  plan_.steps.push_back({std::move(step), std::move(text.nodes), std::move(text.label)});
}

Status PlanBuilder::PlaceOutput(size_t index) {
  const GraphValueId id = graph_.outputs[index];
  const GraphValue value = graph_.value(id);
  const Place own{StorageKind::kOutput, static_cast<int32_t>(index), kZero,
                  OrderedStrides(value.dims, RowMajor(value.rank()))};
  if (!output_written_[index]) {
    ASSIGN_OR_RETURN(const Place place, PlaceOf(id));
    RETURN_IF_ERROR(AddCopy(place, own, value.dtype, value.dims, {"output", {}}));
  }
  plan_.outputs.push_back(AddPlanValue(own, value.dtype, value.dims));
  return {};
}

Status PlanBuilder::Finish() {
  group_ = -1;
  for (size_t o = 0; o < graph_.outputs.size(); ++o) RETURN_IF_ERROR(PlaceOutput(o));
  SetLifetimes();
  TakePlaces(plan_, specs_);
  plan_.symbols = graph_.symbols;
  return {};
}

void PlanBuilder::SetLifetimes() {
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    const auto use = [&](int32_t index) {
      if (index < 0 || plan_.values[static_cast<size_t>(index)].storage != StorageKind::kArena) return;
      PlanBuffer& buffer = plan_.buffers[static_cast<size_t>(plan_.values[static_cast<size_t>(index)].index)];
      if (buffer.first_step < 0) buffer.first_step = static_cast<int32_t>(s);
      buffer.last_step = static_cast<int32_t>(s);
    };
    if (const auto* kernel = std::get_if<KernelStep>(&plan_.steps[s].step)) {
      std::ranges::for_each(kernel->pointers, use);
    } else {
      const auto& reference = std::get<ReferenceStep>(plan_.steps[s].step);
      std::ranges::for_each(reference.inputs, use);
      std::ranges::for_each(reference.outputs, use);
    }
  }
  // A buffer nobody uses is dropped by giving it no bytes.
  for (PlanBuffer& buffer : plan_.buffers) {
    if (buffer.first_step < 0) buffer = {kZero, 0, 0};
  }
}

}  // namespace kiln::lower
