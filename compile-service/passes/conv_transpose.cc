// ConvTranspose as a convolution. With stride s, output position o takes x[q - j] * w[r + j * s] where o + pad = q * s
// + r: a convolution over x with the flipped taps of each phase r makes the outputs of all phases per q, which are then
// moved apart.
#include <numeric>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

// One spatial dim.
struct Axis {
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t taps = 1;             // of one phase
  int64_t front = 0, back = 0;  // padding of the convolution
  int64_t first = 0;            // position of the first output among the phases
  int64_t grows = 0;            // outputs of the convolution beyond its inputs
};

class Transposer {
 public:
  explicit Transposer(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    if (node.op != TensorOp::kConvTranspose) return false;
    const std::optional<std::vector<Axis>> axes = AxesOf(node);
    if (!axes) return false;
    axes_ = *axes;
    const std::vector<Dim> w = graph_.value(node.inputs[1]).dims;
    groups_ = node.attributes.Int("group", 1);
    in_ = w[0].value() / groups_;
    out_ = w[1].value();
    phases_ = 1;
    for (const Axis& axis : axes_) phases_ *= axis.stride;
    std::vector<GraphValueId> inputs{node.inputs[0], Weights(node.inputs[1])};
    if (node.inputs.size() > 2 && node.inputs[2] >= 0) inputs.push_back(Bias(node.inputs[2]));
    Split(Convolution(std::move(inputs)), node.outputs[0]);
    return true;
  }

 private:
  static Dim Const(int64_t value) { return Dim::Const(value); }

  // nullopt: 3-D, weights made at run time, sizes given otherwise than by pads, dilated and strided at once, or more
  // padding than the kernel has taps.
  std::optional<std::vector<Axis>> AxesOf(const GraphNode& node) const {
    const ir::GraphValue& x = graph_.value(node.inputs[0]);
    const ir::GraphValue& w = graph_.value(node.inputs[1]);
    const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
    const bool plain = (mode == "NOTSET" || mode.empty()) && node.attributes.Ints("output_shape").empty();
    if (x.dtype != DType::kF32 || x.rank() < 3 || x.rank() > 4 || !w.prepack || !x.dims[1].is_const() || !plain) {
      return std::nullopt;
    }
    const auto setting = [&](const char* name, size_t d, int64_t otherwise) {
      const std::span<const int64_t> list = node.attributes.Ints(name);
      return d < list.size() ? list[d] : otherwise;
    };
    const size_t spatial = x.dims.size() - 2;
    std::vector<Axis> axes;
    for (size_t d = 0; d < spatial; ++d) {
      Axis axis;
      axis.kernel = w.dims[d + 2].value();
      axis.stride = setting("strides", d, 1);
      axis.dilation = setting("dilations", d, 1);
      const int64_t pad = setting("pads", d, 0), end = setting("pads", d + spatial, 0);
      if (axis.kernel < 1 || axis.stride < 1 || pad < 0 || (axis.stride > 1 && axis.dilation > 1)) return std::nullopt;
      axis.taps = (axis.kernel + axis.stride - 1) / axis.stride;
      axis.first = pad % axis.stride;
      axis.front = axis.dilation * (axis.taps - 1) - pad / axis.stride;
      const int64_t extent = axis.dilation * (axis.kernel - 1) + 1;
      const int64_t beyond = extent + setting("output_padding", d, 0) - pad - end + axis.first;
      if (beyond < 0) return std::nullopt;
      axis.grows = (beyond + axis.stride - 1) / axis.stride - 1;
      axis.back = axis.grows + axis.dilation * (axis.taps - 1) - axis.front;
      if (axis.front < 0 || axis.back < 0) return std::nullopt;
      axes.push_back(axis);
    }
    return axes;
  }

  GraphValueId Integers(const std::vector<int64_t>& values) {
    return graph_.AddImmediate(Tensor::Of<int64_t>(DType::kI64, Dims{static_cast<int64_t>(values.size())}, values));
  }

  // [groups * in, out, kernel…] as [groups * phases * out, in, taps…], the taps of each phase last to first.
  GraphValueId Weights(GraphValueId w) {
    const size_t spatial = axes_.size();
    std::vector<Dim> padded = graph_.value(w).dims, split{Const(groups_), Const(in_), Const(out_)};
    std::vector<int64_t> pads(2 * padded.size(), 0), steps(3, 1), perm{0};
    std::vector<Dim> starts(3, Const(0)), flat{Const(groups_ * phases_ * out_), Const(in_)};
    bool grows = false;
    for (size_t d = 0; d < spatial; ++d) {
      const Axis& axis = axes_[d];
      pads[padded.size() + d + 2] = axis.taps * axis.stride - axis.kernel;
      grows = grows || pads[padded.size() + d + 2] > 0;
      padded[d + 2] = Const(axis.taps * axis.stride);
      split.insert(split.end(), {Const(axis.taps), Const(axis.stride)});
      starts.insert(starts.end(), {Const(axis.taps - 1), Const(0)});
      steps.insert(steps.end(), {-1, 1});
      flat.push_back(Const(axis.taps));
      perm.push_back(static_cast<int64_t>(4 + 2 * d));
    }
    perm.insert(perm.end(), {2, 1});
    for (size_t d = 0; d < spatial; ++d) perm.push_back(static_cast<int64_t>(3 + 2 * d));
    if (grows) w = r_.Emit(TensorOp::kPad, {w, Integers(pads)}, padded);
    const GraphValueId parts = r_.Reshape(w, split);
    Attributes flip;
    flip.Set("starts", std::move(starts));
    flip.Set("steps", std::move(steps));
    const GraphValueId flipped = r_.Emit(TensorOp::kSlice, {parts}, std::move(split), std::move(flip));
    return r_.Reshape(r_.Transpose(flipped, std::move(perm)), std::move(flat));
  }

  // Every phase has the bias of its channel.
  GraphValueId Bias(GraphValueId bias) {
    if (phases_ == 1) return bias;
    const GraphValueId rows = r_.Reshape(bias, {Const(groups_), Const(1), Const(out_)});
    const GraphValueId all = r_.Emit(TensorOp::kExpand, {rows}, {Const(groups_), Const(phases_), Const(out_)});
    return r_.Reshape(all, {Const(groups_ * phases_ * out_)});
  }

  GraphValueId Convolution(std::vector<GraphValueId> inputs) {
    const std::vector<Dim> x = graph_.value(inputs[0]).dims;
    std::vector<Dim> dims{x[0], Const(groups_ * phases_ * out_)};
    std::vector<int64_t> pads, dilations;
    bool padded = false;
    for (size_t d = 0; d < axes_.size(); ++d) {
      dims.push_back(graph_.symbols.Add(x[d + 2], Const(axes_[d].grows)));
      pads.push_back(axes_[d].front);
      dilations.push_back(axes_[d].dilation);
      padded = padded || axes_[d].front > 0 || axes_[d].back > 0;
    }
    for (const Axis& axis : axes_) pads.push_back(axis.back);
    Attributes attributes;
    if (padded) attributes.Set("pads", std::move(pads));
    attributes.Set("dilations", std::move(dilations));
    if (groups_ > 1) attributes.Set("group", groups_);
    return r_.Emit(TensorOp::kConv, std::move(inputs), std::move(dims), std::move(attributes));
  }

  // [n, groups * phases * out, q…] as [n, groups * out, position…], of which the output is a part.
  void Split(GraphValueId product, GraphValueId output) {
    if (phases_ == 1) return r_.Replace(output, product);
    const std::vector<Dim> q = graph_.value(product).dims, wanted = graph_.value(output).dims;
    const auto spatial = static_cast<int64_t>(axes_.size());
    std::vector<Dim> parts{q[0], Const(groups_)}, whole{q[0], Const(groups_ * out_)};
    std::vector<int64_t> perm{0, 1, 2 + spatial};
    for (const Axis& axis : axes_) parts.push_back(Const(axis.stride));
    parts.push_back(Const(out_));
    bool cut = false;
    for (int64_t d = 0; d < spatial; ++d) {
      const auto at = static_cast<size_t>(d + 2);
      parts.push_back(q[at]);
      whole.push_back(graph_.symbols.Mul(q[at], Const(axes_[at - 2].stride)));
      perm.insert(perm.end(), {3 + spatial + d, 2 + d});
      cut = cut || !graph_.symbols.ProvenEqual(whole.back(), wanted[at]);
    }
    const GraphValueId moved = r_.Transpose(r_.Reshape(product, std::move(parts)), std::move(perm));
    const GraphValueId all = r_.Reshape(moved, whole, cut ? -1 : output);
    if (!cut) return;
    Attributes attributes;
    std::vector<Dim> starts(2, Const(0));
    for (const Axis& axis : axes_) starts.push_back(Const(axis.first));
    attributes.Set("steps", std::vector<int64_t>(starts.size(), 1));
    attributes.Set("starts", std::move(starts));
    r_.Emit(TensorOp::kSlice, {all}, {}, std::move(attributes), output);
  }

  Rewriter& r_;
  Graph& graph_;
  std::vector<Axis> axes_;
  int64_t groups_ = 1, in_ = 0, out_ = 0, phases_ = 1;  // channels in and out of one group
};

}  // namespace

Result<bool> TransposedConvolutions(Graph& graph) {
  return RewriteEach<Transposer>(graph);
}

}  // namespace kiln::passes
