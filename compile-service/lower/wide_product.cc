// Products of f64 matrices: nests of sums, without packing or tiles.
#include "compile-service/lower/emit.h"
#include "compile-service/lower/nest_loops.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::ScalarOp;
using ir::Stage;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);

// An operand over batch…, m, k, n: it does not move along the dim that is inserted at `at` from its end.
Result<Operand> Factor(PlanBuilder& b, GraphValueId id, std::ptrdiff_t at, const std::vector<Dim>& space) {
  ASSIGN_OR_RETURN(Place place, b.PlaceOf(id));
  std::vector<Dim> dims = b.graph().value(id).dims;
  dims.insert(dims.end() - at, kOne);
  place.strides.insert(place.strides.end() - at, kZero);
  return b.Broadcast(place, DType::kF64, dims, space);
}

}  // namespace

bool IsWideProduct(const ir::Graph& graph, const GraphNode& node) {
  if (node.op != TensorOp::kMatMul) return false;
  const GraphValue &a = graph.value(node.inputs[0]), &c = graph.value(node.inputs[1]);
  return a.dtype == DType::kF64 && a.rank() >= 2 && c.rank() >= 2 && std::max(a.rank(), c.rank()) < limits::kRankMax;
}

Status EmitWideProduct(PlanBuilder& b, const Group& group) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  const size_t k = group.dims.size() - 1, n = k + 1;
  std::vector<Dim> space = group.dims;
  space.insert(space.end() - 1, b.graph().value(node.inputs[0]).dims.back());
  GroupBody body(b, group, space);
  ASSIGN_OR_RETURN(Operand left, Factor(b, node.inputs[0], 0, space));
  ASSIGN_OR_RETURN(Operand right, Factor(b, node.inputs[1], 2, space));
  Place out = b.Allocate(node.outputs[0], RowMajor(static_cast<int>(group.dims.size())));
  std::vector<Dim> strides = out.strides;
  strides.insert(strides.end() - 1, kZero);
  ScalarBuilder& scalars = body.scalars();
  const int32_t x = scalars.Load(DType::kF64, body.AddOperand(std::move(left)));
  const int32_t y = scalars.Load(DType::kF64, body.AddOperand(std::move(right)));
  const int32_t target = body.AddOperand({out, DType::kF64, group.dims, std::move(strides)});

  NestLoops loops;
  for (size_t d = 0; d < k; ++d)
    if (!b.graph().IsOne(space[d])) loops.outer.push_back(LoopDimOf(space[d], body.operands(), d));
  Collapse(b.symbols(), &loops.outer);
  loops.reduce_inner = b.graph().IsOne(space[n]);
  loops.inner = LoopDimOf(space[loops.reduce_inner ? k : n], body.operands(), loops.reduce_inner ? k : n);
  if (!loops.reduce_inner) loops.reduce.push_back(LoopDimOf(space[k], body.operands(), k));
  KernelArguments arguments;
  ir::LoopNestSpec spec;
  FillNest(loops, body, arguments, spec);
  const int32_t term = scalars.Op(ScalarOp::kMul, DType::kF64, x, y);
  const int32_t sum = scalars.Add({ScalarOp::kStageResult, DType::kF64, -1, -1, -1, 0});
  spec.stages.push_back({Stage::Kind::kReduce, ir::Combine::kSum, term, Stage::Domain::kInner, {}});
  spec.stages.push_back({Stage::Kind::kStore,
                         ir::Combine::kSum,
                         0,
                         loops.reduce_inner ? Stage::Domain::kRow : Stage::Domain::kInner,
                         {{target, sum}}});
  spec.body = scalars.Take();
  return b.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), RangeOfNest(b, loops), body.Cost(),
                     body.Text());
}

}  // namespace kiln::lower
