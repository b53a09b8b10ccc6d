// auto_pad SAME where what lies in front depends on the size: the pads become elements, by as many as the call's size
// asks for.
#include <algorithm>
#include <limits>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

constexpr Dim kZero = Dim::Const(0);

class SamePadder {
 public:
  explicit SamePadder(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    const bool conv = node.op == TensorOp::kConv;
    const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
    if ((!conv && node.op != TensorOp::kMaxPool) || (mode != "SAME_UPPER" && mode != "SAME_LOWER")) return false;
    const ir::GraphValue& x = graph_.value(node.inputs[0]);
    const bool places = node.outputs.size() > 1 && node.outputs[1] >= 0;  // of the input as it is
    if (x.dtype != DType::kF32 || x.prepack || places) return false;
    const std::vector<int64_t> kernel = KernelOf(node);
    if (kernel.size() + 2 != x.dims.size()) return false;
    const size_t rank = x.dims.size();
    std::vector<Dim> pads(2 * rank, kZero), padded = x.dims;
    bool open = false;
    for (size_t d = 0; d < kernel.size(); ++d) {
      const int64_t stride = Setting(node, "strides", d);
      const int64_t extent = (kernel[d] - 1) * Setting(node, "dilations", d) + 1;
      const Dim total = Total(x.dims[d + 2], graph_.value(node.outputs[0]).dims[d + 2], extent, stride);
      const Dim less = Half(total), more = Half(graph_.symbols.Add(total, Dim::Const(1)));
      open = open || !less.is_const();
      pads[d + 2] = mode == "SAME_UPPER" ? less : more;
      pads[rank + d + 2] = mode == "SAME_UPPER" ? more : less;
      padded[d + 2] = graph_.symbols.Add(padded[d + 2], total);
    }
    if (!open) return false;
    Attributes attributes;
    for (const Attribute& attribute : node.attributes.all())
      if (attribute.name != "auto_pad" && attribute.name != "pads") attributes.Set(attribute.name, attribute.value);
    std::vector<GraphValueId> inputs = node.inputs;
    const GraphValueId fill = graph_.AddScalar(conv ? 0.0f : -std::numeric_limits<float>::infinity());
    inputs[0] = r_.Emit(TensorOp::kPad, {inputs[0], List(pads, node.sources), fill}, std::move(padded));
    r_.Emit(node.op, std::move(inputs), {}, std::move(attributes), node.outputs[0]);
    return true;
  }

 private:
  static int64_t Setting(const GraphNode& node, const char* name, size_t d) {
    const std::span<const int64_t> list = node.attributes.Ints(name);
    return d < list.size() ? list[d] : 1;
  }

  std::vector<int64_t> KernelOf(const GraphNode& node) const {
    const std::span<const int64_t> given = node.attributes.Ints("kernel_shape");
    std::vector<int64_t> kernel(given.begin(), given.end());
    if (node.op != TensorOp::kConv) return kernel;
    kernel.clear();
    const ir::GraphValue& weights = graph_.value(node.inputs[1]);
    for (size_t d = 2; weights.prepack && d < weights.dims.size(); ++d) kernel.push_back(weights.dims[d].value());
    return kernel;
  }

  Dim Total(Dim in, Dim out, int64_t extent, int64_t stride) {
    SymbolTable& symbols = graph_.symbols;
    const Dim last = symbols.Mul(symbols.Sub(out, Dim::Const(1)), Dim::Const(stride));
    return symbols.Max(symbols.Sub(symbols.Add(last, Dim::Const(extent)), in), kZero);
  }
  Dim Half(Dim total) { return graph_.symbols.FloorDiv(total, Dim::Const(2)); }

  // A list of sizes as a value.
  GraphValueId List(const std::vector<Dim>& entries, const std::vector<int32_t>& sources) {
    const GraphValueId list = graph_.AddValue(DType::kI64, {Dim::Const(static_cast<int64_t>(entries.size()))});
    graph_.value(list).known.emplace(entries.begin(), entries.end());
    Attributes attributes;
    attributes.Set("dims", entries);
    r_.Keep({TensorOp::kShapeVector, std::move(attributes), {}, {list}, sources});
    return list;
  }

  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> SamePads(Graph& graph) {
  Rewriter rewriter(graph);
  SamePadder padder(rewriter);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (!padder.Run(node)) rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
