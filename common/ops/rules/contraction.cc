// MatMul, Gemm, Einsum.
#include <algorithm>
#include <map>

#include "common/ops/einsum_equation.h"
#include "common/ops/rules/rules.h"

namespace kiln::rules {

Status MatMulShape(InferContext& context, size_t a, size_t b) {
  if (!Ranked(context, a) || !Ranked(context, b)) return {};
  DimList left = InDims(context, a);
  DimList right = InDims(context, b);
  if (left.empty() || right.empty()) {
    return Fail(ErrorCode::kShapeMismatch, "a matrix product takes no scalars");
  }
  const bool left_vector = left.size() == 1;
  const bool right_vector = right.size() == 1;
  if (left_vector) left.insert(left.begin(), Dim::Const(1));
  if (right_vector) right.push_back(Dim::Const(1));
  const Dim k_left = left.back();
  const Dim k_right = right[right.size() - 2];
  if (context.Equal(k_left, k_right) == false) {
    return Fail(ErrorCode::kShapeMismatch,
                "the last dim of input " + std::to_string(a) + ", " + context.symbols.ToString(k_left) + " of " +
                    DimsText(context, InDims(context, a)) + ", must equal dim " + context.symbols.ToString(k_right) +
                    " of input " + std::to_string(b) + ", " + DimsText(context, InDims(context, b)));
  }
  context.Require(ConstraintKind::kEqual, k_left, k_right);
  const Dim rows = left[left.size() - 2];
  const Dim columns = right.back();
  ASSIGN_OR_RETURN(DimList dims, BroadcastDims(context, DimList(left.begin(), left.end() - 2),
                                               DimList(right.begin(), right.end() - 2)));
  if (!left_vector) dims.push_back(rows);
  if (!right_vector) dims.push_back(columns);
  SetDims(context, std::move(dims));
  return {};
}

Status MatMul(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  return MatMulShape(context, 0, 1);
}

Status Gemm(InferContext& context) {
  for (size_t i = 0; i < 2; ++i) RETURN_IF_ERROR(RequireRank(context, i, 2, 2));
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  if (!Ranked(context, 0) || !Ranked(context, 1)) {
    SetDims(context, {context.symbols.FreshSymbol(), context.symbols.FreshSymbol()});
    return {};
  }
  DimList a = InDims(context, 0);
  DimList b = InDims(context, 1);
  if (context.attributes.Int("transA", 0) != 0) std::swap(a[0], a[1]);
  if (context.attributes.Int("transB", 0) != 0) std::swap(b[0], b[1]);
  RETURN_IF_ERROR(RequireEqual(context, a[1], b[0], "the inner dims of A and B"));
  const DimList out{a[0], b[1]};
  if (Ranked(context, 2)) {
    RETURN_IF_ERROR(RequireRank(context, 2, 0, 2));
    const DimList& c = InDims(context, 2);
    for (size_t d = 0; d < c.size(); ++d) {
      const size_t at = 2 - c.size() + d;
      RETURN_IF_ERROR(RequireBroadcastTo(
          context, out[at], c[d], "dim " + std::to_string(at) + " of A*B and dim " + std::to_string(d) + " of C"));
    }
  }
  SetDims(context, out);
  return {};
}

Status Einsum(InferContext& context) {
  List<int> ranks;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    RETURN_IF_ERROR(RequireSameType(context, 0, i));
    if (!Ranked(context, i)) return {};
    ranks.push_back(In(context, i).rank());
  }
  ASSIGN_OR_RETURN(const EinsumEquation equation, ParseEinsum(context.attributes.Text("equation", ""), ranks));
  std::map<int, Dim> sizes;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      const Dim dim = InDims(context, i)[d];
      const auto [at, inserted] = sizes.emplace(equation.inputs[i][d], dim);
      if (inserted) continue;
      Result<Dim> both = context.Broadcast(at->second, dim);
      if (!both) return FailIn("dim " + std::to_string(d) + " of input " + std::to_string(i), both.error());
      at->second = *both;
    }
  }
  DimList dims;
  for (const int label : equation.output) dims.push_back(sizes.at(label));
  SetDims(context, std::move(dims));
  return {};
}

}  // namespace kiln::rules
