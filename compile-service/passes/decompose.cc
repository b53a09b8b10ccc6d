// Composite ops in terms of views, element-wise ops and products, so that fusion sees one small language.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compile-service/passes/node_table.h"
#include "compile-service/passes/passes.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

constexpr Dim kOne = Dim::Const(1);

Tensor AsScalar(Tensor tensor) {
  tensor.ref.dims = tensor.ref.strides = Dims();
  return tensor;
}

class Decomposer : public NodeTable<Decomposer> {
 public:
  explicit Decomposer(Rewriter& rewriter) : NodeTable(rewriter) {}

  static std::span<const Row> Rows();

 private:
  bool Identity(const GraphNode& node) {
    r_.Replace(Out(node), node.inputs[0]);
    return true;
  }

  // Views whose meaning is all in their output dims.
  bool Reshape(const GraphNode& node) {
    r_.Emit(TensorOp::kReshape, {node.inputs[0]}, {}, {}, Out(node));
    return true;
  }

  bool Expand(const GraphNode& node) {
    r_.Emit(TensorOp::kExpand, {node.inputs[0]}, {}, {}, Out(node));
    return true;
  }

  bool Transpose(const GraphNode& node) {
    if (node.attributes.Has("perm")) return false;
    std::vector<int64_t> perm(static_cast<size_t>(Rank(node.inputs[0])));
    std::iota(perm.rbegin(), perm.rend(), 0);
    r_.Transpose(node.inputs[0], perm, Out(node));
    return true;
  }

  // `starts` (Dims) and `steps` (ints) for every dim of the input.
  GraphValueId EmitSlice(GraphValueId x, std::vector<Dim> starts, std::vector<int64_t> steps, std::vector<Dim> dims,
                         GraphValueId into) {
    Attributes attributes;
    attributes.Set("starts", std::move(starts));
    attributes.Set("steps", std::move(steps));
    return r_.Emit(TensorOp::kSlice, {x}, std::move(dims), std::move(attributes), into);
  }

  // First element taken along a dim: ONNX's rule, clamped so that it is a position even in an empty slice. nullopt when
  // its sign depends on symbols.
  std::optional<Dim> SliceStart(Dim start, int64_t step, Dim dim) {
    SymbolTable& symbols = graph_.symbols;
    const Dim zero = Dim::Const(0);
    if (start.is_const() && start.value() < 0) {
      if (start.value() < -limits::kTensorBytesMax) return zero;
      return symbols.Max(symbols.Add(dim, start), zero);
    }
    if (symbols.Bounds(start).min < 0) return std::nullopt;
    const bool beyond = start.is_const() && start.value() > limits::kTensorBytesMax;
    if (step > 0) return beyond ? dim : symbols.Min(start, dim);
    const Dim last = symbols.Max(symbols.Sub(dim, kOne), zero);
    return beyond ? last : symbols.Min(start, last);
  }

  bool Slice(const GraphNode& node) {
    const std::vector<Dim> dims = DimsOf(node.inputs[0]);
    const auto known = [&](size_t i) -> const KnownValues* {
      return Has(node, i) && graph_.value(node.inputs[i]).known ? &*graph_.value(node.inputs[i]).known : nullptr;
    };
    const KnownValues* starts = known(1);
    const KnownValues* axes = known(3);
    const KnownValues* steps = known(4);
    if (starts == nullptr || (Has(node, 3) && axes == nullptr) || (Has(node, 4) && steps == nullptr)) return false;
    std::vector<Dim> first(dims.size(), Dim::Const(0));
    std::vector<int64_t> step(dims.size(), 1);
    for (size_t i = 0; i < starts->size(); ++i) {
      int axis = static_cast<int>(i);
      if (axes != nullptr) {
        if (!(*axes)[i].is_const()) return false;
        axis = ir::NormalAxis((*axes)[i].value(), static_cast<int>(dims.size()));
      }
      if (steps != nullptr) {
        if (!(*steps)[i].is_const()) return false;
        step[static_cast<size_t>(axis)] = (*steps)[i].value();
      }
      const std::optional<Dim> start =
          SliceStart((*starts)[i], step[static_cast<size_t>(axis)], dims[static_cast<size_t>(axis)]);
      if (!start) return false;
      first[static_cast<size_t>(axis)] = *start;
    }
    EmitSlice(node.inputs[0], std::move(first), std::move(step), {}, Out(node));
    return true;
  }

  bool Split(const GraphNode& node) {
    const std::vector<Dim> dims = DimsOf(node.inputs[0]);
    const size_t axis =
        static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), static_cast<int>(dims.size())));
    const std::optional<KnownValues> sizes = Has(node, 1) ? graph_.value(node.inputs[1]).known : std::nullopt;
    if (Has(node, 1) && (!sizes || sizes->size() != node.outputs.size())) return false;
    const Dim equal = graph_.symbols.CeilDiv(dims[axis], Dim::Const(static_cast<int64_t>(node.outputs.size())));
    Dim at = Dim::Const(0);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      std::vector<Dim> starts(dims.size(), Dim::Const(0));
      starts[axis] = at;
      if (node.outputs[i] < 0) {
        at = graph_.symbols.Add(at, sizes ? (*sizes)[i] : equal);
        continue;
      }
      at = graph_.symbols.Add(at, DimsOf(node.outputs[i])[axis]);
      EmitSlice(node.inputs[0], std::move(starts), std::vector<int64_t>(dims.size(), 1), {}, node.outputs[i]);
    }
    return true;
  }

  // One known index: a slice of one entry, without its dim when the index is a scalar.
  bool Gather(const GraphNode& node) {
    const ir::GraphValue& indices = graph_.value(node.inputs[1]);
    if (!indices.known || indices.known->empty()) return false;
    if (indices.known->size() != 1 || indices.rank() > 1) return GatherWindow(node);
    if (!(*indices.known)[0].is_const()) return false;
    std::vector<Dim> dims = DimsOf(node.inputs[0]);
    const size_t axis =
        static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), static_cast<int>(dims.size())));
    const int64_t index = (*indices.known)[0].value();
    // In range for every call, or the reference kernel reports the error.
    const Interval extent = graph_.symbols.Bounds(dims[axis]);
    if (index >= extent.min || -index > extent.min) return false;
    std::vector<Dim> starts(dims.size(), Dim::Const(0));
    starts[axis] = index < 0 ? graph_.symbols.Add(dims[axis], Dim::Const(index)) : Dim::Const(index);
    dims[axis] = kOne;
    const GraphValueId row =
        EmitSlice(node.inputs[0], std::move(starts), std::vector<int64_t>(dims.size(), 1), dims, -1);
    r_.Reshape(row, {}, Out(node));
    return true;
  }

  // Indices first + sum of position * step, as sliding windows are exported: a view, whose entries may share elements.
  bool GatherWindow(const GraphNode& node) {
    const ir::GraphValue& indices = graph_.value(node.inputs[1]);
    std::vector<int64_t> values;
    for (Dim index : *indices.known) {
      if (!index.is_const()) return false;
      values.push_back(index.value());
    }
    std::vector<int64_t> extents, steps(indices.dims.size(), 0);
    for (Dim dim : indices.dims) extents.push_back(dim.value());
    int64_t stride = 1;
    for (size_t d = extents.size(); d-- > 0; stride *= extents[d]) {
      if (extents[d] > 1) steps[d] = values[static_cast<size_t>(stride)] - values[0];
    }
    for (size_t at = 0; at < values.size(); ++at) {
      int64_t rest = static_cast<int64_t>(at), index = values[0];
      for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) index += rest % extents[d] * steps[d];
      if (index != values[at]) return false;
    }
    std::vector<Dim> dims = DimsOf(node.inputs[0]);
    const auto axis =
        static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), static_cast<int>(dims.size())));
    const auto [least, most] = std::ranges::minmax(values);
    const bool inside = least >= 0 && most < graph_.symbols.Bounds(dims[axis]).min;
    if (!inside || graph_.value(node.inputs[0]).prepack) return false;  // recipes have no such view
    Attributes attributes;
    attributes.Set("axis", static_cast<int64_t>(axis));
    attributes.Set("starts", std::vector<Dim>{Dim::Const(values[0])});
    attributes.Set("steps", std::move(steps));
    r_.Emit(TensorOp::kGather, {node.inputs[0]}, {}, std::move(attributes), Out(node));
    return true;
  }

  bool ConstantOfShape(const GraphNode& node) {
    const ConstantId id = node.attributes.Constant("value");
    if (id >= 0 && graph_.constants[static_cast<size_t>(id)].tensor.ref.elements() != 1) return false;
    // The value may be stated as one of one element, which expands to everything but a scalar.
    const GraphValueId fill = id < 0 ? graph_.AddScalar(0.0f)
                                     : graph_.AddImmediate(AsScalar(graph_.constants[static_cast<size_t>(id)].tensor));
    r_.Emit(TensorOp::kExpand, {fill}, {}, {}, Out(node));
    return true;
  }

  bool Tile(const GraphNode& node) {
    const std::vector<Dim> dims = DimsOf(node.inputs[0]);
    const ir::GraphValue& operand = graph_.value(node.inputs[1]);
    if (!operand.known || dims.size() * 2 > static_cast<size_t>(limits::kRankMax)) return false;
    std::vector<Dim> split, repeated;
    for (size_t i = 0; i < dims.size(); ++i) {
      const Dim repeat = (*operand.known)[i];
      if (repeat != kOne) {
        split.push_back(kOne);
        repeated.push_back(repeat);
      }
      split.push_back(dims[i]);
      repeated.push_back(dims[i]);
    }
    const GraphValueId parts = r_.Reshape(node.inputs[0], std::move(split));
    const GraphValueId copies = r_.Emit(TensorOp::kExpand, {parts}, std::move(repeated));
    r_.Reshape(copies, {}, Out(node));
    return true;
  }

  bool DepthToSpace(const GraphNode& node) {
    const std::vector<Dim> d = DimsOf(node.inputs[0]);
    const Dim block = Dim::Const(node.attributes.Int("blocksize", 1));
    const Dim depth = graph_.symbols.ExactDiv(d[1], Dim::Const(block.value() * block.value()));
    const bool crd = node.attributes.Text("mode", "DCR") == "CRD";
    const GraphValueId parts = crd ? r_.Reshape(node.inputs[0], {d[0], depth, block, block, d[2], d[3]})
                                   : r_.Reshape(node.inputs[0], {d[0], block, block, depth, d[2], d[3]});
    const GraphValueId moved =
        r_.Transpose(parts, crd ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 3, 4, 1, 5, 2});
    r_.Reshape(moved, {}, Out(node));
    return true;
  }

  bool SpaceToDepth(const GraphNode& node) {
    const std::vector<Dim> d = DimsOf(node.inputs[0]);
    const Dim block = Dim::Const(node.attributes.Int("blocksize", 1));
    const Dim rows = graph_.symbols.ExactDiv(d[2], block), columns = graph_.symbols.ExactDiv(d[3], block);
    const GraphValueId parts = r_.Reshape(node.inputs[0], {d[0], d[1], rows, block, columns, block});
    const GraphValueId moved = r_.Transpose(parts, {0, 3, 5, 1, 2, 4});
    r_.Reshape(moved, {}, Out(node));
    return true;
  }

  // The constant by which `out` is a multiple of `in`, for every call; 0 when there is none up to the limit.
  int64_t Factor(Dim in, Dim out) {
    constexpr int64_t kFactorMax = 16;
    for (int64_t factor = 1; factor <= kFactorMax; ++factor) {
      if (graph_.symbols.ProvenEqual(out, graph_.symbols.Mul(in, Dim::Const(factor)))) return factor;
    }
    return 0;
  }

  // Whether scales, where given, are whole for all axes: a result may be a multiple of the input by rounding alone.
  bool ScalesAreWhole(const GraphNode& node) {
    if (node.attributes.Text("keep_aspect_ratio_policy", "stretch") != "stretch") return false;
    if (Has(node, 3) && !graph_.symbols.ProvenEqual(DimsOf(node.inputs[3])[0], Dim::Const(0))) return true;
    if (!Has(node, 2)) return false;
    const ir::GraphValue& scales = graph_.value(node.inputs[2]);
    if (scales.origin != ir::Origin::kImmediate || scales.dtype != DType::kF32) return false;
    const Tensor& tensor = graph_.immediates[static_cast<size_t>(scales.index)];
    return std::ranges::all_of(tensor.values<float>(), [](float scale) { return scale == std::floor(scale); });
  }

  // Nearest upsampling by whole factors repeats elements.
  bool Resize(const GraphNode& node) {
    const std::string_view coordinates = node.attributes.Text("coordinate_transformation_mode", "half_pixel");
    const std::string_view nearest = node.attributes.Text("nearest_mode", "round_prefer_floor");
    const bool repeats = (coordinates == "asymmetric" && (nearest == "floor" || nearest == "ceil_when_shrinking")) ||
                         (coordinates == "half_pixel" && nearest == "round_prefer_floor");
    if (node.attributes.Text("mode", "nearest") != "nearest" || !repeats || !ScalesAreWhole(node)) return false;
    const std::vector<Dim> in = DimsOf(node.inputs[0]), out = DimsOf(Out(node));
    std::vector<Dim> split, repeated;
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t factor = Factor(in[i], out[i]);
      if (factor == 0) return false;
      split.push_back(in[i]);
      repeated.push_back(in[i]);
      if (factor == 1) continue;
      split.push_back(kOne);
      repeated.push_back(Dim::Const(factor));
    }
    if (split.size() > static_cast<size_t>(limits::kRankMax)) return false;
    const GraphValueId parts = r_.Reshape(node.inputs[0], std::move(split));
    const GraphValueId copies = r_.Emit(TensorOp::kExpand, {parts}, std::move(repeated));
    r_.Reshape(copies, {}, Out(node));
    return true;
  }

  // Whether kernels multiply matrices of the type.
  bool IsProductType(const GraphNode& node) const {
    const DType dtype = graph_.value(node.inputs[0]).dtype;
    return dtype == DType::kF32 || dtype == DType::kF64;
  }

  // A number in the type of the node's operands.
  GraphValueId NumberOf(const GraphNode& node, double number) {
    if (graph_.value(node.inputs[0]).dtype == DType::kF32) return graph_.AddScalar(static_cast<float>(number));
    return graph_.AddImmediate(Tensor::Of<double>(DType::kF64, Dims{}, std::span(&number, 1)));
  }

  // 1-D operands become matrices, so that products always have rank >= 2.
  bool VectorMatMul(const GraphNode& node) {
    if (!IsProductType(node)) return false;
    GraphValueId a = node.inputs[0], b = node.inputs[1];
    const bool a_vector = Rank(a) == 1, b_vector = Rank(b) == 1;
    if (!a_vector && !b_vector) return false;
    std::vector<Dim> dims = DimsOf(Out(node));
    if (b_vector) {
      b = r_.Reshape(b, {DimsOf(b)[0], kOne});
      dims.push_back(kOne);
    }
    if (a_vector) {
      a = r_.Reshape(a, {kOne, DimsOf(a)[0]});
      dims.insert(dims.end() - 1, kOne);
    }
    r_.Reshape(r_.Emit(TensorOp::kMatMul, {a, b}, std::move(dims)), {}, Out(node));
    return true;
  }

  bool Gemm(const GraphNode& node) {
    if (!IsProductType(node)) return false;
    GraphValueId a = node.inputs[0], b = node.inputs[1];
    if (node.attributes.Int("transA", 0) != 0) a = r_.Transpose(a, {1, 0});
    if (node.attributes.Int("transB", 0) != 0) b = r_.Transpose(b, {1, 0});
    const double alpha = node.attributes.Float("alpha", 1.0), beta = node.attributes.Float("beta", 1.0);
    const bool has_c = Has(node, 2);
    const bool scale_after = alpha != 1.0;  // weights take the factor in where they may be folded
    const std::vector<Dim> dims = DimsOf(Out(node));
    GraphValueId product = r_.Emit(TensorOp::kMatMul, {a, b}, dims, {}, !has_c && !scale_after ? Out(node) : -1);
    if (scale_after) {
      product = r_.Binary(TensorOp::kMul, product, NumberOf(node, alpha), has_c ? -1 : Out(node));
    }
    if (!has_c) return true;
    GraphValueId c = node.inputs[2];
    if (beta != 1.0) c = r_.Binary(TensorOp::kMul, c, NumberOf(node, beta));
    r_.Binary(TensorOp::kAdd, product, c, Out(node));
    return true;
  }
};

std::span<const Decomposer::Row> Decomposer::Rows() {
  static constexpr Row kRows[] = {
      {TensorOp::kIdentity, false, &Decomposer::Identity},
      {TensorOp::kReshape, false, &Decomposer::Reshape},
      {TensorOp::kFlatten, false, &Decomposer::Reshape},
      {TensorOp::kSqueeze, false, &Decomposer::Reshape},
      {TensorOp::kUnsqueeze, false, &Decomposer::Reshape},
      {TensorOp::kExpand, false, &Decomposer::Expand},
      {TensorOp::kTranspose, false, &Decomposer::Transpose},
      {TensorOp::kSlice, false, &Decomposer::Slice},
      {TensorOp::kSplit, false, &Decomposer::Split},
      {TensorOp::kGather, false, &Decomposer::Gather},
      {TensorOp::kConstantOfShape, false, &Decomposer::ConstantOfShape},
      {TensorOp::kTile, false, &Decomposer::Tile},
      {TensorOp::kDepthToSpace, false, &Decomposer::DepthToSpace},
      {TensorOp::kSpaceToDepth, false, &Decomposer::SpaceToDepth},
      {TensorOp::kResize, false, &Decomposer::Resize},
      {TensorOp::kMatMul, false, &Decomposer::VectorMatMul},
      {TensorOp::kGemm, false, &Decomposer::Gemm},
  };
  return kRows;
}

}  // namespace

Result<bool> Decompose(Graph& graph) {
  return RewriteEach<Decomposer>(graph);
}

}  // namespace kiln::passes
