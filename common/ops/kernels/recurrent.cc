// LSTM, GRU, RNN: one matrix product per sequence for the inputs, one per step for the state.
#include <algorithm>
#include <array>
#include <cstring>

#include "common/ops/activation.h"
#include "common/ops/kernels/gemm.h"
#include "common/ops/kernels/table.h"
#include "common/ops/list.h"

namespace kiln::kernels {
namespace {

template <class T>
T Apply(const ActivationSpec& activation, T x) {
  const T a = static_cast<T>(activation.alpha);
  const T b = static_cast<T>(activation.beta);
  switch (activation.kind) {
    case Activation::kSigmoid:
      return T(1) / (T(1) + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kRelu:
      return x < T(0) ? T(0) : x;
    case Activation::kAffine:
      return a * x + b;
    case Activation::kLeakyRelu:
      return x < T(0) ? a * x : x;
    case Activation::kThresholdedRelu:
      return x > a ? x : T(0);
    case Activation::kScaledTanh:
      return a * std::tanh(b * x);
    case Activation::kHardSigmoid:
      return std::min(std::max(a * x + b, T(0)), T(1));
    case Activation::kElu:
      return x < T(0) ? a * std::expm1(x) : x;
    case Activation::kSoftsign:
      return x / (T(1) + std::fabs(x));
    case Activation::kSoftplus:
      return std::log1p(std::exp(x));
  }
  return x;
}

// What the three ops share: sizes, operands, and where step t of batch entry b lies.
template <class T>
struct Cell {
  int64_t time, batch, features, hidden, gates;
  int directions;
  bool batch_first, reverse_only;
  double clip;
  bool has_clip;
  List<int64_t> lengths;

  int64_t InputRow(int64_t t, int64_t b) const { return batch_first ? b * time + t : t * batch + b; }
  int64_t StateRow(int d, int64_t b) const { return batch_first ? b * directions + d : d * batch + b; }
  int64_t OutputRow(int64_t t, int d, int64_t b) const {
    return batch_first ? (b * time + t) * directions + d : (t * directions + d) * batch + b;
  }
  bool Reversed(int d) const { return reverse_only || d == 1; }
  T Clipped(T x) const { return has_clip ? std::min(std::max(x, static_cast<T>(-clip)), static_cast<T>(clip)) : x; }
};

template <class T>
Result<Cell<T>> MakeCell(const KernelCall& call, int64_t gates) {
  Cell<T> cell{};
  const Dims& x = call.inputs[0].dims;
  const Dims& r = call.inputs[2].dims;
  cell.batch_first = call.attributes->Int("layout", 0) != 0;
  cell.time = x[cell.batch_first ? 1 : 0];
  cell.batch = x[cell.batch_first ? 0 : 1];
  cell.features = x[2];
  cell.hidden = r[2];
  cell.gates = gates;
  cell.directions = static_cast<int>(r[0]);
  cell.reverse_only = call.attributes->Text("direction", "forward") == "reverse";
  cell.has_clip = call.attributes->Has("clip");
  cell.clip = call.attributes->Float("clip", 0.0);
  cell.lengths.assign(static_cast<size_t>(cell.batch), cell.time);
  if (call.Has(4)) {
    for (int64_t b = 0; b < cell.batch; ++b) {
      const int64_t length = call.inputs[4].as<int32_t>()[b];
      if (length < 0 || length > cell.time) {
        return Fail(ErrorCode::kOutOfRange, "sequence length " + std::to_string(length) + " of batch entry " +
                                                std::to_string(b) + " is outside 0 to " + std::to_string(cell.time));
      }
      cell.lengths[static_cast<size_t>(b)] = length;
    }
  }
  return cell;
}

// Working memory of one direction, all [batch, …].
template <class T>
struct Working {
  T* inputs;    // [time*batch, gates*hidden]: x*W^T plus the input's bias
  T* state;     // h
  T* memory;    // c of LSTM, reset gate times h of GRU
  T* products;  // [batch, gates*hidden]: h*R^T
};

template <class T>
Result<Working<T>> MakeWorking(KernelCall& call, const Cell<T>& cell) {
  Working<T> working{};
  const int64_t wide = cell.gates * cell.hidden;
  ASSIGN_OR_RETURN(working.inputs, Scratch<T>(call, CheckedMul(cell.time * cell.batch, wide).value_or(INT64_MAX)));
  ASSIGN_OR_RETURN(working.products, Scratch<T>(call, cell.batch * wide));
  ASSIGN_OR_RETURN(working.state, Scratch<T>(call, cell.batch * cell.hidden));
  ASSIGN_OR_RETURN(working.memory, Scratch<T>(call, cell.batch * cell.hidden));
  return working;
}

template <class T>
void LoadState(const KernelCall& call, const Cell<T>& cell, size_t input, int direction, T* state) {
  for (int64_t b = 0; b < cell.batch; ++b) {
    T* row = state + b * cell.hidden;
    if (!call.Has(input)) {
      std::fill_n(row, cell.hidden, T(0));
    } else {
      std::copy_n(call.inputs[input].as<T>() + cell.StateRow(direction, b) * cell.hidden, cell.hidden, row);
    }
  }
}
template <class T>
void StoreState(KernelCall& call, const Cell<T>& cell, size_t output, int direction, const T* state) {
  if (!Wants(call, output)) return;
  for (int64_t b = 0; b < cell.batch; ++b) {
    std::copy_n(state + b * cell.hidden, cell.hidden,
                call.outputs[output].as<T>() + cell.StateRow(direction, b) * cell.hidden);
  }
}

// inputs = x*W^T + Wb for all steps, rows in the order of x.
template <class T>
Status ProjectInputs(KernelCall& call, const Cell<T>& cell, int direction, T* inputs) {
  const int64_t wide = cell.gates * cell.hidden;
  const int64_t rows = cell.time * cell.batch;
  const Matrix<const T> x{call.inputs[0].as<T>(), rows, cell.features, cell.features, 1};
  const Matrix<const T> w{call.inputs[1].as<T>() + direction * wide * cell.features, cell.features, wide, 1,
                          cell.features};
  RETURN_IF_ERROR(Gemm(call, x, w, Matrix<T>{inputs, rows, wide, wide, 1}, false));
  if (!call.Has(3)) return {};
  const T* bias = call.inputs[3].as<T>() + direction * 2 * wide;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < wide; ++i) inputs[row * wide + i] += bias[i];
  }
  return {};
}

// products[:, first:first+count] = h*R^T + Rb over a block of `count` gate columns.
template <class T>
Status ProjectState(KernelCall& call, const Cell<T>& cell, int direction, const T* h, int64_t first, int64_t count,
                    T* products) {
  const int64_t wide = cell.gates * cell.hidden;
  const Matrix<const T> state{h, cell.batch, cell.hidden, cell.hidden, 1};
  const Matrix<const T> r{call.inputs[2].as<T>() + (direction * wide + first) * cell.hidden, cell.hidden, count, 1,
                          cell.hidden};
  RETURN_IF_ERROR(Gemm(call, state, r, Matrix<T>{products + first, cell.batch, count, wide, 1}, false));
  if (!call.Has(3)) return {};
  const T* bias = call.inputs[3].as<T>() + direction * 2 * wide + wide + first;
  for (int64_t b = 0; b < cell.batch; ++b) {
    for (int64_t i = 0; i < count; ++i) products[b * wide + first + i] += bias[i];
  }
  return {};
}

// Runs one direction: Step(b, inputs row, products row) updates the state of batch entry b.
template <class T, class Project, class Step>
Status RunSteps(KernelCall& call, const Cell<T>& cell, int direction, Working<T>& working, Project project, Step step) {
  const int64_t wide = cell.gates * cell.hidden;
  T* y = Wants(call, 0) ? call.outputs[0].as<T>() : nullptr;
  for (int64_t turn = 0; turn < cell.time; ++turn) {
    RETURN_IF_ERROR(project(turn));
    for (int64_t b = 0; b < cell.batch; ++b) {
      const int64_t length = cell.lengths[static_cast<size_t>(b)];
      const bool ended = turn >= length;
      const int64_t t = cell.Reversed(direction) && !ended ? length - 1 - turn : turn;
      T* h = working.state + b * cell.hidden;
      if (!ended) step(b, working.inputs + cell.InputRow(t, b) * wide, working.products + b * wide);
      if (y == nullptr) continue;
      T* row = y + cell.OutputRow(t, direction, b) * cell.hidden;
      if (ended) {
        std::fill_n(row, cell.hidden, T(0));
      } else {
        std::copy_n(h, cell.hidden, row);
      }
    }
  }
  return {};
}

constexpr Activation kLstmDefaults[] = {Activation::kSigmoid, Activation::kTanh, Activation::kTanh};
constexpr Activation kGruDefaults[] = {Activation::kSigmoid, Activation::kTanh};
constexpr Activation kRnnDefaults[] = {Activation::kTanh};

struct LstmOf {
  // Gate order of W, R, B: input, output, forget, cell. Peepholes: input, output, forget.
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const Cell<T> cell, MakeCell<T>(call, 4));
    ASSIGN_OR_RETURN(const auto activations, ReadActivations(*call.attributes, cell.directions, kLstmDefaults));
    const bool coupled = call.attributes->Int("input_forget", 0) != 0;
    const int64_t n = cell.hidden;
    ASSIGN_OR_RETURN(Working<T> working, MakeWorking(call, cell));
    for (int d = 0; d < cell.directions; ++d) {
      LoadState(call, cell, 5, d, working.state);
      LoadState(call, cell, 6, d, working.memory);
      RETURN_IF_ERROR(ProjectInputs(call, cell, d, working.inputs));
      const T* peepholes = call.Has(7) ? call.inputs[7].as<T>() + d * 3 * n : nullptr;
      const auto f = [&spec = activations[static_cast<size_t>(3 * d)]](T value) { return Apply(spec, value); };
      const auto g = [&spec = activations[static_cast<size_t>(3 * d + 1)]](T value) { return Apply(spec, value); };
      const auto out = [&spec = activations[static_cast<size_t>(3 * d + 2)]](T value) { return Apply(spec, value); };
      const auto step = [&](int64_t b, const T* x, const T* r) {
        T* h = working.state + b * n;
        T* c = working.memory + b * n;
        for (int64_t i = 0; i < n; ++i) {
          const auto peep = [&](int64_t gate, T value) {
            return peepholes == nullptr ? T(0) : peepholes[gate * n + i] * value;
          };
          const T input = f(cell.Clipped(x[i] + r[i] + peep(0, c[i])));
          const T forget = coupled ? T(1) - input : f(cell.Clipped(x[2 * n + i] + r[2 * n + i] + peep(2, c[i])));
          const T candidate = g(cell.Clipped(x[3 * n + i] + r[3 * n + i]));
          c[i] = forget * c[i] + input * candidate;
          h[i] = f(cell.Clipped(x[n + i] + r[n + i] + peep(1, c[i]))) * out(c[i]);
        }
      };
      const auto project = [&](int64_t) {
        return ProjectState(call, cell, d, working.state, 0, 4 * n, working.products);
      };
      RETURN_IF_ERROR(RunSteps(call, cell, d, working, project, step));
      StoreState(call, cell, 1, d, working.state);
      StoreState(call, cell, 2, d, working.memory);
    }
    return {};
  }
};

struct GruOf {
  // Gate order: update, reset, hidden.
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const Cell<T> cell, MakeCell<T>(call, 3));
    ASSIGN_OR_RETURN(const auto activations, ReadActivations(*call.attributes, cell.directions, kGruDefaults));
    const bool linear_first = call.attributes->Int("linear_before_reset", 0) != 0;
    const int64_t n = cell.hidden;
    ASSIGN_OR_RETURN(Working<T> working, MakeWorking(call, cell));
    for (int d = 0; d < cell.directions; ++d) {
      LoadState(call, cell, 5, d, working.state);
      RETURN_IF_ERROR(ProjectInputs(call, cell, d, working.inputs));
      const auto f = [&spec = activations[static_cast<size_t>(2 * d)]](T value) { return Apply(spec, value); };
      const auto g = [&spec = activations[static_cast<size_t>(2 * d + 1)]](T value) { return Apply(spec, value); };
      const auto project = [&](int64_t turn) -> Status {
        if (linear_first) return ProjectState(call, cell, d, working.state, 0, 3 * n, working.products);
        RETURN_IF_ERROR(ProjectState(call, cell, d, working.state, 0, 2 * n, working.products));
        for (int64_t b = 0; b < cell.batch; ++b) {
          const int64_t length = cell.lengths[static_cast<size_t>(b)];
          const int64_t t = std::max<int64_t>(0, cell.Reversed(d) ? length - 1 - turn : turn);
          const T* x = working.inputs + cell.InputRow(t, b) * 3 * n + n;
          const T* r = working.products + b * 3 * n + n;
          for (int64_t i = 0; i < n; ++i) {
            working.memory[b * n + i] = f(cell.Clipped(x[i] + r[i])) * working.state[b * n + i];
          }
        }
        return ProjectState(call, cell, d, working.memory, 2 * n, n, working.products);
      };
      const auto step = [&](int64_t b, const T* x, const T* r) {
        T* h = working.state + b * n;
        for (int64_t i = 0; i < n; ++i) {
          const T update = f(cell.Clipped(x[i] + r[i]));
          const T reset = linear_first ? f(cell.Clipped(x[n + i] + r[n + i])) : T(1);
          const T candidate = g(cell.Clipped(x[2 * n + i] + reset * r[2 * n + i]));
          h[i] = (T(1) - update) * candidate + update * h[i];
        }
      };
      RETURN_IF_ERROR(RunSteps(call, cell, d, working, project, step));
      StoreState(call, cell, 1, d, working.state);
    }
    return {};
  }
};

struct RnnOf {
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const Cell<T> cell, MakeCell<T>(call, 1));
    ASSIGN_OR_RETURN(const auto activations, ReadActivations(*call.attributes, cell.directions, kRnnDefaults));
    const int64_t n = cell.hidden;
    ASSIGN_OR_RETURN(Working<T> working, MakeWorking(call, cell));
    for (int d = 0; d < cell.directions; ++d) {
      LoadState(call, cell, 5, d, working.state);
      RETURN_IF_ERROR(ProjectInputs(call, cell, d, working.inputs));
      const auto f = [&spec = activations[static_cast<size_t>(d)]](T value) { return Apply(spec, value); };
      const auto project = [&](int64_t) { return ProjectState(call, cell, d, working.state, 0, n, working.products); };
      const auto step = [&](int64_t b, const T* x, const T* r) {
        for (int64_t i = 0; i < n; ++i) working.state[b * n + i] = f(cell.Clipped(x[i] + r[i]));
      };
      RETURN_IF_ERROR(RunSteps(call, cell, d, working, project, step));
      StoreState(call, cell, 1, d, working.state);
    }
    return {};
  }
};

}  // namespace

ReferenceKernel LSTM(DType dtype) {
  return {FloatKernel<LstmOf>(dtype), false};
}
ReferenceKernel GRU(DType dtype) {
  return {FloatKernel<GruOf>(dtype), false};
}
ReferenceKernel RNN(DType dtype) {
  return {FloatKernel<RnnOf>(dtype), false};
}

}  // namespace kiln::kernels
