// CallFunc: what its plug-in declared, as the importer wrote it into the node. The plug-in itself is not asked: a
// program can be verified where it is not loaded.
#include "common/ops/rules/rules.h"
#include "common/plugin/kiln_plugin.h"

namespace kiln::rules {
namespace {

// Input that a declared "that of input k" speaks of; nullopt for a plain number.
std::optional<size_t> InputOf(int64_t declared) {
  return declared < 0 ? std::optional<size_t>(static_cast<size_t>(-1 - declared)) : std::nullopt;
}

}  // namespace

Status CallFunc(InferContext& context) {
  const std::span<const int64_t> dtypes = context.attributes.Ints("output_dtypes"),
                                 ranks = context.attributes.Ints("output_ranks");
  if (dtypes.size() < context.outputs.size() || ranks.size() < context.outputs.size())
    return Fail(ErrorCode::kInvalidArgument, "the plug-in declares " + std::to_string(dtypes.size()) +
                                                 " outputs, not " + std::to_string(context.outputs.size()));
  context.data_dependent = true;
  for (size_t i = 0; i < context.outputs.size(); ++i) {
    const std::optional<size_t> like = InputOf(dtypes[i]);
    if (like && !Has(context, *like))
      return Fail(ErrorCode::kInvalidArgument, "output " + std::to_string(i) + " has the dtype of input " +
                                                   std::to_string(*like) + ", which the node lacks");
    const std::optional<DType> dtype = like ? In(context, *like).dtype : DTypeFromNumber(static_cast<int>(dtypes[i]));
    if (!dtype) return Fail(ErrorCode::kInvalidArgument, std::to_string(dtypes[i]) + " is no dtype");
    SetType(context, *dtype, i);
    if (ranks[i] == KILN_RANK_FROM_SHAPE) continue;
    int64_t rank = ranks[i];
    if (const std::optional<size_t> of = InputOf(ranks[i])) {
      if (!Ranked(context, *of)) continue;
      rank = In(context, *of).rank();
    }
    if (rank > limits::kRankMax)
      return Fail(ErrorCode::kInvalidArgument, "output " + std::to_string(i) + " has rank " + std::to_string(rank));
    DimList dims;
    for (int64_t d = 0; d < rank; ++d) dims.push_back(DataDependentDim(context));
    SetDims(context, std::move(dims), i);
  }
  return {};
}

}  // namespace kiln::rules
