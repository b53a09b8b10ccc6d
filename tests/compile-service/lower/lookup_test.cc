// Lookups at run-time indices: what fuses with them, the values of every kind, dtype and layout, and indices outside of
// the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

int KernelSteps(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(
      plan.steps, [](const PlanStep& step) { return std::holds_alternative<KernelStep>(step.step); }));
}
int Checks(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.steps, [](const PlanStep& step) {
    const auto* reference = std::get_if<ReferenceStep>(&step.step);
    return reference != nullptr && reference->op == TensorOp::kCheckIndices;
  }));
}

TEST(Lookup, EmbeddingsAreAddedAndNormalisedAsTheyAreRead) {
  const lower::LoweredSegment lowered = CheckGenerated(R"(program "p" { symbol b in [1, 64]
      symbol n in [1, 64]
      constant w : f32[9, 40] = splat 0.5
      constant t : f32[4, 40] = splat 0.25
      constant g : f32[40] = splat 2
      func main(%i: i64[b, n], %j: i64[b, n]) -> (%y) {
        %w : f32[9, 40] = Constant() {value = @w}
        %t : f32[4, 40] = Constant() {value = @t}
        %g : f32[40] = Constant() {value = @g}
        %a : f32[b, n, 40] = Gather(%w, %i)
        %c : f32[b, n, 40] = Gather(%t, %j)
        %s : f32[b, n, 40] = Add(%a, %c)
        %y : f32[b, n, 40] = LayerNormalization(%s, %g) {axis = -1} } })",
                                                       {{2, 5}, {1, 1}, {3, 17}});
  EXPECT_EQ(KernelSteps(lowered.plan), 1) << Describe(lowered);
  EXPECT_EQ(Checks(lowered.plan), 2) << Describe(lowered);
}

TEST(Lookup, OneCheckForTheSameIndicesAndSizes) {
  const lower::LoweredSegment lowered = CheckGenerated(R"(program "p" { symbol n in [4, 64]
      func main(%x: f32[n, 6], %z: f32[n, 6], %i: i64[3]) -> (%y) {
        %a : f32[3, 6] = Gather(%x, %i)
        %c : f32[3, 6] = Gather(%z, %i)
        %y : f32[3, 6] = Mul(%a, %c) } })",
                                                       {{5}, {4}});
  EXPECT_EQ(KernelSteps(lowered.plan), 1) << Describe(lowered);
  EXPECT_EQ(Checks(lowered.plan), 1) << Describe(lowered);
}

TEST(Lookup, KnownIndicesAreCheckedWhereTheyAreKnown) {
  const std::string inside = R"(program "p" { symbol n in [6, 64]
      constant i : i64[4] = [0, 5, -6, 2]
      func main(%x: f32[n, 3]) -> (%y) {
        %i : i64[4] = Constant() {value = @i}
        %y : f32[4, 3] = Gather(%x, %i) } })";
  EXPECT_EQ(Checks(CheckGenerated(inside, {{6}, {9}}).plan), 0);
  std::string perhaps = inside;
  perhaps.replace(perhaps.find("[6, 64]"), 7, "[2, 64]");
  EXPECT_EQ(Checks(CheckGenerated(perhaps, {{7}, {9}}).plan), 1);
}

// An index that another node of the same shape computes: it is memory before anything is looked up.
TEST(Lookup, ComputedIndicesAreStoredFirst) {
  const lower::LoweredSegment lowered = CheckGenerated(R"(program "p" { symbol n
      symbol m in [7, 64]
      func main(%x: f32[m], %i: i64[n], %k: f32[n]) -> (%y, %z) {
        %two : i64[n] = Add(%i, %i)
        %d : i64[n] = Neg(%two)
        %a : f32[n] = Gather(%x, %d)
        %y : f32[n] = Add(%a, %k)
        %e : f32[n] = Cast(%d) {to = 1}
        %z : f32[n] = Add(%a, %e) } })",
                                                       {{5, 7}, {0, 9}, {33, 8}});
  EXPECT_EQ(KernelSteps(lowered.plan), 2) << Describe(lowered);
}

struct Case {
  const char* name;
  const char* inputs;
  const char* node;
  const char* out;
};

// $ is the data's dtype, # that of the indices. Inputs hold indices 0..3, `n` and `m` are at least 4.
const Case kCases[] = {
    {"Rows", "%x: $[n, 5], %i: #[m, 2]", "Gather(%x, %i) {axis = 0}", "$[m, 2, 5]"},
    {"OneRow", "%x: $[n, 21], %i: #[]", "Gather(%x, %i) {axis = 0}", "$[21]"},
    {"MiddleAxis", "%x: $[3, n, 4], %i: #[m]", "Gather(%x, %i) {axis = -2}", "$[3, m, 4]"},
    {"LastAxis", "%x: $[m, n], %i: #[7]", "Gather(%x, %i) {axis = 1}", "$[m, 7]"},
    {"Elements", "%x: $[n, m], %i: #[n, m]", "GatherElements(%x, %i) {axis = 0}", "$[n, m]"},
    {"ElementsOfTheLastAxis", "%x: $[3, 2, n], %i: #[3, 2, m]", "GatherElements(%x, %i) {axis = 2}", "$[3, 2, m]"},
    {"FewerElements", "%x: $[6, n], %i: #[2, m]", "GatherElements(%x, %i) {axis = 1}", "$[2, m]"},
    {"Tuples", "%x: $[4, n, 3], %i: i64[m, 2]", "GatherND(%x, %i)", "$[m, 3]"},
    {"WholeTuples", "%x: $[n, m], %i: i64[5, 2]", "GatherND(%x, %i)", "$[5]"},
    {"TuplesOfBatches", "%x: $[2, n, 4, 3], %i: i64[2, m, 2]", "GatherND(%x, %i) {batch_dims = 1}", "$[2, m, 3]"},
};

std::string With(std::string text, DType data, DType indices) {
  for (size_t at = 0; (at = text.find_first_of("$#", at)) != std::string::npos;)
    text.replace(at, 1, std::string(DTypeName(text[at] == '$' ? data : indices)));
  return text;
}

class Lookups : public ::testing::TestWithParam<Case> {};

TEST_P(Lookups, EveryDTypeAndLayout) {
  const Case& c = GetParam();
  const std::array<DType, 8> dtypes = {DType::kF32,  DType::kF16, DType::kI8,  DType::kI64,
                                       DType::kBool, DType::kF64, DType::kU32, DType::kBF16};
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const DType indices = i % 2 == 0 ? DType::kI64 : DType::kI32;
    const std::string text = "program \"p\" { symbol n in [4, 64]\n symbol m in [4, 64]\n func main(" +
                             std::string(c.inputs) + ") -> (%y) { %y : " + c.out + " = " + c.node + " } }";
    const lower::LoweredSegment lowered = CheckGenerated(With(text, dtypes[i], indices), {{4, 5}, {19, 4}});
    EXPECT_EQ(KernelSteps(lowered.plan), 1) << Describe(lowered);
  }
}

// Between other nodes: indices counted from the end, the data a computed and transposed one, the result read on.
TEST_P(Lookups, InTheMiddleOfAChain) {
  const Case& c = GetParam();
  const std::string inputs = c.inputs, data = inputs.substr(4, inputs.find("], ") - 3);
  const std::string index = inputs.substr(inputs.find("%i: ") + 4);
  const std::string node = std::string(c.node);
  const std::string text = "program \"p\" { symbol n in [4, 64]\n symbol m in [4, 64]\n func main(" + inputs +
                           ") -> (%y) {\n %s : " + data + " = Sigmoid(%x)\n %j : " + index +
                           " = Neg(%i)\n %g : " + c.out + " = " + node.substr(0, node.find("%x")) + "%s, %j" +
                           node.substr(node.find("%i") + 2) + "\n %r : " + c.out + " = Relu(%g)\n %y : " + c.out +
                           " = Sub(%r, %g) } }";
  const lower::LoweredSegment lowered = CheckGenerated(With(text, DType::kF32, DType::kI64), {{4, 5}, {19, 4}});
  EXPECT_EQ(KernelSteps(lowered.plan), 3) << Describe(lowered);
}

// No kernel runs for indices outside of the data: the call ends with the error of the op.
TEST_P(Lookups, OutsideIndicesAreTheOpsError) {
  const Case& c = GetParam();
  const std::string text = "program \"p\" { symbol n in [4, 64]\n symbol m in [4, 64]\n func main(" +
                           std::string(c.inputs) + ") -> (%y) { %y : " + c.out + " = " + c.node + " } }";
  ExpectOutsideIndicesRefused(SegmentOf(With(text, DType::kF32, DType::kI64)), {4, 5});
}

// An axis of one entry has whatever stride its view left there: tuples do not move along it.
TEST(Lookup, TuplesOverAxesOfOneEntry) {
  const std::pair<std::string, std::string> views[] = {
      {"f32[n, 3]",
       "%axes : i64[1] = Constant() {value = @one}\n %r : f32[n, 1, 3] = Unsqueeze(%s, %axes)\n"
       "%y : f32[m, 3] = GatherND(%r, %two)"},
      {"f32[1, n, 5]", "%r : f32[n, 1, 5] = Transpose(%s) {perm = [1, 0, 2]}\n%y : f32[m, 5] = GatherND(%r, %two)"},
      {"f32[n, 4]",
       "%axes : i64[1] = Constant() {value = @last}\n %r : f32[n, 4, 1] = Unsqueeze(%s, %axes)\n"
       "%y : f32[m] = GatherND(%r, %three)"},
  };
  for (const auto& [data, nodes] : views) {
    const std::string text = R"(program "p" { symbol n in [4, 64]
      symbol m in [1, 64]
      constant none : i64[] = [0]
      constant one : i64[1] = [1]
      constant last : i64[1] = [2]
      func main(%x: )" + data +
                             R"(, %i: i64[m, 1]) -> (%y) {
        %none : i64[] = Constant() {value = @none}
        %z : i64[m, 1] = Mul(%i, %none)
        %two : i64[m, 2] = Concat(%i, %z) {axis = 1}
        %three : i64[m, 3] = Concat(%i, %i, %z) {axis = 1}
        %s : )" + data + " = Sigmoid(%x)\n" +
                             nodes + "\n} }";
    SCOPED_TRACE(text);
    const auto runners = CompiledRunners();
    CheckSegment(SegmentOf(text),
                 {.shapes = {{4, 5}, {19, 4}}, .targets = {Target::kX86V4, Target::kX86V2}, .runner = runners});
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Lookups, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing
