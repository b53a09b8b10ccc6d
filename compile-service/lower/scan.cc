#include "compile-service/lower/scan.h"

#include "compile-service/lower/emit.h"
#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/nest_loops.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::ScalarOp;
using ir::Stage;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);

// From the end of `axis` to its beginning.
void TurnRound(PlanBuilder& b, size_t axis, Dim extent, Place& place) {
  SymbolTable& symbols = b.symbols();
  const Dim stride = place.strides[axis];
  place.offset = symbols.Add(place.offset, symbols.Mul(symbols.Sub(extent, kOne), stride));
  place.strides[axis] = symbols.Sub(kZero, stride);
}

// Vectors lie along the dim that memory has innermost. Where that is the axis there are none: across rows they would be
// gathered from and scattered to as many lines, which fall into one set of the cache for rows of a power of two.
NestLoops Loops(PlanBuilder& b, const std::vector<Dim>& dims, size_t axis, const Order& order, GroupBody& body) {
  NestLoops loops;
  bool vectors = false;
  for (int at : order) {
    const auto dim = static_cast<size_t>(at);
    if (b.graph().IsOne(dims[dim])) continue;
    LoopDim loop = LoopDimOf(dims[dim], body.operands(), dim);
    vectors = dim != axis;
    (vectors ? loops.outer : loops.reduce).push_back(std::move(loop));
  }
  loops.inner = vectors ? loops.outer.back() : LoopDim{kOne, std::vector<Dim>(body.operands().size(), kZero)};
  if (vectors) loops.outer.pop_back();
  Collapse(b.symbols(), &loops.outer);
  return loops;
}

}  // namespace

std::optional<int> ScanAxis(const ir::Graph& graph, const GraphNode& node) {
  if (node.op != TensorOp::kCumSum && node.op != TensorOp::kCumProd) return std::nullopt;
  const GraphValue& x = graph.value(node.inputs[0]);
  const std::optional<KnownValues>& axis = graph.value(node.inputs[1]).known;
  const std::optional<DType> type = WideType(x.dtype);
  if (!type || *type == DType::kBool || x.rank() == 0) return std::nullopt;
  if (!axis || axis->size() != 1 || !axis->front().is_const()) return std::nullopt;
  const int64_t value = axis->front().value();
  if (value < -x.rank() || value >= x.rank()) return std::nullopt;
  return ir::NormalAxis(value, x.rank());
}

Status EmitScan(PlanBuilder& b, const Group& group) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  const GraphValue x = b.graph().value(node.inputs[0]);
  const auto axis = static_cast<size_t>(group.axes.front());
  GroupBody body(b, group, group.dims);
  ASSIGN_OR_RETURN(Place from, b.PlaceOf(node.inputs[0]));
  const Order order = b.MemoryOrder(x.dims, from.strides);
  Place to = b.Allocate(node.outputs[0], order);
  if (node.attributes.Int("reverse", 0) != 0) {
    TurnRound(b, axis, x.dims[axis], from);
    TurnRound(b, axis, x.dims[axis], to);
  }
  const int32_t source = body.AddOperand({from, x.dtype, x.dims, from.strides});
  const int32_t target = body.AddOperand({to, x.dtype, x.dims, to.strides});

  const bool sum = node.op == TensorOp::kCumSum;
  const DType type = *WideType(x.dtype);
  ScalarBuilder& scalars = body.scalars();
  const int32_t running = scalars.Add({ScalarOp::kStageResult, type});
  const int32_t next = scalars.Op(sum ? ScalarOp::kAdd : ScalarOp::kMul, type, running, scalars.Load(type, source));
  const bool exclusive = node.attributes.Int("exclusive", 0) != 0;

  const NestLoops loops = Loops(b, x.dims, axis, order, body);
  KernelArguments arguments;
  ir::LoopNestSpec spec;
  FillNest(loops, body, arguments, spec);
  spec.body = scalars.Take();
  spec.stages.push_back({Stage::Kind::kScan,
                         sum ? ir::Combine::kSum : ir::Combine::kProduct,
                         next,
                         Stage::Domain::kFull,
                         {{target, exclusive ? running : next}}});
  return b.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), RangeOfNest(b, loops), body.Cost(),
                     body.Text());
}

}  // namespace kiln::lower
