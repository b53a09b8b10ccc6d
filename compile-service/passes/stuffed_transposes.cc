// The forms of ConvTranspose that have no phases of their own (conv_transpose.cc): zeros between the elements of x make
// it a convolution without a stride, of the kernel flipped.
#include <algorithm>
#include <numeric>

#include "common/base/checked_math.h"
#include "compile-service/passes/flipped_kernels.h"
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
  int64_t front = 0, back = 0;  // padding of the convolution; less than nothing takes elements away
};

class Stuffer {
 public:
  explicit Stuffer(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    if (node.op != TensorOp::kConvTranspose || graph_.value(node.outputs[0]).prepack) return false;
    const std::optional<std::vector<Axis>> axes = AxesOf(node);
    if (!axes) return false;
    std::vector<GraphValueId> inputs = node.inputs;
    inputs[0] = Cropped(Stuffed(inputs[0], *axes), *axes);
    inputs[1] = FlippedKernels(r_, inputs[1], node.attributes.Int("group", 1));
    std::vector<int64_t> pads, dilations;
    for (const Axis& axis : *axes) pads.push_back(std::max<int64_t>(axis.front, 0));
    for (const Axis& axis : *axes) pads.push_back(std::max<int64_t>(axis.back, 0));
    for (const Axis& axis : *axes) dilations.push_back(axis.dilation);
    Attributes attributes;
    attributes.Set("group", node.attributes.Int("group", 1));
    attributes.Set("pads", std::move(pads));
    attributes.Set("dilations", std::move(dilations));
    r_.Emit(TensorOp::kConv, std::move(inputs), {}, std::move(attributes), node.outputs[0]);
    return true;
  }

 private:
  static Dim Const(int64_t value) { return Dim::Const(value); }

  // nullopt: weights made at run time, or pads that depend on symbols.
  std::optional<std::vector<Axis>> AxesOf(const GraphNode& node) {
    const std::vector<Dim> x = graph_.value(node.inputs[0]).dims, y = graph_.value(node.outputs[0]).dims;
    const ir::GraphValue& w = graph_.value(node.inputs[1]);
    if (graph_.value(node.inputs[0]).dtype != DType::kF32 || x.size() < 3 || x.size() > 5 || !w.prepack ||
        !x[1].is_const())
      return std::nullopt;
    const size_t spatial = x.size() - 2;
    const auto setting = [&](const char* name, size_t d, int64_t otherwise) {
      const std::span<const int64_t> list = node.attributes.Ints(name);
      return d < list.size() ? list[d] : otherwise;
    };
    std::vector<Axis> axes;
    for (size_t d = 0; d < spatial; ++d) {
      Axis axis{w.dims[d + 2].value(), setting("strides", d, 1), setting("dilations", d, 1)};
      if (axis.kernel < 1) return std::nullopt;
      const int64_t extent = axis.dilation * (axis.kernel - 1) + 1;
      const Dim stuffed = graph_.symbols.Mul(x[d + 2], Const(axis.stride));
      const Dim growth = graph_.symbols.Sub(y[d + 2], stuffed);
      const std::optional<int64_t> pad =
          PadOf(node, growth, extent + setting("output_padding", d, 0) - axis.stride, setting("pads", d, 0));
      if (!pad || !growth.is_const()) return std::nullopt;
      axis.front = extent - 1 - *pad;
      axis.back = growth.value() + *pad;
      // There is an output element in every call, so that what is taken away is there as well.
      const bool takes = axis.front < 0 || axis.back < 0;
      if (takes && std::max<int64_t>(axis.front, 0) + std::max<int64_t>(axis.back, 0) > extent) return std::nullopt;
      axes.push_back(axis);
    }
    return axes;
  }

  // How much of the whole result lies in front of the output: said by `pads`, or a half of what is too much.
  static std::optional<int64_t> PadOf(const GraphNode& node, Dim growth, int64_t most, int64_t said) {
    const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (!same && node.attributes.Ints("output_shape").empty()) return mode == "VALID" ? 0 : said;
    if (!growth.is_const()) return std::nullopt;
    const int64_t total = most - growth.value(), half = FloorDiv(total, 2);
    if (total < 0) return 0;
    return mode == "SAME_UPPER" ? half : total - half;
  }

  // x with stride - 1 zeros behind every element.
  GraphValueId Stuffed(GraphValueId x, const std::vector<Axis>& axes) {
    if (std::ranges::all_of(axes, [](const Axis& axis) { return axis.stride == 1; })) return x;
    const std::vector<Dim> dims = graph_.value(x).dims;
    std::vector<Dim> apart{dims[0], dims[1]}, padded = apart, whole = apart;
    for (size_t d = 0; d < axes.size(); ++d) {
      const Dim stride = Const(axes[d].stride);
      apart.insert(apart.end(), {dims[d + 2], Const(1)});
      padded.insert(padded.end(), {dims[d + 2], stride});
      whole.push_back(graph_.symbols.Mul(dims[d + 2], stride));
    }
    std::vector<int64_t> pads(2 * apart.size(), 0);
    for (size_t d = 0; d < axes.size(); ++d) pads[apart.size() + 3 + 2 * d] = axes[d].stride - 1;
    const GraphValueId list =
        graph_.AddImmediate(Tensor::Of<int64_t>(DType::kI64, Dims{static_cast<int64_t>(pads.size())}, pads));
    graph_.value(list).known.emplace();
    for (int64_t pad : pads) graph_.value(list).known->push_back(Const(pad));
    const GraphValueId parts = r_.Reshape(x, std::move(apart));
    return r_.Reshape(r_.Emit(TensorOp::kPad, {parts, list}, std::move(padded)), std::move(whole));
  }

  GraphValueId Cropped(GraphValueId x, const std::vector<Axis>& axes) {
    std::vector<Dim> dims = graph_.value(x).dims, starts(dims.size(), Const(0));
    bool crops = false;
    for (size_t d = 0; d < axes.size(); ++d) {
      const int64_t front = std::max<int64_t>(-axes[d].front, 0), back = std::max<int64_t>(-axes[d].back, 0);
      crops = crops || front + back > 0;
      starts[d + 2] = Const(front);
      dims[d + 2] = graph_.symbols.Sub(dims[d + 2], Const(front + back));
    }
    if (!crops) return x;
    Attributes attributes;
    attributes.Set("steps", std::vector<int64_t>(starts.size(), 1));
    attributes.Set("starts", std::move(starts));
    return r_.Emit(TensorOp::kSlice, {x}, std::move(dims), std::move(attributes));
  }

  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> StuffedTransposes(Graph& graph) {
  return RewriteEach<Stuffer>(graph);
}

}  // namespace kiln::passes
