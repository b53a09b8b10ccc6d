// LSTM and GRU step by step: naive and compiled kernels against the interpreter, over directions, states and batches.
#include <gtest/gtest.h>

#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Recurrent {
  const char* name;
  const char* op;
  int time, directions, hidden;
  bool bias, initial;
  const char* outputs;     // of the node: y, h, c or _
  const char* attributes;  // beside hidden_size
  bool unrolled = true;
};
std::ostream& operator<<(std::ostream& out, const Recurrent& r) {
  return out << r.name;
}

// The node with features 5 and a free batch, every output it has also used by something else.
std::string TextOf(const Recurrent& r) {
  const std::string d = std::to_string(r.directions), n = std::to_string(r.hidden);
  const bool lstm = std::string(r.op) == "LSTM";
  const std::string wide = std::to_string((lstm ? 4 : 3) * r.hidden), twice = std::to_string((lstm ? 8 : 6) * r.hidden);
  const std::string state = "f32[" + d + ", b, " + n + "]";
  const std::string w = "f32[" + d + ", " + wide + ", 5]", recurrent = "f32[" + d + ", " + wide + ", " + n + "]";
  const std::string k = "f32[" + d + ", " + twice + "]";
  std::string text = "program \"p\" { symbol b\n constant w : " + w + " = splat 0.5\n constant r : " + recurrent +
                     " = splat 0.5\n constant k : " + k + " = splat 0.5\n func main(%x: f32[" + std::to_string(r.time) +
                     ", b, 5]";
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
  text += list + " = " + r.op + "(%x, %w, %r" + (r.bias ? ", %k" : r.initial ? ", _" : "");
  if (r.initial) text += lstm ? ", _, %h0, %c0" : ", _, %h0";
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
    {"LstmClipped", "LSTM", 3, 1, 8, true, true, "yhc", ", clip = 0.5", false},
    {"GruLong", "GRU", 65, 1, 4, true, true, "yh", "", false},
};

class RecurrentTest : public ::testing::TestWithParam<Recurrent> {};

TEST_P(RecurrentTest, PlansGiveWhatTheInterpreterGives) {
  const Recurrent& r = GetParam();
  const std::string text = TextOf(r);
  SCOPED_TRACE(text);
  const Segment segment = SegmentOf(text);
  ASSERT_FALSE(segment.body.functions.empty());
  const lower::LoweredSegment naive = CheckSegment(segment, {.shapes = {{3}, {1}, {0}, {9}}});
  EXPECT_EQ(naive.coverage.reference_nodes, r.unrolled ? 0 : 1) << Describe(naive);
  const std::vector<Target> targets = HostTargets();
  if (targets.empty()) GTEST_SKIP() << "no target runs on this machine";
  CompiledRunner compiled(targets.front());
  CheckSegment(segment, {.shapes = {{3}, {1}, {0}, {9}}, .targets = {targets.front()}, .runner = [&](Target) {
                           return compiled.runner();
                         }});
}

INSTANTIATE_TEST_SUITE_P(Nodes, RecurrentTest, ::testing::ValuesIn(kRecurrents),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Recurrent, StepsShareTheirKernels) {
  const Recurrent shorter{"", "GRU", 4, 1, 8, true, true, "y", ""}, longer{"", "GRU", 40, 1, 8, true, true, "y", ""};
  const lower::LoweredSegment a = CheckSegment(SegmentOf(TextOf(shorter)), {.shapes = {{3}}});
  const lower::LoweredSegment b = CheckSegment(SegmentOf(TextOf(longer)), {.shapes = {{3}}});
  EXPECT_EQ(a.specs.size(), b.specs.size()) << Describe(b);
  EXPECT_LE(b.plan.steps.size(), 2u + 40 * 4) << Describe(b);
}

}  // namespace
}  // namespace kiln::testing
