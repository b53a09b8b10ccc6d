// Sequences whose length only running tells, interpreted: as declared, and with every dim a symbol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/vm-worker/onnx/sequence_cases.h"
#include "tests/vm-worker/onnx/sequence_models.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using testing::HasSubstr;

class RunTimeSequences : public testing::TestWithParam<SequenceCase> {
 protected:
  static void ExpectAnswersOf(const ImportOptions& options) {
    auto imported = GetParam().model.Import(options);
    ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
    const auto program = LoadedProgram::Load(std::move(imported->program));
    ASSERT_TRUE(program.has_value()) << ToString(program.error());
    VmContext context;
    ExpectAnswers(GetParam(), [&](std::span<const TensorRef> inputs) { return context.Run(**program, inputs); });
  }
};

TEST_P(RunTimeSequences, AnswerAsDeclared) {
  ExpectAnswersOf({});
}

TEST_P(RunTimeSequences, AnswerWithEveryDimASymbol) {
  ExpectAnswersOf({.all_dims_dynamic = true});
}

INSTANTIATE_TEST_SUITE_P(All, RunTimeSequences, testing::ValuesIn(SequenceCases()),
                         [](const auto& info) { return info.param.name; });

// --- what is refused when the model is loaded ---

std::string Failure(const TestModel& model) {
  const auto imported = model.Import();
  return imported.has_value() ? "" : ToString(imported.error());
}

TEST(RunTimeSequencesRefused, ElementsOfDifferentRanks) {
  TestModel model(17);
  model.Input(Tensor32("x", {"n"})).Input(Tensor32("y", {"n", "m"})).Input(Tensor32("at", {}, 7));
  model.Node("SequenceConstruct", {"x", "y"}, {"s"}).Node("SequenceAt", {"s", "at"}, {"z"}).Output("z");
  EXPECT_THAT(Failure(model), HasSubstr("elements have ranks 1 and 2"));
}

TEST(RunTimeSequencesRefused, APositionOfTwoNumbers) {
  TestModel model(17);
  model.Input(Tensor32("x", {4, 2})).Input(Tensor32("y", {4, 3})).Input(Tensor32("at", {2}, 7));
  model.Node("SequenceConstruct", {"x", "y"}, {"s"}).Node("SequenceAt", {"s", "at"}, {"z"}).Output("z");
  EXPECT_NE(Failure(model), "");
}

// Each Slice nests another min into the size, which ends past the limits of expressions: nothing is known of it then,
// and the model runs all the same.
TEST(RunTimeSizes, ExpressionsPastTheLimitsSayNothing) {
  constexpr int kSlices = 40;
  TestModel model(17);
  model.Input(Tensor32("x0", {"n"}));
  model.Initializer(IntTensor("one", {1}, {1})).Initializer(IntTensor("end", {1}, {INT64_MAX}));
  for (int i = 0; i < kSlices; ++i)
    model.Node("Slice", {"x" + std::to_string(i), "one", "end"}, {"x" + std::to_string(i + 1)});
  model.Output("x" + std::to_string(kSlices));
  auto imported = model.Import();
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const auto program = LoadedProgram::Load(std::move(imported->program));
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  VmContext context;
  for (int64_t n : {100, 41, 40, 3, 100}) {
    const Tensor x = Tensor::Zeros(DType::kF32, {n});
    const TensorRef inputs[] = {x.ref};
    const auto outputs = context.Run(**program, inputs);
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    EXPECT_EQ((*outputs)[0].dims(), Dims({std::max<int64_t>(0, n - kSlices)}));
  }
}

TEST(RunTimeSequencesRefused, AnElementOfAnotherType) {
  TestModel model(17);
  model.Input(Tensor32("x", {"n"})).Input(Tensor32("trips", {}, 7));
  model.Node("SequenceEmpty", {}, {"none"}, {IntAttribute("dtype", 7)})
      .Node("Loop", {"trips", "", "none"}, {"s"}, {GraphAttribute("body", LoopBody([](GraphProto& body) {
                                                                    AddNode(*body.mutable_node(), "SequenceInsert",
                                                                            {"s", "x"}, {"longer"});
                                                                  }))})
      .Node("SequenceLength", {"s"}, {"y"})
      .Output("y");
  EXPECT_THAT(Failure(model), HasSubstr("the tensor is f32, the sequence holds i64"));
}

}  // namespace
}  // namespace kiln::onnx
