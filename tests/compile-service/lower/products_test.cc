// Products of transposed run-time operands read them where they lie: one step, no copy, the interpreter's answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Product {
  const char* name;
  const char* text;  // symbols in the order b, m, n, k, as far as it has them
  int64_t symbols;
};
std::ostream& operator<<(std::ostream& out, const Product& p) {
  return out << p.name;
}

const Product kProducts[] = {
    {"TransposedB",
     R"(program "p" { symbol m symbol n symbol k
      func main(%a: f32[m, k], %b: f32[n, k]) -> (%y) {
        %t : f32[k, n] = Transpose(%b) {perm = [1, 0]}
        %y : f32[m, n] = MatMul(%a, %t) } })",
     3},
    {"TransposedBWithBiasAndRelu",
     R"(program "p" { symbol m symbol n
      func main(%a: f32[m, 50], %b: f32[n, 50], %c: f32[n]) -> (%y) {
        %t : f32[50, n] = Transpose(%b) {perm = [1, 0]}
        %p : f32[m, n] = MatMul(%a, %t)
        %s : f32[m, n] = Add(%p, %c)
        %y : f32[m, n] = Relu(%s) } })",
     2},
    {"GemmOfBothTransposed",
     R"(program "p" { symbol m symbol n symbol k
      func main(%a: f32[k, m], %b: f32[n, k], %c: f32[n]) -> (%y) {
        %y : f32[m, n] = Gemm(%a, %b, %c) {transA = 1, transB = 1} } })",
     3},
    {"TransposedA",
     R"(program "p" { symbol m symbol n symbol k
      func main(%a: f32[k, m], %b: f32[k, n]) -> (%y) {
        %t : f32[m, k] = Transpose(%a) {perm = [1, 0]}
        %y : f32[m, n] = MatMul(%t, %b) } })",
     3},
    {"BatchOfTransposed",
     R"(program "p" { symbol b symbol m symbol n symbol k
      func main(%a: f32[b, m, k], %b: f32[b, n, k]) -> (%y) {
        %t : f32[b, k, n] = Transpose(%b) {perm = [0, 2, 1]}
        %y : f32[b, m, n] = MatMul(%a, %t) } })",
     4},
    {"HeadsSideBySide",
     R"(program "p" { symbol b symbol m symbol n
      func main(%a: f32[b, m, 3, 20], %b: f32[b, n, 3, 20]) -> (%y) {
        %q : f32[b, 3, m, 20] = Transpose(%a) {perm = [0, 2, 1, 3]}
        %t : f32[b, 3, 20, n] = Transpose(%b) {perm = [0, 2, 3, 1]}
        %y : f32[b, 3, m, n] = MatMul(%q, %t) } })",
     3},
    {"OneTransposedBForAll",
     R"(program "p" { symbol b symbol m symbol n symbol k
      func main(%a: f32[b, m, k], %b: f32[n, k]) -> (%y) {
        %t : f32[k, n] = Transpose(%b) {perm = [1, 0]}
        %y : f32[b, m, n] = MatMul(%a, %t) } })",
     4},
    {"OneBForAll",
     R"(program "p" { symbol b symbol m symbol n symbol k
      func main(%a: f32[b, m, k], %b: f32[k, n]) -> (%y) {
        %y : f32[b, m, n] = MatMul(%a, %b) } })",
     4},
    {"Weights",
     R"(program "p" { symbol m
      constant w : f32[600, 130] = splat 0.5
      constant c : f32[130] = splat 0.5
      func main(%a: f32[m, 600]) -> (%y) {
        %w : f32[600, 130] = Constant() {value = @w}
        %c : f32[130] = Constant() {value = @c}
        %p : f32[m, 130] = MatMul(%a, %w)
        %s : f32[m, 130] = Add(%p, %c)
        %y : f32[m, 130] = Relu(%s) } })",
     1},
    {"WeightsInBlocks",
     R"(program "p" { symbol b symbol m
      constant w : f32[1500, 70] = splat 0.5
      func main(%a: f32[b, m, 1500]) -> (%y) {
        %w : f32[1500, 70] = Constant() {value = @w}
        %y : f32[b, m, 70] = MatMul(%a, %w) } })",
     2},
};

class ProductsTest : public ::testing::TestWithParam<Product> {};

// The hints come first: few rows, then many. Sizes around tiles and vectors; 0 and 1; by chance, from a printed seed.
std::vector<std::vector<int64_t>> Shapes(int64_t symbols, bool few) {
  const char* given = std::getenv("KILN_TEST_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "KILN_TEST_SEED=" << seed << "\n";
  std::mt19937_64 random(seed);
  const auto near = [&](int64_t size) { return std::max<int64_t>(0, size + static_cast<int64_t>(random() % 3) - 1); };
  std::vector<std::vector<int64_t>> shapes;
  const auto add = [&](std::initializer_list<int64_t> bmnk) {
    shapes.emplace_back(bmnk.end() - std::max<int64_t>(symbols, 0), bmnk.end());
    if (symbols == 2) shapes.back() = {bmnk.begin()[1], bmnk.begin()[2]};
    if (symbols == 1) shapes.back() = {bmnk.begin()[1]};
  };
  if (few) add({2, 1, 40, 33});
  add({2, 21, 70, 100});
  add({1, 3, 48, 64});
  add({0, 4, 4, 4});
  add({1, 0, 5, 7});
  add({2, 5, 0, 3});
  add({1, 9, 16, 0});
  add({1, 1, 1, 1});
  for (int64_t m : {2, 4, 8, 24})
    add({1 + static_cast<int64_t>(random() % 3), near(m), near(16 << (random() % 3)), near(16 << (random() % 5))});
  return shapes;
}

TEST_P(ProductsTest, AreOneStep) {
  const Segment segment = SegmentOf(GetParam().text);
  ASSERT_FALSE(segment.body.functions.empty());
  for (const bool few : {true, false}) {
    const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = Shapes(GetParam().symbols, few)});
    EXPECT_EQ(lowered.plan.steps.size(), 1u) << Describe(lowered);
  }
}

TEST_P(ProductsTest, CompiledPlansGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  for (Target target : HostTargets()) {
    CompiledRunner compiled(target);
    for (const bool few : {true, false})
      CheckSegment(SegmentOf(GetParam().text), {.shapes = Shapes(GetParam().symbols, few),
                                                .targets = {target},
                                                .runner = [&](Target) { return compiled.runner(); }});
  }
}

// Whatever the example had: the plan is for any number of rows.
TEST(ProductsOfWeights, AreMadeForManyRowsAndForFew) {
  const auto* product = std::ranges::find(kProducts, std::string_view("Weights"), &Product::name);
  for (const int64_t hint : {1, 3, 24}) {
    const lower::LoweredSegment lowered =
        CheckSegment(SegmentOf(product->text), {.shapes = {{hint}, {1}, {7}, {50}}, .targets = {Target::kX86V4}});
    ASSERT_EQ(lowered.specs.size(), 1u);
    const auto& contraction = std::get<ir::ContractionSpec>(lowered.specs[0].kernel);
    EXPECT_TRUE(contraction.few_rows) << hint;
    EXPECT_GT(contraction.tile.mr, 4) << hint;
  }
}

// In f64 they are nests, held to what f64 gives; with vectors and scaled sums.
TEST(WideProducts, AreGeneratedAndKeepTheirDigits) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  CompiledRunner compiled(HostTargets().front());
  const auto check = [&](std::string text, std::vector<std::vector<int64_t>> shapes) {
    SCOPED_TRACE(text);
    for (size_t at; (at = text.find("f32")) != std::string::npos;) text.replace(at, 3, "f64");
    const lower::LoweredSegment lowered = CheckSegment(
        SegmentOf(text),
        {.shapes = std::move(shapes), .targets = {HostTargets().front()}, .tolerance = 1e-12, .runner = [&](Target) {
           return compiled.runner();
         }});
    EXPECT_EQ(lowered.coverage.reference_nodes, 0) << Describe(lowered);
  };
  for (const Product& product : kProducts) check(product.text, Shapes(product.symbols, true));
  check(R"(program "p" { symbol k symbol n
      func main(%a: f32[k], %b: f32[3, k, n]) -> (%y) { %y : f32[3, n] = MatMul(%a, %b) } })",
        {{5, 7}, {1, 1}, {0, 3}, {40, 33}});
  check(R"(program "p" { symbol m symbol k
      func main(%a: f32[m, k], %b: f32[k]) -> (%y) { %y : f32[m] = MatMul(%a, %b) } })",
        {{5, 7}, {1, 1}, {3, 0}, {40, 33}});
  check(R"(program "p" { symbol m
      func main(%a: f32[7, m], %b: f32[7, 5], %c: f32[5]) -> (%y) {
        %y : f32[m, 5] = Gemm(%a, %b, %c) {transA = 1, alpha = 0.3, beta = 1.7} } })",
        {{5}, {1}, {0}});
}

INSTANTIATE_TEST_SUITE_P(Products, ProductsTest, ::testing::ValuesIn(kProducts),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kiln::testing
