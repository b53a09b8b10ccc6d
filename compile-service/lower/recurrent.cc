// LSTM, GRU and RNN: one product for the inputs of all time steps, then one kernel per direction that loops over time.
#include <algorithm>
#include <array>

#include "compile-service/lower/emit.h"
#include "compile-service/lower/recurrent_cell.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::RecurrentSpec;
using ir::RecurrentStage;
using ir::SpecInt;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);
constexpr int32_t kTileRowsMax = 8;
// Rows whose sums should fit beside each other.
constexpr int32_t kTileRows = 3;

// Sums that registers hold beside the factors, per rung of x86 and for Arm; a device has a block of threads per row.
int32_t SumsMax(const TargetInfo& info) {
  if (!info.has_register_tiles()) return 1;
  if (info.architecture == Architecture::kArm) return 20;
  return info.rung >= 4 ? 24 : 10;
}

// Elements [first, first + count) of dim `axis` of a prepacked value.
GraphValueId Part(PlanBuilder& b, GraphValueId x, size_t axis, int64_t first, int64_t count) {
  std::vector<Dim> dims = b.graph().value(x).dims;
  if (first == 0 && dims[axis] == Dim::Const(count)) return x;
  std::vector<Dim> starts(dims.size(), kZero);
  starts[axis] = Dim::Const(first);
  Attributes attributes;
  attributes.Set("starts", std::move(starts));
  attributes.Set("steps", std::vector<int64_t>(dims.size(), 1));
  dims[axis] = Dim::Const(count);
  return b.AddPrepackNode(TensorOp::kSlice, {x}, std::move(dims), std::move(attributes));
}

GraphValueId Reshaped(PlanBuilder& b, GraphValueId x, std::initializer_list<int64_t> list) {
  std::vector<Dim> dims;
  for (int64_t extent : list) dims.push_back(Dim::Const(extent));
  return b.AddPrepackNode(TensorOp::kReshape, {x}, std::move(dims));
}

GraphValueId Transposed(PlanBuilder& b, GraphValueId x, std::vector<int64_t> perm) {
  const std::vector<Dim> from = b.graph().value(x).dims;
  std::vector<Dim> dims;
  for (int64_t dim : perm) dims.push_back(from[static_cast<size_t>(dim)]);
  Attributes attributes;
  attributes.Set("perm", std::move(perm));
  return b.AddPrepackNode(TensorOp::kTranspose, {x}, std::move(dims), std::move(attributes));
}

class RecurrentEmitter {
 public:
  RecurrentEmitter(PlanBuilder& builder, const Group& group, RecurrentCell cell)
      : b_(builder),
        group_(group),
        node_(builder.graph().nodes[static_cast<size_t>(group.nodes.front())]),
        cell_(std::move(cell)) {}

  Status Emit() {
    RETURN_IF_ERROR(ProjectInputs());
    ASSIGN_OR_RETURN(lengths_, CheckedLengths());
    for (size_t o = 0; o < 3; ++o) RETURN_IF_ERROR(PlaceOutput(o));
    for (int64_t d = 0; d < cell_.directions; ++d) RETURN_IF_ERROR(EmitDirection(d));
    return {};
  }

 private:
  // What one direction's kernel is made of.
  struct Kernel {
    RecurrentSpec spec;
    std::vector<int32_t> pointers;
    KernelArguments arguments;
  };

  bool Has(size_t input) const { return input < node_.inputs.size() && node_.inputs[input] >= 0; }
  bool Wants(size_t output) const { return output < node_.outputs.size() && node_.outputs[output] >= 0; }
  SymbolTable& symbols() { return b_.symbols(); }
  Dim units() const { return Dim::Const(cell_.units); }
  int64_t wide() const { return cell_.gates * cell_.units; }

  // The lengths of the rows; nothing when all rows have all steps. Whether they lie within time is ReverseSequence's
  // rule too: it is asked, with a byte per step, before a kernel believes them.
  Result<std::optional<Place>> CheckedLengths() {
    if (!cell_.has_lengths) return std::nullopt;
    ASSIGN_OR_RETURN(const Place lengths, b_.RowMajorPlace(node_.inputs[4]));
    const std::vector<Dim> dims{cell_.time, cell_.rows};
    const auto bytes = [&] {
      return b_.AddPlanValue(b_.AllocateBuffer(DType::kU8, dims, RowMajor(2)), DType::kU8, dims);
    };
    ReferenceStep step{TensorOp::kReverseSequence, {}, {}, {}};
    step.attributes.Set("time_axis", int64_t{0});
    step.attributes.Set("batch_axis", int64_t{1});
    step.inputs = {bytes(), b_.AddPlanValue(lengths, DType::kI32, {cell_.rows})};
    step.outputs = {bytes()};
    b_.AddReference(std::move(step), {"check lengths", node_.sources});
    return lengths;
  }

  // x * W^T and the biases that are only added, for all directions and steps.
  Status ProjectInputs() {
    const std::vector<Dim> x = b_.graph().value(node_.inputs[0]).dims;
    const int64_t columns = cell_.directions * wide(), features = cell_.features;
    const GraphValueId weights = Transposed(b_, Reshaped(b_, node_.inputs[1], {columns, features}), {1, 0});
    GraphValueId bias = -1;
    if (Has(3)) {
      bias = Part(b_, node_.inputs[3], 1, 0, wide());
      const std::vector<Dim> dims = b_.graph().value(bias).dims;
      const int64_t plain = cell_.BiasesState() ? wide() - cell_.units : wide();
      GraphValueId state = Part(b_, node_.inputs[3], 1, wide(), plain);
      if (plain < wide()) {
        const GraphValueId pads = b_.AddIntegers({0, 0, 0, wide() - plain});
        state = b_.AddPrepackNode(TensorOp::kPad, {state, pads}, dims);
      }
      bias = Reshaped(b_, b_.AddPrepackNode(TensorOp::kAdd, {bias, state}, dims), {columns});
    }
    const std::vector<Dim> dims{x[0], x[1], Dim::Const(columns)};
    projected_ = b_.AllocateBuffer(DType::kF32, dims, RowMajor(3));
    return EmitProjection(b_, {GroupKind::kProduct, group_.nodes, dims, {}}, node_.inputs[0], weights, bias,
                          projected_);
  }

  Status PlaceOutput(size_t output) {
    if (!Wants(output)) return {};
    const GraphValueId id = node_.outputs[output];
    const Order order = RowMajor(b_.graph().value(id).rank());
    outputs_[output] = output == 0 ? b_.Allocate(id, order) : b_.AllocateDense(id, order);
    return {};
  }

  // An access over time, rows and units.
  int32_t AddAccess(Kernel& kernel, Place place, std::vector<Dim> strides) {
    const Dim extents[] = {cell_.time, cell_.rows, units()};
    std::vector<Dim> dims;
    place.strides.clear();
    for (size_t i = 0; i < 3; ++i) {
      if (strides[i] == kZero) continue;
      dims.push_back(extents[i]);
      place.strides.push_back(strides[i]);
    }
    ir::Access access{Pointer(kernel, place, DType::kF32, std::move(dims)), DType::kF32, {}};
    for (Dim stride : strides) access.strides.push_back(kernel.arguments.Stride(stride));
    kernel.spec.accesses.push_back(std::move(access));
    return static_cast<int32_t>(kernel.spec.accesses.size()) - 1;
  }

  int32_t Pointer(Kernel& kernel, const Place& place, DType dtype, std::vector<Dim> dims) {
    kernel.pointers.push_back(b_.AddPlanValue(place, dtype, dims));
    return static_cast<int32_t>(kernel.pointers.size()) - 1;
  }

  // Direction `d` of a state [directions, rows, units], or rows first.
  int32_t AddState(Kernel& kernel, Place place, int64_t d) {
    const size_t direction = cell_.batch_first ? 1 : 0;
    place.offset = symbols().Add(place.offset, symbols().Mul(Dim::Const(d), place.strides[direction]));
    const Dim row = place.strides[1 - direction], unit = place.strides[2];
    return AddAccess(kernel, std::move(place), {kZero, row, unit});
  }

  // Rows of state of this kernel alone.
  int32_t AddBuffer(Kernel& kernel) {
    return AddAccess(kernel, b_.AllocateBuffer(DType::kF32, {cell_.rows, units()}, RowMajor(2)),
                     {kZero, units(), kOne});
  }

  // The state that output `output` ends as.
  int32_t AddRunningState(Kernel& kernel, size_t output, int64_t d) {
    return Wants(output) ? AddState(kernel, *outputs_[output], d) : AddBuffer(kernel);
  }

  Result<int32_t> AddInitial(Kernel& kernel, size_t input, int64_t d) {
    if (!Has(input)) return -1;
    ASSIGN_OR_RETURN(const Place place, b_.PlaceOf(node_.inputs[input]));
    return AddState(kernel, place, d);
  }

  // Units [first, first + units) of row `d` of weights [directions, …].
  Result<int32_t> AddVector(Kernel& kernel, GraphValueId weights, int64_t d, int64_t first) {
    ASSIGN_OR_RETURN(Place place, b_.RowMajorPlace(weights));
    place.offset =
        symbols().Add(place.offset, symbols().Add(symbols().Mul(Dim::Const(d), place.strides[0]), Dim::Const(first)));
    return AddAccess(kernel, place, {kZero, kZero, kOne});
  }

  Result<CellAccesses> AddAccesses(Kernel& kernel, int64_t d) {
    CellAccesses at;
    const size_t time = cell_.batch_first ? 1 : 0;
    for (int64_t gate = 0; gate < cell_.gates; ++gate) {
      Place place = projected_;
      place.offset = Dim::Const(d * wide() + gate * cell_.units);
      const Dim moves[] = {place.strides[time], place.strides[1 - time], kOne};
      at.x.push_back(AddAccess(kernel, place, {moves[0], moves[1], moves[2]}));
    }
    at.h = AddRunningState(kernel, 1, d);
    ASSIGN_OR_RETURN(at.h0, AddInitial(kernel, 5, d));
    if (cell_.op == TensorOp::kLSTM) {
      at.c = AddRunningState(kernel, 2, d);
      ASSIGN_OR_RETURN(at.c0, AddInitial(kernel, 6, d));
      for (int64_t gate = 0; gate < 3 && Has(7); ++gate) {
        ASSIGN_OR_RETURN(at.peepholes.emplace_back(), AddVector(kernel, node_.inputs[7], d, gate * cell_.units));
      }
    }
    if (cell_.BiasesState() && Has(3)) {
      ASSIGN_OR_RETURN(at.candidate_bias, AddVector(kernel, node_.inputs[3], d, 2 * wide() - cell_.units));
    }
    at.work = AddBuffer(kernel);
    if (cell_.IsTwoProducts()) at.update = AddBuffer(kernel);
    if (Wants(0)) {
      Place y = *outputs_[0];
      const size_t direction = cell_.batch_first ? 2 : 1, row = cell_.batch_first ? 0 : 2;
      y.offset = symbols().Add(y.offset, symbols().Mul(Dim::Const(d), y.strides[direction]));
      const std::vector<Dim> moves{y.strides[cell_.batch_first ? 1 : 0], y.strides[row], y.strides[3]};
      at.y = AddAccess(kernel, y, moves);
    }
    return at;
  }

  // How many vectors of units make a block: enough sums to hide a multiply-add's latency, and few wasted columns. The
  // same for any number of rows, so that plans share the packed weights.
  int32_t VectorsOf(int32_t gates) const {
    const int64_t lanes = b_.f32_lanes(), vectors = (cell_.units + lanes - 1) / lanes;
    const int32_t most = gates == 0 ? 4 : std::max(1, SumsMax(InfoOf(b_.target())) / kTileRows / gates);
    int32_t best = 1;
    for (int32_t v = 2; v <= std::min<int64_t>(most, vectors); ++v) {
      const int64_t padded = (vectors + v - 1) / v * v, least = (vectors + best - 1) / best * best;
      if (padded <= least) best = v;
    }
    return best;
  }

  // Gates [first, first + gates) of R as [blocks][units][gates][vectors * lanes].
  Result<int32_t> AddPanels(Kernel& kernel, const RecurrentStage& stage, int64_t d, int64_t first) {
    const int64_t gates = stage.gates, n = cell_.units, width = int64_t{stage.vectors} * b_.f32_lanes();
    const int64_t blocks = (n + width - 1) / width;
    GraphValueId r = Part(b_, Part(b_, node_.inputs[2], 0, d, 1), 1, first * n, gates * n);
    r = Reshaped(b_, b_.WithoutDenormals(r), {gates, n, n});
    if (blocks * width != n) {
      const GraphValueId pads = b_.AddIntegers({0, 0, 0, 0, blocks * width - n, 0});
      r = b_.AddPrepackNode(TensorOp::kPad, {r, pads}, {Dim::Const(gates), Dim::Const(blocks * width), Dim::Const(n)});
    }
    r = Transposed(b_, Reshaped(b_, r, {gates, blocks, width, n}), {1, 3, 0, 2});
    const std::vector<Dim> dims = b_.graph().value(r).dims;
    ASSIGN_OR_RETURN(const Place panels, b_.Recipe(r));
    return Pointer(kernel, panels, DType::kF32, dims);
  }

  Status EmitDirection(int64_t d) {
    Kernel kernel;
    RecurrentSpec& spec = kernel.spec;
    spec.time = kernel.arguments.Argument(cell_.time);
    spec.rows = kernel.arguments.UpTo(cell_.rows, 1);
    spec.units = static_cast<int32_t>(cell_.units);
    spec.reversed = cell_.reverse_only || d == 1;
    ASSIGN_OR_RETURN(const CellAccesses at, AddAccesses(kernel, d));
    CellStages stages = StagesOf(cell_, at, d);
    int32_t most = 1;  // sums of one row
    for (auto* list : {&stages.before, &stages.steps, &stages.after})
      for (RecurrentStage& stage : *list) {
        stage.vectors = VectorsOf(stage.gates);
        most = std::max(most, stage.gates * stage.vectors);
      }
    if (lengths_) {
      spec.lengths = Pointer(kernel, *lengths_, DType::kI32, {cell_.rows});
    } else {
      const int64_t rows = std::max<int64_t>(1, b_.RawHint(cell_.rows));
      spec.tile_rows = static_cast<int32_t>(
          std::min<int64_t>({rows, kTileRowsMax, std::max(1, SumsMax(InfoOf(b_.target())) / most)}));
    }
    int64_t gate = 0;
    for (RecurrentStage& stage : stages.steps) {
      if (stage.gates == 0) continue;
      ASSIGN_OR_RETURN(stage.panels, AddPanels(kernel, stage, d, gate));
      gate += stage.gates;
    }
    spec.before = std::move(stages.before);
    spec.steps = std::move(stages.steps);
    if (lengths_) spec.after = std::move(stages.after);
    const Dim range = symbols().CeilDiv(cell_.rows, Dim::Const(spec.tile_rows));
    const Dim cost = symbols().Mul(symbols().Mul(cell_.time, cell_.rows), Dim::Const(2 * wide() * cell_.units));
    std::string name(OpInfo(cell_.op).name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (spec.reversed) name += " reversed";
    return b_.AddKernel({std::move(spec)}, std::move(kernel.pointers), std::move(kernel.arguments), range, cost,
                        {std::move(name), node_.sources});
  }

  PlanBuilder& b_;
  const Group& group_;
  const GraphNode node_;
  const RecurrentCell cell_;
  std::optional<Place> lengths_;
  Place projected_;  // [time, rows, directions * gates * units], or rows first
  std::array<std::optional<Place>, 3> outputs_;
};

}  // namespace

Status EmitRecurrent(PlanBuilder& b, const Group& group) {
  ASSIGN_OR_RETURN(RecurrentCell cell, CellOf(b.graph(), b.graph().nodes[static_cast<size_t>(group.nodes.front())]));
  return RecurrentEmitter(b, group, std::move(cell)).Emit();
}

}  // namespace kiln::lower
