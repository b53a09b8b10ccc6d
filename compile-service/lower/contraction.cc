// Products and convolutions as contractions.
#include <algorithm>
#include <numeric>

#include "compile-service/lower/byte_product.h"
#include "compile-service/lower/convolved_image.h"
#include "compile-service/lower/emit.h"
#include "compile-service/lower/kernel_cost.h"
#include "compile-service/lower/loop_dims.h"
#include "compile-service/lower/second_factor.h"
#include "compile-service/lower/tiles.h"

namespace kiln::lower {

using ir::ContractionSpec;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::SpecInt;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);
// Few rows are part of the code: their kernels stream B.
constexpr int64_t kRowsConstantMax = 8;
// Rows whose number is known at run time only may become many where the example had few, which have code of their own.
constexpr int64_t kUnknownRows = 48;
// Rows of a convolution are pixels: of images that had so many, others may have few.
constexpr int64_t kFewRowsHintMax = 64;

// Where the second operand lies and how it is read.
struct RightSide {
  Operand operand;  // strides over batch…
  ir::BLayout layout = ir::BLayout::kRows;
  Dim row;  // stride of k (rows) or n (transposed)
};

// Puts the accesses of the epilogue into the spec, over batch…, m, n.
void FillEpilogue(GroupBody& body, const std::vector<LoopDim>& rows, const LoopDim& columns, size_t first,
                  KernelArguments& arguments, ContractionSpec& spec) {
  for (size_t a = 0; a + first < columns.strides.size(); ++a) {
    const Operand& operand = body.operands()[a];
    ir::Access access{body.Pointer(operand), operand.dtype, {}};
    for (const LoopDim& row : rows) access.strides.push_back(arguments.Stride(row.strides[a + first]));
    access.strides.push_back(arguments.Stride(columns.strides[a + first]));
    spec.accesses.push_back(std::move(access));
  }
}

// The scalar program behind the sum: the anchor's value, then the group's other nodes.
Status AddEpilogue(PlanBuilder& b, const Group& group, GroupBody& body, int32_t anchor) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  body.Define(node.outputs[0], anchor);
  for (size_t i = 1; i < group.nodes.size(); ++i) {
    RETURN_IF_ERROR(body.AddNode(b.graph().nodes[static_cast<size_t>(group.nodes[i])]));
  }
  return {};
}

Dim RangeOfContraction(PlanBuilder& b, const std::vector<LoopDim>& batch, Dim m, Dim n, ir::Tile tile) {
  SymbolTable& symbols = b.symbols();
  Dim range = symbols.Mul(symbols.CeilDiv(n, Dim::Const(int64_t{tile.nv} * b.f32_lanes())),
                          symbols.CeilDiv(m, Dim::Const(tile.mr)));
  for (const LoopDim& dim : batch) range = symbols.Mul(range, dim.extent);
  return range;
}

// Of a product whose B has `b_elements`: it is read at least once, however few the rows are.
Dim CostOf(PlanBuilder& b, const Group& group, Dim k, Dim b_elements, DType b_dtype) {
  SymbolTable& symbols = b.symbols();
  return symbols.Add(symbols.Mul(b.graph().Elements(group.dims), symbols.Mul(k, Dim::Const(2))),
                     CostOfReading(symbols, b_elements, b_dtype));
}

// A product whose rows are `row_space` (dims of the group) and whose columns are dim `column`. A's and B's strides are
// over the rows; B does not vary over m.
struct Product {
  std::vector<size_t> row_dims;  // dims of the group's space, outermost first
  size_t column = 0;
  Operand a;    // strides over row_dims
  Dim a_k;      // stride of k
  RightSide b;  // strides over row_dims
  Dim k;
  ir::Tile tile;
  bool few_rows = false;  // calls with few rows are to be expected
};

Status EmitRows(PlanBuilder& b, const Group& group, GroupBody& body, const Product& product,
                std::vector<ir::Store> stores, const std::string& head) {
  // Per row dim the strides of A, B and every operand of the epilogue; neighbours merge, B only where it does not vary.
  std::vector<LoopDim> rows;
  for (size_t i = 0; i < product.row_dims.size(); ++i) {
    const size_t dim = product.row_dims[i];
    if (b.graph().IsOne(group.dims[dim])) continue;
    LoopDim loop{group.dims[dim], {product.a.strides[i], product.b.operand.strides[i]}};
    for (const Operand& operand : body.operands()) loop.strides.push_back(operand.strides[dim]);
    rows.push_back(std::move(loop));
  }
  const LoopDim unit{kOne, std::vector<Dim>(body.operands().size() + 2, kZero)};
  // The last row dim over which B is fixed is m; when B varies over all of them, every product has one row.
  if (rows.empty() || !b.symbols().ProvenEqual(rows.back().strides[1], kZero)) rows.push_back(unit);
  Collapse(b.symbols(), &rows);
  const LoopDim m = rows.back();
  LoopDim columns{group.dims[product.column], {kZero, kOne}};
  for (const Operand& operand : body.operands()) columns.strides.push_back(operand.strides[product.column]);

  KernelArguments arguments;
  ContractionSpec spec;
  const std::vector<LoopDim> batch(rows.begin(), rows.end() - 1);
  for (const LoopDim& dim : batch) spec.batch.push_back(arguments.Argument(dim.extent));
  spec.m = arguments.UpTo(m.extent, kRowsConstantMax);
  spec.n = arguments.UpTo(columns.extent, INT64_MAX);
  spec.k = arguments.UpTo(product.k, INT64_MAX);
  spec.a = {body.Pointer(product.a), product.a.dtype, {}};
  for (const LoopDim& row : rows) spec.a.strides.push_back(arguments.Stride(row.strides[0]));
  spec.a.strides.push_back(arguments.Stride(product.a_k));
  spec.b = {body.Pointer(product.b.operand), product.b.operand.dtype, {}};
  for (const LoopDim& dim : batch) spec.b.strides.push_back(arguments.Stride(dim.strides[1]));
  spec.b_layout = product.b.layout;
  if (spec.b_layout != ir::BLayout::kPanels) spec.b.strides.push_back(arguments.Stride(product.b.row));
  spec.tile = product.tile;
  spec.few_rows = product.few_rows && spec.m.is_argument && spec.b_layout != ir::BLayout::kTransposed &&
                  InfoOf(b.target()).has_register_tiles();
  FillEpilogue(body, rows, columns, 2, arguments, spec);
  spec.epilogue = body.scalars().Take();
  spec.stores = std::move(stores);
  const Dim range = RangeOfContraction(b, batch, m.extent, columns.extent, product.tile);
  Dim b_elements = b.symbols().Mul(product.k, columns.extent);
  for (const LoopDim& dim : batch)
    if (!b.symbols().ProvenEqual(dim.strides[1], kZero)) b_elements = b.symbols().Mul(b_elements, dim.extent);
  const Dim cost = CostOf(b, group, product.k, b_elements, product.b.operand.dtype);
  return b.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), range, cost, body.Text(head));
}

// Rows of the whole product at the hints.
int64_t RowsHint(PlanBuilder& b, std::span<const Dim> dims) {
  int64_t rows = 1;
  for (Dim dim : dims) rows *= b.RawHint(dim);
  return rows;
}

// Whether rows so few are made as dot products with the rows of a transposed factor.
bool IsForDots(PlanBuilder& b, std::span<const Dim> dims) {
  return InfoOf(b.target()).has_register_tiles() && RowsHint(b, dims) <= ir::kDotRowsMax;
}

// What the tile is chosen for.
int64_t LikelyRows(PlanBuilder& b, std::span<const Dim> dims) {
  const int64_t rows = RowsHint(b, dims);
  return rows > kRowsConstantMax || std::ranges::all_of(dims, &Dim::is_const) ? rows : kUnknownRows;
}

bool IsOneMatrix(PlanBuilder& b, const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end() - 2, [&](Dim dim) { return b.graph().IsOne(dim); });
}

// Weights as a right side: panels of the tile's width.
Result<RightSide> PackedRightSideOf(PlanBuilder& b, GraphValueId id, const std::vector<Dim>& space, ir::Tile tile) {
  const GraphValue value = b.graph().value(id);
  const size_t rank = value.dims.size();
  const std::vector<Dim> batch_space(space.begin(), space.end() - 2);
  const std::vector<Dim> batch_dims(value.dims.begin(), value.dims.end() - 2);
  const int64_t width = int64_t{tile.nv} * b.f32_lanes();
  int64_t groups = 1;
  for (Dim dim : batch_dims) groups *= dim.value();
  const int64_t k = value.dims[rank - 2].value(), n = value.dims[rank - 1].value();
  ASSIGN_OR_RETURN(Place place, PackPanels(b, id, groups, k, n, width));
  const int64_t matrix = (n + width - 1) / width * k * width;
  std::vector<Dim> strides = b.OrderedStrides(batch_dims, RowMajor(static_cast<int>(batch_dims.size())));
  for (Dim& stride : strides) stride = b.symbols().Mul(stride, Dim::Const(matrix));
  const Place whole = place;
  place.strides = strides;
  RightSide side;
  ASSIGN_OR_RETURN(side.operand, b.Broadcast(place, DType::kF32, batch_dims, batch_space));
  side.operand.place = whole;
  side.operand.dims = {Dim::Const(groups * matrix)};
  side.operand.place.strides = {kOne};
  side.operand.strides.push_back(kZero);  // over the rows of A
  side.layout = ir::BLayout::kPanels;
  return side;
}

// What is made at run time is read where it lies, by rows or by columns, and copied when it has neither.
Result<RightSide> RightSideOf(PlanBuilder& b, GraphValueId id, const std::vector<Dim>& space) {
  const GraphValue value = b.graph().value(id);
  const size_t rank = value.dims.size();
  RightSide side;
  ASSIGN_OR_RETURN(Place place, b.PlaceOf(id));
  const bool in_rows = b.symbols().ProvenEqual(place.strides[rank - 1], kOne);
  if (!in_rows && b.symbols().ProvenEqual(place.strides[rank - 2], kOne)) {
    side.layout = ir::BLayout::kTransposed;
  } else if (!in_rows) {
    ASSIGN_OR_RETURN(place, b.RowMajorPlace(id));
  }
  side.row = place.strides[side.layout == ir::BLayout::kTransposed ? rank - 1 : rank - 2];
  Place batch_place = place;
  batch_place.strides.resize(rank - 2);
  const std::vector<Dim> batch_space(space.begin(), space.end() - 2);
  const std::vector<Dim> batch_dims(value.dims.begin(), value.dims.end() - 2);
  ASSIGN_OR_RETURN(side.operand, b.Broadcast(batch_place, DType::kF32, batch_dims, batch_space));
  side.operand.place = place;
  side.operand.dims = value.dims;
  side.operand.strides.push_back(kZero);  // over the rows of A
  return side;
}

// The result of an op from the kernel's sum of bytes.
Result<int32_t> ByteSumResult(PlanBuilder& b, GroupBody& body, const GraphNode& node, const ByteProduct& bytes,
                              GraphValueId weights, const std::vector<int64_t>& reduced, size_t column, size_t rank) {
  const int32_t sum = body.scalars().Add({ir::ScalarOp::kAccumulator, DType::kI32});
  return ByteResult(b, body, node, bytes, sum, ByteOffset(b.graph(), bytes), weights, reduced, column, rank);
}

// The right side of a product of bytes: one packed matrix for all rows.
Result<RightSide> ByteRightSideOf(PlanBuilder& b, GraphValueId id, const Product& product) {
  const std::vector<Dim> dims = b.graph().value(id).dims;
  const int64_t k = dims[0].value(), n = dims[1].value(), width = int64_t{product.tile.nv} * b.f32_lanes();
  ASSIGN_OR_RETURN(const GraphValueId weights, SignedWeights(b, id));
  ASSIGN_OR_RETURN(Place panels, PackBytePanels(b, weights, 1, 1, k, n, width));
  panels.strides = {kOne};
  const int64_t elements = (n + width - 1) / width * width * BytePanelDepth(1, k);
  return RightSide{{panels, DType::kI8, {Dim::Const(elements)}, std::vector<Dim>(product.row_dims.size(), kZero)},
                   ir::BLayout::kPanels,
                   kZero};
}

// The factors of a product over the group's dims.
Result<Product> ProductOf(PlanBuilder& b, const Group& group, GraphValueId left, GraphValueId right, bool bytes) {
  const size_t rank = group.dims.size();
  Product product;
  for (size_t i = 0; i + 1 < rank; ++i) product.row_dims.push_back(i);
  product.column = rank - 1;
  const GraphValue a = b.graph().value(left);
  const std::vector<Dim> b_dims = b.graph().value(right).dims;
  product.k = a.dims.back();
  ASSIGN_OR_RETURN(Place place, b.PlaceOf(left));
  const bool in_rows = b.symbols().ProvenEqual(place.strides.back(), kOne);
  if (bytes && !in_rows) {
    ASSIGN_OR_RETURN(place, b.RowMajorPlace(left));
  }
  // With one B for all, every row of A is a row of the product; otherwise each matrix has its own.
  const std::span row_dims = std::span(group.dims).first(rank - 1);
  const std::span<const Dim> rows = IsOneMatrix(b, b_dims) ? row_dims : row_dims.last(1);
  const int64_t n = b.RawHint(group.dims.back()), k = b.RawHint(product.k);
  const bool packed = b.graph().value(right).prepack;
  product.few_rows = true;
  product.tile = ChooseTile(b.target(), LikelyRows(b, rows), n, k, packed);
  if (bytes) {
    ASSIGN_OR_RETURN(product.b, ByteRightSideOf(b, right, product));
  } else if (packed) {
    ASSIGN_OR_RETURN(product.b, PackedRightSideOf(b, right, group.dims, product.tile));
  } else {
    ASSIGN_OR_RETURN(product.b, RightSideOf(b, right, group.dims));
    if (product.b.layout == ir::BLayout::kTransposed && in_rows && IsForDots(b, rows))
      product.tile = DotTile(b.target(), RowsHint(b, rows));
  }
  product.a_k = bytes ? kOne : place.strides.back();
  std::vector<Dim> row_space(group.dims.begin(), group.dims.end() - 1);
  Place row_place = place;
  row_place.strides.pop_back();
  const std::vector<Dim> a_rows(a.dims.begin(), a.dims.end() - 1);
  ASSIGN_OR_RETURN(product.a, b.Broadcast(row_place, a.dtype, a_rows, row_space));
  product.a.place = place;
  product.a.dims = a.dims;
  return product;
}

}  // namespace

Status EmitProduct(PlanBuilder& b, const Group& group) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), node);
  const GraphValueId right = bytes ? bytes->b : node.inputs[1];
  GroupBody body(b, group, group.dims);
  const size_t rank = group.dims.size();
  ASSIGN_OR_RETURN(const Product product, ProductOf(b, group, node.inputs[0], right, bytes.has_value()));
  int32_t sum = 0;
  if (bytes) {
    ASSIGN_OR_RETURN(const GraphValueId weights, SignedWeights(b, right));
    ASSIGN_OR_RETURN(sum, ByteSumResult(b, body, node, *bytes, weights, {0}, rank - 1, rank));
  } else {
    sum = body.scalars().Add({ir::ScalarOp::kAccumulator, DType::kF32});
  }
  RETURN_IF_ERROR(AddEpilogue(b, group, body, sum));
  ASSIGN_OR_RETURN(std::vector<ir::Store> stores, body.StoreEscaping(RowMajor(static_cast<int>(rank))));
  return EmitRows(b, group, body, product, std::move(stores), bytes ? "byte matmul" : "matmul");
}

Status EmitProjection(PlanBuilder& b, const Group& group, GraphValueId x, GraphValueId weights, GraphValueId bias,
                      const Place& out) {
  GroupBody body(b, group, group.dims);
  ASSIGN_OR_RETURN(const Product product, ProductOf(b, group, x, weights, false));
  int32_t sum = body.scalars().Add({ir::ScalarOp::kAccumulator, DType::kF32});
  if (bias >= 0) {
    ASSIGN_OR_RETURN(const int32_t added, body.Scalar(bias));
    sum = body.scalars().Op(ir::ScalarOp::kAdd, DType::kF32, sum, added);
  }
  ASSIGN_OR_RETURN(Operand stored, b.Broadcast(out, DType::kF32, group.dims, group.dims));
  const std::vector<ir::Store> stores{{body.AddOperand(std::move(stored)), sum}};
  return EmitRows(b, group, body, product, stores, "inputs");
}

namespace {

// Adds the bias to the sum.
Result<int32_t> ConvSum(PlanBuilder& b, GroupBody& body, const GraphNode& conv, const std::vector<Dim>& space) {
  if (const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), conv)) {
    ASSIGN_OR_RETURN(const GraphValueId weights, SignedWeights(b, bytes->b));
    std::vector<int64_t> reduced(space.size() - 1);
    std::iota(reduced.begin(), reduced.end(), 1);
    return ByteSumResult(b, body, conv, *bytes, weights, reduced, 1, space.size());
  }
  const int32_t sum = body.scalars().Add({ir::ScalarOp::kAccumulator, DType::kF32});
  if (conv.inputs.size() < 3 || conv.inputs[2] < 0) return sum;
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(conv.inputs[2]));
  Operand bias{place, DType::kF32, b.graph().value(conv.inputs[2]).dims, std::vector<Dim>(space.size(), kZero)};
  bias.strides[1] = place.strides[0];
  const int32_t access = body.AddOperand(std::move(bias));
  return body.scalars().Op(ir::ScalarOp::kAdd, DType::kF32, sum, body.scalars().Load(DType::kF32, access));
}

// The rows of a convolution's product: the images, then the pixels as one dim, or both as one. Strides are those of the
// epilogue's operands; A is addressed by geometry. `apart`: the images are not evenly spaced.
Result<std::vector<LoopDim>> PixelRows(PlanBuilder& b, const Group& group, const std::vector<Operand>& operands,
                                       bool apart) {
  const auto is_one = [&](const LoopDim& dim) { return b.graph().IsOne(dim.extent); };
  std::vector<LoopDim> pixels;
  for (size_t i = 2; i < group.dims.size(); ++i) pixels.push_back(LoopDimOf(group.dims[i], operands, i));
  while (pixels.size() > 1 && (is_one(pixels.back()) || is_one(pixels[pixels.size() - 2])))
    pixels.erase(is_one(pixels.back()) ? pixels.end() - 1 : pixels.end() - 2);
  Collapse(b.symbols(), &pixels);
  if (pixels.size() != 1)
    return Fail(ErrorCode::kInternal, "an operand of a convolution's epilogue is not linear in the pixels");
  const LoopDim images = LoopDimOf(group.dims[0], operands, 0);
  if (is_one(images)) return pixels;
  std::vector<LoopDim> rows{images, pixels[0]};
  if (!apart) Collapse(b.symbols(), &rows);
  return rows;
}

// The convolution as an implicit product: batch is the groups, or the images when an operand of the epilogue varies
// over images in its own way. The lines of a `bordered` image are part of the code.
Status EmitImplicit(PlanBuilder& b, const Group& group, GroupBody& body, const GraphNode& conv,
                    const ConvolvedImage& image, bool bordered, std::vector<ir::Store> stores,
                    const std::string& head) {
  const WindowShape& shape = image.shape;
  const DType dtype = b.graph().value(conv.inputs[0]).dtype;
  const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), conv);
  GraphValueId weights_id = WeightsOf(conv);
  if (bytes) {
    ASSIGN_OR_RETURN(weights_id, SignedWeights(b, weights_id));
  }
  const std::vector<Dim> weights = b.graph().value(weights_id).dims;
  const int64_t groups = shape.group, out = weights[0].value() / groups, channels = image.channels;
  const int64_t taps = int64_t{shape.kernel_h} * shape.kernel_w;
  int64_t rows = b.RawHint(group.dims[0]);
  for (size_t i = 2; i < group.dims.size(); ++i) rows *= b.RawHint(group.dims[i]);
  const bool packed = b.graph().value(weights_id).prepack;
  // Panels half as wide cost less than the products that Winograd's form saves; of one vector, about as much.
  const bool fewer_products =
      packed && !bytes && b.mode() != NumericMode::kStrict && InfoOf(b.target()).has_register_tiles();
  const int64_t widest = fewer_products ? WinogradVectorsMax(shape, channels) : 0;
  const ir::Tile tile = widest >= 2 ? ChooseTile(b.target(), rows, out, taps * channels, packed, widest)
                                    : ChooseTile(b.target(), rows, out, taps * channels, packed);
  const bool winograd =
      fewer_products && GainsFromWinograd(shape, channels, out, rows, b.RawHint(group.dims.back()), tile);
  ASSIGN_OR_RETURN(const ConvFactor factor,
                   packed ? PackedFactor(b, weights_id, bytes.has_value(), groups, taps, channels, tile)
                          : ReorderedFactor(b, conv, groups));

  const std::vector<Dim>& strides = image.place.strides;  // of depths, where they are images
  const bool apart =
      shape.spatial == 3 && !b.symbols().ProvenEqual(strides[0], b.symbols().Mul(strides[2], image.dims[2]));
  ASSIGN_OR_RETURN(const std::vector<LoopDim> rows_dims, PixelRows(b, group, body.operands(), apart));
  LoopDim columns = LoopDimOf(group.dims[1], body.operands(), 1);
  KernelArguments arguments;
  ContractionSpec spec;
  std::vector<LoopDim> batch;
  const bool image_batch = rows_dims.size() > 1;
  if (groups > 1) {
    LoopDim dim{Dim::Const(groups), {}};
    for (Dim stride : columns.strides) dim.strides.push_back(b.symbols().Mul(stride, Dim::Const(out)));
    batch.push_back(std::move(dim));
  }
  if (image_batch) batch.push_back(rows_dims[0]);
  columns.extent = Dim::Const(out);
  const Dim m = rows_dims.back().extent;
  for (const LoopDim& dim : batch) spec.batch.push_back(arguments.Argument(dim.extent));
  spec.m = arguments.UpTo(m, kRowsConstantMax);
  spec.n = SpecInt::Const(out);
  spec.k = SpecInt::Const(taps * channels);
  spec.a = {body.Pointer({image.place, dtype, image.dims, {}}), dtype, {}};
  if (groups > 1) spec.a.strides.push_back(arguments.Argument(Dim::Const(channels)));
  if (image_batch) spec.a.strides.push_back(arguments.Argument(image.place.strides[0]));
  spec.conv = GeometryOf(shape, image.place, image.dims, group.dims, &arguments, bordered ? kNarrowLine : 1);
  if (shape.padded || winograd) {
    ASSIGN_OR_RETURN(const Place zeros, bytes ? ZeroPoints(b, *bytes, channels) : b.Zeros(channels));
    spec.zeros = body.Pointer({zeros, dtype, {Dim::Const(channels)}, {}});
  }
  const DType b_dtype = bytes ? DType::kI8 : DType::kF32;
  spec.b = {body.Pointer({factor.place, b_dtype, {Dim::Const(groups * factor.matrix)}, {}}), b_dtype, {}};
  if (groups > 1) spec.b.strides.push_back(arguments.Argument(Dim::Const(factor.matrix)));
  if (image_batch) spec.b.strides.push_back(SpecInt::Const(0));
  spec.b_layout = factor.layout;
  if (!packed) spec.b.strides.push_back(arguments.Stride(Dim::Const(out)));
  spec.tile = tile;
  spec.winograd = winograd;
  std::vector<LoopDim> epilogue_rows = batch;
  epilogue_rows.push_back(rows_dims.back());
  FillEpilogue(body, epilogue_rows, columns, 0, arguments, spec);
  spec.epilogue = body.scalars().Take();
  spec.stores = std::move(stores);
  const Dim range = RangeOfContraction(b, batch, m, columns.extent, tile);
  const Dim cost = CostOf(b, group, Dim::Const(taps * channels), Dim::Const(groups * factor.matrix), b_dtype);
  return b.AddKernel({std::move(spec)}, body.pointers(), std::move(arguments), range, cost, body.Text(head));
}

// A 1x1 convolution is a product over pixels; its input may have any strides.
Status EmitPointwise(PlanBuilder& b, const Group& group, GroupBody& body, const GraphNode& conv, const Place& input,
                     std::vector<ir::Store> stores) {
  const GraphValue x = b.graph().value(conv.inputs[0]);
  const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), conv);
  GraphValueId weights_id = WeightsOf(conv);
  if (bytes) {
    ASSIGN_OR_RETURN(weights_id, SignedWeights(b, weights_id));
  }
  const std::vector<Dim> weights = b.graph().value(weights_id).dims;
  Product product;
  product.row_dims = {0};
  for (size_t i = 2; i < group.dims.size(); ++i) product.row_dims.push_back(i);
  product.column = 1;
  product.k = x.dims[1];
  product.a_k = bytes ? kOne : input.strides[1];
  product.a = {input, x.dtype, x.dims, {}};
  std::vector<Dim> rows;
  for (size_t dim : product.row_dims) {
    product.a.strides.push_back(input.strides[dim]);
    rows.push_back(group.dims[dim]);
  }
  product.few_rows = RowsHint(b, rows) <= kFewRowsHintMax;
  const int64_t in = weights[1].value(), out = weights[0].value();
  const bool packed = b.graph().value(weights_id).prepack;
  product.tile = ChooseTile(b.target(), LikelyRows(b, rows), out, in, packed);
  if (packed) {
    ASSIGN_OR_RETURN(const ConvFactor factor, PackedFactor(b, weights_id, bytes.has_value(), 1, 1, in, product.tile));
    product.b = {{factor.place,
                  bytes ? DType::kI8 : DType::kF32,
                  {Dim::Const(factor.matrix)},
                  std::vector<Dim>(product.row_dims.size(), kZero)},
                 factor.layout,
                 kZero};
  } else {
    ASSIGN_OR_RETURN(const Operand columns, GivenColumns(b, conv, product.row_dims.size()));
    product.b = {columns, ir::BLayout::kTransposed, Dim::Const(in)};
    if (product.a_k == kOne && IsForDots(b, rows)) product.tile = DotTile(b.target(), RowsHint(b, rows));
  }
  return EmitRows(b, group, body, product, std::move(stores), "conv 1x1");
}

}  // namespace

Status EmitConvolution(PlanBuilder& b, const Group& group) {
  const GraphNode conv = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  const std::optional<WindowShape> shape = WindowOf(b.graph(), conv);
  if (!shape) return Fail(ErrorCode::kInternal, "a convolution group without a window");
  ASSIGN_OR_RETURN(const Place input, b.ChannelsLastPlace(conv.inputs[0]));
  // Full-size operands of the epilogue are read along with the output, channels innermost.
  for (size_t i = 1; i < group.nodes.size(); ++i) {
    const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes[i])];
    for (GraphValueId id : node.inputs) {
      if (id >= 0) RETURN_IF_ERROR(b.PreferChannelsLast(id, group));
    }
  }
  GroupBody body(b, group, group.dims);
  ASSIGN_OR_RETURN(const int32_t sum, ConvSum(b, body, conv, group.dims));
  RETURN_IF_ERROR(AddEpilogue(b, group, body, sum));
  ASSIGN_OR_RETURN(std::vector<ir::Store> stores,
                   body.StoreEscaping(ChannelsLast(static_cast<int>(group.dims.size()))));
  if (shape->group == 1 && shape->is_pointwise()) return EmitPointwise(b, group, body, conv, input, std::move(stores));
  const std::string head = (conv.op == TensorOp::kConv ? "conv " : "byte conv ") + std::to_string(shape->kernel_h) +
                           "x" + std::to_string(shape->kernel_w);
  const GraphValue x = b.graph().value(conv.inputs[0]);
  ConvolvedImage image{*shape, input, x.dims, b.graph().value(WeightsOf(conv)).dims[1].value()};
  if (const std::optional<ByteProduct> bytes = ByteProductOf(b.graph(), conv)) {
    ASSIGN_OR_RETURN(image, WithKernelRowsTogether(b, *bytes, std::move(image), group.dims));
  }
  const bool bordered =
      x.dtype == DType::kF32 && InfoOf(b.target()).has_register_tiles() && GainsFromBorder(image, group.dims.back());
  if (bordered) {
    ASSIGN_OR_RETURN(Place zero, b.ZeroOf(DType::kF32));
    ASSIGN_OR_RETURN(image, WithBorder(b, DType::kF32, std::move(zero), std::move(image), group.dims));
  }
  return EmitImplicit(b, group, body, conv, image, bordered, std::move(stores), head);
}

}  // namespace kiln::lower
