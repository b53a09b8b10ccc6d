// Sequences, optionals and the batched Scan. The models run: what comes out is what the operators say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor Floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::Of<float>(DType::kF32, dims, std::span<const float>(values));
}
Tensor Ints(const Dims& dims, const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(DType::kI64, dims, std::span<const int64_t>(values));
}

std::vector<Tensor> Answers(const TestModel& model, const std::vector<Tensor>& inputs) {
  auto imported = model.Import();
  EXPECT_TRUE(imported.has_value()) << ToString(imported.error());
  if (!imported) return {};
  const auto program = LoadedProgram::Load(std::move(imported->program));
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  if (!program) return {};
  std::vector<TensorRef> refs;
  for (const Tensor& input : inputs) refs.push_back(input.ref);
  VmContext context;
  auto outputs = context.Run(**program, refs);
  EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
  std::vector<Tensor> results;
  for (size_t i = 0; outputs && i < outputs->size(); ++i) results.push_back(MakeContiguous((*outputs)[i].ref));
  return results;
}

std::string Failure(const TestModel& model) {
  const auto imported = model.Import();
  return imported.has_value() ? "" : ToString(imported.error());
}

std::vector<float> Values(const Tensor& tensor) {
  const std::span<float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

TEST(Sequences, InsertEraseLengthAndConcat) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n"})).Input(Tensor32("y", {"m"}));
  model.Initializer(IntTensor("front", {}, {0})).Initializer(IntTensor("second", {}, {-2}));
  model.Node("SequenceEmpty", {}, {"empty"})
      .Node("SequenceInsert", {"empty", "x"}, {"s1"})
      .Node("SequenceInsert", {"s1", "y", "front"}, {"s2"})
      .Node("SequenceInsert", {"s2", "x"}, {"s3"})
      .Node("SequenceErase", {"s3", "second"}, {"s4"})
      .Node("SequenceLength", {"s4"}, {"length"})
      .Node("ConcatFromSequence", {"s4"}, {"all"}, {IntAttribute("axis", 0)});
  model.Output("all").Output("length");
  const auto results = Answers(model, {Floats({2}, {1, 2}), Floats({1}, {3})});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(Values(results[0]), ElementsAre(3, 1, 2));
  EXPECT_EQ(results[1].values<int64_t>()[0], 2);
}

TEST(Sequences, SplitAtAndPositionsKnownOnlyWhenRunning) {
  TestModel model(13);
  model.Input(Tensor32("x", {4, 2})).Input(Tensor32("at", {}, 7)).Initializer(IntTensor("last", {}, {-1}));
  model.Node("SplitToSequence", {"x"}, {"rows"}, {IntAttribute("axis", 0), IntAttribute("keepdims", 0)})
      .Node("SequenceAt", {"rows", "last"}, {"a"})
      .Node("SequenceAt", {"rows", "at"}, {"b"});
  model.Output("a").Output("b");
  const auto results = Answers(model, {Floats({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}), Ints({}, {1})});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].dims(), (Dims{2}));
  EXPECT_THAT(Values(results[0]), ElementsAre(6, 7));
  EXPECT_THAT(Values(results[1]), ElementsAre(2, 3));
}

TEST(Sequences, SplitInChunksLeavesASmallerLastOne) {
  TestModel model(13);
  model.Input(Tensor32("x", {5})).Initializer(IntTensor("two", {}, {2})).Initializer(IntTensor("third", {}, {2}));
  model.Node("SplitToSequence", {"x", "two"}, {"s"}).Node("SequenceAt", {"s", "third"}, {"y"}).Output("y");
  const auto results = Answers(model, {Floats({5}, {1, 2, 3, 4, 5})});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(Values(results[0]), ElementsAre(5));
}

TEST(Sequences, MapRunsItsBodyPerElement) {
  GraphProto body;
  *body.add_input() = Tensor32("e", {"k"});
  *body.add_input() = Tensor32("all", {"n"});
  AddNode(*body.mutable_node(), "ReduceMax", {"all"}, {"most"}, {IntAttribute("keepdims", 1)});
  AddNode(*body.mutable_node(), "Add", {"e", "most"}, {"out"});
  body.add_output()->set_name("out");
  TestModel model(17);
  model.Input(Tensor32("x", {2})).Input(Tensor32("y", {3}));
  model.Node("SequenceConstruct", {"x", "y"}, {"s"})
      .Node("SequenceMap", {"s", "y"}, {"t"}, {GraphAttribute("body", body)})
      .Node("ConcatFromSequence", {"t"}, {"z"}, {IntAttribute("axis", 0)})
      .Output("z");
  const auto results = Answers(model, {Floats({2}, {1, 2}), Floats({3}, {10, 20, 30})});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(Values(results[0]), ElementsAre(31, 32, 40, 50, 60));
}

GraphProto AppendingBody() {
  GraphProto body;
  *body.add_input() = Tensor32("i", {}, 7);
  *body.add_input() = Tensor32("go", {}, 9);
  body.add_input()->set_name("s");
  AddNode(*body.mutable_node(), "Identity", {"go"}, {"goes_on"});
  AddNode(*body.mutable_node(), "Cast", {"i"}, {"f"}, {IntAttribute("to", 1)});
  AddNode(*body.mutable_node(), "Add", {"x", "f"}, {"next"});
  AddNode(*body.mutable_node(), "SequenceInsert", {"s", "next"}, {"longer"});
  for (const char* name : {"goes_on", "longer", "f"}) body.add_output()->set_name(name);
  return body;
}

TEST(Sequences, ALoopThatCarriesOneIsUnrolled) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n"})).Initializer(IntTensor("trips", {}, {3}));
  model.Node("SequenceEmpty", {}, {"none"})
      .Node("Loop", {"trips", "", "none"}, {"s", "seen"}, {GraphAttribute("body", AppendingBody())})
      .Node("ConcatFromSequence", {"s"}, {"y"}, {IntAttribute("axis", 0), IntAttribute("new_axis", 1)});
  model.Output("y").Output("seen");
  const auto results = Answers(model, {Floats({2}, {1, 5})});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].dims(), (Dims{3, 2}));
  EXPECT_THAT(Values(results[0]), ElementsAre(1, 5, 2, 6, 3, 7));
  EXPECT_THAT(Values(results[1]), ElementsAre(0, 1, 2));
}

TEST(Sequences, BranchesGiveSequencesOfOneLength) {
  const auto branch = [](std::initializer_list<std::string> inputs) {
    GraphProto graph;
    AddNode(*graph.mutable_node(), "SequenceConstruct", inputs, {"s"});
    graph.add_output()->set_name("s");
    return graph;
  };
  TestModel model(13);
  model.Input(Tensor32("c", {}, 9)).Input(Tensor32("x", {"n"})).Input(Tensor32("y", {"m"}));
  model
      .Node("If", {"c"}, {"s"},
            {GraphAttribute("then_branch", branch({"x", "y"})), GraphAttribute("else_branch", branch({"y", "x"}))})
      .Node("ConcatFromSequence", {"s"}, {"z"}, {IntAttribute("axis", 0)})
      .Output("z");
  for (bool condition : {true, false}) {
    const Tensor c = Tensor::Of<bool>(DType::kBool, Dims{}, std::span<const bool>(&condition, 1));
    const auto results = Answers(model, {c, Floats({2}, {1, 2}), Floats({1}, {3})});
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(Values(results[0]), condition ? (std::vector<float>{1, 2, 3}) : (std::vector<float>{3, 1, 2}));
  }
}

TEST(Sequences, MisuseIsAnErrorThatNamesTheNode) {
  TestModel tensor_op(13);
  tensor_op.Input(Tensor32("x", {"n"})).Node("SequenceConstruct", {"x"}, {"s"}).Node("Relu", {"s"}, {"y"}).Output("y");
  EXPECT_THAT(Failure(tensor_op), HasSubstr("is a sequence where the operator takes tensors"));
  TestModel output(13);
  output.Input(Tensor32("x", {"n"})).Node("SequenceConstruct", {"x"}, {"s"}).Output("s");
  EXPECT_THAT(Failure(output), HasSubstr("output 's' is a sequence"));
  TestModel position(13);
  position.Input(Tensor32("x", {"n"})).Initializer(IntTensor("two", {}, {2}));
  position.Node("SequenceConstruct", {"x", "x"}, {"s"}).Node("SequenceAt", {"s", "two"}, {"y"}).Output("y");
  EXPECT_THAT(Failure(position), HasSubstr("position 2 is outside a sequence of 2 tensors"));
}

TEST(Optionals, HoldWhatTheyAreGiven) {
  TestModel model(18);
  model.Input(Tensor32("x", {"n"}));
  model.Node("Optional", {"x"}, {"o"})
      .Node("OptionalHasElement", {"o"}, {"has"})
      .Node("OptionalHasElement", {}, {"has_not"})
      .Node("OptionalGetElement", {"o"}, {"e"})
      .Node("Neg", {"e"}, {"y"});
  model.Output("y").Output("has").Output("has_not");
  const auto results = Answers(model, {Floats({1}, {2})});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_THAT(Values(results[0]), ElementsAre(-2));
  EXPECT_TRUE(results[1].values<bool>()[0]);
  EXPECT_FALSE(results[2].values<bool>()[0]);
}

// Running sums per batch entry: state + slice, and the sums so far.
GraphProto SummingBody() {
  GraphProto body;
  *body.add_input() = Tensor32("sum", {2});
  *body.add_input() = Tensor32("next", {2});
  AddNode(*body.mutable_node(), "Add", {"sum", "next"}, {"total"});
  AddNode(*body.mutable_node(), "Identity", {"total"}, {"seen"});
  for (const char* name : {"total", "seen"}) body.add_output()->set_name(name);
  return body;
}

TEST(BatchedScan, FollowsEachEntrysLengthAndDirection) {
  for (int64_t reverse : {0, 1}) {
    TestModel model(8);
    model.Input(Tensor32("lengths", {"b"}, 7)).Input(Tensor32("start", {"b", 2})).Input(Tensor32("x", {"b", "t", 2}));
    model.Node("Scan", {"lengths", "start", "x"}, {"last", "all"},
               {GraphAttribute("body", SummingBody()), IntAttribute("num_scan_inputs", 1),
                IntsAttribute("directions", {reverse})});
    model.Output("last").Output("all");
    const auto results = Answers(model, {Ints({2}, {3, 1}), Floats({2, 2}, {0, 0, 10, 10}),
                                         Floats({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_THAT(Values(results[0]), ElementsAre(9, 12, 17, 18));
    EXPECT_EQ(results[1].dims(), (Dims{2, 3, 2}));
    EXPECT_EQ(Values(results[1]), reverse == 0 ? (std::vector<float>{1, 2, 4, 6, 9, 12, 17, 18, 0, 0, 0, 0})
                                               : (std::vector<float>{5, 6, 8, 10, 9, 12, 17, 18, 0, 0, 0, 0}));
  }
}

}  // namespace
}  // namespace kiln::onnx
