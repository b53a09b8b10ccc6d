#include "compile-service/lower/pool_places.h"

#include <algorithm>
#include <limits>

#include "compile-service/lower/convolution.h"
#include "compile-service/lower/emit.h"
#include "compile-service/lower/kernel_dtypes.h"
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
constexpr DType kIndex = DType::kI64;

std::optional<std::vector<WindowAxis>> AxesOf(const ir::Graph& graph, const GraphNode& node) {
  const std::span<const int64_t> kernel = node.attributes.Ints("kernel_shape");
  if (kernel.size() + 2 != graph.value(node.inputs[0]).dims.size()) return std::nullopt;
  return WindowAxesOf(graph, node, kernel);
}

class PoolEmitter {
 public:
  PoolEmitter(PlanBuilder& builder, const Group& group)
      : b_(builder),
        node_(builder.graph().nodes[static_cast<size_t>(group.nodes.front())]),
        axes_(*AxesOf(builder.graph(), node_)),
        in_(builder.graph().value(node_.inputs[0]).dims),
        out_(group.dims),
        dtype_(builder.graph().value(node_.inputs[0]).dtype),
        body_(builder, group, group.dims),
        s_(body_.scalars()) {}

  Status Emit() {
    ASSIGN_OR_RETURN(const Place input, LinearPlace());
    const Order order = b_.MemoryOrder(in_, input.strides);
    Operand data{input, dtype_, in_, input.strides, true};
    std::fill(data.strides.begin() + 2, data.strides.end(), kZero);
    const int32_t source = body_.AddOperand(std::move(data));
    std::vector<int32_t> targets;
    for (GraphValueId output : node_.outputs) {
      if (output < 0) {
        targets.push_back(-1);
        continue;
      }
      const Place place = b_.Allocate(output, order);
      targets.push_back(body_.AddOperand({place, b_.graph().value(output).dtype, out_, place.strides}));
    }
    const NestLoops loops = Loops(order);
    const Found found = AddStages(source, input);
    Stage store{Stage::Kind::kStore, ir::Combine::kSum, 0, Stage::Domain::kInner, {}};
    if (targets[0] >= 0) store.stores.push_back({targets[0], found.value});
    if (targets[1] >= 0) store.stores.push_back({targets[1], found.place});
    stages_.push_back(std::move(store));
    ir::LoopNestSpec spec;
    FillNest(loops, body_, arguments_, spec);
    spec.body = s_.Take();
    spec.stages = std::move(stages_);
    int64_t taps = 1;
    for (const WindowAxis& axis : axes_) taps *= axis.kernel;
    const Dim cost = b_.symbols().Mul(b_.graph().Elements(out_), Dim::Const(8 * taps));
    return b_.AddKernel({std::move(spec)}, body_.pointers(), std::move(arguments_), RangeOfNest(b_, loops), cost,
                        body_.Text("max pool with places"));
  }

 private:
  struct Found {
    int32_t value, place;
  };

  int32_t Op(ScalarOp op, int32_t a, int32_t b) { return s_.Op(op, kIndex, a, b); }
  int32_t And(int32_t a, int32_t b) { return a < 0 ? b : s_.Op(ScalarOp::kAnd, DType::kBool, a, b); }
  int32_t Size(Dim dim) { return s_.Integer(arguments_.Argument(dim)); }

  // The input where the positions of a plane are one number.
  Result<Place> LinearPlace() {
    ASSIGN_OR_RETURN(Place place, b_.PlaceOf(node_.inputs[0]));
    for (size_t d = in_.size(); d-- > 3;) {
      const Dim row = b_.symbols().Mul(place.strides[d], in_[d]);
      if (!b_.symbols().ProvenEqual(place.strides[d - 1], row)) return b_.RowMajorPlace(node_.inputs[0]);
    }
    return place;
  }

  // One loop per dim of the output, in the order of memory, around the positions of the window.
  NestLoops Loops(const Order& order) {
    NestLoops loops;
    loop_of_.resize(out_.size());
    for (int dim : order) {
      loop_of_[static_cast<size_t>(dim)] = static_cast<int32_t>(loops.outer.size());
      loops.outer.push_back(LoopDimOf(out_[static_cast<size_t>(dim)], body_.operands(), static_cast<size_t>(dim)));
    }
    loops.inner = loops.outer.back();
    loops.outer.pop_back();
    const std::vector<Dim> still(body_.operands().size(), kZero);
    for (const WindowAxis& axis : axes_) loops.reduce.push_back({Dim::Const(axis.kernel), still});
    loop_of_[static_cast<size_t>(order.back())] += static_cast<int32_t>(axes_.size());
    first_tap_ = static_cast<int32_t>(out_.size()) - 1;
    return loops;
  }

  int32_t Coordinate(int32_t loop) { return s_.Add({ScalarOp::kCoordinate, kIndex, -1, -1, -1, loop}); }

  Found AddStages(int32_t source, const Place& input) {
    int32_t inside = -1, position = s_.Integer(0);
    Dim plane = kOne;
    for (size_t d = 0; d < axes_.size(); ++d) {
      const WindowAxis& axis = axes_[d];
      const int32_t size = Size(in_[d + 2]);
      const int32_t start = Op(ScalarOp::kMul, Coordinate(loop_of_[d + 2]), s_.Integer(axis.stride));
      const int32_t tap =
          Op(ScalarOp::kMul, Coordinate(first_tap_ + static_cast<int32_t>(d)), s_.Integer(axis.dilation));
      const int32_t at = Op(ScalarOp::kAdd, Op(ScalarOp::kAdd, start, tap), s_.Integer(-axis.pad));
      inside = And(inside, s_.Op(ScalarOp::kLessEqual, DType::kBool, s_.Integer(0), at));
      inside = And(inside, s_.Op(ScalarOp::kLess, DType::kBool, at, size));
      position = Op(ScalarOp::kAdd, Op(ScalarOp::kMul, position, size), at);
      plane = b_.symbols().Mul(plane, in_[d + 2]);
    }
    const DType type = ComputeType(dtype_);
    const int32_t elements = Size(plane), stride = s_.Integer(arguments_.Stride(input.strides.back()));
    const int32_t element = s_.Add({ScalarOp::kLoadAt, type, position, elements, stride, source});
    const int32_t x = s_.Op(ScalarOp::kSelect, type, inside, element, s_.Number(type, Least()));
    const int32_t best = Reduced(ir::Combine::kMax, x, type);
    int32_t is_best = s_.Op(ScalarOp::kEqual, DType::kBool, x, best);
    if (IsFloat(type))  // the first NaN is the maximum
      is_best = s_.Op(ScalarOp::kOr, DType::kBool, is_best, s_.Op(ScalarOp::kIsNaN, DType::kBool, x));
    const int32_t none = s_.Integer(std::numeric_limits<int64_t>::max());
    const int32_t candidate = s_.Op(ScalarOp::kSelect, kIndex, And(inside, is_best), position, none);
    const int32_t first = Reduced(ir::Combine::kMin, candidate, kIndex);
    const int32_t nothing = s_.Op(ScalarOp::kEqual, DType::kBool, first, none);
    return {best, Flat(s_.Op(ScalarOp::kSelect, kIndex, nothing, s_.Integer(0), first), elements)};
  }

  double Least() const {
    if (dtype_ == DType::kF32) return -std::numeric_limits<double>::infinity();
    return dtype_ == DType::kI8 ? -128 : 0;
  }

  int32_t Reduced(ir::Combine combine, int32_t term, DType type) {
    stages_.push_back({Stage::Kind::kReduce, combine, term, Stage::Domain::kInner, {}});
    return s_.Add({ScalarOp::kStageResult, type, -1, -1, -1, static_cast<int32_t>(stages_.size()) - 1});
  }

  // A position of a plane as one of the whole input, in row-major order or, with storage_order 1, each plane
  // transposed.
  int32_t Flat(int32_t position, int32_t elements) {
    if (node_.attributes.Int("storage_order", 0) != 0) {
      int32_t rest = position, transposed = s_.Integer(0);
      for (size_t d = in_.size(); d-- > 2;) {
        const int32_t size = Size(in_[d]), above = Op(ScalarOp::kDiv, rest, size);
        const int32_t at = Op(ScalarOp::kSub, rest, Op(ScalarOp::kMul, above, size));
        transposed = Op(ScalarOp::kAdd, Op(ScalarOp::kMul, transposed, size), at);
        rest = above;
      }
      position = transposed;
    }
    const int32_t image = Op(ScalarOp::kMul, Coordinate(loop_of_[0]), Size(in_[1]));
    const int32_t plane = Op(ScalarOp::kAdd, image, Coordinate(loop_of_[1]));
    return Op(ScalarOp::kAdd, Op(ScalarOp::kMul, plane, elements), position);
  }

  PlanBuilder& b_;
  const GraphNode node_;
  const std::vector<WindowAxis> axes_;
  const std::vector<Dim> in_, out_;
  const DType dtype_;
  GroupBody body_;
  ScalarBuilder& s_;
  KernelArguments arguments_;
  std::vector<Stage> stages_;
  std::vector<int32_t> loop_of_;  // per dim of the output, in the order of accesses
  int32_t first_tap_ = 0;         // loop of the window's first dim
};

}  // namespace

bool PoolsWithPlaces(const ir::Graph& graph, const GraphNode& node) {
  if (node.op != TensorOp::kMaxPool || node.outputs.size() != 2 || node.outputs[1] < 0) return false;
  const GraphValue& x = graph.value(node.inputs[0]);
  if (x.dtype != DType::kF32 && !IsByte(x.dtype)) return false;
  if (x.rank() < 3 || x.rank() > 5 || !AxesOf(graph, node)) return false;
  return std::all_of(x.dims.begin() + 2, x.dims.end(), [&](Dim dim) { return ir::IsAtMost(graph.symbols, kOne, dim); });
}

Status EmitPoolWithPlaces(PlanBuilder& b, const Group& group) {
  return PoolEmitter(b, group).Emit();
}

}  // namespace kiln::lower
