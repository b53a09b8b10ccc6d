#include "compile-service/lower/scatter.h"

#include <string_view>

#include "compile-service/lower/emit.h"
#include "compile-service/lower/index_position.h"
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

// How an update joins what is there.
struct Join {
  DType type;                  // computed with
  std::optional<ScalarOp> op;  // none: the update takes the place, as bits
};

// nullopt: no kernel computes it.
std::optional<Join> JoinOf(const GraphNode& node, DType dtype) {
  const std::string_view reduction = node.attributes.Text("reduction", "none");
  if (reduction == "none") return Join{BitsOf(dtype).type, {}};
  std::optional<ScalarOp> op;
  const bool is_bool = dtype == DType::kBool;
  if (reduction == "add") op = is_bool ? ScalarOp::kOr : ScalarOp::kAdd;
  if (reduction == "mul") op = is_bool ? ScalarOp::kAnd : ScalarOp::kMul;
  if (reduction == "min") op = is_bool ? ScalarOp::kAnd : ScalarOp::kMin;
  if (reduction == "max") op = is_bool ? ScalarOp::kOr : ScalarOp::kMax;
  if (!op) return std::nullopt;
  const std::optional<DType> type = WideType(dtype);
  if (!type || (dtype == DType::kU64 && (*op == ScalarOp::kMin || *op == ScalarOp::kMax))) return std::nullopt;
  return Join{*type, op};
}

IndexAxes AxesOf(const ir::Graph& graph, const GraphNode& node) {
  if (node.op == TensorOp::kScatterND)
    return {0, static_cast<size_t>(graph.value(node.inputs[1]).dims.back().value()), true};
  const int rank = graph.value(node.inputs[0]).rank();
  return {static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), rank)), 1, false};
}

class ScatterEmitter {
 public:
  ScatterEmitter(PlanBuilder& builder, const Group& group)
      : b_(builder),
        node_(builder.graph().nodes[static_cast<size_t>(group.nodes.front())]),
        axes_(AxesOf(builder.graph(), node_)),
        space_(group.dims),
        body_(builder, group, group.dims) {}

  Status Emit() {
    const GraphValue data = b_.graph().value(node_.inputs[0]), updates = b_.graph().value(node_.inputs[2]);
    const Join join = *JoinOf(node_, data.dtype);
    RETURN_IF_ERROR(b_.AddIndexCheck(node_.inputs[1], node_.inputs[0], axes_.first, axes_.tuple, node_.sources));
    ASSIGN_OR_RETURN(const Place from, b_.PlaceOf(node_.inputs[0]));
    const Place out = b_.AllocateDense(node_.outputs[0], RowMajor(data.rank()));
    RETURN_IF_ERROR(b_.AddCopy(from, out, data.dtype, data.dims, {"scatter: copy", node_.sources}));

    ASSIGN_OR_RETURN(const Place update_place, b_.PlaceOf(node_.inputs[2]));
    const int32_t source = body_.AddOperand({update_place, data.dtype, updates.dims, update_place.strides, true});
    const int32_t update = body_.scalars().Load(join.type, source);
    ASSIGN_OR_RETURN(const IndexPosition at,
                     AddIndexPosition(b_, body_, arguments_, node_, axes_, out, 0, space_.size()));
    const int32_t target = body_.AddOperand({out, data.dtype, data.dims, TargetStrides(out.strides), true});
    const int32_t place =
        body_.scalars().Add({ScalarOp::kLoadAt, join.type, at.position, at.extent, at.stride, target});
    const int32_t value = join.op ? body_.scalars().Op(*join.op, join.type, place, update) : update;

    const NestLoops loops = Loops();
    ir::LoopNestSpec spec;
    FillNest(loops, body_, arguments_, spec);
    spec.body = body_.scalars().Take();
    for (const int32_t access : {source, target})
      if (!join.op) spec.accesses[static_cast<size_t>(access)].storage = BitsOf(data.dtype).storage;
    spec.stages.push_back({Stage::Kind::kScatter, ir::Combine::kSum, place, Stage::Domain::kFull, {{target, value}}});
    return b_.AddKernel({std::move(spec)}, body_.pointers(), std::move(arguments_), RangeOfNest(b_, loops),
                        b_.symbols().Mul(b_.graph().Elements(space_), Dim::Const(kOperations)), body_.Text());
  }

 private:
  static constexpr int64_t kOperations = 8;  // of an update, roughly

  // Dims of the space along which updates may meet in one element of the data: for elements the axis, for tuples those
  // that the tuples are counted along.
  bool Meets(size_t dim) const {
    if (!axes_.tuple) return dim == axes_.first;
    return dim + 1 < b_.graph().value(node_.inputs[1]).dims.size();
  }

  // Strides of the data over the space.
  std::vector<Dim> TargetStrides(const std::vector<Dim>& strides) const {
    std::vector<Dim> over(space_.size(), kZero);
    for (size_t dim = 0, of_data = axes_.tuple ? axes_.count : 0; dim < space_.size(); ++dim) {
      if (!Meets(dim))
        over[dim] = strides[of_data++];
      else if (!axes_.tuple)
        ++of_data;
    }
    return over;
  }

  // The last dim along which no updates meet is the inner one, so that its vectors are of different elements.
  NestLoops Loops() {
    NestLoops loops;
    loops.inner = {kOne, std::vector<Dim>(body_.operands().size(), kZero)};
    for (size_t dim = 0; dim < space_.size(); ++dim) {
      if (b_.graph().IsOne(space_[dim])) continue;
      (Meets(dim) ? loops.reduce : loops.outer).push_back(LoopDimOf(space_[dim], body_.operands(), dim));
    }
    const bool vectors = !loops.outer.empty() && !b_.graph().IsOne(space_.back()) && !Meets(space_.size() - 1);
    if (vectors) {
      loops.inner = loops.outer.back();
      loops.outer.pop_back();
    }
    Collapse(b_.symbols(), &loops.outer);
    Collapse(b_.symbols(), &loops.reduce);
    return loops;
  }

  PlanBuilder& b_;
  const GraphNode node_;
  const IndexAxes axes_;
  const std::vector<Dim> space_;  // of the updates
  GroupBody body_;
  KernelArguments arguments_;
};

}  // namespace

bool IsScatter(const ir::Graph& graph, const GraphNode& node) {
  if (node.op != TensorOp::kScatterElements && node.op != TensorOp::kScatterND) return false;
  const GraphValue &data = graph.value(node.inputs[0]), &indices = graph.value(node.inputs[1]);
  const GraphValue& updates = graph.value(node.inputs[2]);
  if (indices.dtype != DType::kI32 && indices.dtype != DType::kI64) return false;
  if (data.rank() == 0 || !JoinOf(node, data.dtype)) return false;
  if (node.op == TensorOp::kScatterElements)
    return graph.SameDims(indices.dims, updates.dims) && FitsBesideAxis(graph, node, AxesOf(graph, node).first);
  if (indices.rank() == 0 || !indices.dims.back().is_const()) return false;
  const int64_t length = indices.dims.back().value();
  if (length < 1 || length > kIndexTupleMax || length > data.rank()) return false;
  std::vector<Dim> wanted(indices.dims.begin(), indices.dims.end() - 1);
  wanted.insert(wanted.end(), data.dims.begin() + length, data.dims.end());
  return graph.SameDims(wanted, updates.dims);
}

Status EmitScatter(PlanBuilder& b, const Group& group) {
  return ScatterEmitter(b, group).Emit();
}

}  // namespace kiln::lower
