#include "vm-worker/onnx/dim_hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using testing::HasSubstr;

ImportOptions Hinted(std::initializer_list<const char*> hints) {
  ImportOptions options;
  for (const char* text : hints) {
    auto hint = ParseDimHint(text);
    EXPECT_TRUE(hint.has_value()) << ToString(hint.error());
    if (hint) options.dim_hints.push_back(*std::move(hint));
  }
  return options;
}

std::string FailureOf(const TestModel& model, const ImportOptions& options) {
  const auto imported = model.Import(options);
  return imported.has_value() ? "" : ToString(imported.error());
}

TEST(DimHint, IsReadFromText) {
  const auto hint = ParseDimHint("seq=1..2048:8");
  ASSERT_TRUE(hint.has_value());
  EXPECT_EQ(hint->name, "seq");
  EXPECT_EQ(hint->range, (Interval{8, 2048}));  // the bounds are multiples themselves
  EXPECT_EQ(hint->divisor, 8);
  EXPECT_EQ(ToString(*hint), "8..2048 in steps of 8");
  EXPECT_EQ(ParseDimHint("x.3=320")->range, (Interval{320, 320}));
  EXPECT_EQ(ParseDimHint("n=1..")->range, (Interval{1, Interval::kNoBound}));
  EXPECT_EQ(ParseDimHint("a=b=2")->name, "a=b");
}

TEST(DimHint, RejectsWhatHoldsForNoSize) {
  for (const char* text : {"", "n", "=3", "n=", "n=x", "n=-1", "n=5..2", "n=1..3:0", "n=1..7:8", "n=1..x",
                           "n=1..2:", "n=9223372036854775807..:2"}) {
    const auto hint = ParseDimHint(text);
    ASSERT_FALSE(hint.has_value()) << text;
    EXPECT_THAT(hint.error().message, HasSubstr(std::string("dim hint \"") + text + "\""));
  }
}

TestModel TwoInputs() {
  TestModel model(13);
  model.Input(Tensor32("x", {"batch", "seq"})).Input(Tensor32("y", {"batch", ""}));
  model.Node("Relu", {"x"}, {"a"}).Node("Relu", {"y"}, {"b"}).Output("a").Output("b");
  return model;
}

TEST(DimHint, BecomesTheRangeAndDivisorOfASymbol) {
  const auto imported = TwoInputs().Import(Hinted({"batch=1..32", "seq=1..2048:8", "y.1=4"}));
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const SymbolTable& symbols = imported->program.symbols;
  const std::vector<Dim>& x = *imported->inputs[0].desc.dims;
  EXPECT_EQ(symbols.Bounds(x[0]), (Interval{1, 32}));
  EXPECT_EQ(symbols.Bounds(x[1]), (Interval{8, 2048}));
  EXPECT_EQ(symbols.Divisor(x[1]), 8);
  EXPECT_EQ((*imported->inputs[1].desc.dims)[0], x[0]);
  EXPECT_EQ((*imported->inputs[1].desc.dims)[1], Dim::Const(4));
}

TEST(DimHint, IsCheckedWhereACallEnters) {
  auto imported = TwoInputs().Import(Hinted({"batch=1..32", "seq=1..2048:8"}));
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const auto program = LoadedProgram::Load(std::move(imported->program));
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  VmContext context;
  const auto answer = [&](const Dims& x, const Dims& y) {
    const Tensor a = Tensor::Zeros(DType::kF32, x), b = Tensor::Zeros(DType::kF32, y);
    const TensorRef inputs[] = {a.ref, b.ref};
    const auto outputs = context.Run(**program, inputs);
    return outputs.has_value() ? std::string("ok") : outputs.error().message;
  };
  EXPECT_EQ(answer({32, 16}, {32, 1}), "ok");
  EXPECT_THAT(answer({33, 16}, {33, 1}), HasSubstr("dim 0 of input \"x\" is 33; batch is at most 32"));
  EXPECT_THAT(answer({0, 16}, {0, 1}), HasSubstr("dim 0 of input \"x\" is 0; batch is at least 1"));
  EXPECT_THAT(answer({2, 12}, {2, 1}), HasSubstr("dim 1 of input \"x\" is 12; seq is a multiple of 8"));
}

TEST(DimHint, ThatNamesNoDimIsAnError) {
  EXPECT_THAT(FailureOf(TwoInputs(), Hinted({"batch=1..32", "length=4"})), HasSubstr("\"length\": no input has a dim"));
  EXPECT_THAT(FailureOf(TwoInputs(), Hinted({"x.2=4"})), HasSubstr("\"x.2\""));
}

TEST(DimHint, ThatContradictsTheModelIsAnError) {
  TestModel model(13);
  model.Input(Tensor32("x", {2, "n"})).Node("Relu", {"x"}, {"y"}).Output("y");
  EXPECT_THAT(FailureOf(model, Hinted({"x.0=3..8"})),
              HasSubstr("dim 0 of input 'x' is 2 in the model; the hint says 3..8"));
  EXPECT_EQ(FailureOf(model, Hinted({"x.0=1..8"})), "");
}

TEST(DimHint, ThatMakesANodeImpossibleFailsAtLoad) {
  TestModel model(13);
  model.Input(Tensor32("x", {1, 3, "h", 8})).Initializer(FloatTensor("w", {1, 3, 5, 5}, std::vector<float>(75, 1)));
  model.Node("Conv", {"x", "w"}, {"y"}).Output("y");
  model.graph().mutable_node(0)->set_name("conv");
  EXPECT_EQ(FailureOf(model, Hinted({"h=5..64"})), "");
  EXPECT_THAT(FailureOf(model, Hinted({"h=1..4"})),
              testing::AllOf(HasSubstr("node 'conv'"), HasSubstr("has at most 4 elements"), HasSubstr("spans 5")));

  TestModel sum(13);
  sum.Input(Tensor32("a", {"n"})).Input(Tensor32("b", {"m"})).Node("Add", {"a", "b"}, {"y"}).Output("y");
  EXPECT_THAT(FailureOf(sum, Hinted({"n=2..4", "m=5..9"})), HasSubstr("cannot broadcast"));
}

}  // namespace
}  // namespace kiln::onnx
