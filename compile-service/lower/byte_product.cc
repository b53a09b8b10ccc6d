#include "compile-service/lower/byte_product.h"

#include <algorithm>

#include "compile-service/lower/kernel_dtypes.h"

namespace kiln::lower {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::ScalarOp;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr int64_t kGroup = 4;   // bytes that are multiplied together
constexpr int32_t kFlip = 128;  // i8 counts from here as an unsigned byte
// Numbers of dtypes in ONNX files.
constexpr int64_t kToI8 = 3, kToI32 = 6, kToF64 = 11;

bool IsSingle(const Graph& graph, GraphValueId id) {
  return std::ranges::all_of(graph.value(id).dims, [&](Dim dim) { return graph.IsOne(dim); });
}

// Whether the weights' zero point, absent or an immediate, is the middle of their range.
bool IsCentered(const Graph& graph, const ByteProduct& product) {
  const bool is_signed = graph.value(product.b).dtype == DType::kI8;
  if (product.b_zero < 0) return is_signed;
  const GraphValue& zero = graph.value(product.b_zero);
  if (zero.origin != ir::Origin::kImmediate) return false;
  const Tensor& tensor = graph.immediates[static_cast<size_t>(zero.index)];
  if (zero.dtype == DType::kI8) return std::ranges::all_of(tensor.values<int8_t>(), [](int8_t v) { return v == 0; });
  if (zero.dtype == DType::kU8)
    return std::ranges::all_of(tensor.values<uint8_t>(), [](uint8_t v) { return v == kFlip; });
  return false;
}

bool IsConstantScale(const Graph& graph, GraphValueId id) {
  return graph.value(id).prepack && graph.value(id).dtype == DType::kF32;
}

Dim Count(int64_t value) {
  return Dim::Const(value);
}

int64_t Elements(const GraphValue& value) {
  int64_t elements = 1;
  for (Dim dim : value.dims) elements *= dim.value();
  return elements;
}

GraphValueId Cast(PlanBuilder& b, GraphValueId id, DType dtype, int64_t number) {
  if (b.graph().value(id).dtype == dtype) return id;
  Attributes to;
  to.Set("to", number);
  return b.AddPrepackNode(TensorOp::kCast, {id}, b.graph().value(id).dims, std::move(to), dtype);
}

// A prepacked vector, or one number, as an operand along `column`.
Result<int32_t> LoadAlong(PlanBuilder& b, GroupBody& body, GraphValueId id, size_t column, size_t rank) {
  ASSIGN_OR_RETURN(const Place place, b.Recipe(id));
  const GraphValue value = b.graph().value(id);
  Operand operand{place, value.dtype, value.dims, std::vector<Dim>(rank, kZero)};
  if (Elements(value) != 1) operand.strides[column] = Count(1);
  return body.scalars().Load(value.dtype, body.AddOperand(std::move(operand)));
}

// a_scale * b_scale / y_scale in f64, one or one per column.
GraphValueId CombinedScale(PlanBuilder& b, const ByteProduct& product) {
  const auto wide = [&](GraphValueId id) {
    const GraphValueId flat = b.AddPrepackNode(TensorOp::kReshape, {id}, {Count(Elements(b.graph().value(id)))});
    return Cast(b, flat, DType::kF64, kToF64);
  };
  const GraphValueId right = wide(product.b_scale);
  const std::vector<Dim> dims = b.graph().value(right).dims;
  const GraphValueId both = b.AddPrepackNode(TensorOp::kMul, {wide(product.a_scale), right}, dims);
  return b.AddPrepackNode(TensorOp::kDiv, {both, wide(product.y_scale)}, dims);
}

// What z contributed to the sums, z times the sum of each column; -1 when z is 0.
Result<int32_t> ZeroPointTerm(PlanBuilder& b, GroupBody& body, const ByteProduct& product, int32_t offset,
                              GraphValueId weights, const std::vector<int64_t>& reduced, size_t column, size_t rank) {
  int32_t zero = body.scalars().Number(DType::kI32, offset);
  if (product.a_zero >= 0) {
    ASSIGN_OR_RETURN(const int32_t z, body.Scalar(product.a_zero));
    zero = offset == 0 ? z : body.scalars().Op(ScalarOp::kAdd, DType::kI32, z, zero);
  }
  if (zero == body.scalars().Number(DType::kI32, 0)) return -1;
  Attributes axes;
  axes.Set("axes", reduced);
  const std::vector<Dim> dims = b.graph().value(weights).dims;
  std::vector<Dim> kept;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!std::ranges::count(reduced, static_cast<int64_t>(i))) kept.push_back(dims[i]);
  }
  const GraphValueId sums =
      b.AddPrepackNode(TensorOp::kReduceSum, {Cast(b, weights, DType::kI32, kToI32)}, kept, std::move(axes));
  ASSIGN_OR_RETURN(const int32_t sum, LoadAlong(b, body, sums, column, rank));
  return body.scalars().Op(ScalarOp::kMul, DType::kI32, sum, zero);
}

}  // namespace

std::optional<ByteProduct> ByteProductOf(const Graph& graph, const GraphNode& node) {
  const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : -1; };
  ByteProduct product;
  if (node.op == TensorOp::kMatMulInteger || node.op == TensorOp::kConvInteger) {
    product = {input(0), input(2), input(1), input(3)};
  } else if (node.op == TensorOp::kQLinearMatMul || node.op == TensorOp::kQLinearConv) {
    product = {input(0), input(2), input(3), input(5), true, input(1), input(4), input(6), input(7), input(8)};
  } else {
    return std::nullopt;
  }
  const GraphValue& a = graph.value(product.a);
  const GraphValue& b = graph.value(product.b);
  if (!IsByte(a.dtype) || !IsByte(b.dtype) || !b.prepack || !IsCentered(graph, product)) return std::nullopt;
  if (product.a_zero >= 0 && !IsSingle(graph, product.a_zero)) return std::nullopt;
  const bool matrix = node.op == TensorOp::kMatMulInteger || node.op == TensorOp::kQLinearMatMul;
  if (matrix && (a.rank() < 2 || b.rank() != 2)) return std::nullopt;
  if (!product.requantizes) return product;
  const bool constant = IsConstantScale(graph, product.a_scale) && IsConstantScale(graph, product.b_scale) &&
                        IsConstantScale(graph, product.y_scale) && IsSingle(graph, product.a_scale) &&
                        IsSingle(graph, product.y_scale) && IsSingle(graph, product.y_zero);
  if (!constant || (product.bias >= 0 && !graph.value(product.bias).prepack)) return std::nullopt;
  return product;
}

int32_t ByteOffset(const Graph& graph, const ByteProduct& product) {
  return graph.value(product.a).dtype == DType::kI8 ? kFlip : 0;
}

Result<GraphValueId> SignedWeights(PlanBuilder& b, GraphValueId weights) {
  const GraphValue value = b.graph().value(weights);
  if (value.dtype == DType::kI8) return weights;
  const GraphValueId middle =
      b.graph().AddImmediate(Tensor::Of<int32_t>(DType::kI32, Dims{1}, std::vector<int32_t>{kFlip}));
  const GraphValueId wide = Cast(b, weights, DType::kI32, kToI32);
  return Cast(b, b.AddPrepackNode(TensorOp::kSub, {wide, middle}, value.dims), DType::kI8, kToI8);
}

int64_t BytePanelDepth(int64_t runs, int64_t run) {
  return runs * ((run + kGroup - 1) / kGroup * kGroup);
}

Result<Place> PackBytePanels(PlanBuilder& b, GraphValueId matrices, int64_t groups, int64_t runs, int64_t run,
                             int64_t n, int64_t width) {
  const int64_t panels = (n + width - 1) / width, steps = (run + kGroup - 1) / kGroup;
  const auto dims = [](std::initializer_list<int64_t> list) {
    std::vector<Dim> result;
    for (int64_t value : list) result.push_back(Count(value));
    return result;
  };
  GraphValueId packed = b.AddPrepackNode(TensorOp::kReshape, {matrices}, dims({groups, runs, run, n}));
  const GraphValueId pads = b.AddIntegers({0, 0, 0, 0, 0, 0, steps * kGroup - run, panels * width - n});
  packed = b.AddPrepackNode(TensorOp::kPad, {packed, pads}, dims({groups, runs, steps * kGroup, panels * width}));
  packed = b.AddPrepackNode(TensorOp::kReshape, {packed}, dims({groups, runs, steps, kGroup, panels, width}));
  Attributes perm;
  perm.Set("perm", std::vector<int64_t>{0, 4, 1, 2, 5, 3});
  return b.Recipe(b.AddPrepackNode(TensorOp::kTranspose, {packed}, dims({groups, panels, runs, steps, width, kGroup}),
                                   std::move(perm)));
}

Result<Place> ZeroPoints(PlanBuilder& b, const ByteProduct& product, int64_t channels) {
  const DType dtype = b.graph().value(product.a).dtype;
  if (product.a_zero < 0) return b.Recipe(b.graph().AddImmediate(Tensor::Zeros(dtype, Dims{channels})));
  if (b.graph().value(product.a_zero).prepack) {
    const GraphValueId flat = b.AddPrepackNode(TensorOp::kReshape, {product.a_zero}, {Count(1)});
    return b.Recipe(b.AddPrepackNode(TensorOp::kExpand, {flat}, {Count(channels)}));
  }
  ASSIGN_OR_RETURN(Place zero, b.PlaceOf(product.a_zero));
  zero.strides = {kZero};
  const Place all = b.AllocateBuffer(dtype, {Count(channels)}, RowMajor(1));
  RETURN_IF_ERROR(b.AddCopy(zero, all, dtype, {Count(channels)}, {"zero points", {}}));
  return all;
}

Result<ConvolvedImage> WithBorderOfZeroPoints(PlanBuilder& b, const ByteProduct& product, ConvolvedImage image,
                                              const std::vector<Dim>& out) {
  if (!image.shape.padded) return image;
  const DType dtype = b.graph().value(product.a).dtype;
  Place zero;
  if (product.a_zero >= 0) {
    ASSIGN_OR_RETURN(zero, b.PlaceOf(product.a_zero));
  } else {
    ASSIGN_OR_RETURN(zero, b.ZeroOf(dtype));
  }
  return WithBorder(b, dtype, std::move(zero), std::move(image), out);
}

Result<ConvolvedImage> WithKernelRowsTogether(PlanBuilder& b, const ByteProduct& product, ConvolvedImage image,
                                              const std::vector<Dim>& out) {
  const WindowShape shape = image.shape;
  const int64_t row = shape.kernel_w * image.channels;
  const bool shorter = BytePanelDepth(1, row) < BytePanelDepth(shape.kernel_w, image.channels);
  const Dim column_stride = image.place.strides.back();
  if (!shorter || shape.group != 1 || shape.dilation_w != 1 || !column_stride.is_const() ||
      column_stride.value() != image.channels) {
    return image;
  }
  ASSIGN_OR_RETURN(image, WithBorderOfZeroPoints(b, product, std::move(image), out));
  // Positions where a whole kernel row begins.
  SymbolTable& symbols = b.symbols();
  image.dims.back() = symbols.Max(symbols.Sub(image.dims.back(), Count(shape.kernel_w - 1)), kZero);
  image.dims[1] = Count(row);
  image.channels = row;
  image.shape.kernel_w = 1;
  return image;
}

Result<int32_t> ByteResult(PlanBuilder& b, GroupBody& body, const GraphNode& node, const ByteProduct& product,
                           int32_t sum, int32_t offset, GraphValueId signed_weights,
                           const std::vector<int64_t>& reduced, size_t column, size_t rank) {
  ScalarBuilder& scalars = body.scalars();
  ASSIGN_OR_RETURN(const int32_t term, ZeroPointTerm(b, body, product, offset, signed_weights, reduced, column, rank));
  if (term >= 0) sum = scalars.Op(ScalarOp::kSub, DType::kI32, sum, term);
  if (!product.requantizes) return sum;
  constexpr DType kT = DType::kF64;  // exact: the op rounds once
  int32_t number = scalars.Op(ScalarOp::kConvert, kT, sum);
  if (product.bias >= 0) {
    ASSIGN_OR_RETURN(const int32_t bias, LoadAlong(b, body, Cast(b, product.bias, kT, kToF64), column, rank));
    number = scalars.Op(ScalarOp::kAdd, kT, number, bias);
  }
  ASSIGN_OR_RETURN(const int32_t scale, LoadAlong(b, body, CombinedScale(b, product), column, rank));
  number = scalars.Op(ScalarOp::kRound, kT, scalars.Op(ScalarOp::kMul, kT, number, scale));
  ASSIGN_OR_RETURN(const int32_t zero, body.Scalar(product.y_zero));
  number = scalars.Op(ScalarOp::kAdd, kT, number, scalars.Op(ScalarOp::kConvert, kT, zero));
  return scalars.Saturated(number, b.graph().value(node.outputs[0]).dtype);
}

}  // namespace kiln::lower
