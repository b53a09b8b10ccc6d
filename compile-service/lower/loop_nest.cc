// Element-wise chains, row groups and copies as loop nests.
#include <algorithm>

#include "compile-service/lower/emit.h"
#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/lookup.h"
#include "compile-service/lower/nest_loops.h"
#include "compile-service/lower/positional.h"
#include "compile-service/lower/reduction.h"
#include "compile-service/lower/resample.h"
#include "compile-service/lower/scalar_nodes.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::LoopNestSpec;
using ir::Stage;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);

bool IsReduction(const GraphNode& node) {
  return OpInfo(node.op).family == OpFamily::kReduction;
}

// Loops in the order of memory, neighbours made one where they can be.
NestLoops ShapeNest(PlanBuilder& builder, const std::vector<Dim>& space, const std::vector<int>& axes,
                    const Order& order, GroupBody& body) {
  // A dim that an element's place is asked for stays a loop of its own, as if an operand had only that dim.
  std::vector<Operand> operands = body.operands();
  for (size_t dim : body.positions()) {
    operands.emplace_back().strides.assign(space.size(), kZero);
    operands.back().strides[dim] = kOne;
  }
  NestLoops loops;
  for (int dim : order) {
    if (builder.graph().IsOne(space[static_cast<size_t>(dim)])) continue;
    const bool reduced = std::ranges::find(axes, dim) != axes.end();
    (reduced ? loops.reduce : loops.outer)
        .push_back(LoopDimOf(space[static_cast<size_t>(dim)], operands, static_cast<size_t>(dim)));
    loops.reduce_inner = reduced;
  }
  const LoopDim unit{kOne, std::vector<Dim>(operands.size(), kZero)};
  if (!axes.empty() && loops.reduce.empty()) {
    loops.reduce.push_back(unit);
    loops.reduce_inner = true;
  }
  Collapse(builder.symbols(), &loops.outer);
  Collapse(builder.symbols(), &loops.reduce);
  std::vector<LoopDim>& innermost = loops.reduce_inner ? loops.reduce : loops.outer;
  loops.inner = innermost.empty() ? unit : innermost.back();
  if (!innermost.empty()) innermost.pop_back();
  return loops;
}

// The body's program, with loops where it names dims of the space.
ir::ScalarProgram TakeProgram(const NestLoops& loops, GroupBody& body) {
  ir::ScalarProgram program = body.scalars().Take();
  std::vector<const LoopDim*> dims;
  for (const LoopDim& dim : loops.outer) dims.push_back(&dim);
  for (const LoopDim& dim : loops.reduce) dims.push_back(&dim);
  dims.push_back(&loops.inner);
  for (ir::ScalarNode& node : program) {
    if (node.op != ir::ScalarOp::kCoordinate) continue;
    const auto asked = std::ranges::find(body.positions(), static_cast<size_t>(node.index));
    const auto column = body.operands().size() + static_cast<size_t>(asked - body.positions().begin());
    const auto loop = std::ranges::find_if(dims, [&](const LoopDim* dim) { return dim->strides[column] != kZero; });
    if (loop == dims.end()) {  // one place only
      node = {ir::ScalarOp::kConstant, DType::kI64};
    } else {
      node.index = static_cast<int32_t>(loop - dims.begin());
    }
  }
  return program;
}

// A node of a nest that computes element by element; `moves`: bits of any dtype.
Status AddElements(PlanBuilder& b, GroupBody& body, KernelArguments& arguments, const GraphNode& node, bool moves) {
  if (IsPositional(b.graph(), node)) return AddPositional(b, body, arguments, node);
  if (NeedsDivisorCheck(b.graph(), node)) {
    const std::vector<Dim> quotient = b.graph().value(node.outputs[0]).dims;
    RETURN_IF_ERROR(b.AddDivisorCheck(node.inputs[1], quotient, node.sources));
  }
  if (!IsLookup(b.graph(), node) && !IsResample(node)) return body.AddNode(node);
  const DType dtype = b.graph().value(node.outputs[0]).dtype;
  const DType type = moves ? BitsOf(dtype).type : ComputeType(dtype);
  return IsResample(node) ? AddResample(b, body, arguments, node, type) : AddLookup(b, body, arguments, node, type);
}

// The stages of a row group, in the order of its nodes.
class RowStages {
 public:
  RowStages(PlanBuilder& builder, const Group& group, GroupBody& body, KernelArguments& arguments)
      : builder_(builder), group_(group), body_(body), arguments_(arguments) {}

  Status AddNodes() {
    for (int32_t n : group_.nodes) {
      const GraphNode node = builder_.graph().nodes[static_cast<size_t>(n)];
      if (IsArgReduction(builder_.graph(), node)) {
        ASSIGN_OR_RETURN(const int32_t x, body_.Scalar(node.inputs[0]));
        AddArgReduction(body_, builder_.graph(), node, x, stages_);
      } else if (IsReduction(node)) {
        RETURN_IF_ERROR(AddReduction(node));
      } else {
        RETURN_IF_ERROR(AddElements(builder_, body_, arguments_, node, false));
      }
    }
    return {};
  }

  // Values that are dear to compute and read by a reduction and again later are kept in the memory of the final result.
  void KeepDearValues(GraphValueId result, int32_t access) {
    for (int32_t n : group_.nodes) {
      const GraphNode& node = builder_.graph().nodes[static_cast<size_t>(n)];
      if (node.op != TensorOp::kExp || node.outputs[0] == result || kept_ >= 0) continue;
      if (!builder_.graph().SameDims(builder_.graph().value(node.outputs[0]).dims, group_.dims)) continue;
      if (Readers(node.outputs[0]) > 1) kept_ = node.outputs[0];
    }
    kept_access_ = access;
  }

  std::vector<Stage> Take() { return std::move(stages_); }

 private:
  int Readers(GraphValueId id) const {
    int readers = 0;
    for (int32_t n : group_.nodes) {
      readers += static_cast<int>(std::ranges::count(builder_.graph().nodes[static_cast<size_t>(n)].inputs, id));
    }
    return readers;
  }

  Status AddReduction(const GraphNode& node) {
    ASSIGN_OR_RETURN(int32_t term, body_.Scalar(node.inputs[0]));
    if (node.inputs[0] == kept_) {
      stages_.push_back({Stage::Kind::kStore, ir::Combine::kSum, 0, Stage::Domain::kFull, {{kept_access_, term}}});
      term = body_.scalars().Load(DType::kF32, kept_access_);
      body_.Define(kept_, term);
      kept_ = -1;
    }
    const DType dtype = builder_.graph().value(node.inputs[0]).dtype;
    const Reduction reduction = *ReductionOf(node.op, dtype);
    ScalarBuilder& scalars = body_.scalars();
    term = scalars.As(reduction.type, term);
    const auto stage = static_cast<int32_t>(stages_.size());
    stages_.push_back({Stage::Kind::kReduce, reduction.combine, term, Stage::Domain::kInner, {}});
    int32_t result = scalars.Add({ir::ScalarOp::kStageResult, reduction.type, -1, -1, -1, stage});
    if (node.op == TensorOp::kReduceMean) result = Mean(result, reduction.type);
    body_.Define(node.outputs[0], AddReduced(scalars, reduction, dtype, result));
    return {};
  }

  int32_t Mean(int32_t sum, DType type) {
    ScalarBuilder& scalars = body_.scalars();
    Dim count = kOne;
    for (int axis : group_.axes) count = builder_.symbols().Mul(count, group_.dims[static_cast<size_t>(axis)]);
    if (IsFloat(type) && count.is_const()) {
      // Divided: the mean of equal numbers is that number, wherever their sum is exact.
      return scalars.Op(ir::ScalarOp::kDiv, type, sum, scalars.Number(type, static_cast<double>(count.value())));
    }
    if (count_argument_ < 0) count_argument_ = static_cast<int32_t>(arguments_.Argument(count).value);
    const int32_t argument = scalars.Integer(ir::SpecInt::Argument(count_argument_));
    return scalars.Op(ir::ScalarOp::kDiv, type, sum, scalars.As(type, argument));
  }

  PlanBuilder& builder_;
  const Group& group_;
  GroupBody& body_;
  KernelArguments& arguments_;
  std::vector<Stage> stages_;
  GraphValueId kept_ = -1;
  int32_t kept_access_ = -1;
  int32_t count_argument_ = -1;
};

// The order of the first full-size external operand of a row group, found before its body exists.
Result<Order> RowOrder(PlanBuilder& builder, const Group& group) {
  for (int32_t n : group.nodes) {
    const GraphNode node = builder.graph().nodes[static_cast<size_t>(n)];
    for (GraphValueId input : node.inputs) {
      if (input < 0 || !builder.graph().SameDims(builder.graph().value(input).dims, group.dims)) continue;
      const bool inside = std::ranges::any_of(group.nodes, [&](int32_t m) {
        return std::ranges::count(builder.graph().nodes[static_cast<size_t>(m)].outputs, input) > 0;
      });
      if (inside || builder.graph().value(input).origin == ir::Origin::kImmediate) continue;
      ASSIGN_OR_RETURN(const Place place, builder.PlaceOf(input));
      return builder.MemoryOrder(group.dims, place.strides);
    }
  }
  return RowMajor(static_cast<int>(group.dims.size()));
}

// Strides of a row value over the space: reduced dims that were dropped (keepdims = 0) are put back.
Result<Operand> RowOperand(PlanBuilder& builder, const Group& group, const Place& place, const GraphValue& value) {
  if (value.dims.size() == group.dims.size()) return builder.Broadcast(place, value.dtype, value.dims, group.dims);
  Operand operand{place, value.dtype, value.dims, std::vector<Dim>(group.dims.size(), kZero)};
  size_t next = 0;
  for (size_t i = 0; i < group.dims.size(); ++i) {
    if (std::ranges::find(group.axes, static_cast<int>(i)) == group.axes.end())
      operand.strides[i] = place.strides[next++];
  }
  return operand;
}

// The data of a lookup and what is stored of it as bits.
void MoveBits(DType dtype, const std::vector<ir::Store>& stores, LoopNestSpec& spec) {
  const DType storage = BitsOf(dtype).storage;
  for (const ir::ScalarNode& node : spec.body)
    if (node.op == ir::ScalarOp::kLoadAt) spec.accesses[static_cast<size_t>(node.index)].storage = storage;
  for (const ir::Store& store : stores) spec.accesses[static_cast<size_t>(store.access)].storage = storage;
}

}  // namespace

Status EmitElementwise(PlanBuilder& builder, const Group& group) {
  GroupBody body(builder, group, group.dims);
  KernelArguments arguments;
  bool moves = false;  // one lookup and nothing else: bits of any dtype
  for (int32_t n : group.nodes) {
    const GraphNode node = builder.graph().nodes[static_cast<size_t>(n)];
    moves = group.nodes.size() == 1 && (IsLookup(builder.graph(), node) || (IsResample(node) && OnlyMoves(node)));
    RETURN_IF_ERROR(AddElements(builder, body, arguments, node, moves));
  }
  ASSIGN_OR_RETURN(const Order order, body.PreferredOrder());
  ASSIGN_OR_RETURN(const std::vector<ir::Store> stores, body.StoreEscaping(order));
  const NestLoops loops = ShapeNest(builder, group.dims, {}, order, body);
  LoopNestSpec spec;
  FillNest(loops, body, arguments, spec);
  spec.body = TakeProgram(loops, body);
  if (moves) MoveBits(builder.graph().value(body.escaping().front()).dtype, stores, spec);
  spec.stages.push_back({Stage::Kind::kStore, ir::Combine::kSum, 0, Stage::Domain::kFull, stores});
  return builder.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), RangeOfNest(builder, loops),
                           body.Cost(), body.Text());
}

Status EmitRow(PlanBuilder& builder, const Group& group) {
  GroupBody body(builder, group, group.dims);
  KernelArguments arguments;
  ASSIGN_OR_RETURN(const Order order, RowOrder(builder, group));
  RowStages stages(builder, group, body, arguments);
  // Places of results first: a reduction may use the last full-size one as scratch.
  std::vector<int32_t> accesses;
  std::vector<bool> is_full;
  for (GraphValueId id : body.escaping()) {
    const GraphValue value = builder.graph().value(id);
    is_full.push_back(builder.graph().SameDims(value.dims, group.dims));
    const Place place = builder.Allocate(id, value.dims.size() == order.size() ? order : RowMajor(value.rank()));
    ASSIGN_OR_RETURN(Operand operand, RowOperand(builder, group, place, value));
    accesses.push_back(body.AddOperand(std::move(operand)));
  }
  for (size_t i = body.escaping().size(); i-- > 0;) {
    if (!is_full[i] || builder.graph().value(body.escaping()[i]).dtype != DType::kF32) continue;
    stages.KeepDearValues(body.escaping()[i], accesses[i]);
    break;
  }
  RETURN_IF_ERROR(stages.AddNodes());

  const NestLoops loops = ShapeNest(builder, group.dims, group.axes, order, body);
  LoopNestSpec spec;
  FillNest(loops, body, arguments, spec);
  spec.stages = stages.Take();
  const Stage::Domain row_domain = loops.reduce_inner ? Stage::Domain::kRow : Stage::Domain::kInner;
  Stage rows{Stage::Kind::kStore, ir::Combine::kSum, 0, row_domain, {}};
  Stage full{Stage::Kind::kStore, ir::Combine::kSum, 0, Stage::Domain::kFull, {}};
  for (size_t i = 0; i < accesses.size(); ++i) {
    ASSIGN_OR_RETURN(const int32_t scalar, body.Scalar(body.escaping()[i]));
    (is_full[i] ? full : rows).stores.push_back({accesses[i], scalar});
  }
  if (!rows.stores.empty()) spec.stages.push_back(std::move(rows));
  if (!full.stores.empty()) spec.stages.push_back(std::move(full));
  spec.body = TakeProgram(loops, body);
  spec.pairs_rows = PaysInPairs(builder, loops, spec.body);
  return builder.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), RangeOfNest(builder, loops),
                           body.Cost(), body.Text());
}

Status PlanBuilder::AddBitCast(const Place& from, DType from_dtype, const Place& to, DType to_dtype,
                               const std::vector<Dim>& dims, StepText text) {
  const Group none{GroupKind::kElementwise, {}, dims, {}};
  GroupBody body(*this, none, dims);
  body.AddOperand({from, from_dtype, dims, from.strides});
  body.AddOperand({to, to_dtype, dims, to.strides});
  const Order order = MemoryOrder(dims, to.strides);
  const NestLoops loops = ShapeNest(*this, dims, {}, order, body);
  KernelArguments arguments;
  LoopNestSpec spec;
  FillNest(loops, body, arguments, spec);
  const BitsType bits = BitsOf(from_dtype);
  for (ir::Access& access : spec.accesses) access.storage = bits.storage;
  const int32_t element = body.scalars().Load(bits.type, 0);
  spec.body = TakeProgram(loops, body);
  spec.stages.push_back({Stage::Kind::kStore, ir::Combine::kSum, 0, Stage::Domain::kFull, {{1, element}}});
  return AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), RangeOfNest(*this, loops), body.Cost(),
                   std::move(text));
}

Status PlanBuilder::AddCopy(const Place& from, const Place& to, DType dtype, const std::vector<Dim>& dims,
                            StepText text) {
  return AddBitCast(from, dtype, to, dtype, dims, std::move(text));
}

}  // namespace kiln::lower
