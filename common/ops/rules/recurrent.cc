// LSTM, GRU, RNN.
#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

Result<Dim> Directions(const InferContext& context) {
  const std::string_view direction = context.attributes.Text("direction", "forward");
  if (direction == "bidirectional") return Dim::Const(2);
  if (direction == "forward" || direction == "reverse") return Dim::Const(1);
  return Fail(ErrorCode::kInvalidArgument, "direction '" + std::string(direction) + "' is unknown");
}

// x [time, batch, features], w [directions, gates*hidden, features], r [directions, gates*hidden, hidden].
Status Recurrent(InferContext& context, int64_t gates) {
  for (size_t i = 0; i < 3; ++i) RETURN_IF_ERROR(RequireRank(context, i, 3, 3));
  RETURN_IF_ERROR(RequireRank(context, 3, 2, 2));
  RETURN_IF_ERROR(RequireType(context, 4, DType::kI32));
  for (const size_t i : {1, 2, 3, 5, 6, 7}) RETURN_IF_ERROR(RequireSameType(context, 0, i));
  ASSIGN_OR_RETURN(const Dim directions, Directions(context));
  const bool batch_first = context.attributes.Int("layout", 0) != 0;
  Dim time = Ranked(context, 0) ? InDims(context, 0)[batch_first ? 1 : 0] : context.symbols.FreshSymbol();
  Dim batch = Ranked(context, 0) ? InDims(context, 0)[batch_first ? 0 : 1] : context.symbols.FreshSymbol();
  Dim hidden = Ranked(context, 2) ? InDims(context, 2)[2] : context.symbols.FreshSymbol();
  const int64_t declared = context.attributes.Int("hidden_size", 0);
  if (declared > 0) {
    RETURN_IF_ERROR(RequireEqual(context, hidden, Dim::Const(declared), "the last dim of R and `hidden_size`"));
    hidden = Dim::Const(declared);
  }
  const Dim rows = context.symbols.Mul(hidden, Dim::Const(gates));
  for (size_t i = 1; i < 3; ++i) {
    if (!Ranked(context, i)) continue;
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, i)[0], directions,
                                 "dim 0 of input " + std::to_string(i) + " and the number of directions"));
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, i)[1], rows,
                                 "dim 1 of input " + std::to_string(i) + " and gates times `hidden_size`"));
  }
  if (Ranked(context, 0) && Ranked(context, 1)) {
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 0)[2], InDims(context, 1)[2], "the features of X and W"));
  }
  if (Ranked(context, 3)) {
    RETURN_IF_ERROR(
        RequireEqual(context, InDims(context, 3)[0], directions, "dim 0 of B and the number of directions"));
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 3)[1], context.symbols.Mul(rows, Dim::Const(2)),
                                 "dim 1 of B and twice gates times `hidden_size`"));
  }
  const DimList state = batch_first ? DimList{batch, directions, hidden} : DimList{directions, batch, hidden};
  for (size_t i = 5; i < (gates == 4 ? 7 : 6); ++i) {
    RETURN_IF_ERROR(RequireRank(context, i, 3, 3));
    if (!Ranked(context, i)) continue;
    for (size_t d = 0; d < 3; ++d) {
      RETURN_IF_ERROR(RequireEqual(
          context, InDims(context, i)[d], state[d],
          "dim " + std::to_string(d) + " of the initial state, input " + std::to_string(i) + ", and the state"));
    }
  }
  if (Ranked(context, 7)) {
    RETURN_IF_ERROR(RequireRank(context, 7, 2, 2));
    RETURN_IF_ERROR(
        RequireEqual(context, InDims(context, 7)[0], directions, "dim 0 of P and the number of directions"));
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 7)[1], context.symbols.Mul(hidden, Dim::Const(3)),
                                 "dim 1 of P and three times `hidden_size`"));
  }
  if (Ranked(context, 4)) {
    RETURN_IF_ERROR(RequireRank(context, 4, 1, 1));
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 4)[0], batch, "the length of sequence_lens and the batch"));
  }
  SetDims(context, batch_first ? DimList{batch, time, directions, hidden} : DimList{time, directions, batch, hidden});
  for (size_t i = 1; i < context.outputs.size(); ++i) SetDims(context, state, i);
  return {};
}

}  // namespace

Status LSTM(InferContext& context) {
  return Recurrent(context, 4);
}
Status GRU(InferContext& context) {
  return Recurrent(context, 3);
}
Status RNN(InferContext& context) {
  return Recurrent(context, 1);
}

}  // namespace kiln::rules
