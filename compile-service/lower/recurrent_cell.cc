#include "compile-service/lower/recurrent_cell.h"

#include <algorithm>

namespace kiln::lower {

using ir::RecurrentStage;
using ir::ScalarOp;

namespace {

constexpr Activation kDefaults[] = {Activation::kSigmoid, Activation::kTanh, Activation::kTanh};

// Lengths that are known to be all of the time.
bool IsWhole(const ir::Graph& graph, ir::GraphValueId lengths, Dim time) {
  const std::optional<KnownValues>& known = graph.value(lengths).known;
  return known && std::ranges::all_of(*known, [&](Dim length) { return graph.symbols.ProvenEqual(length, time); });
}

class StageWriter {
 public:
  StageWriter(const RecurrentCell& cell, const CellAccesses& at, int64_t direction) : cell_(cell), at_(at) {
    const size_t count = cell.activations.count / static_cast<size_t>(cell.directions);
    activations_ = std::span(cell.activations.items).subspan(count * static_cast<size_t>(direction), count);
  }

  CellStages Write() {
    CellStages stages;
    stages.before.push_back(Before());
    if (cell_.op == TensorOp::kLSTM) {
      Lstm(stages.steps);
    } else if (cell_.op == TensorOp::kRNN) {
      Rnn(stages.steps);
    } else if (cell_.IsTwoProducts()) {
      Gru(stages.steps);
    } else {
      GruLinearFirst(stages.steps);
    }
    if (at_.y >= 0) {
      Store(at_.y, Number(0));
      stages.after.push_back(Take());
    }
    return stages;
  }

 private:
  int32_t Number(double value) { return scalars_.Number(DType::kF32, value); }
  int32_t Op(ScalarOp op, int32_t a, int32_t b = -1, int32_t c = -1) { return scalars_.Op(op, DType::kF32, a, b, c); }
  int32_t Less(int32_t a, int32_t b) { return scalars_.Op(ScalarOp::kLess, DType::kBool, a, b); }
  int32_t Load(int32_t access) { return scalars_.Load(DType::kF32, access); }
  int32_t Sum(int32_t gate) { return scalars_.Add({ScalarOp::kAccumulator, DType::kF32, -1, -1, -1, gate}); }
  void Store(int32_t access, int32_t node) {
    if (access >= 0) stores_.push_back({access, node});
  }
  // The stage made of what was written since the last one.
  RecurrentStage Take(int32_t gates = 0, int32_t input = -1) {
    RecurrentStage stage;
    stage.gates = gates;
    stage.input = input;
    stage.body = scalars_.Take();
    stage.stores = std::move(stores_);
    scalars_ = {};
    stores_ = {};
    return stage;
  }

  int32_t Clipped(int32_t x) {
    if (!cell_.clip) return x;
    return Op(ScalarOp::kMin, Op(ScalarOp::kMax, x, Number(-*cell_.clip)), Number(*cell_.clip));
  }

  int32_t Activated(size_t which, int32_t x) {
    const ActivationSpec& activation = activations_[which];
    const int32_t a = Number(activation.alpha), b = Number(activation.beta), zero = Number(0), one = Number(1);
    const auto scaled = [&] { return Op(ScalarOp::kAdd, Op(ScalarOp::kMul, a, x), b); };
    const auto select = [&](int32_t condition, int32_t yes, int32_t no) {
      return Op(ScalarOp::kSelect, condition, yes, no);
    };
    switch (activation.kind) {
      case Activation::kSigmoid:
        return Op(ScalarOp::kSigmoid, x);
      case Activation::kTanh:
        return Op(ScalarOp::kTanh, x);
      case Activation::kRelu:
        return select(Less(x, zero), zero, x);
      case Activation::kAffine:
        return scaled();
      case Activation::kLeakyRelu:
        return select(Less(x, zero), Op(ScalarOp::kMul, a, x), x);
      case Activation::kThresholdedRelu:
        return select(Less(a, x), x, zero);
      case Activation::kScaledTanh:
        return Op(ScalarOp::kMul, a, Op(ScalarOp::kTanh, Op(ScalarOp::kMul, b, x)));
      case Activation::kHardSigmoid:
        return Op(ScalarOp::kMin, Op(ScalarOp::kMax, scaled(), zero), one);
      case Activation::kElu:
        return select(Less(x, zero), Op(ScalarOp::kMul, a, Op(ScalarOp::kSub, Op(ScalarOp::kExp, x), one)), x);
      case Activation::kSoftsign:
        return Op(ScalarOp::kDiv, x, Op(ScalarOp::kAdd, one, Op(ScalarOp::kAbs, x)));
      case Activation::kSoftplus:
        return Op(ScalarOp::kLog, Op(ScalarOp::kAdd, one, Op(ScalarOp::kExp, x)));
    }
    return x;
  }

  // Input part plus `sum` of gate `gate`.
  int32_t Gate(size_t gate, int32_t sum) { return Op(ScalarOp::kAdd, Load(at_.x[gate]), sum); }
  int32_t Peeped(size_t peephole, int32_t gate, int32_t c) {
    if (at_.peepholes.empty()) return gate;
    return Op(ScalarOp::kAdd, gate, Op(ScalarOp::kMul, Load(at_.peepholes[peephole]), c));
  }

  RecurrentStage Before() {
    Store(at_.h, at_.h0 >= 0 ? Load(at_.h0) : Number(0));
    if (at_.c >= 0) Store(at_.c, at_.c0 >= 0 ? Load(at_.c0) : Number(0));
    return Take();
  }

  // The next h waits in `work` until all products have read this one.
  void FinishWithWork(std::vector<RecurrentStage>& steps, int32_t h, int32_t gates) {
    Store(at_.work, h);
    Store(at_.y, h);
    steps.push_back(Take(gates, at_.h));
    Store(at_.h, Load(at_.work));
    steps.push_back(Take());
  }

  // Gate order: input, output, forget, cell. Peepholes: input, output, forget.
  void Lstm(std::vector<RecurrentStage>& steps) {
    const int32_t before = Load(at_.c);
    const int32_t input = Activated(0, Clipped(Peeped(0, Gate(0, Sum(0)), before)));
    const int32_t forget = cell_.coupled ? Op(ScalarOp::kSub, Number(1), input)
                                         : Activated(0, Clipped(Peeped(2, Gate(2, Sum(2)), before)));
    const int32_t candidate = Activated(1, Clipped(Gate(3, Sum(3))));
    const int32_t c = Op(ScalarOp::kAdd, Op(ScalarOp::kMul, forget, before), Op(ScalarOp::kMul, input, candidate));
    const int32_t output = Activated(0, Clipped(Peeped(1, Gate(1, Sum(1)), c)));
    Store(at_.c, c);
    FinishWithWork(steps, Op(ScalarOp::kMul, output, Activated(2, c)), 4);
  }

  // (1 - update) * candidate + update * h.
  int32_t Blend(int32_t update, int32_t candidate) {
    const int32_t fresh = Op(ScalarOp::kMul, Op(ScalarOp::kSub, Number(1), update), candidate);
    return Op(ScalarOp::kAdd, fresh, Op(ScalarOp::kMul, update, Load(at_.h)));
  }

  // Gate order: update, reset, candidate.
  void GruLinearFirst(std::vector<RecurrentStage>& steps) {
    const int32_t update = Activated(0, Clipped(Gate(0, Sum(0))));
    const int32_t reset = Activated(0, Clipped(Gate(1, Sum(1))));
    const int32_t state = at_.candidate_bias < 0 ? Sum(2) : Op(ScalarOp::kAdd, Sum(2), Load(at_.candidate_bias));
    const int32_t candidate = Activated(1, Clipped(Gate(2, Op(ScalarOp::kMul, reset, state))));
    FinishWithWork(steps, Blend(update, candidate), 3);
  }

  void Gru(std::vector<RecurrentStage>& steps) {
    Store(at_.update, Activated(0, Clipped(Gate(0, Sum(0)))));
    const int32_t reset = Activated(0, Clipped(Gate(1, Sum(1))));
    Store(at_.work, Op(ScalarOp::kMul, reset, Load(at_.h)));
    steps.push_back(Take(2, at_.h));
    const int32_t candidate = Activated(1, Clipped(Gate(2, Sum(0))));
    const int32_t h = Blend(Load(at_.update), candidate);
    Store(at_.h, h);
    Store(at_.y, h);
    steps.push_back(Take(1, at_.work));
  }

  void Rnn(std::vector<RecurrentStage>& steps) { FinishWithWork(steps, Activated(0, Clipped(Gate(0, Sum(0)))), 1); }

  const RecurrentCell& cell_;
  const CellAccesses& at_;
  std::span<const ActivationSpec> activations_;
  ScalarBuilder scalars_;
  std::vector<ir::Store> stores_;
};

}  // namespace

Result<RecurrentCell> CellOf(const ir::Graph& graph, const ir::GraphNode& node) {
  RecurrentCell cell;
  cell.op = node.op;
  const auto has = [&](size_t input) { return input < node.inputs.size() && node.inputs[input] >= 0; };
  const ir::GraphValue& x = graph.value(node.inputs[0]);
  if (x.dtype != DType::kF32) return Fail(ErrorCode::kUnsupported, "a recurrent node of another dtype than f32");
  for (size_t weights : {1, 2, 3, 7}) {
    if (has(weights) && !graph.value(node.inputs[weights]).prepack)
      return Fail(ErrorCode::kUnsupported, "a recurrent node whose weights are not packed");
  }
  cell.batch_first = node.attributes.Int("layout", 0) != 0;
  cell.time = x.dims[cell.batch_first ? 1 : 0];
  cell.rows = x.dims[cell.batch_first ? 0 : 1];
  const std::vector<Dim>& w = graph.value(node.inputs[1]).dims;
  const std::vector<Dim>& r = graph.value(node.inputs[2]).dims;
  cell.directions = r[0].value();
  cell.units = r[2].value();
  cell.features = w[2].value();
  if (cell.units < 1) return Fail(ErrorCode::kUnsupported, "a recurrent node without units");
  cell.gates = node.op == TensorOp::kLSTM ? 4 : node.op == TensorOp::kGRU ? 3 : 1;
  cell.reverse_only = node.attributes.Text("direction", "forward") == "reverse";
  cell.linear_before_reset = node.attributes.Int("linear_before_reset", 0) != 0;
  cell.coupled = node.attributes.Int("input_forget", 0) != 0;
  if (node.attributes.Has("clip")) cell.clip = node.attributes.Float("clip", 0.0);
  cell.has_lengths = has(4) && !IsWhole(graph, node.inputs[4], cell.time);
  const std::span<const Activation> defaults(kDefaults);
  ASSIGN_OR_RETURN(cell.activations, ReadActivations(node.attributes, cell.directions,
                                                     node.op == TensorOp::kLSTM  ? defaults
                                                     : node.op == TensorOp::kGRU ? defaults.first(2)
                                                                                 : defaults.last(1)));
  return cell;
}

CellStages StagesOf(const RecurrentCell& cell, const CellAccesses& at, int64_t direction) {
  return StageWriter(cell, at, direction).Write();
}

}  // namespace kiln::lower
