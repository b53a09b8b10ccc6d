// Constraints that no values satisfy are found before there are values; none is found where some do.
#include <gtest/gtest.h>

#include <random>

#include "common/shape/symbol_table.h"

namespace kiln {
namespace {

// The verdict on constraints, written "left kind right", over n, m >= 0, small in 2..3, k8 a multiple of 8 in 8..64.
std::string Verdict(std::vector<std::string> constraints) {
  SymbolTable table;
  table.AddSymbol("n").value();
  table.AddSymbol("m").value();
  table.AddSymbol("small", {2, 3}).value();
  table.AddSymbol("k8", {8, 64}, 8).value();
  struct Kind {
    ConstraintKind kind;
    std::string text;
  };
  const Kind kinds[] = {
#define KILN_CONSTRAINT(value, name, text, doc) {ConstraintKind::k##name, " " text " "},
#include "common/shape/constraints.def"
#undef KILN_CONSTRAINT
  };
  for (const std::string& text : constraints) {
    for (const Kind& kind : kinds) {
      const size_t at = text.find(kind.text);
      if (at == std::string::npos) continue;
      const Dim left = table.Parse(text.substr(0, at)).value();
      const Dim right = table.Parse(text.substr(at + kind.text.size())).value();
      table.AddConstraint({kind.kind, left, right});
    }
  }
  EXPECT_EQ(table.constraints().size(), constraints.size());
  const Status status = table.CheckConsistent();
  return status ? "ok" : status.error().message;
}

TEST(Contradictions, OfOneConstraintAlone) {
  EXPECT_EQ(Verdict({"3 == 4"}), "constraint 3 == 4 cannot hold: left lies in [3, 3], right in [4, 4]");
  EXPECT_EQ(Verdict({"n != n"}), "constraint n != n cannot hold: left lies in [0, inf], right in [0, inf]");
  EXPECT_EQ(Verdict({"k8 <= 7"}), "constraint k8 <= 7 cannot hold: left lies in [8, 64], right in [7, 7]");
  EXPECT_EQ(Verdict({"n + 5 <= n"}).substr(0, 36), "constraint n + 5 <= n cannot hold: l");
  for (const char* text : {"k8 == 12", "2*n == 2*m + 1", "max(n, 16) <= 8", "min(small, n) == 4", "0 divides n",
                           "7 divides small", "8 divides k8 + 4", "100 divides k8", "k8*n == 12", "small*small == 5",
                           "floordiv(k8, 8) == 9", "mod(n, 4) == 5", "n == n + 1", "65 <= k8", "8 == 9",
                           "small + k8 == 70", "k8 == 3*small", "k8 broadcasts with small", "small broadcasts with 4"})
    EXPECT_NE(Verdict({text}), "ok") << text;
}

TEST(Contradictions, OfOneConstraintWithAnother) {
  EXPECT_EQ(Verdict({"9 <= n", "n <= 4"}),
            "constraint n <= 4 leaves no value for symbol \"n\", which lies in [9, inf] by what else is declared");
  EXPECT_NE(Verdict({"n == m", "n != m"}), "ok");
  EXPECT_NE(Verdict({"n == 2*m", "m <= 3", "7 <= n"}), "ok");
  EXPECT_NE(Verdict({"n + m == 10", "8 <= n", "8 <= m"}), "ok");
  EXPECT_NE(Verdict({"6 divides n", "4 divides n", "1 <= n", "n <= 11"}), "ok");
  EXPECT_NE(Verdict({"n == k8", "n == small"}), "ok");
  EXPECT_NE(Verdict({"n <= 3", "1 <= n", "n*small == 7"}), "ok");
  EXPECT_NE(Verdict({"2 <= n", "n broadcasts with k8", "n <= 7"}), "ok");
  EXPECT_NE(Verdict({"2 <= n", "n <= 8", "n broadcasts with 4", "n != 4"}), "ok");
}

TEST(Contradictions, AreNotFoundWhereThereAreNone) {
  EXPECT_EQ(Verdict({}), "ok");
  EXPECT_EQ(Verdict({"n == 2*m", "m <= 3", "6 <= n"}), "ok");
  EXPECT_EQ(Verdict({"small*small == 4", "k8 == 8*small", "8 divides k8", "16 divides k8"}), "ok");
  EXPECT_EQ(Verdict({"n*m == 24", "n <= 24", "5 divides n + 2"}), "ok");
  EXPECT_EQ(Verdict({"floordiv(n, m) == 3"}), "ok");
  EXPECT_EQ(Verdict({"n broadcasts with 4", "n != 4"}), "ok");
  EXPECT_EQ(Verdict({"n broadcasts with k8", "k8 == 16", "n <= 1"}), "ok");
  EXPECT_EQ(Verdict({"max(n, 16) <= 16", "min(n, m) == 9", "n != m"}), "ok");
  EXPECT_EQ(Verdict({"n <= 9223372036854775806", "m*m*m <= n", "9223372036854775807 divides n"}), "ok");
}

TEST(Contradictions, ARangeWithoutAMultipleOfTheDivisorNamesTheSymbol) {
  SymbolTable table;
  table.AddSymbol("batch", {9, 15}, 8).value();
  EXPECT_EQ(table.CheckConsistent().error().message, "symbol \"batch\": its range [9, 15] holds no multiple of 8");
}

// Random constraints over symbols of few values, against all of their values.
TEST(Contradictions, AgreeWithTryingEveryValue) {
  std::mt19937 random(20);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int refused = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    SymbolTable table;
    std::vector<Dim> atoms;
    for (int s = 0; s < 3; ++s) {
      const int64_t divisor = pick(1, 3), low = pick(-2, 6);
      atoms.push_back(table.AddSymbol("s" + std::to_string(s), {low, low + pick(2, 7)}, divisor).value());
    }
    const auto side = [&] {
      Dim dim = atoms[static_cast<size_t>(pick(0, 2))];
      const Dim other = pick(0, 1) ? atoms[static_cast<size_t>(pick(0, 2))] : Dim::Const(pick(1, 9));
      switch (pick(0, 6)) {
        case 0:
          return table.Mul(dim, other);
        case 1:
          return table.Add(table.Mul(dim, Dim::Const(pick(-3, 3))), other);
        case 2:
          return table.Max(dim, other);
        case 3:
          return table.Min(dim, other);
        case 4:
          return table.FloorDiv(dim, Dim::Const(pick(1, 4)));
        case 5:
          return Dim::Const(pick(1, 12));
        default:
          return dim;
      }
    };
    for (int64_t c = pick(1, 3); c > 0; --c)
      table.AddConstraint({static_cast<ConstraintKind>(pick(1, 5)), side(), side()});
    bool satisfiable = false;
    std::vector<int64_t> values(3);
    const auto range = [&](size_t s) { return table.symbol(static_cast<SymbolId>(s)).range; };
    for (values[0] = range(0).min; values[0] <= range(0).max; ++values[0])
      for (values[1] = range(1).min; values[1] <= range(1).max; ++values[1])
        for (values[2] = range(2).min; values[2] <= range(2).max; ++values[2])
          satisfiable |= table.Check(values).has_value();
    const Status status = table.CheckConsistent();
    refused += !status;
    EXPECT_TRUE(status || !satisfiable) << "trial " << trial << ": " << status.error().message;
    // One constraint over few values is decided.
    if (table.constraints().size() == 1) {
      EXPECT_EQ(status.has_value(), satisfiable) << "trial " << trial << ": " << table.ToString(table.constraints()[0]);
    }
  }
  EXPECT_GT(refused, 400);
}

}  // namespace
}  // namespace kiln
