// Attention: two products with a softmax between them, as one kernel.
#include <algorithm>

#include "compile-service/lower/emit.h"
#include "compile-service/lower/kernel_cost.h"
#include "compile-service/lower/loop_dims.h"

namespace kiln::lower {

using ir::AttentionSpec;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;

namespace {

// Rows of scores and of results are as many as accumulators that cover the latency of a multiply-add; they should
// divide common sizes of heads.
ir::Tile TileFor(const TargetInfo& info, int64_t queries) {
  if (!info.has_register_tiles()) return {8, 1};  // a block's threads at a time
  const bool many_registers = info.architecture == Architecture::kArm || info.f32_lanes() == 16;
  return {many_registers ? 8 : 4, queries <= info.f32_lanes() ? 1 : 2};
}

// A tensor of matrices: its operand over the batch of the scores, and the strides within a matrix.
struct Matrices {
  Operand operand;
  Dim row, element;
};

Result<Matrices> MatricesOf(PlanBuilder& b, const Place& place, GraphValueId id, const std::vector<Dim>& batch_space,
                            bool transposed) {
  const GraphValue value = b.graph().value(id);
  const size_t rank = value.dims.size();
  Place batch = place;
  batch.strides.resize(rank - 2);
  const std::vector<Dim> batch_dims(value.dims.begin(), value.dims.end() - 2);
  Matrices matrices;
  ASSIGN_OR_RETURN(matrices.operand, b.Broadcast(batch, value.dtype, batch_dims, batch_space));
  matrices.operand.place = place;
  matrices.operand.dims = value.dims;
  matrices.row = place.strides[transposed ? rank - 1 : rank - 2];
  matrices.element = place.strides[transposed ? rank - 2 : rank - 1];
  return matrices;
}

// Where the only reader transposes the result, it is stored as it will be read.
Order ResultOrder(const ir::Graph& graph, GraphValueId id) {
  const Order row_major = RowMajor(graph.value(id).rank());
  const GraphNode* reader = nullptr;
  for (const GraphNode& node : graph.nodes) {
    if (std::ranges::find(node.inputs, id) == node.inputs.end()) continue;
    if (reader != nullptr) return row_major;
    reader = &node;
  }
  if (reader == nullptr || reader->op != TensorOp::kTranspose) return row_major;
  Order order;
  for (int64_t dim : reader->attributes.Ints("perm")) order.push_back(static_cast<int>(dim));
  return order.size() == row_major.size() ? order : row_major;
}

}  // namespace

Status EmitAttention(PlanBuilder& b, const Group& group) {
  std::vector<GraphNode> nodes;
  for (int32_t n : group.nodes) nodes.push_back(b.graph().nodes[static_cast<size_t>(n)]);
  const GraphNode &product = nodes.front(), &softmax = nodes[nodes.size() - 2], &result = nodes.back();
  const std::vector<Dim> space = b.graph().value(softmax.inputs[0]).dims;
  const size_t rank = space.size();
  GroupBody body(b, group, space);
  AttentionSpec spec;
  body.Define(product.outputs[0], body.scalars().Add({ir::ScalarOp::kAccumulator, DType::kF32}));
  for (size_t i = 1; i + 2 < nodes.size(); ++i) RETURN_IF_ERROR(body.AddNode(nodes[i]));
  ASSIGN_OR_RETURN(spec.score, body.Scalar(softmax.inputs[0]));

  const std::vector<Dim> batch_space(space.begin(), space.end() - 2);
  ASSIGN_OR_RETURN(const Place q_place, b.PlaceOf(product.inputs[0]));
  ASSIGN_OR_RETURN(const Place k_place, b.PlaceOf(product.inputs[1]));
  ASSIGN_OR_RETURN(const Place v_place, b.PlaceOf(result.inputs[1]));
  const Place out_place = b.Allocate(result.outputs[0], ResultOrder(b.graph(), result.outputs[0]));
  ASSIGN_OR_RETURN(const Matrices q, MatricesOf(b, q_place, product.inputs[0], batch_space, false));
  ASSIGN_OR_RETURN(const Matrices k, MatricesOf(b, k_place, product.inputs[1], batch_space, true));
  ASSIGN_OR_RETURN(const Matrices v, MatricesOf(b, v_place, result.inputs[1], batch_space, false));
  ASSIGN_OR_RETURN(const Matrices out, MatricesOf(b, out_place, result.outputs[0], batch_space, false));
  const Matrices* const tensors[] = {&q, &k, &v, &out};

  // Per batch dim the strides of the four tensors, then of every operand of the scores.
  std::vector<LoopDim> batch;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (b.graph().IsOne(space[i])) continue;
    LoopDim dim{space[i], {}};
    for (const Matrices* tensor : tensors) dim.strides.push_back(tensor->operand.strides[i]);
    for (const Operand& operand : body.operands()) dim.strides.push_back(operand.strides[i]);
    batch.push_back(std::move(dim));
  }
  Collapse(b.symbols(), &batch);

  KernelArguments arguments;
  for (const LoopDim& dim : batch) spec.batch.push_back(arguments.Argument(dim.extent));
  const Dim queries = space[rank - 2], keys = space[rank - 1];
  spec.m = arguments.UpTo(queries, 1);
  spec.n = arguments.UpTo(keys, 1);
  spec.key_elements = static_cast<int32_t>(b.graph().value(product.inputs[0]).dims.back().value());
  spec.value_elements = static_cast<int32_t>(group.dims.back().value());
  spec.tile = TileFor(InfoOf(b.target()), b.RawHint(queries));
  ir::Access* const accesses[] = {&spec.q, &spec.k, &spec.v, &spec.out};
  for (size_t t = 0; t < 4; ++t) {
    *accesses[t] = {body.Pointer(tensors[t]->operand), DType::kF32, {}};
    for (const LoopDim& dim : batch) accesses[t]->strides.push_back(arguments.Stride(dim.strides[t]));
    accesses[t]->strides.push_back(arguments.Stride(tensors[t]->row));
    accesses[t]->strides.push_back(arguments.Stride(tensors[t]->element));
  }
  for (size_t a = 0; a < body.operands().size(); ++a) {
    const Operand operand = body.operands()[a];
    ir::Access access{body.Pointer(operand), operand.dtype, {}};
    for (const LoopDim& dim : batch) access.strides.push_back(arguments.Stride(dim.strides[a + 4]));
    access.strides.push_back(arguments.Stride(operand.strides[rank - 1]));
    access.strides.push_back(arguments.Stride(operand.strides[rank - 2]));
    spec.accesses.push_back(std::move(access));
  }
  spec.scores = body.scalars().Take();

  SymbolTable& symbols = b.symbols();
  Dim range = symbols.CeilDiv(queries, Dim::Const(int64_t{spec.tile.nv} * b.f32_lanes()));
  for (const LoopDim& dim : batch) range = symbols.Mul(range, dim.extent);
  const int64_t per_score = 2 * (int64_t{spec.key_elements} + spec.value_elements) + 20;
  Dim cached = symbols.Mul(keys, Dim::Const(int64_t{spec.key_elements} + spec.value_elements));
  for (const LoopDim& dim : batch) cached = symbols.Mul(cached, dim.extent);
  const Dim cost = symbols.Add(symbols.Mul(b.graph().Elements(space), Dim::Const(per_score)),
                               CostOfReading(symbols, cached, DType::kF32));
  return b.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), range, cost, body.Text("attention"));
}

}  // namespace kiln::lower
