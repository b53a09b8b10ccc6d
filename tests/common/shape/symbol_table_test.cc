#include "common/shape/symbol_table.h"

#include <gtest/gtest.h>

#include "common/shape/tensor_desc.h"

namespace kiln {
namespace {

class SymbolTableTest : public testing::Test {
 protected:
  Dim P(std::string_view text) {
    auto dim = table.Parse(text);
    EXPECT_TRUE(dim.has_value()) << (dim ? "" : dim.error().message);
    return dim.value_or(Dim());
  }
  SymbolTable table;
  Dim n = *table.AddSymbol("n");
  Dim m = *table.AddSymbol("m", {1, 64});
  Dim k8 = *table.AddSymbol("k8", {8, 1024}, 8);
  Dim any = *table.AddSymbol("any", {-100, 100});
};

TEST_F(SymbolTableTest, ExpressionsHaveOneNormalForm) {
  struct Row {
    const char* a;
    const char* b;
  };
  const Row rows[] = {
      {"n + m", "m + n"},
      {"2*n + 3*n - n", "4*n"},
      {"(n + 1)*(n - 1)", "n*n - 1"},
      {"n - n", "0"},
      {"0*n + 7", "7"},
      {"floordiv(8*n, 8)", "n"},
      {"floordiv(8*n + 13, 8)", "n + 1"},
      {"floordiv(8*n + 64*m + 3, 8)", "n + 8*m"},
      {"floordiv(8*n - 1, 8)", "n - 1"},
      {"floordiv(floordiv(n, 3), 5)", "floordiv(n, 15)"},
      {"floordiv(floordiv(n, 3) + 2, 5)", "floordiv(n + 6, 15)"},
      {"floordiv(4*n + 6, 8)", "floordiv(2*n + 3, 4)"},
      {"floordiv(n + k8 + 3, 8)", "floordiv(k8, 8) + floordiv(n + 3, 8)"},
      {"8*floordiv(k8, 8)", "k8"},
      {"8*floordiv(k8 + 5, 8)", "k8"},
      {"floordiv(m - 1, 64)", "0"},
      {"floordiv(n*m, m)", "n"},
      {"floordiv(n*m + m, n + 1)", "m"},
      {"floordiv(6*n*m, 4*m*k8)", "floordiv(3*n, 2*k8)"},
      {"mod(12*n, 4)", "0"},
      {"mod(12*n + 7, 4)", "3"},
      {"mod(k8 + n, 8)", "mod(n, 8)"},
      {"mod(k8, 4)", "0"},
      {"mod(n*m, m)", "0"},
      {"mod(m, 65)", "m"},
      {"mod(m - 1, 64)", "m - 1"},
      {"floordiv(8*n + m - 1, 64)", "floordiv(8*n + m + 63, 64) - 1"},
      {"mod(6*n, 4)", "2*mod(3*n, 2)"},
      {"mod(2*n + 4, 6)", "2*mod(n + 2, 3)"},
      {"min(n, n)", "n"},
      {"min(n, m)", "min(m, n)"},
      {"min(n, n + 1)", "n"},
      {"max(n, n + 1)", "n + 1"},
      {"min(m, 64)", "m"},
      {"max(m, 1)", "m"},
      {"max(n, 0)", "n"},
      {"min(n, min(n, m))", "min(n, m)"},
      {"min(9223372036854775807, n)", "n"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(P(row.a), P(row.b)) << row.a << " is " << table.ToString(P(row.a)) << ", " << row.b << " is "
                                  << table.ToString(P(row.b));
  }
}

TEST_F(SymbolTableTest, DifferentExpressionsStayDifferent) {
  const char* texts[] = {"n",
                         "m",
                         "n + 1",
                         "2*n",
                         "n*m",
                         "n*n",
                         "floordiv(n, 2)",
                         "mod(n, 2)",
                         "min(n, m)",
                         "max(n, m)",
                         "floordiv(n, m)",
                         "8*floordiv(n, 8)",
                         "mod(n, m)",
                         "floordiv(any, 101)",
                         "max(any, 0)"};
  for (const char* a : texts) {
    for (const char* b : texts) EXPECT_EQ(P(a) == P(b), std::string_view(a) == b) << a << " and " << b;
  }
}

TEST_F(SymbolTableTest, ExactDivDividesPolynomials) {
  const auto div = [&](const char* a, const char* b) { return table.ToString(table.ExactDiv(P(a), P(b))); };
  EXPECT_EQ(div("n*64*8", "n*8"), "64");
  EXPECT_EQ(div("n*m*768", "64*m"), "12*n");
  EXPECT_EQ(div("(n + 1)*(m + 2)", "m + 2"), "n + 1");
  EXPECT_EQ(div("(n + 1)*(m + 2)*n", "n*m + 2*n"), "n + 1");
  EXPECT_EQ(div("n*12", "1"), "12*n");
  EXPECT_EQ(div("12", "4"), "3");
  EXPECT_EQ(table.CeilDiv(P("8*n"), P("8")), n);
  EXPECT_EQ(table.ToString(table.CeilDiv(n, P("8"))), "floordiv(n + 7, 8)");
}

TEST_F(SymbolTableTest, ConstantsFoldAndSaturate) {
  const Dim big = Dim::Const(int64_t{1} << 62);
  EXPECT_EQ(table.Mul(big, Dim::Const(4)), Dim::Const(INT64_MAX));
  EXPECT_EQ(table.Mul(big, Dim::Const(-4)), Dim::Const(INT64_MIN));
  EXPECT_EQ(table.Add(big, big), Dim::Const(INT64_MAX));
  EXPECT_EQ(table.Add(table.Add(big, big), Dim::Const(-5)), Dim::Const(INT64_MAX));
  EXPECT_EQ(table.FloorDiv(Dim::Const(INT64_MAX), Dim::Const(2)), Dim::Const(INT64_MAX));
  EXPECT_EQ(table.Sub(Dim::Const(3), Dim::Const(5)), Dim::Const(-2));
  EXPECT_EQ(table.FloorDiv(Dim::Const(-7), Dim::Const(2)), Dim::Const(-4));
  EXPECT_EQ(table.Mod(Dim::Const(-7), Dim::Const(2)), Dim::Const(1));
  EXPECT_EQ(table.FloorDiv(Dim::Const(7), Dim::Const(0)), Dim::Const(INT64_MAX));
  EXPECT_EQ(table.Mod(n, Dim::Const(-1)), Dim::Const(INT64_MAX));
}

TEST_F(SymbolTableTest, ExpressionsBeyondTheLimitsNeverEvaluate) {
  Dim dim = n;
  for (int i = 0; i < 200; ++i) dim = table.Min(table.Add(table.Mul(dim, dim), m), table.FloorDiv(dim, Dim::Const(7)));
  const int64_t values[] = {5, 5, 8, 5};
  EXPECT_EQ(table.Evaluate(dim, values).error().code, ErrorCode::kLimitExceeded);
  EXPECT_FALSE(table.ProvenEqual(dim, dim));
  EXPECT_EQ(table.Sub(dim, dim), dim);
  EXPECT_EQ(table.Decode(table.Encode(dim)).value(), dim);
  EXPECT_EQ(table.Parse(table.ToString(dim)).value(), dim);
}

TEST_F(SymbolTableTest, BoundsAndDivisors) {
  const auto bounds = [&](const char* text) { return table.Bounds(P(text)); };
  EXPECT_EQ(bounds("n"), (Interval{0, Interval::kNoBound}));
  EXPECT_EQ(bounds("m*m + 1"), (Interval{2, 4097}));
  EXPECT_EQ(bounds("10 - m"), (Interval{-54, 9}));
  EXPECT_EQ(bounds("mod(n, 8)"), (Interval{0, 7}));
  EXPECT_EQ(bounds("floordiv(m, 4)"), (Interval{0, 16}));
  EXPECT_EQ(bounds("floordiv(any, 7)"), (Interval{-15, 14}));
  EXPECT_EQ(bounds("min(n, 16)"), (Interval{0, 16}));
  EXPECT_EQ(table.Divisor(P("k8*n")), 8);
  EXPECT_EQ(table.Divisor(P("k8 + 12")), 4);
  EXPECT_EQ(table.Divisor(P("floordiv(k8, 4)")), 2);
  EXPECT_EQ(table.Divisor(Dim::Const(12)), 12);
}

TEST_F(SymbolTableTest, ProofsUseBoundsDivisorsAndConstraints) {
  EXPECT_TRUE(table.ProvenEqual(P("2*n"), P("n + n")));
  EXPECT_FALSE(table.ProvenEqual(n, m));
  EXPECT_FALSE(table.ProvenDifferent(n, m));
  EXPECT_TRUE(table.ProvenDifferent(P("m"), Dim::Const(0)));
  EXPECT_TRUE(table.ProvenDifferent(P("n"), P("n + 1")));
  EXPECT_TRUE(table.ProvenDifferent(P("k8"), Dim::Const(12)));
  EXPECT_TRUE(table.ProvenDifferent(P("2*n"), P("2*m + 1")));
  table.AddConstraint({ConstraintKind::kEqual, n, m});
  table.AddConstraint({ConstraintKind::kLessEqual, k8, Dim::Const(16)});
  table.AddConstraint({ConstraintKind::kNotEqual, any, m});
  table.AddConstraint({ConstraintKind::kDivides, Dim::Const(6), any});
  EXPECT_TRUE(table.ProvenEqual(P("n + 3"), P("m + 3")));
  EXPECT_TRUE(table.ProvenEqual(P("m + 3"), P("n + 3")));
  EXPECT_FALSE(table.ProvenEqual(P("2*n"), P("m")));
  EXPECT_EQ(table.Bounds(k8), (Interval{8, 16}));
  EXPECT_TRUE(table.ProvenDifferent(m, any));
  EXPECT_EQ(table.Divisor(any), 6);
}

TEST_F(SymbolTableTest, EvaluateReportsWhatIsWrong) {
  const int64_t values[] = {5, 7, 16, -3};
  EXPECT_EQ(table.Evaluate(P("n*m + floordiv(any, 2)"), values).value(), 33);
  EXPECT_EQ(table.Evaluate(P("floordiv(n, m - 7)"), values).error().code, ErrorCode::kInvalidArgument);
  const int64_t huge[] = {int64_t{1} << 40, 7, 16, 0};
  EXPECT_EQ(table.Evaluate(P("n*n"), huge).error().code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(table.Evaluate(P("n*n*any"), huge).value(), 0);
  EXPECT_EQ(table.Evaluate(P("any"), std::span(values).first(3)).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SymbolTableTest, CheckNamesTheSymbolOrTheConstraint) {
  table.AddConstraint({ConstraintKind::kLessEqual, P("n*2"), P("m")});
  EXPECT_TRUE(table.Check(std::vector<int64_t>{3, 6, 16, 0}).has_value());
  const auto message = [&](std::vector<int64_t> values) { return table.Check(values).error().message; };
  EXPECT_EQ(message({-1, 6, 16, 0}), "symbol \"n\" is -1, outside its range [0, inf]");
  EXPECT_EQ(message({0, 6, 12, 0}), "symbol \"k8\" is 12, not a multiple of 8");
  EXPECT_EQ(message({4, 6, 16, 0}), "constraint 2*n <= m does not hold: left is 8, right is 6");
}

TEST_F(SymbolTableTest, SymbolsAreUniqueByName) {
  EXPECT_EQ(*table.AddSymbol("n"), n);
  EXPECT_EQ(table.AddSymbol("n", {1, 2}).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(table.AddSymbol("x", {3, 2}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(table.AddSymbol("x", {}, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(table.FindSymbol("m"), m);
  EXPECT_FALSE(table.FindSymbol("nobody"));
  const Dim fresh = table.FreshSymbol();
  EXPECT_EQ(table.symbol(fresh.symbol()).name, "s4");
  EXPECT_EQ(table.SymbolsOf(P("min(m, n)*n + any")), (std::vector<SymbolId>{0, 1, 3}));
}

TEST_F(SymbolTableTest, OddNamesAreQuotedAndComeBack) {
  for (const char* name : {"p2o.DynamicDimension.0", "floor(x/2) + \"1\"", "min", "\xc3\xa9\n\\", "2x", "a b"}) {
    const Dim dim = table.Add(*table.AddSymbol(name), Dim::Const(1));
    EXPECT_EQ(table.Parse(table.ToString(dim)).value(), dim) << table.ToString(dim);
  }
}

TEST_F(SymbolTableTest, ParseNamesTheColumn) {
  for (const char* text : {"", "n +", "n n", "min(n)", "min(n, m", "(n", "q", "99999999999999999999", "\"n", "\"\\x1",
                           "n - * m", "floordiv(n, 0)", "2 ** n"}) {
    const auto dim = table.Parse(text);
    ASSERT_FALSE(dim.has_value()) << text;
    EXPECT_NE(dim.error().message.find("column"), std::string::npos) << dim.error().message;
  }
  EXPECT_FALSE(table.Parse(std::string(100000, '(')).has_value());
  EXPECT_FALSE(table.Parse(std::string(100000, '-')).has_value());
}

TEST_F(SymbolTableTest, CopiesAreIndependent) {
  const Dim shared = P("n*m + 1");
  SymbolTable copy = table;
  const Dim fresh = copy.FreshSymbol();
  EXPECT_FALSE(table.Owns(fresh));
  EXPECT_TRUE(copy.Owns(fresh));
  EXPECT_EQ(copy.ToString(shared), "n*m + 1");
}

TEST(TensorDesc, Text) {
  SymbolTable table;
  TensorDesc desc = StaticDesc(DType::kF16, {2, 3});
  EXPECT_TRUE(desc.is_static());
  desc.dims->push_back(table.Add(*table.AddSymbol("n"), Dim::Const(1)));
  EXPECT_FALSE(desc.is_static());
  EXPECT_EQ(ToString(desc, table), "f16[2, 3, n + 1]");
  desc.dims.reset();
  EXPECT_EQ(ToString(desc, table), "f16[*]");
  EXPECT_FALSE(desc.is_static());
}

}  // namespace
}  // namespace kiln
