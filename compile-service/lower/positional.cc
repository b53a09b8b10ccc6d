#include "compile-service/lower/positional.h"

#include <algorithm>
#include <limits>

#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

using ir::Combine;
using ir::GraphNode;
using ir::GraphValue;
using ir::ScalarOp;
using ir::Stage;

namespace {

constexpr DType kIndex = DType::kI64;

bool IsArg(TensorOp op) {
  return op == TensorOp::kArgMax || op == TensorOp::kArgMin;
}

// The diagonal of a Trilu; no tensor reaches beyond the limit.
Result<int32_t> Diagonal(GroupBody& body, const ir::Graph& graph, const GraphNode& node) {
  ScalarBuilder& scalars = body.scalars();
  if (node.inputs.size() < 2 || node.inputs[1] < 0) return scalars.Integer(0);
  const std::optional<KnownValues>& known = graph.value(node.inputs[1]).known;
  if (known && known->size() == 1 && known->front().is_const())
    return scalars.Integer(std::clamp(known->front().value(), -limits::kTensorBytesMax, limits::kTensorBytesMax));
  ASSIGN_OR_RETURN(const int32_t k, body.Scalar(node.inputs[1]));
  const int32_t low = scalars.Op(ScalarOp::kMax, kIndex, k, scalars.Integer(-limits::kTensorBytesMax));
  return scalars.Op(ScalarOp::kMin, kIndex, low, scalars.Integer(limits::kTensorBytesMax));
}

// start + position * delta, where the shape rule has found how many there are.
Status AddRange(GroupBody& body, const ir::Graph& graph, const GraphNode& node) {
  ScalarBuilder& scalars = body.scalars();
  const DType type = graph.value(node.outputs[0]).dtype;
  ASSIGN_OR_RETURN(const int32_t start, body.Scalar(node.inputs[0]));
  ASSIGN_OR_RETURN(const int32_t delta, body.Scalar(node.inputs[2]));
  int32_t position = body.Position(0);
  if (type != kIndex) position = scalars.Op(ScalarOp::kConvert, type, position);
  body.Define(node.outputs[0],
              scalars.Op(ScalarOp::kAdd, type, start, scalars.Op(ScalarOp::kMul, type, position, delta)));
  return {};
}

Status AddTrilu(GroupBody& body, const ir::Graph& graph, const GraphNode& node) {
  ScalarBuilder& scalars = body.scalars();
  ASSIGN_OR_RETURN(const int32_t x, body.Scalar(node.inputs[0]));
  const DType type = ComputeType(graph.value(node.outputs[0]).dtype);
  const auto rank = static_cast<size_t>(graph.value(node.outputs[0]).rank());
  const int32_t column = body.Position(rank - 1);
  ASSIGN_OR_RETURN(const int32_t diagonal, Diagonal(body, graph, node));
  const int32_t first = scalars.Op(ScalarOp::kAdd, kIndex, body.Position(rank - 2), diagonal);
  const bool upper = node.attributes.Int("upper", 1) != 0;
  const int32_t keeps = scalars.Op(ScalarOp::kLessEqual, DType::kBool, upper ? first : column, upper ? column : first);
  body.Define(node.outputs[0], scalars.Op(ScalarOp::kSelect, type, keeps, x, scalars.Number(type, 0)));
  return {};
}

// An index outside of the depth is no position: its row has no hot entry.
Status AddOneHot(PlanBuilder& b, GroupBody& body, KernelArguments& arguments, const GraphNode& node) {
  ScalarBuilder& scalars = body.scalars();
  const GraphValue indices = b.graph().value(node.inputs[0]), values = b.graph().value(node.inputs[2]);
  const GraphValue out = b.graph().value(node.outputs[0]);
  const auto axis = static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", -1), out.rank()));
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(node.inputs[0]));
  std::vector<Dim> strides = place.strides;
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(axis), Dim::Const(0));
  const int32_t index = scalars.Load(kIndex, body.AddOperand({place, indices.dtype, indices.dims, strides, true}));
  const int32_t hot = scalars.FromFront(index, scalars.Integer(arguments.Argument(out.dims[axis])));
  ASSIGN_OR_RETURN(Place value, b.RowMajorPlace(node.inputs[2]));
  const DType type = ComputeType(out.dtype);
  int32_t off_on[2];
  for (int32_t& scalar : off_on) {
    const std::vector<Dim> nowhere(out.dims.size(), Dim::Const(0));
    Place one = value;
    one.strides.clear();
    scalar = scalars.Load(type, body.AddOperand({one, values.dtype, {}, nowhere, true}));
    value.offset = b.symbols().Add(value.offset, Dim::Const(1));
  }
  const int32_t is_hot = scalars.Op(ScalarOp::kEqual, DType::kBool, hot, body.Position(axis));
  body.Define(node.outputs[0], scalars.Op(ScalarOp::kSelect, type, is_hot, off_on[1], off_on[0]));
  return {};
}

}  // namespace

bool IsPositional(const ir::Graph& graph, const GraphNode& node) {
  const GraphValue& out = graph.value(node.outputs[0]);
  if (!IsKernelDType(out.dtype) || out.dtype == DType::kF16 || out.dtype == DType::kBF16) return false;  // bits stay
  if (node.op == TensorOp::kTrilu) return out.rank() >= 2;
  if (node.op == TensorOp::kRange) return out.rank() == 1 && !IsByte(out.dtype);
  if (node.op != TensorOp::kOneHot) return false;
  const DType indices = graph.value(node.inputs[0]).dtype;
  const GraphValue& values = graph.value(node.inputs[2]);
  return (indices == DType::kI32 || indices == DType::kI64) && values.rank() == 1 &&
         graph.symbols.ProvenEqual(values.dims[0], Dim::Const(2)) && graph.value(node.inputs[1]).known.has_value();
}

Status AddPositional(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments, const GraphNode& node) {
  if (node.op == TensorOp::kTrilu) return AddTrilu(body, builder.graph(), node);
  if (node.op == TensorOp::kRange) return AddRange(body, builder.graph(), node);
  return AddOneHot(builder, body, arguments, node);
}

bool IsArgReduction(const ir::Graph& graph, const GraphNode& node) {
  if (!IsArg(node.op)) return false;
  const GraphValue& x = graph.value(node.inputs[0]);
  return x.rank() > 0 && IsKernelDType(x.dtype) && x.dtype != DType::kBool;
}

// As the reference finds it: what is compared first stays where nothing is better, so a NaN at position 0 is the answer
// and NaNs elsewhere are passed over.
void AddArgReduction(GroupBody& body, const ir::Graph& graph, const GraphNode& node, int32_t x,
                     std::vector<Stage>& stages) {
  ScalarBuilder& s = body.scalars();
  const GraphValue& input = graph.value(node.inputs[0]);
  const DType type = ComputeType(input.dtype);
  const bool largest = node.op == TensorOp::kArgMax, last = node.attributes.Int("select_last_index", 0) != 0;
  const auto axis = static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), input.rank()));
  const auto reduce = [&](Combine combine, int32_t of, DType result) {
    stages.push_back({Stage::Kind::kReduce, combine, of, Stage::Domain::kInner, {}});
    return s.Add({ScalarOp::kStageResult, result, -1, -1, -1, static_cast<int32_t>(stages.size()) - 1});
  };
  const int32_t position = body.Position(axis), none = s.Integer(std::numeric_limits<int64_t>::max());
  int32_t term = x, first_is_nan = -1;
  if (IsFloat(type)) {
    const double least = largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    const int32_t nan = s.Op(ScalarOp::kIsNaN, DType::kBool, x);
    term = s.Op(ScalarOp::kSelect, type, nan, s.Number(type, least), x);
    first_is_nan =
        s.Op(ScalarOp::kAnd, DType::kBool, nan, s.Op(ScalarOp::kEqual, DType::kBool, position, s.Integer(0)));
  }
  const int32_t best = reduce(largest ? Combine::kMax : Combine::kMin, term, type);
  const int32_t is_best = s.Op(ScalarOp::kEqual, DType::kBool, x, best);
  int32_t candidate = s.Op(ScalarOp::kSelect, kIndex, is_best, position, last ? s.Integer(-1) : none);
  if (first_is_nan >= 0)  // beyond every position for a largest one, and position 0 for a smallest one
    candidate = s.Op(ScalarOp::kSelect, kIndex, first_is_nan, last ? none : s.Integer(0), candidate);
  const int32_t found = reduce(last ? Combine::kMax : Combine::kMin, candidate, kIndex);
  const int32_t is_none = s.Op(ScalarOp::kEqual, DType::kBool, found, none);
  const int32_t known = s.Op(ScalarOp::kMax, kIndex, found, s.Integer(0));  // an axis without entries has position 0
  body.Define(node.outputs[0], s.Op(ScalarOp::kSelect, kIndex, is_none, s.Integer(0), known));
}

}  // namespace kiln::lower
