// Properties of symbolic expressions over random ones: the normal form means what the written form meant.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <span>

#include "common/base/checked_math.h"
#include "common/shape/symbol_table.h"

namespace kiln {
namespace {

constexpr uint64_t kSeed = 8675309;

// An expression as written, evaluated without any simplification.
struct Tree {
  char op = 'c';  // c constant, s symbol, else + - * / % m M
  int64_t value = 0;
  std::unique_ptr<Tree> left, right;
};

constexpr int64_t kUsual[] = {0, 1, 2, 3, 4, 6, 8, 64, -1, -3, 12};
// As hostile bytes have them.
constexpr int64_t kHuge[] = {
    INT64_MIN, INT64_MIN + 1,    INT64_MIN / 2 - 3,      INT64_MIN / 3,     -(int64_t{1} << 32), -7,       1, 5,
    947124480, int64_t{1} << 31, (int64_t{1} << 53) + 1, INT64_MAX / 2 + 3, INT64_MAX - 1,       INT64_MAX};

std::unique_ptr<Tree> RandomTree(std::mt19937_64& random, int depth, int symbols,
                                 std::span<const int64_t> constants = kUsual) {
  auto tree = std::make_unique<Tree>();
  if (depth == 0 || random() % 6 == 0) {
    if (random() % 2) {
      tree->op = 's';
      tree->value = static_cast<int64_t>(random() % static_cast<uint64_t>(symbols));
    } else {
      tree->value = constants[random() % constants.size()];
    }
    return tree;
  }
  tree->op = "+-*/%mM+*/"[random() % 10];
  tree->left = RandomTree(random, depth - 1, symbols, constants);
  tree->right = RandomTree(random, depth - 1, symbols, constants);
  if (tree->op == '/' || tree->op == '%') {
    // Mostly constant divisors, as in shape arithmetic; also products that the numerator may share.
    if (random() % 3 != 0) {
      const int64_t divisors[] = {1, 2, 3, 4, 8, 16};
      tree->right = std::make_unique<Tree>();
      tree->right->value = divisors[random() % 6];
    }
  }
  return tree;
}

Dim Build(const Tree& tree, SymbolTable& table) {
  if (tree.op == 'c') return Dim::Const(tree.value);
  if (tree.op == 's') return table.SymbolDim(static_cast<SymbolId>(tree.value));
  const Dim a = Build(*tree.left, table), b = Build(*tree.right, table);
  switch (tree.op) {
    case '+':
      return table.Add(a, b);
    case '-':
      return table.Sub(a, b);
    case '*':
      return table.Mul(a, b);
    case '/':
      return table.FloorDiv(a, b);
    case '%':
      return table.Mod(a, b);
    case 'm':
      return table.Min(a, b);
    default:
      return table.Max(a, b);
  }
}

// nullopt: it overflows, divides by a non-positive value, or holds a number that stands for what overflowed.
std::optional<int64_t> Naive(const Tree& tree, const std::vector<int64_t>& values) {
  if (tree.op == 'c')
    return tree.value == INT64_MIN || tree.value == INT64_MAX ? std::nullopt : std::optional(tree.value);
  if (tree.op == 's') return values[static_cast<size_t>(tree.value)];
  const auto a = Naive(*tree.left, values), b = Naive(*tree.right, values);
  if (!a || !b) return std::nullopt;
  switch (tree.op) {
    case '+':
      return CheckedAdd(*a, *b);
    case '-':
      return CheckedSub(*a, *b);
    case '*':
      return CheckedMul(*a, *b);
    case '/':
      return *b > 0 ? std::optional(FloorDiv(*a, *b)) : std::nullopt;
    case '%':
      return *b > 0 ? std::optional(FloorMod(*a, *b)) : std::nullopt;
    case 'm':
      return std::min(*a, *b);
    default:
      return std::max(*a, *b);
  }
}

SymbolTable FourSymbols() {
  SymbolTable table;
  EXPECT_TRUE(table.AddSymbol("a").has_value());
  EXPECT_TRUE(table.AddSymbol("b", {1, 64}).has_value());
  EXPECT_TRUE(table.AddSymbol("c", {0, 512}, 8).has_value());
  EXPECT_TRUE(table.AddSymbol("d", {-20, 20}).has_value());
  return table;
}

std::vector<int64_t> LegalValues(std::mt19937_64& random) {
  const int64_t first[] = {0, 1, 2, 7, 100, 4096};
  return {first[random() % 6], 1 + static_cast<int64_t>(random() % 64), 8 * static_cast<int64_t>(random() % 65),
          static_cast<int64_t>(random() % 41) - 20};
}

TEST(DimProperty, NormalFormMeansWhatWasWrittenAndBoundsHold) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  SymbolTable table = FourSymbols();
  int compared = 0;
  for (int round = 0; round < 20000; ++round) {
    if (round % 500 == 0) table = FourSymbols();
    const auto tree = RandomTree(random, 1 + static_cast<int>(random() % 4), 4);
    const Dim dim = Build(*tree, table);
    const Interval bounds = table.Bounds(dim);
    const int64_t divisor = table.Divisor(dim);
    for (int i = 0; i < 8; ++i) {
      const auto values = LegalValues(random);
      const auto expected = Naive(*tree, values);
      if (!expected) continue;
      ++compared;
      const auto actual = table.Evaluate(dim, values);
      ASSERT_TRUE(actual.has_value()) << actual.error().message;
      ASSERT_EQ(*actual, *expected) << table.ToString(dim) << " round " << round;
      ASSERT_GE(*actual, bounds.min) << table.ToString(dim) << " round " << round;
      ASSERT_LE(*actual, bounds.max) << table.ToString(dim) << " round " << round;
      ASSERT_EQ(*actual % divisor, 0) << table.ToString(dim) << " divisor " << divisor << " round " << round;
    }
  }
  EXPECT_GT(compared, 50000);
}

// Whatever a hostile program multiplies and divides: no arithmetic wraps (the sanitizer sees it), and what has a value
// has the right one.
TEST(DimProperty, HugeConstantsNeverWrap) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed + 4);
  int compared = 0;
  for (int round = 0; round < 20000; ++round) {
    SymbolTable table = FourSymbols();
    const auto tree = RandomTree(random, 1 + static_cast<int>(random() % 4), 4, kHuge);
    const Dim dim = Build(*tree, table);
    const Interval bounds = table.Bounds(dim);
    const int64_t divisor = table.Divisor(dim);
    for (int i = 0; i < 4; ++i) {
      const auto values = LegalValues(random);
      const auto expected = Naive(*tree, values);
      const auto actual = table.Evaluate(dim, values);
      if (!expected || !actual.has_value() || *actual == INT64_MIN || *actual == INT64_MAX) continue;  // saturated
      ++compared;
      ASSERT_EQ(*actual, *expected) << table.ToString(dim) << " round " << round;
      ASSERT_GE(*actual, bounds.min) << table.ToString(dim) << " round " << round;
      ASSERT_LE(*actual, bounds.max) << table.ToString(dim) << " round " << round;
      ASSERT_EQ(*actual % divisor, 0) << table.ToString(dim) << " divisor " << divisor << " round " << round;
    }
  }
  EXPECT_GT(compared, 10000);
}

TEST(DimProperty, TextCodeAndTranslationRoundTrip) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed + 1);
  for (int round = 0; round < 3000; ++round) {
    SymbolTable table = FourSymbols();
    const Dim dim = Build(*RandomTree(random, 4, 4), table);
    const std::string text = table.ToString(dim);
    ASSERT_EQ(table.Parse(text).value(), dim) << text;
    ASSERT_EQ(table.Decode(table.Encode(dim)).value(), dim) << text;
    // Code does not depend on the order in which a table met the expressions.
    SymbolTable other = FourSymbols();
    for (int i = 0; i < 5; ++i) Build(*RandomTree(random, 3, 4), other);
    const Dim moved = other.Decode(table.Encode(dim)).value();
    ASSERT_EQ(other.Encode(moved), table.Encode(dim)) << text;
    ASSERT_EQ(other.ToString(moved), text);
    std::vector<Dim> mapping;
    for (SymbolId i = 0; i < 4; ++i) mapping.push_back(other.SymbolDim(i));
    ASSERT_EQ(other.Translate(dim, table, mapping), moved) << text;
  }
}

TEST(DimProperty, ProofsAreNeverWrong) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed + 2);
  SymbolTable table = FourSymbols();
  for (int round = 0; round < 10000; ++round) {
    if (round % 500 == 0) table = FourSymbols();
    const auto a = RandomTree(random, 2, 4), b = RandomTree(random, 2, 4);
    const Dim x = Build(*a, table), y = Build(*b, table);
    const bool equal = table.ProvenEqual(x, y), different = table.ProvenDifferent(x, y);
    ASSERT_FALSE(equal && different);
    for (int i = 0; i < 8; ++i) {
      const auto values = LegalValues(random);
      const auto left = Naive(*a, values), right = Naive(*b, values);
      if (!left || !right) continue;
      if (equal) {
        ASSERT_EQ(*left, *right) << table.ToString(x) << " and " << table.ToString(y);
      }
      if (different) {
        ASSERT_NE(*left, *right) << table.ToString(x) << " and " << table.ToString(y);
      }
    }
  }
}

TEST(DimProperty, MutatedCodeNeverCrashes) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed + 3);
  int accepted = 0, rejected = 0;
  for (int round = 0; round < 20000; ++round) {
    SymbolTable table = FourSymbols();
    std::vector<int64_t> code = table.Encode(Build(*RandomTree(random, 3, 4), table));
    for (int i = 1 + static_cast<int>(random() % 3); i > 0; --i) {
      const int64_t values[] = {
          0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1, INT64_MAX, INT64_MIN, static_cast<int64_t>(random())};
      const size_t at = random() % code.size();
      switch (random() % 4) {
        case 0:
          code.resize(std::max<size_t>(1, at));
          break;
        case 1:
          code.insert(code.begin() + static_cast<ptrdiff_t>(at), values[random() % 15]);
          break;
        default:
          code[at] = values[random() % 15];
          break;
      }
    }
    const auto dim = table.Decode(code);
    ++(dim ? accepted : rejected);
    if (!dim) continue;
    // Whatever is accepted is an expression like any other.
    (void)table.Evaluate(*dim, LegalValues(random));
    ASSERT_TRUE(table.Parse(table.ToString(*dim)).has_value()) << table.ToString(*dim);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(rejected, 100);
  SymbolTable table = FourSymbols();
  EXPECT_FALSE(table.Decode({}).has_value());
  EXPECT_FALSE(table.Decode(std::vector<int64_t>(100000, 0)).has_value());
}

}  // namespace
}  // namespace kiln
