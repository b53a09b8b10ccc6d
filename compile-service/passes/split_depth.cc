// A convolution over depth, height and width as the sum of those over height and width alone, one per depth of the
// kernel: the images of a depth are images like others.
#include <algorithm>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

constexpr int64_t kDepthMax = 32;  // kernels of one convolution

struct Depth {
  int64_t kernel = 1, stride = 1, dilation = 1, front = 0, back = 0;
};

class DepthSplitter {
 public:
  explicit DepthSplitter(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    if (node.op != TensorOp::kConv || graph_.value(node.outputs[0]).prepack) return false;
    const std::optional<Depth> depth = DepthOf(node);
    if (!depth) return false;
    const GraphValueId x = Padded(node.inputs[0], *depth);
    const std::vector<Dim> y = graph_.value(node.outputs[0]).dims;
    GraphValueId sum = -1;
    for (int64_t k = 0; k < depth->kernel; ++k) {
      const bool last = k + 1 == depth->kernel;
      std::vector<GraphValueId> inputs{Images(x, k * depth->dilation, depth->stride, y[2]), Weights(node.inputs[1], k)};
      if (k == 0 && node.inputs.size() > 2) inputs.push_back(node.inputs[2]);
      const GraphValueId part = r_.Emit(TensorOp::kConv, std::move(inputs), y, Flat(node.attributes),
                                        depth->kernel == 1 ? node.outputs[0] : -1);
      sum = k == 0 ? part : r_.Binary(TensorOp::kAdd, part, sum, last ? node.outputs[0] : -1);
    }
    return true;
  }

 private:
  // nullopt: fewer dims, nothing to do, weights made at run time, or pads that depend on symbols or take away.
  std::optional<Depth> DepthOf(const GraphNode& node) const {
    const std::vector<Dim>& x = graph_.value(node.inputs[0]).dims;
    const std::vector<Dim>& y = graph_.value(node.outputs[0]).dims;
    const ir::GraphValue& w = graph_.value(node.inputs[1]);
    if (x.size() != 5 || !w.prepack || !x[1].is_const() || graph_.value(node.inputs[0]).dtype != DType::kF32)
      return std::nullopt;
    if (node.attributes.Int("depthwise", 0) != 0) return std::nullopt;
    if (std::ranges::any_of(node.attributes.Ints("pads"), [](int64_t pad) { return pad < 0; })) return std::nullopt;
    const auto setting = [&](const char* name, size_t d, int64_t otherwise) {
      const std::span<const int64_t> list = node.attributes.Ints(name);
      return d < list.size() ? list[d] : otherwise;
    };
    Depth depth{w.dims[2].value(), setting("strides", 0, 1), setting("dilations", 0, 1)};
    const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
    const int64_t extent = (depth.kernel - 1) * depth.dilation + 1;
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      // More behind than a size asks for is more zeros that nothing reads.
      int64_t least = std::max<int64_t>(extent - depth.stride, 0), most = extent - 1;
      if (x[2].is_const())
        least = most = std::max<int64_t>((y[2].value() - 1) * depth.stride + extent - x[2].value(), 0);
      const auto front = [&](int64_t total) { return mode == "SAME_LOWER" ? total - total / 2 : total / 2; };
      if (front(least) != front(most)) return std::nullopt;
      depth.front = front(most);
      depth.back = most - depth.front;
    } else if (mode != "VALID") {
      depth.front = setting("pads", 0, 0);
      depth.back = setting("pads", 3, 0);
    }
    const bool flat = depth.kernel == 1 && depth.stride == 1 && depth.front == 0 && depth.back == 0;
    if (flat || depth.kernel < 1 || depth.kernel > kDepthMax) return std::nullopt;
    return depth;
  }

  GraphValueId Padded(GraphValueId x, const Depth& depth) {
    if (depth.front == 0 && depth.back == 0) return x;
    std::vector<Dim> dims = graph_.value(x).dims;
    dims[2] = graph_.symbols.Add(dims[2], Dim::Const(depth.front + depth.back));
    const std::vector<int64_t> pads{0, 0, depth.front, 0, 0, 0, 0, depth.back, 0, 0};
    const GraphValueId list = graph_.AddImmediate(Tensor::Of<int64_t>(DType::kI64, Dims{10}, pads));
    graph_.value(list).known.emplace();
    for (int64_t pad : pads) graph_.value(list).known->push_back(Dim::Const(pad));
    return r_.Emit(TensorOp::kPad, {x, list}, std::move(dims));
  }

  GraphValueId Slice(GraphValueId value, int64_t first, int64_t step, Dim count) {
    std::vector<Dim> dims = graph_.value(value).dims, starts(dims.size(), Dim::Const(0));
    std::vector<int64_t> steps(dims.size(), 1);
    starts[2] = Dim::Const(first);
    steps[2] = step;
    dims[2] = count;
    Attributes attributes;
    attributes.Set("starts", std::move(starts));
    attributes.Set("steps", std::move(steps));
    return r_.Emit(TensorOp::kSlice, {value}, std::move(dims), std::move(attributes));
  }
  // What one depth of the kernel sees.
  GraphValueId Images(GraphValueId x, int64_t first, int64_t stride, Dim count) {
    return Slice(x, first, stride, count);
  }
  GraphValueId Weights(GraphValueId weights, int64_t k) { return Slice(weights, k, 1, Dim::Const(1)); }

  // The attributes of the convolution over height and width, whose kernels have a depth of one.
  static Attributes Flat(const Attributes& attributes) {
    Attributes flat;
    for (const Attribute& attribute : attributes.all()) {
      const std::span<const int64_t> list = attributes.Ints(attribute.name);
      std::vector<int64_t> values(list.begin(), list.end());
      if (attribute.name == "pads" && values.size() == 6) values[0] = values[3] = 0;
      if (attribute.name != "pads" && values.size() == 3) values[0] = 1;  // kernel_shape, strides, dilations
      if (list.empty())
        flat.Set(attribute.name, attribute.value);
      else
        flat.Set(attribute.name, std::move(values));
    }
    return flat;
  }

  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> SplitDepth(Graph& graph) {
  return RewriteEach<DepthSplitter>(graph);
}

}  // namespace kiln::passes
