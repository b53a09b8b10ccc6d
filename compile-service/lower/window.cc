// Depthwise convolutions and pooling.
#include <numeric>

#include "compile-service/lower/byte_product.h"
#include "compile-service/lower/convolved_image.h"
#include "compile-service/lower/emit.h"
#include "compile-service/lower/kernel_cost.h"
#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/second_factor.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValueId;
using ir::SpecInt;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);

// [C, 1, kernel…] as [taps, C].
Result<Place> PackTaps(PlanBuilder& b, GraphValueId weights, int64_t channels, int64_t taps) {
  const GraphValueId flat =
      b.AddPrepackNode(TensorOp::kReshape, {b.WithoutDenormals(weights)}, {Dim::Const(channels), Dim::Const(taps)});
  Attributes perm;
  perm.Set("perm", std::vector<int64_t>{1, 0});
  return b.Recipe(
      b.AddPrepackNode(TensorOp::kTranspose, {flat}, {Dim::Const(taps), Dim::Const(channels)}, std::move(perm)));
}

// The result of the window with the bias of a convolution added, requantised where the op does.
Result<int32_t> WindowResult(PlanBuilder& b, GroupBody& body, const GraphNode& node, size_t rank) {
  const int32_t result = body.scalars().Add({ir::ScalarOp::kAccumulator, DType::kF32});
  if (const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), node)) {
    ASSIGN_OR_RETURN(const GraphValueId weights, SignedWeights(b, bytes->b));
    std::vector<int64_t> reduced(rank - 1);
    std::iota(reduced.begin(), reduced.end(), 1);
    const int32_t sum = body.scalars().Op(ir::ScalarOp::kConvert, DType::kI32, result);
    return ByteResult(b, body, node, *bytes, sum, 0, weights, reduced, 1, rank);
  }
  const DType type = ComputeType(b.graph().value(node.outputs[0]).dtype);
  if (type != DType::kF32)  // bytes: exact in f32, and the least one where nothing is inside
    return body.scalars().Saturated(result, b.graph().value(node.outputs[0]).dtype);
  if (node.op != TensorOp::kConv || node.inputs.size() < 3 || node.inputs[2] < 0) return result;
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(node.inputs[2]));
  Operand bias{place, DType::kF32, b.graph().value(node.inputs[2]).dims, std::vector<Dim>(rank, kZero)};
  bias.strides[1] = place.strides[0];
  const int32_t access = body.AddOperand(std::move(bias));
  return body.scalars().Op(ir::ScalarOp::kAdd, DType::kF32, result, body.scalars().Load(DType::kF32, access));
}

// The weights of a depthwise convolution in f32.
Result<Operand> TapsOf(PlanBuilder& b, const GraphNode& node, const std::optional<ByteProduct>& bytes, int64_t taps) {
  GraphValueId weights = WeightsOf(node);
  if (bytes) {
    ASSIGN_OR_RETURN(weights, SignedWeights(b, weights));
    Attributes to;
    to.Set("to", static_cast<int64_t>(DType::kF32));
    const std::vector<Dim> dims = b.graph().value(weights).dims;
    weights = b.AddPrepackNode(TensorOp::kCast, {weights}, dims, std::move(to), DType::kF32);
  }
  const Dim channels = b.graph().value(weights).dims[0];
  Place place;
  if (b.graph().value(weights).prepack) {
    ASSIGN_OR_RETURN(place, PackTaps(b, weights, channels.value(), taps));
  } else {
    ASSIGN_OR_RETURN(place, ReorderedWeights(b, node, 1));
    place.strides = {channels, kOne};
  }
  return Operand{place, DType::kF32, {Dim::Const(taps), channels}, {}};
}

std::string LabelOf(const GraphNode& node, const WindowShape& shape) {
  const std::string size = std::to_string(shape.kernel_h) + "x" + std::to_string(shape.kernel_w);
  if (node.op == TensorOp::kConv) return "depthwise conv " + size;
  if (node.op == TensorOp::kConvInteger || node.op == TensorOp::kQLinearConv) return "depthwise byte conv " + size;
  return (node.op == TensorOp::kMaxPool ? "max pool " : "average pool ") + size;
}

}  // namespace

ir::WindowGeometry GeometryOf(const WindowShape& shape, const Place& place, const std::vector<Dim>& in,
                              const std::vector<Dim>& out, KernelArguments* arguments, int64_t width_max) {
  const bool two = shape.spatial >= 2;
  const size_t height = in.size() - 2;
  ir::WindowGeometry g;
  g.in_height = two ? arguments->UpTo(in[height], 1) : SpecInt::Const(1);
  g.in_width = arguments->UpTo(in.back(), 1);
  g.out_height = two ? arguments->UpTo(out[height], 1) : SpecInt::Const(1);
  g.out_width = arguments->UpTo(out.back(), width_max);
  g.kernel_h = shape.kernel_h;
  g.kernel_w = shape.kernel_w;
  g.stride_h = shape.stride_h;
  g.stride_w = shape.stride_w;
  g.dilation_h = shape.dilation_h;
  g.dilation_w = shape.dilation_w;
  g.pad_top = shape.pad_top;
  g.pad_left = shape.pad_left;
  g.image_stride = arguments->Argument(place.strides[shape.spatial == 3 ? 2 : 0]);
  g.row_stride = two ? arguments->Argument(place.strides[height]) : SpecInt::Const(0);
  g.column_stride = arguments->UpTo(place.strides.back(), INT64_MAX);
  return g;
}

Status EmitWindow(PlanBuilder& b, const Group& group) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  const std::optional<WindowShape> window = WindowOf(b.graph(), node);
  if (!window) return Fail(ErrorCode::kInternal, "a window group without a window");
  const size_t rank = group.dims.size();
  ASSIGN_OR_RETURN(const Place input, b.ChannelsLastPlace(node.inputs[0]));
  ConvolvedImage image{*window, input, b.graph().value(node.inputs[0]).dims, 1};
  const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), node);
  if (bytes) {
    ASSIGN_OR_RETURN(image, WithBorderOfZeroPoints(b, *bytes, std::move(image), group.dims));
  }
  const WindowShape& shape = image.shape;
  GroupBody body(b, group, group.dims);
  ASSIGN_OR_RETURN(const int32_t result, WindowResult(b, body, node, rank));
  body.Define(node.outputs[0], result);
  for (size_t i = 1; i < group.nodes.size(); ++i) {
    RETURN_IF_ERROR(body.AddNode(b.graph().nodes[static_cast<size_t>(group.nodes[i])]));
  }
  ASSIGN_OR_RETURN(std::vector<ir::Store> stores, body.StoreEscaping(ChannelsLast(static_cast<int>(rank))));

  KernelArguments arguments;
  ir::WindowSpec spec;
  spec.images = arguments.Argument(group.dims[0]);
  spec.channels = arguments.UpTo(group.dims[1], INT64_MAX);
  spec.geometry = GeometryOf(shape, image.place, image.dims, group.dims, &arguments);
  spec.combine = node.op == TensorOp::kMaxPool ? ir::Combine::kMax : ir::Combine::kSum;
  spec.average = shape.average;
  spec.count_include_pad = shape.count_include_pad;
  const DType storage = b.graph().value(node.inputs[0]).dtype;
  spec.input = {body.Pointer({image.place, storage, image.dims, {}}), storage, {}};
  const int64_t taps = int64_t{shape.kernel_h} * shape.kernel_w;
  if (bytes || node.op == TensorOp::kConv) {
    ASSIGN_OR_RETURN(const Operand operand, TapsOf(b, node, bytes, taps));
    spec.weights =
        ir::Access{body.Pointer(operand), DType::kF32, {SpecInt::Const(operand.dims[1].value()), SpecInt::Const(1)}};
  }
  for (size_t a = 0; a < body.operands().size(); ++a) {
    const Operand& operand = body.operands()[a];
    ir::Access access{body.Pointer(operand), operand.dtype, {}};
    access.strides.push_back(arguments.Stride(operand.strides[0]));
    access.strides.push_back(arguments.Stride(rank == 4 ? operand.strides[2] : kZero));
    access.strides.push_back(arguments.Stride(operand.strides[rank - 1]));
    access.strides.push_back(arguments.Stride(operand.strides[1]));
    spec.accesses.push_back(std::move(access));
  }
  spec.epilogue = body.scalars().Take();
  spec.stores = std::move(stores);
  const Dim range = b.symbols().Mul(group.dims[0], shape.spatial == 2 ? group.dims[2] : kOne);
  const Dim cost = CostOfElements(b, group.dims, 2 * taps, body.operands());
  return b.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), range, cost,
                     body.Text(LabelOf(node, shape)));
}

}  // namespace kiln::lower
