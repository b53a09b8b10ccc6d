// Sequences whose length only running tells, interpreted: as declared, and with every dim a symbol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/vm-worker/onnx/sequence_cases.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using testing::HasSubstr;

class RunTimeSequences : public testing::TestWithParam<SequenceCase> {
 protected:
  static void ExpectAnswers(const ImportOptions& options) {
    auto imported = GetParam().model.Import(options);
    ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
    const auto program = LoadedProgram::Load(std::move(imported->program));
    ASSERT_TRUE(program.has_value()) << ToString(program.error());
    VmContext context;
    for (size_t r = 0; r < GetParam().runs.size(); ++r) {
      SCOPED_TRACE("run " + std::to_string(r));
      const SequenceRun& run = GetParam().runs[r];
      std::vector<TensorRef> refs;
      for (const Tensor& input : run.inputs) refs.push_back(input.ref);
      const auto outputs = context.Run(**program, refs);
      if (!run.error.empty()) {
        ASSERT_FALSE(outputs.has_value());
        EXPECT_THAT(ToString(outputs.error()), HasSubstr(run.error));
        continue;
      }
      ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
      ASSERT_EQ(outputs->size(), run.outputs.size());
      for (size_t i = 0; i < outputs->size(); ++i) ExpectEqual((*outputs)[i].ref, run.outputs[i].ref, i);
    }
  }

  static void ExpectEqual(const TensorRef& got, const TensorRef& expected, size_t output) {
    SCOPED_TRACE("output " + std::to_string(output));
    ASSERT_EQ(got.dtype, expected.dtype);
    ASSERT_EQ(got.dims, expected.dims);
    const Tensor whole = MakeContiguous(got);
    if (got.bytes() == 0) return;
    EXPECT_EQ(std::memcmp(whole.ref.data, expected.data, static_cast<size_t>(expected.bytes())), 0);
  }
};

TEST_P(RunTimeSequences, AnswerAsDeclared) {
  ExpectAnswers({});
}

TEST_P(RunTimeSequences, AnswerWithEveryDimASymbol) {
  ExpectAnswers({.all_dims_dynamic = true});
}

INSTANTIATE_TEST_SUITE_P(All, RunTimeSequences, testing::ValuesIn(SequenceCases()),
                         [](const auto& info) { return info.param.name; });

// --- what is refused when the model is loaded ---

std::string Failure(const TestModel& model) {
  const auto imported = model.Import();
  return imported.has_value() ? "" : ToString(imported.error());
}

TEST(RunTimeSequencesRefused, ElementsThatDifferAlongTwoAxes) {
  TestModel model(17);
  model.Input(Tensor32("x", {"n", "m"})).Input(Tensor32("trips", {}, 7));
  model.Initializer(IntTensor("one", {2}, {1, 1})).Initializer(IntTensor("zero", {2}, {0, 0}));
  model.Node("SequenceEmpty", {}, {"none"})
      .Node("Loop", {"trips", "", "none"}, {"s"},
            {GraphAttribute("body", LoopBody([](GraphProto& body) {
                              AddNode(*body.mutable_node(), "Add", {"i", "one"}, {"to"});
                              AddNode(*body.mutable_node(), "Slice", {"x", "zero", "to"}, {"part"});
                              AddNode(*body.mutable_node(), "SequenceInsert", {"s", "part"}, {"longer"});
                            }))})
      .Node("SequenceLength", {"s"}, {"y"})
      .Output("y");
  EXPECT_THAT(Failure(model), HasSubstr("elements differ along more than one axis"));
}

TEST(RunTimeSequencesRefused, ElementsOfDifferentRanks) {
  TestModel model(17);
  model.Input(Tensor32("x", {"n"})).Input(Tensor32("y", {"n", "m"})).Input(Tensor32("at", {}, 7));
  model.Node("SequenceConstruct", {"x", "y"}, {"s"}).Node("SequenceAt", {"s", "at"}, {"z"}).Output("z");
  EXPECT_THAT(Failure(model), HasSubstr("elements have ranks 1 and 2"));
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
