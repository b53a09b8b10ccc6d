#include "compile-service/lower/second_factor.h"

#include "compile-service/lower/byte_product.h"
#include "compile-service/lower/convolution.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValueId;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);

// [O, I/g, kernel…] as [g, kernel…, I/g, O/g], the k x n matrices of the groups.
GraphValueId ConvMatrices(PlanBuilder& b, GraphValueId weights, int64_t groups, int64_t out, int64_t in, int64_t taps) {
  const std::vector<Dim> split{Dim::Const(groups), Dim::Const(out), Dim::Const(in), Dim::Const(taps)};
  const GraphValueId parts = b.AddPrepackNode(TensorOp::kReshape, {weights}, split);
  Attributes perm;
  perm.Set("perm", std::vector<int64_t>{0, 3, 2, 1});
  return b.AddPrepackNode(TensorOp::kTranspose, {parts}, {split[0], split[3], split[2], split[1]}, std::move(perm));
}

}  // namespace

Result<Place> PackPanels(PlanBuilder& b, GraphValueId weights, int64_t groups, int64_t k, int64_t n, int64_t width) {
  const int64_t panels = (n + width - 1) / width;
  const auto dims = [](std::initializer_list<int64_t> list) {
    std::vector<Dim> result;
    for (int64_t value : list) result.push_back(Dim::Const(value));
    return result;
  };
  GraphValueId packed = b.AddPrepackNode(TensorOp::kReshape, {b.WithoutDenormals(weights)}, dims({groups, k, n}));
  if (panels * width != n) {
    const GraphValueId pads = b.AddIntegers({0, 0, 0, 0, 0, panels * width - n});
    packed = b.AddPrepackNode(TensorOp::kPad, {packed, pads}, dims({groups, k, panels * width}));
  }
  packed = b.AddPrepackNode(TensorOp::kReshape, {packed}, dims({groups, k, panels, width}));
  Attributes perm;
  perm.Set("perm", std::vector<int64_t>{0, 2, 1, 3});
  packed = b.AddPrepackNode(TensorOp::kTranspose, {packed}, dims({groups, panels, k, width}), std::move(perm));
  return b.Recipe(packed);
}

Result<ConvFactor> PackedFactor(PlanBuilder& b, GraphValueId weights, bool bytes, int64_t groups, int64_t taps,
                                int64_t channels, ir::Tile tile) {
  const std::vector<Dim> w = b.graph().value(weights).dims;
  const int64_t out = w[0].value() / groups, in = w[1].value(), k = taps * channels;
  const int64_t width = int64_t{tile.nv} * b.f32_lanes(), depth = bytes ? BytePanelDepth(taps, channels) : k;
  const GraphValueId matrices = ConvMatrices(b, weights, groups, out, in, k / in);
  ASSIGN_OR_RETURN(Place panels, bytes ? PackBytePanels(b, matrices, groups, taps, channels, out, width)
                                       : PackPanels(b, matrices, groups, k, out, width));
  panels.strides = {kOne};
  return ConvFactor{panels, (out + width - 1) / width * depth * width, ir::BLayout::kPanels};
}

Result<ConvFactor> ReorderedFactor(PlanBuilder& b, const GraphNode& conv, int64_t groups) {
  ASSIGN_OR_RETURN(Place rows, ReorderedWeights(b, conv, groups));
  const int64_t matrix = rows.strides[0].value();
  rows.strides = {kOne};
  return ConvFactor{rows, matrix, ir::BLayout::kRows};
}

Result<Place> ReorderedWeights(PlanBuilder& b, const GraphNode& conv, int64_t groups) {
  const GraphValueId id = WeightsOf(conv);
  const std::vector<Dim> w = b.graph().value(id).dims;
  const int64_t out = w[0].value() / groups, in = w[1].value();
  int64_t taps = 1;
  for (size_t i = 2; i < w.size(); ++i) taps *= w[i].value();
  ASSIGN_OR_RETURN(Place place, b.PlaceOf(id));
  place.strides = {Dim::Const(out * in * taps), kOne, Dim::Const(taps), Dim::Const(in * taps)};
  const std::vector<Dim> dims{Dim::Const(groups), Dim::Const(taps), Dim::Const(in), Dim::Const(out)};
  const Place rows = b.AllocateBuffer(DType::kF32, dims, RowMajor(4));
  RETURN_IF_ERROR(b.AddCopy(place, rows, DType::kF32, dims, {"reorder weights", conv.sources}));
  return rows;
}

Result<Operand> GivenColumns(PlanBuilder& b, const GraphNode& conv, size_t row_dims) {
  const GraphValueId id = WeightsOf(conv);
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(id));
  return Operand{place, DType::kF32, b.graph().value(id).dims, std::vector<Dim>(row_dims, kZero)};
}

}  // namespace kiln::lower
