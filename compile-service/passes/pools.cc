// Forms of pooling in terms of those that window kernels compute: at most two spatial dims, averages over what is
// inside or over all of a window, maxima.
#include <algorithm>
#include <numeric>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

bool IsPadded(const GraphNode& node) {
  return std::ranges::any_of(node.attributes.Ints("pads"), [](int64_t pad) { return pad != 0; });
}

// The attributes of a window without those named; entries [first, first + count) of lists that have one per dim.
Attributes Part(const Attributes& attributes, size_t spatial, size_t first, size_t count) {
  Attributes part;
  for (const Attribute& attribute : attributes.all()) {
    const std::span<const int64_t> list = attributes.Ints(attribute.name);
    std::vector<int64_t> kept;
    for (size_t from = 0; from + spatial <= list.size(); from += spatial)
      for (size_t d = first; d < first + count; ++d) kept.push_back(list[from + d]);
    if (list.empty())
      part.Set(attribute.name, attribute.value);
    else
      part.Set(attribute.name, std::move(kept));
  }
  return part;
}

class PoolRewriter {
 public:
  explicit PoolRewriter(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    if (node.op == TensorOp::kLpPool) return PoolPowers(node);
    const bool average = node.op == TensorOp::kAveragePool;
    if (!average && node.op != TensorOp::kMaxPool) return false;
    if (node.outputs.size() > 1 && node.outputs[1] >= 0) return false;
    const DType dtype = graph_.value(node.inputs[0]).dtype;
    if (graph_.value(node.outputs[0]).prepack || (average && dtype != DType::kF32)) return false;
    const size_t spatial = graph_.value(node.inputs[0]).dims.size() - 2;
    Pool pool{node.op, node.inputs[0], node.attributes};
    const bool counted = average && CountsLess(node);
    if (counted && !PadAhead(node, spatial, pool)) return false;
    if (spatial == 3) {
      PoolDepthLast(pool, node.outputs[0]);
      return true;
    }
    if (counted) r_.Emit(pool.op, {pool.x}, {}, std::move(pool.attributes), node.outputs[0]);
    return counted;
  }

 private:
  struct Pool {
    TensorOp op;
    GraphValueId x;
    Attributes attributes;
  };

  // Whether pads count, but not what windows of ceil_mode reach beyond them.
  static bool CountsLess(const GraphNode& node) {
    const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";  // windows end where the pads do
    return !same && node.attributes.Int("ceil_mode", 0) != 0 && node.attributes.Int("count_include_pad", 0) != 0;
  }

  // Pads that count become elements: what is inside is then what counts.
  bool PadAhead(const GraphNode& node, size_t spatial, Pool& pool) {
    const std::span<const int64_t> pads = node.attributes.Ints("pads");
    const bool uses_pads = node.attributes.Text("auto_pad", "NOTSET") != "VALID";
    if (std::ranges::any_of(pads, [](int64_t pad) { return pad < 0; })) return false;
    pool.attributes = {};
    for (const Attribute& attribute : node.attributes.all()) {
      const bool gone = attribute.name == "pads" || attribute.name == "count_include_pad";
      if (!gone) pool.attributes.Set(attribute.name, attribute.value);
    }
    if (!uses_pads || !IsPadded(node)) return true;
    std::vector<Dim> dims = graph_.value(pool.x).dims;
    std::vector<int64_t> all(2 * dims.size(), 0);
    for (size_t d = 0; d < spatial; ++d) {
      all[d + 2] = pads[d];
      all[dims.size() + d + 2] = pads[d + spatial];
      dims[d + 2] = graph_.symbols.Add(dims[d + 2], Dim::Const(pads[d] + pads[d + spatial]));
    }
    const GraphValueId list =
        graph_.AddImmediate(Tensor::Of<int64_t>(DType::kI64, Dims{static_cast<int64_t>(all.size())}, all));
    graph_.value(list).known.emplace();
    for (int64_t pad : all) graph_.value(list).known->push_back(Dim::Const(pad));
    pool.x = r_.Emit(TensorOp::kPad, {pool.x, list}, std::move(dims));
    return true;
  }

  // The p-norm of each window: the mean of powers over all of the window times its size, and the root of that.
  bool PoolPowers(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    const int64_t p = node.attributes.Int("p", 2);
    const std::span<const int64_t> kernel = node.attributes.Ints("kernel_shape");
    const size_t spatial = graph_.value(x).dims.size() - 2;
    if (p < 1 || kernel.size() != spatial || graph_.value(x).dtype != DType::kF32 ||
        graph_.value(node.outputs[0]).prepack)
      return false;
    Pool pool{TensorOp::kAveragePool, Power(x, p), {}};
    for (const Attribute& attribute : node.attributes.all())
      if (attribute.name != "p") pool.attributes.Set(attribute.name, attribute.value);
    pool.attributes.Set("count_include_pad", int64_t{1});
    if (CountsLess({TensorOp::kAveragePool, pool.attributes, {}, {}, {}}) && !PadToWindows(node, pool)) return false;
    const std::vector<Dim> dims = graph_.value(node.outputs[0]).dims;
    GraphValueId mean = graph_.AddValue(DType::kF32, dims);
    if (spatial == 3) {
      PoolDepthLast(pool, mean);
    } else {
      r_.Emit(pool.op, {pool.x}, {}, std::move(pool.attributes), mean);
    }
    const auto size = std::accumulate(kernel.begin(), kernel.end(), 1.0f, [](float product, int64_t extent) {
      return product * static_cast<float>(extent);
    });
    const GraphValueId sum = r_.Binary(TensorOp::kMul, mean, graph_.AddScalar(size), p == 1 ? node.outputs[0] : -1);
    if (p == 2) r_.Unary(TensorOp::kSqrt, sum, node.outputs[0]);
    if (p > 2) r_.Binary(TensorOp::kPow, sum, graph_.AddScalar(1 / static_cast<float>(p)), node.outputs[0]);
    return true;
  }

  // |x|^p
  GraphValueId Power(GraphValueId x, int64_t p) {
    if (p == 2) return r_.Binary(TensorOp::kMul, x, x);
    const GraphValueId magnitude = r_.Unary(TensorOp::kAbs, x);
    return p == 1 ? magnitude : r_.Binary(TensorOp::kPow, magnitude, graph_.AddScalar(static_cast<float>(p)));
  }

  // Pads that reach as far as the windows of ceil_mode do, where sizes are known.
  bool PadToWindows(const GraphNode& node, Pool& pool) {
    const std::vector<Dim>& in = graph_.value(node.inputs[0]).dims;
    const std::vector<Dim>& out = graph_.value(node.outputs[0]).dims;
    const size_t spatial = in.size() - 2;
    const auto list = [&](const char* name, int64_t fallback, size_t count) {
      const std::span<const int64_t> given = node.attributes.Ints(name);
      return given.size() == count ? std::vector<int64_t>(given.begin(), given.end())
                                   : std::vector<int64_t>(count, fallback);
    };
    const std::vector<int64_t> kernel = list("kernel_shape", 1, spatial), strides = list("strides", 1, spatial),
                               dilations = list("dilations", 1, spatial);
    std::vector<int64_t> pads = list("pads", 0, 2 * spatial);
    if (node.attributes.Text("auto_pad", "NOTSET") == "VALID") std::ranges::fill(pads, 0);
    for (size_t d = 0; d < spatial; ++d) {
      if (!in[d + 2].is_const() || !out[d + 2].is_const()) return false;
      const int64_t reach = (out[d + 2].value() - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1;
      pads[spatial + d] = std::max<int64_t>(0, reach - in[d + 2].value() - pads[d]);
    }
    pool.attributes.Set("pads", std::move(pads));
    pool.attributes.Set("ceil_mode", int64_t{0});
    pool.attributes.Set("auto_pad", std::string("NOTSET"));
    return true;
  }

  // Maxima and means over height and width of every depth, then over depths: a mean of means over as many elements
  // each.
  void PoolDepthLast(const Pool& pool, GraphValueId into) {
    const std::vector<Dim> x = graph_.value(pool.x).dims, y = graph_.value(into).dims;
    const Dim n = x[0], c = x[1], depth = x[2], pixels = graph_.symbols.Mul(y[3], y[4]);
    const GraphValueId transposed = r_.Transpose(pool.x, {0, 2, 1, 3, 4});
    const GraphValueId images = r_.Reshape(transposed, {graph_.symbols.Mul(n, depth), c, x[3], x[4]});
    const GraphValueId flat =
        r_.Emit(pool.op, {images}, {graph_.value(images).dims[0], c, y[3], y[4]}, Part(pool.attributes, 3, 1, 2));
    const GraphValueId planes = r_.Transpose(r_.Reshape(flat, {n, depth, c, y[3], y[4]}), {0, 3, 4, 2, 1});
    const Dim columns = graph_.symbols.Mul(pixels, c);
    const GraphValueId lines = r_.Reshape(planes, {n, columns, depth});
    const GraphValueId deep = r_.Emit(pool.op, {lines}, {n, columns, y[2]}, Part(pool.attributes, 3, 0, 1));
    r_.Transpose(r_.Reshape(deep, {n, y[3], y[4], c, y[2]}), {0, 3, 4, 1, 2}, into);
  }

  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> Pools(Graph& graph) {
  return RewriteEach<PoolRewriter>(graph);
}

}  // namespace kiln::passes
