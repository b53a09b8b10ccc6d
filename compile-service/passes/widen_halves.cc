// Arithmetic on f16 and bf16 as f32 arithmetic between casts: an op computes in f32 and rounds once, as its reference
// kernel does. Fusion then keeps the values in registers; memory holds halves.
#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// Whether the op computes with its operands; what only moves them keeps halves as they are.
bool IsArithmetic(const GraphNode& node) {
  if (node.op == TensorOp::kCast || node.op == TensorOp::kIdentity || node.op == TensorOp::kWhere) return false;
  switch (OpInfo(node.op).family) {
    case OpFamily::kElementwise:
    case OpFamily::kReduction:
    case OpFamily::kContraction:
    case OpFamily::kConvolution:
    case OpFamily::kPooling:
    case OpFamily::kNormalization:
      return true;
    case OpFamily::kMovement:
    case OpFamily::kView:
    case OpFamily::kRecurrent:
    case OpFamily::kIndexing:
    case OpFamily::kShape:
    case OpFamily::kSelection:
    case OpFamily::kQuantization:
    case OpFamily::kControl:
    case OpFamily::kConstant:
    case OpFamily::kOther:
      return false;
  }
  return false;
}

class Widener {
 public:
  explicit Widener(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Applies(const GraphNode& node) const {
    if (!IsArithmetic(node)) return false;
    bool half = false;
    for (GraphValueId input : node.inputs) half = half || (input >= 0 && IsHalf(graph_.value(input).dtype));
    return half;
  }

  void Run(GraphNode node) {
    for (GraphValueId& input : node.inputs) {
      if (input >= 0 && IsHalf(graph_.value(input).dtype)) input = Cast(input, DType::kF32, -1);
    }
    std::vector<std::pair<GraphValueId, GraphValueId>> narrowed;  // f32 result, half value
    for (GraphValueId& output : node.outputs) {
      if (output < 0 || !IsHalf(graph_.value(output).dtype)) continue;
      const GraphValueId wide = graph_.AddValue(DType::kF32, graph_.value(output).dims);
      graph_.value(wide).prepack = graph_.value(output).prepack;
      narrowed.emplace_back(wide, output);
      output = wide;
    }
    r_.Keep(std::move(node));
    for (const auto& [wide, half] : narrowed) Cast(wide, graph_.value(half).dtype, half);
  }

 private:
  GraphValueId Cast(GraphValueId from, DType dtype, GraphValueId into) {
    Attributes attributes;
    attributes.Set("to", static_cast<int64_t>(dtype));
    const GraphValueId result = r_.Emit(TensorOp::kCast, {from}, graph_.value(from).dims, std::move(attributes), into);
    graph_.value(result).dtype = dtype;
    return result;
  }

  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> WidenHalves(Graph& graph) {
  Rewriter rewriter(graph);
  Widener widener(rewriter);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (widener.Applies(node)) {
      widener.Run(std::move(node));
    } else {
      rewriter.Keep(std::move(node));
    }
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
