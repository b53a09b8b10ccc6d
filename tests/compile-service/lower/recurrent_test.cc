// LSTM, GRU and RNN: naive and compiled kernels against the interpreter, over directions, states, lengths, activations
// and sizes, and against float64.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/common/ops/op_runner.h"
#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Recurrent {
  const char* name;
  const char* op;
  int time, directions, hidden;  // time 0: a symbol
  bool bias, initial;
  const char* outputs;     // of the node: y, h, c or _
  const char* attributes;  // beside hidden_size
  bool lengths = false, peepholes = false;
};
std::ostream& operator<<(std::ostream& out, const Recurrent& r) {
  return out << r.name;
}

bool BatchFirst(const Recurrent& r) {
  return std::string(r.attributes).find("layout = 1") != std::string::npos;
}

// The node with features 5 and a free batch, every output it has also used by something else.
std::string TextOf(const Recurrent& r) {
  const std::string d = std::to_string(r.directions), n = std::to_string(r.hidden);
  const std::string time = r.time == 0 ? "t" : std::to_string(r.time);
  const bool lstm = std::string(r.op) == "LSTM";
  const int gates = lstm ? 4 : std::string(r.op) == "GRU" ? 3 : 1;
  const std::string wide = std::to_string(gates * r.hidden), twice = std::to_string(2 * gates * r.hidden);
  const std::string state = BatchFirst(r) ? "f32[b, " + d + ", " + n + "]" : "f32[" + d + ", b, " + n + "]";
  const std::string w = "f32[" + d + ", " + wide + ", 5]", recurrent = "f32[" + d + ", " + wide + ", " + n + "]";
  const std::string k = "f32[" + d + ", " + twice + "]", p = "f32[" + d + ", " + std::to_string(3 * r.hidden) + "]";
  std::string text = "program \"p\" { symbol b\n" + std::string(r.time == 0 ? " symbol t\n" : "") +
                     " constant w : " + w + " = splat 0.5\n constant r : " + recurrent +
                     " = splat 0.5\n constant k : " + k + " = splat 0.5\n constant p : " + p +
                     " = splat 0.5\n func main(%x: f32[" + (BatchFirst(r) ? "b, " + time : time + ", b") + ", 5]";
  if (r.lengths) text += ", %lengths: i32[b]";
  if (r.initial) text += ", %h0: " + state;
  if (r.initial && lstm) text += ", %c0: " + state;
  const std::string outputs = r.outputs;
  std::string results, list;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i > 0) list += ", ";
    list += outputs[i] == '_' ? "_" : std::string("%") + outputs[i] + " : f32[*]";
    if (outputs[i] != '_') results += (results.empty() ? "%" : ", %") + std::string(1, outputs[i]);
  }
  text += ") -> (" + results + ", %z) {\n %w : " + w + " = Constant() {value = @w}\n %r : " + recurrent +
          " = Constant() {value = @r}\n";
  if (r.bias) text += " %k : " + k + " = Constant() {value = @k}\n";
  if (r.peepholes) text += " %p : " + p + " = Constant() {value = @p}\n";
  text += list + " = " + r.op + "(%x, %w, %r, " + (r.bias ? "%k" : "_") + ", " + (r.lengths ? "%lengths" : "_") + ", " +
          (r.initial ? "%h0" : "_");
  if (lstm) text += std::string(r.initial ? ", %c0" : ", _") + (r.peepholes ? ", %p" : ", _");
  text +=
      ") {hidden_size = " + n + std::string(r.attributes) + "}\n %z : f32[*] = Relu(" + results.substr(0, 2) + ") } }";
  return text;
}

const Recurrent kRecurrents[] = {
    {"LstmOneStep", "LSTM", 1, 1, 8, true, true, "yhc", ""},
    {"Lstm", "LSTM", 4, 1, 8, true, true, "yhc", ""},
    {"LstmWithoutStateAndBias", "LSTM", 4, 1, 7, false, false, "yhc", ""},
    {"LstmReverse", "LSTM", 3, 1, 8, true, false, "y_c", ", direction = \"reverse\""},
    {"LstmBothWays", "LSTM", 5, 2, 9, true, true, "yhc", ", direction = \"bidirectional\""},
    {"LstmStateOnly", "LSTM", 5, 2, 16, true, false, "_h", ", direction = \"bidirectional\""},
    {"LstmAnyTime", "LSTM", 0, 1, 24, true, true, "yhc", ""},
    {"LstmAnyTimeBothWays", "LSTM", 0, 2, 33, true, true, "yhc", ", direction = \"bidirectional\""},
    {"LstmAnyTimeStateOnly", "LSTM", 0, 2, 8, true, false, "__c", ", direction = \"bidirectional\""},
    {"LstmClipped", "LSTM", 3, 1, 8, true, true, "yhc", ", clip = 0.5"},
    {"LstmCoupled", "LSTM", 3, 1, 8, true, true, "yhc", ", input_forget = 1"},
    {"LstmPeepholes", "LSTM", 0, 2, 8, true, true, "yhc", ", direction = \"bidirectional\"", false, true},
    {"LstmBatchFirst", "LSTM", 0, 2, 8, true, true, "yhc", ", layout = 1, direction = \"bidirectional\""},
    {"LstmLengths", "LSTM", 4, 1, 8, true, true, "yhc", "", true},
    {"LstmLengthsBothWays", "LSTM", 5, 2, 12, true, true, "yhc", ", direction = \"bidirectional\"", true},
    {"LstmLengthsStateOnly", "LSTM", 3, 2, 8, true, false, "_hc", ", direction = \"bidirectional\"", true},
    {"LstmOtherActivations", "LSTM", 3, 1, 8, true, true, "yhc",
     ", activations = [\"HardSigmoid\", \"ScaledTanh\", \"Softsign\"], activation_alpha = [0.25, 0.5], "
     "activation_beta = [0.5, 1.5]"},
    {"GruOneStep", "GRU", 1, 1, 8, true, true, "yh", ""},
    {"Gru", "GRU", 4, 1, 8, true, true, "yh", ""},
    {"GruWithoutState", "GRU", 4, 1, 8, true, false, "yh", ""},
    {"GruWithoutStateAndBias", "GRU", 3, 1, 8, false, false, "y", ""},
    {"GruLinear", "GRU", 4, 1, 8, true, true, "yh", ", linear_before_reset = 1"},
    {"GruLinearWithoutState", "GRU", 4, 1, 8, true, false, "yh", ", linear_before_reset = 1"},
    {"GruLinearWithoutStateAndBias", "GRU", 4, 1, 8, false, false, "yh", ", linear_before_reset = 1"},
    {"GruBothWays", "GRU", 4, 2, 9, true, true, "yh", ", direction = \"bidirectional\""},
    {"GruLinearBothWays", "GRU", 4, 2, 16, true, false, "yh",
     ", direction = \"bidirectional\", linear_before_reset = 1"},
    {"GruLong", "GRU", 65, 1, 4, true, true, "yh", ""},
    {"GruAnyTimeBatchFirst", "GRU", 0, 1, 20, true, true, "yh", ", layout = 1"},
    {"GruLengths", "GRU", 4, 2, 8, true, true, "yh", ", direction = \"bidirectional\"", true},
    {"GruLinearLengths", "GRU", 3, 1, 8, true, true, "yh", ", direction = \"reverse\", linear_before_reset = 1", true},
    {"GruOtherActivations", "GRU", 3, 1, 8, true, true, "yh",
     ", activations = [\"Softplus\", \"Elu\"], activation_alpha = [0.5], clip = 2.0"},
    {"Rnn", "RNN", 4, 1, 8, true, true, "yh", ""},
    {"RnnAnyTimeBothWays", "RNN", 0, 2, 40, true, true, "yh",
     ", direction = \"bidirectional\", activations = [\"Tanh\", \"LeakyRelu\"], activation_alpha = [0.1], clip = 3.0"},
    {"RnnRelu", "RNN", 3, 1, 8, true, false, "yh", ", activations = [\"Relu\"], clip = 1.0"},
    {"RnnAffine", "RNN", 2, 1, 8, true, true, "y", ", activations = [\"Affine\"], activation_alpha = [0.5]"},
    {"RnnThresholded", "RNN", 2, 1, 8, true, true, "y",
     ", activations = [\"ThresholdedRelu\"], activation_alpha = [0.25]"},
};

// Values of the symbols, in the order the inputs show them.
std::vector<std::vector<int64_t>> ShapesOf(const Recurrent& r) {
  if (r.time != 0) return {{3}, {1}, {0}, {9}};
  if (BatchFirst(r)) return {{3, 7}, {1, 40}, {2, 0}, {9, 1}, {0, 3}};
  return {{7, 3}, {40, 1}, {0, 2}, {1, 9}, {3, 0}};
}

class RecurrentTest : public ::testing::TestWithParam<Recurrent> {};

TEST_P(RecurrentTest, PlansGiveWhatTheInterpreterGives) {
  const Recurrent& r = GetParam();
  const std::string text = TextOf(r);
  SCOPED_TRACE(text);
  const Segment segment = SegmentOf(text);
  ASSERT_FALSE(segment.body.functions.empty());
  const lower::LoweredSegment naive = CheckSegment(segment, {.shapes = ShapesOf(r)});
  EXPECT_TRUE(naive.coverage.fallbacks.empty()) << naive.coverage.fallbacks.front();
  EXPECT_EQ(naive.coverage.reference_nodes, r.lengths ? 1 : 0) << Describe(naive);  // their check
  const std::vector<Target> targets = HostTargets();
  if (targets.empty()) GTEST_SKIP() << "no target runs on this machine";
  CompiledRunner compiled(targets.front());
  CheckSegment(segment, {.shapes = ShapesOf(r), .targets = {targets.front()}, .runner = [&](Target) {
                           return compiled.runner();
                         }});
}

INSTANTIATE_TEST_SUITE_P(Nodes, RecurrentTest, ::testing::ValuesIn(kRecurrents),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Recurrent, KernelsDoNotDependOnTheTime) {
  const Recurrent shorter{"", "GRU", 4, 1, 8, true, true, "y", ""}, longer{"", "GRU", 40, 1, 8, true, true, "y", ""};
  const lower::LoweredSegment a = CheckSegment(SegmentOf(TextOf(shorter)), {.shapes = {{3}}});
  const lower::LoweredSegment b = CheckSegment(SegmentOf(TextOf(longer)), {.shapes = {{3}}});
  EXPECT_EQ(a.specs, b.specs) << Describe(b);
  EXPECT_LE(b.plan.steps.size(), 4u) << Describe(b);
}

TEST(Recurrent, LengthsOutsideTheTimeAreAnError) {
  const Segment segment = SegmentOf(TextOf({"", "LSTM", 3, 1, 4, true, false, "yh", "", true}));
  lower::LowerRequest request{segment, Target::kX86V3, NumericMode::kDefault, std::vector<int64_t>{2}, {}};
  const Result<lower::LoweredSegment> lowered = lower::LowerSegment(request);
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  const Tensor x = Tensor::Zeros(DType::kF32, {3, 2, 5});
  std::vector<Tensor> weights;
  std::vector<TensorRef> refs;
  for (int w = 0; w < segment.weight_count(); ++w) {
    Dims dims;
    for (Dim dim : *segment.input(segment.runtime_inputs + w).dims) dims.push_back(dim.value());
    weights.push_back(Tensor::Zeros(DType::kF32, dims));
    refs.push_back(weights.back().ref);
  }
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{4, 3}, {2, -1}}) {
    const Tensor tensor = Tensor::Of<int32_t>(DType::kI32, {2}, lengths);
    const TensorRef inputs[] = {x.ref, tensor.ref};
    const auto result = RunLowered(*lowered, std::vector<int64_t>{2}, inputs, refs, 8, NaiveRunner(8));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kOutOfRange) << ToString(result.error());
  }
}

std::vector<double> Random(std::mt19937_64& random, int64_t count, double size) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = static_cast<float>(std::uniform_real_distribution<double>(-size, size)(random));
  return values;
}

// Compiled kernels beside the same node in float64, over long sequences of realistic width.
TEST(Recurrent, CompiledKernelsAreCloseToFloat64) {
  const std::vector<Target> targets = HostTargets();
  if (targets.empty()) GTEST_SKIP() << "no target runs on this machine";
  CompiledRunner compiled(targets.front());
  std::mt19937_64 random(20);
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    for (const int64_t batch : {1, 5}) {
      SCOPED_TRACE(op + std::string(" of batch ") + std::to_string(batch));
      const int64_t time = 60, hidden = 72, gates = op[0] == 'L' ? 4 : op[0] == 'G' ? 3 : 1;
      const Segment segment = SegmentOf(
          TextOf({"", op, 0, 2, static_cast<int>(hidden), true, true, "yh", ", direction = \"bidirectional\""}));
      const std::vector<int64_t> shape{time, batch};
      const Result<lower::LoweredSegment> lowered =
          lower::LowerSegment({segment, targets.front(), NumericMode::kDefault, shape, {}});
      ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
      std::vector<Dims> dims{{time, batch, 5}, {2, batch, hidden}};
      if (op[0] == 'L') dims.push_back({2, batch, hidden});
      const size_t states = dims.size();
      dims.insert(dims.end(), {{2, gates * hidden, 5}, {2, gates * hidden, hidden}, {2, 2 * gates * hidden}});
      std::vector<Tensor> narrow, wide;
      for (const Dims& d : dims) {
        const std::vector<double> values = Random(random, NumElements(d), 0.12);
        narrow.push_back(Make(DType::kF32, d, values));
        wide.push_back(Make(DType::kF64, d, values));
      }
      OpCase reference{op[0] == 'L' ? TensorOp::kLSTM : op[0] == 'G' ? TensorOp::kGRU : TensorOp::kRNN, {}, {}, 2, {}};
      reference.attributes.Set("hidden_size", hidden);
      reference.attributes.Set("direction", std::string("bidirectional"));
      reference.inputs = {wide[0].ref, wide[states].ref, wide[states + 1].ref, wide[states + 2].ref, std::nullopt};
      for (size_t i = 1; i < states; ++i) reference.inputs.push_back(wide[i].ref);
      const Result<std::vector<Tensor>> want = RunOp(reference);
      ASSERT_TRUE(want.has_value()) << ToString(want.error());

      std::vector<TensorRef> inputs, weights;
      for (size_t i = 0; i < narrow.size(); ++i) (i < states ? inputs : weights).push_back(narrow[i].ref);
      ASSERT_EQ(segment.weight_count(), 3);
      const int lanes = InfoOf(targets.front()).f32_lanes();
      const Result<std::vector<Tensor>> got = RunLowered(*lowered, shape, inputs, weights, lanes, compiled.runner());
      ASSERT_TRUE(got.has_value()) << ToString(got.error());
      for (size_t o = 0; o < 2; ++o) {
        const std::vector<double> a = Values((*want)[o].ref), b = Values((*got)[o].ref);
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-6) << "output " << o << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::testing
