#include "compile-service/passes/flipped_kernels.h"

namespace kiln::passes {

ir::GraphValueId FlippedKernels(Rewriter& rewriter, ir::GraphValueId weights, int64_t groups) {
  const std::vector<Dim> w = rewriter.graph().value(weights).dims;
  const Dim group = Dim::Const(groups), in = Dim::Const(w[0].value() / groups), out = w[1];
  std::vector<Dim> split{group, in, out}, merged{Dim::Const(groups * out.value()), in};
  std::vector<Dim> last{Dim::Const(0), Dim::Const(0)};
  std::vector<int64_t> order{0, 2, 1}, steps{1, 1};
  for (size_t d = 2; d < w.size(); ++d) {
    split.push_back(w[d]);
    merged.push_back(w[d]);
    order.push_back(static_cast<int64_t>(d + 1));
    last.push_back(Dim::Const(w[d].value() - 1));
    steps.push_back(-1);
  }
  const ir::GraphValueId moved = rewriter.Transpose(rewriter.Reshape(weights, std::move(split)), std::move(order));
  Attributes flip;
  flip.Set("starts", std::move(last));
  flip.Set("steps", std::move(steps));
  return rewriter.Emit(TensorOp::kSlice, {rewriter.Reshape(moved, merged)}, merged, std::move(flip));
}

}  // namespace kiln::passes
