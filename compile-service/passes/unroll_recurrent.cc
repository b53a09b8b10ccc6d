// LSTM and GRU over a constant number of time steps, step by step: one product gives the input part of all steps, then
// every step is a product with the state and element-wise gates. Steps differ by offsets alone, so that they share
// kernels.
#include <algorithm>

#include "common/base/limits.h"
#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

constexpr Dim kOne = Dim::Const(1);
constexpr int64_t kTimeMax = 64;
// Time steps times directions of all nodes together: each becomes up to four plan steps.
constexpr int64_t kCellsMax = limits::kPlanStepsMax / 16;

// What a node asks for, with its sizes.
struct Sequence {
  int64_t time = 0, directions = 0, hidden = 0, gates = 0;
  Dim batch;
  bool reverse_only = false;
  bool linear_before_reset = false;
  GraphValueId projected = -1;  // [time, batch, directions * gates * hidden]

  int64_t wide() const { return gates * hidden; }
};

struct State {
  GraphValueId h = -1, c = -1;  // [batch, hidden]; -1: zeros
};

class Unroller {
 public:
  explicit Unroller(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    std::optional<Sequence> sequence = SequenceOf(node);
    if (!sequence) return false;
    cells_ += sequence->time * sequence->directions;
    sequence->projected = Project(node, *sequence);
    std::vector<GraphValueId> rows, last_h, last_c;
    for (int64_t d = 0; d < sequence->directions; ++d) {
      const State last = RunDirection(node, *sequence, d, &rows);
      last_h.push_back(last.h);
      last_c.push_back(last.c);
    }
    const Dim batch = sequence->batch, hidden = Dim::Const(sequence->hidden);
    if (Wants(node, 0)) Join(rows, {Dim::Const(sequence->time), kOne, batch, hidden}, 1, node.outputs[0]);
    for (size_t o = 1; o < node.outputs.size(); ++o) {
      if (!Wants(node, o)) continue;
      std::vector<GraphValueId> states;
      for (GraphValueId state : o == 1 ? last_h : last_c) {
        const bool alone = sequence->directions == 1;
        states.push_back(r_.Reshape(state, {kOne, batch, hidden}, alone ? node.outputs[o] : -1));
      }
      if (states.size() > 1) Join(states, {kOne, batch, hidden}, 0, node.outputs[o]);
    }
    return true;
  }

 private:
  bool Wants(const GraphNode& node, size_t output) const {
    return output < node.outputs.size() && node.outputs[output] >= 0;
  }
  bool Has(const GraphNode& node, size_t input) const { return input < node.inputs.size() && node.inputs[input] >= 0; }

  // Lengths that are known to be all of the time.
  bool IsWhole(GraphValueId lengths, int64_t time) const {
    const std::optional<KnownValues>& known = graph_.value(lengths).known;
    return known && std::ranges::all_of(*known, [&](Dim length) { return length == Dim::Const(time); });
  }

  // nullopt for what stays a reference step: other activations, clipping, peepholes, lengths, batch-first layout, a
  // time that depends on symbols or is long, weights made at run time.
  std::optional<Sequence> SequenceOf(const GraphNode& node) const {
    const bool lstm = node.op == TensorOp::kLSTM;
    if (!lstm && node.op != TensorOp::kGRU) return std::nullopt;
    const ir::GraphValue& x = graph_.value(node.inputs[0]);
    for (const char* odd : {"activations", "activation_alpha", "activation_beta", "clip"}) {
      if (node.attributes.Has(odd)) return std::nullopt;
    }
    if (node.attributes.Int("layout", 0) != 0 || node.attributes.Int("input_forget", 0) != 0 || Has(node, 7) ||
        x.dtype != DType::kF32 || !x.dims[0].is_const()) {
      return std::nullopt;
    }
    for (size_t weights : {1, 2, 3}) {
      if (Has(node, weights) && !graph_.value(node.inputs[weights]).prepack) return std::nullopt;
    }
    const std::vector<Dim>& r = graph_.value(node.inputs[2]).dims;
    Sequence sequence;
    sequence.time = x.dims[0].value();
    sequence.batch = x.dims[1];
    sequence.directions = r[0].value();
    sequence.hidden = r[2].value();
    sequence.gates = lstm ? 4 : 3;
    sequence.reverse_only = node.attributes.Text("direction", "forward") == "reverse";
    sequence.linear_before_reset = node.attributes.Int("linear_before_reset", 0) != 0;
    const bool fits = sequence.time >= 1 && sequence.time <= kTimeMax && sequence.hidden > 0 &&
                      cells_ + sequence.time * sequence.directions <= kCellsMax;
    if (!fits || (Has(node, 4) && !IsWhole(node.inputs[4], sequence.time))) return std::nullopt;
    return sequence;
  }

  // Elements [first, first + count) of dim `axis`.
  GraphValueId Part(GraphValueId x, size_t axis, int64_t first, int64_t count) {
    std::vector<Dim> dims = graph_.value(x).dims;
    if (first == 0 && dims[axis] == Dim::Const(count)) return x;
    std::vector<Dim> starts(dims.size(), Dim::Const(0));
    starts[axis] = Dim::Const(first);
    Attributes attributes;
    attributes.Set("starts", std::move(starts));
    attributes.Set("steps", std::vector<int64_t>(dims.size(), 1));
    dims[axis] = Dim::Const(count);
    return r_.Emit(TensorOp::kSlice, {x}, std::move(dims), std::move(attributes));
  }

  // Pieces of `dims` one after another along `axis`.
  GraphValueId Join(const std::vector<GraphValueId>& pieces, std::vector<Dim> dims, int64_t axis, GraphValueId into) {
    Attributes attributes;
    attributes.Set("axis", axis);
    Dim& extent = dims[static_cast<size_t>(axis)];
    extent = graph_.symbols.Mul(extent, Dim::Const(static_cast<int64_t>(pieces.size())));
    return r_.Emit(TensorOp::kConcat, pieces, std::move(dims), std::move(attributes), into);
  }

  // x * W^T + Wb of all directions and steps. Where the state's bias is only added to it, it is added here too.
  GraphValueId Project(const GraphNode& node, const Sequence& sequence) {
    const std::vector<Dim> x = graph_.value(node.inputs[0]).dims;
    const Dim columns = Dim::Const(sequence.directions * sequence.wide());
    const GraphValueId weights = r_.Transpose(r_.Reshape(node.inputs[1], {columns, x[2]}), {1, 0});
    const GraphValueId product = r_.Emit(TensorOp::kMatMul, {node.inputs[0], weights}, {x[0], x[1], columns});
    if (!Has(node, 3)) return product;
    GraphValueId bias = Part(node.inputs[3], 1, 0, sequence.wide());
    if (!BiasesState(sequence)) {
      bias = r_.Binary(TensorOp::kAdd, bias, Part(node.inputs[3], 1, sequence.wide(), sequence.wide()));
    }
    return r_.Binary(TensorOp::kAdd, product, r_.Reshape(bias, {columns}));
  }

  // Whether the reset gate scales the state's bias, so that it belongs to the state's product.
  static bool BiasesState(const Sequence& sequence) { return sequence.gates == 3 && sequence.linear_before_reset; }

  // [batch, hidden] of a direction of input `input`; -1 when it is absent.
  GraphValueId Initial(const GraphNode& node, const Sequence& sequence, size_t input, int64_t direction) {
    if (!Has(node, input)) return -1;
    return r_.Reshape(Part(node.inputs[input], 0, direction, 1), {sequence.batch, Dim::Const(sequence.hidden)});
  }

  // Columns of one direction as R^T gives them for h: [hidden, count].
  GraphValueId StateWeights(const GraphNode& node, const Sequence& sequence, int64_t direction, int64_t first,
                            int64_t count) {
    const GraphValueId rows = Part(Part(node.inputs[2], 0, direction, 1), 1, first, count);
    return r_.Transpose(r_.Reshape(rows, {Dim::Const(count), Dim::Const(sequence.hidden)}), {1, 0});
  }

  GraphValueId Product(GraphValueId h, GraphValueId weights) {
    return r_.Emit(TensorOp::kMatMul, {h, weights}, {graph_.value(h).dims[0], graph_.value(weights).dims[1]});
  }

  // Gate `gate` of [batch, gates * hidden].
  GraphValueId Gate(GraphValueId wide, const Sequence& sequence, int64_t gate) {
    return Part(wide, 1, gate * sequence.hidden, sequence.hidden);
  }
  GraphValueId Sigmoid(GraphValueId x) { return r_.Unary(TensorOp::kSigmoid, x); }
  GraphValueId Add(GraphValueId a, GraphValueId b) { return r_.Binary(TensorOp::kAdd, a, b); }
  GraphValueId Mul(GraphValueId a, GraphValueId b) { return r_.Binary(TensorOp::kMul, a, b); }

  // Gate order: input, output, forget, cell.
  State Lstm(const Sequence& sequence, GraphValueId gates, const State& before) {
    const GraphValueId input = Sigmoid(Gate(gates, sequence, 0));
    const GraphValueId added = Mul(input, r_.Unary(TensorOp::kTanh, Gate(gates, sequence, 3)));
    State next{-1, added};
    if (before.c >= 0) next.c = Add(Mul(Sigmoid(Gate(gates, sequence, 2)), before.c), added);
    next.h = Mul(Sigmoid(Gate(gates, sequence, 1)), r_.Unary(TensorOp::kTanh, next.c));
    return next;
  }

  // (1 - update) * candidate + update * h.
  State Blend(GraphValueId update, GraphValueId candidate, const State& before) {
    const GraphValueId kept = r_.Binary(TensorOp::kSub, graph_.AddScalar(1.0f), update);
    const GraphValueId fresh = Mul(kept, candidate);
    return {before.h < 0 ? fresh : Add(fresh, Mul(update, before.h)), -1};
  }

  // The operands that a direction's steps share; made once.
  struct Direction {
    GraphValueId all = -1;             // R^T of all gates, or of update and reset
    GraphValueId candidate = -1;       // R^T of the last gate, where it is multiplied on its own
    GraphValueId bias = -1;            // [gates * hidden] of the state's product
    GraphValueId candidate_bias = -1;  // its last gate alone
  };

  Direction DirectionOf(const GraphNode& node, const Sequence& sequence, int64_t d) {
    const int64_t hidden = sequence.hidden, wide = sequence.wide();
    const bool split = sequence.gates == 3 && !sequence.linear_before_reset;
    Direction direction;
    direction.all = StateWeights(node, sequence, d, 0, split ? 2 * hidden : wide);
    if (split) direction.candidate = StateWeights(node, sequence, d, 2 * hidden, hidden);
    if (BiasesState(sequence) && Has(node, 3)) {
      direction.bias = r_.Reshape(Part(Part(node.inputs[3], 0, d, 1), 1, wide, wide), {Dim::Const(wide)});
      direction.candidate_bias = Part(direction.bias, 0, 2 * hidden, hidden);
    }
    return direction;
  }

  // Gate order: update, reset, candidate. The reset gate scales the candidate's product with the state.
  State GruLinearFirst(const Sequence& sequence, const Direction& direction, GraphValueId x, const State& before) {
    const auto gate = [&](int64_t g) { return Gate(x, sequence, g); };
    GraphValueId reset = gate(1), update = gate(0), state = direction.candidate_bias;
    if (before.h >= 0) {
      GraphValueId product = Product(before.h, direction.all);
      if (direction.bias >= 0) product = Add(product, direction.bias);
      reset = Add(reset, Gate(product, sequence, 1));
      update = Add(update, Gate(product, sequence, 0));
      state = Gate(product, sequence, 2);
    } else if (direction.bias >= 0) {
      reset = Add(reset, Part(direction.bias, 0, sequence.hidden, sequence.hidden));
      update = Add(update, Part(direction.bias, 0, 0, sequence.hidden));
    }
    GraphValueId candidate = gate(2);
    if (state >= 0) candidate = Add(candidate, Mul(Sigmoid(reset), state));
    return Blend(Sigmoid(update), r_.Unary(TensorOp::kTanh, candidate), before);
  }

  // The reset gate scales the state before its product.
  State Gru(const Sequence& sequence, const Direction& direction, GraphValueId x, const State& before) {
    GraphValueId gates = Part(x, 1, 0, 2 * sequence.hidden), candidate = Gate(x, sequence, 2);
    if (before.h >= 0) {
      gates = Add(Product(before.h, direction.all), gates);
      const GraphValueId scaled = Mul(Sigmoid(Gate(gates, sequence, 1)), before.h);
      candidate = Add(Product(scaled, direction.candidate), candidate);
    }
    return Blend(Sigmoid(Gate(gates, sequence, 0)), r_.Unary(TensorOp::kTanh, candidate), before);
  }

  // Appends [time, 1, batch, hidden] of the direction to `rows`.
  State RunDirection(const GraphNode& node, const Sequence& sequence, int64_t d, std::vector<GraphValueId>* rows) {
    const Direction direction = DirectionOf(node, sequence, d);
    const bool lstm = node.op == TensorOp::kLSTM;
    State state{Initial(node, sequence, 5, d), lstm ? Initial(node, sequence, 6, d) : -1};
    const Dim batch = sequence.batch, hidden = Dim::Const(sequence.hidden);
    std::vector<GraphValueId> steps(static_cast<size_t>(sequence.time));
    for (int64_t turn = 0; turn < sequence.time; ++turn) {
      const int64_t t = sequence.reverse_only || d == 1 ? sequence.time - 1 - turn : turn;
      const GraphValueId row = Part(Part(sequence.projected, 0, t, 1), 2, d * sequence.wide(), sequence.wide());
      const GraphValueId x = r_.Reshape(row, {batch, Dim::Const(sequence.wide())});
      if (lstm) {
        state = Lstm(sequence, state.h < 0 ? x : Add(Product(state.h, direction.all), x), state);
      } else {
        state = sequence.linear_before_reset ? GruLinearFirst(sequence, direction, x, state)
                                             : Gru(sequence, direction, x, state);
      }
      if (Wants(node, 0)) steps[static_cast<size_t>(t)] = r_.Reshape(state.h, {kOne, kOne, batch, hidden});
    }
    if (Wants(node, 0)) rows->push_back(Join(steps, {kOne, kOne, batch, hidden}, 0, -1));
    return state;
  }

  Rewriter& r_;
  Graph& graph_;
  int64_t cells_ = 0;
};

}  // namespace

Result<bool> UnrollRecurrent(Graph& graph) {
  Rewriter rewriter(graph);
  Unroller unroller(rewriter);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (!unroller.Run(node)) rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
