// Scatters at run-time indices: every reduction and dtype bit for bit, duplicates in the order of the indices, indices
// outside of the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Case {
  const char* name;
  const char* inputs;
  const char* node;
  const char* out;
};

// $ is the data's dtype, # that of the indices, ? the attributes that follow. Inputs hold indices 0..3, `n` and `m` are
// at least 4.
const Case kCases[] = {
    {"ElementsOfTheFirstAxis", "%x: $[n, 5], %i: #[m, 5], %u: $[m, 5]", "ScatterElements(%x, %i, %u) {axis = 0?}",
     "$[n, 5]"},
    {"ElementsOfTheLastAxis", "%x: $[3, 2, n], %i: #[3, 2, m], %u: $[3, 2, m]",
     "ScatterElements(%x, %i, %u) {axis = -1?}", "$[3, 2, n]"},
    {"ElementsOfAVector", "%x: $[n], %i: #[m], %u: $[m]", "ScatterElements(%x, %i, %u) {axis = 0?}", "$[n]"},
    {"FewerElements", "%x: $[7, n, 21], %i: #[2, m, 20], %u: $[2, m, 20]", "ScatterElements(%x, %i, %u) {axis = 1?}",
     "$[7, n, 21]"},
    {"AsManyElementsAsThereMayBe", "%x: $[4, n], %i: #[4, m], %u: $[4, m]", "ScatterElements(%x, %i, %u) {axis = 0?}",
     "$[4, n]"},
    {"Rows", "%x: $[n, 19], %i: i64[m, 1], %u: $[m, 19]", "ScatterND(%x, %i, %u) {?}", "$[n, 19]"},
    {"Blocks", "%x: $[4, n, 3, 5], %i: i64[m, 2, 2], %u: $[m, 2, 3, 5]", "ScatterND(%x, %i, %u) {?}", "$[4, n, 3, 5]"},
    {"WholeTuples", "%x: $[n, m], %i: i64[6, 2], %u: $[6]", "ScatterND(%x, %i, %u) {?}", "$[n, m]"},
    {"OneTuple", "%x: $[4, n, m], %i: i64[2], %u: $[m]", "ScatterND(%x, %i, %u) {?}", "$[4, n, m]"},
};

std::string With(std::string text, DType data, DType indices, const std::string& attributes) {
  for (size_t at = 0; (at = text.find_first_of("$#?", at)) != std::string::npos;) {
    const char c = text[at];
    std::string attribute = attributes;
    if (c == '?' && !attributes.empty() && text[at - 1] != '{') attribute = ", " + attributes;
    text.replace(at, 1, c == '?' ? attribute : std::string(DTypeName(c == '$' ? data : indices)));
  }
  return text;
}

std::string ProgramOf(const Case& c, DType data, DType indices, const std::string& attributes = "") {
  return With("program \"p\" { symbol n in [4, 64]\n symbol m in [4, 64]\n func main(" + std::string(c.inputs) +
                  ") -> (%y) { %y : " + c.out + " = " + c.node + " } }",
              data, indices, attributes);
}

class Scatters : public ::testing::TestWithParam<Case> {};

TEST_P(Scatters, EveryDType) {
  const std::array<DType, 13> dtypes = {DType::kF32, DType::kF16, DType::kI8,   DType::kI64, DType::kBool,
                                        DType::kF64, DType::kU32, DType::kBF16, DType::kU8,  DType::kI16,
                                        DType::kU16, DType::kI32, DType::kU64};
  for (size_t i = 0; i < dtypes.size(); ++i)
    CheckBits(ProgramOf(GetParam(), dtypes[i], i % 2 == 0 ? DType::kI64 : DType::kI32), {{5, 4}, {19, 9}});
}

// Over the kinds, every reduction meets every dtype.
TEST_P(Scatters, Reductions) {
  const std::array<DType, 8> dtypes = {DType::kF32,  DType::kF16, DType::kBF16, DType::kF64,
                                       DType::kBool, DType::kU8,  DType::kU32,  DType::kI64};
  const std::array<const char*, 4> reductions = {"add", "mul", "min", "max"};
  const std::string_view name = GetParam().name;
  const auto kind = static_cast<size_t>(std::ranges::find(kCases, name, &Case::name) - kCases);
  for (size_t i = 0; i < dtypes.size(); ++i)
    CheckBits(ProgramOf(GetParam(), dtypes[i], i % 2 == 0 ? DType::kI64 : DType::kI32,
                        std::string("reduction = \"") + reductions[(i + kind) % reductions.size()] + "\""),
              {{5, 4}, {31, 17}});
}

// Between other nodes: indices counted from the end, the data and the updates transposed.
TEST_P(Scatters, InTheMiddleOfAChain) {
  const std::string inputs = GetParam().inputs, node = GetParam().node;
  const std::string dims = inputs.substr(4, inputs.find("], ") - 3);
  const std::string index = inputs.substr(inputs.find("%i: ") + 4, inputs.find("], %u") - inputs.find("%i: ") - 3);
  const std::string update = inputs.substr(inputs.find("%u: ") + 4);
  const std::string text =
      With("program \"p\" { symbol n in [4, 64]\n symbol m in [4, 64]\n func main(" + inputs +
               ") -> (%y) {\n %s : " + dims + " = Neg(%x)\n %j : " + index + " = Neg(%i)\n %v : " + update +
               " = Abs(%u)\n %g : " + GetParam().out + " = " + node.substr(0, node.find("%x")) + "%s, %j, %v" +
               node.substr(node.find("%u") + 2) + "\n %y : " + GetParam().out + " = Sub(%g, %s) } }",
           DType::kF32, DType::kI64, "reduction = \"add\"");
  CheckBits(text, {{5, 4}, {19, 9}});
}

// No kernel runs for indices outside of the data: the call ends with the error of the op.
TEST_P(Scatters, OutsideIndicesAreTheOpsError) {
  ExpectOutsideIndicesRefused(SegmentOf(ProgramOf(GetParam(), DType::kF32, DType::kI64)), {5, 4});
}

TEST(Scatter, NothingToScatterAndNothingToScatterInto) {
  const std::string text = R"(program "p" { symbol n in [0, 64]
    symbol m in [0, 64]
    func main(%x: f32[n, 3], %i: i64[m, 1], %u: f32[m, 3]) -> (%y) {
      %y : f32[n, 3] = ScatterND(%x, %i, %u) } })";
  CheckBits(text, {{4, 5}, {4, 0}, {0, 0}});
  CheckBits(R"(program "p" { symbol n in [0, 64]
    symbol m in [0, 64]
    func main(%x: f32[m, n], %i: i64[m, 2], %u: f32[m, 2]) -> (%y) {
      %y : f32[m, n] = ScatterElements(%x, %i, %u) {axis = 1, reduction = "add"} } })",
            {{4, 5}, {0, 5}, {1, 4}});
}

// Known indices are checked where they are known, and a slice that is assigned to is a copy and a kernel.
TEST(Scatter, AnAssignedSlice) {
  const lower::LoweredSegment lowered = CheckBits(R"(program "p" { symbol n in [4, 64]
    constant i : i64[2, 1] = [1, -1]
    func main(%x: f32[n, 33], %u: f32[2, 33]) -> (%y) {
      %i : i64[2, 1] = Constant() {value = @i}
      %y : f32[n, 33] = ScatterND(%x, %i, %u) } })",
                                                  {{4}, {9}});
  EXPECT_EQ(lowered.plan.steps.size(), 2u) << Describe(lowered);
}

// Sizes that nothing relates: the plan is for calls in which the indices reach no further than the data.
TEST(Scatter, SizesBesideTheAxisAreAGuard) {
  const std::string text = R"(program "p" { symbol n in [1, 64]
    symbol m in [1, 64]
    func main(%x: f32[4, n], %i: i64[4, m], %u: f32[4, m]) -> (%y) {
      %y : f32[4, n] = ScatterElements(%x, %i, %u) {axis = 0, reduction = "max"} } })";
  const lower::LoweredSegment lowered = CheckBits(text, {{9, 5}, {5, 5}, {40, 1}});
  const auto admits = [&](int64_t n, int64_t m) {
    return GuardAdmits(lowered.plan.guard, lowered.plan.symbols, std::vector<int64_t>{n, m});
  };
  EXPECT_TRUE(admits(7, 7));
  EXPECT_FALSE(admits(7, 8));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Scatters, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing
