// Nodes that are wrong for every size that is known: where every run comes to them the model is refused, elsewhere it
// runs, and the node reports itself where it is reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int32_t kI64Type = 7, kBoolType = 9;

ImportOptions Hinted(const std::vector<std::string>& texts) {
  ImportOptions options;
  auto hints = ParseDimHints(texts);
  EXPECT_TRUE(hints.has_value()) << ToString(hints.error());
  if (hints) options.dim_hints = *std::move(hints);
  return options;
}

std::string FailureOf(const TestModel& model, const std::vector<std::string>& hints) {
  const auto imported = model.Import(Hinted(hints));
  return imported.has_value() ? "" : ToString(imported.error());
}

// Adds nodes that make "t" of "x"; weights are initializers of the model.
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;
using Wrong = std::function<void(Nodes&)>;

struct WrongNode {
  const char* name;
  Wrong add;
  std::vector<TestDim> x;
  std::vector<std::string> hints;
  std::string message;  // of the rule
};

Wrong One(const char* op, std::vector<std::string> inputs, std::vector<AttributeProto> attributes = {}) {
  return [=](Nodes& nodes) {
    NodeProto& node = AddNode(nodes, op, {}, {"t"});
    node.set_name("it");
    for (const std::string& input : inputs) node.add_input(input);
    for (const AttributeProto& attribute : attributes) *node.add_attribute() = attribute;
  };
}

const WrongNode kWrong[] = {
    {"MatMul_ofARange", One("MatMul", {"x", "w43"}), {"n", "k"}, {"k=1..3"}, "must equal dim 4"},
    {"MatMul_ofASize", One("MatMul", {"x", "w43"}), {2, 3}, {}, "must equal dim 4"},
    {"Add", One("Add", {"x", "w4"}), {"n", "k"}, {"k=2..3"}, "cannot broadcast"},
    {"Concat", One("Concat", {"x", "w43"}, {IntAttribute("axis", 1)}), {"n", "k"}, {"n=1..3"}, "dim 0"},
    {"Reshape", One("Reshape", {"x", "to44"}), {"n", "k"}, {"n=1..3", "k=1..3"}, ""},
    {"Squeeze_ofARange", One("Squeeze", {"x", "axis0"}), {"n", 3}, {"n=2..4"}, ""},
    {"Squeeze_ofASize", One("Squeeze", {"x", "axis0"}), {2, 3}, {}, ""},
    {"Transpose_ofARank", One("Transpose", {"x"}, {IntsAttribute("perm", {0, 1, 2})}), {"n", "k"}, {}, ""},
    {"Softmax_ofARank", One("Softmax", {"x"}, {IntAttribute("axis", 2)}), {"n", "k"}, {}, "axis 2"},
    {"Slice_byContents", One("Slice", {"x", "axis0", "axis0", "axis0", "axis0"}), {"n", "k"}, {}, "step 0"},
    {"Chain",
     [](Nodes& nodes) {
       AddNode(nodes, "MatMul", {"x", "w43"}, {"u"}).set_name("it");
       AddNode(nodes, "Softmax", {"u"}, {"v"});
       AddNode(nodes, "Concat", {"u", "v"}, {"t"}, {IntAttribute("axis", 0)});
     },
     {"n", "k"},
     {"k=1..3"},
     "must equal dim 4"},
};

TestModel Common(const WrongNode& wrong) {
  TestModel model(18);
  model.Input(Tensor32("x", wrong.x)).Input(Tensor32("c", {}, kBoolType)).Input(Tensor32("trips", {}, kI64Type));
  model.Initializer(FloatTensor("w43", {4, 3}, std::vector<float>(12, 1)));
  model.Initializer(FloatTensor("w4", {4}, std::vector<float>(4, 1)));
  model.Initializer(IntTensor("to44", {2}, {4, 4})).Initializer(IntTensor("axis0", {1}, {0}));
  return model;
}

GraphProto Body(const Wrong& add) {
  GraphProto graph;
  add(*graph.mutable_node());
  graph.add_output()->set_name("t");
  return graph;
}
GraphProto SameAsX() {
  return Body(One("Identity", {"x"}));
}

void AddFunction(TestModel& model, const Wrong& add, std::initializer_list<const char*> outputs) {
  FunctionProto& function = *model.proto().add_functions();
  function.set_name("Fn");
  function.set_domain("mine");
  for (const char* input : {"x", "w43", "w4", "to44", "axis0"}) function.add_input(input);
  for (const char* output : outputs) function.add_output(output);
  add(*function.mutable_node());
  AddNode(*function.mutable_node(), "Identity", {"x"}, {"same"});
}
const std::initializer_list<std::string> kFunctionInputs = {"x", "w43", "w4", "to44", "axis0"};

void AddIf(TestModel& model, const char* condition, const Wrong& then_nodes) {
  model.Node("If", {condition}, {"y"},
             {GraphAttribute("then_branch", Body(then_nodes)), GraphAttribute("else_branch", SameAsX())});
}

// Where the wrong node is.
struct Place {
  const char* name;
  std::function<void(TestModel&, const Wrong&)> build;  // gives "y"
  bool refused;                                         // at import
  bool reached;                                         // with c = true and one trip
};

const Place kPlaces[] = {
    {"Straight",
     [](TestModel& model, const Wrong& add) {
       add(*model.graph().mutable_node());
       model.Node("Identity", {"t"}, {"y"});
     },
     true, true},
    {"Dead",
     [](TestModel& model, const Wrong& add) {
       add(*model.graph().mutable_node());
       model.Node("Identity", {"x"}, {"y"});
     },
     false, false},
    {"Branch", [](TestModel& model, const Wrong& add) { AddIf(model, "c", add); }, false, true},
    {"BranchTaken",
     [](TestModel& model, const Wrong& add) {
       model.Initializer(BoolTensor("known", {}, {true}));
       AddIf(model, "known", add);
     },
     true, true},
    {"BranchNeverTaken",
     [](TestModel& model, const Wrong& add) {
       model.Initializer(BoolTensor("known", {}, {false}));
       AddIf(model, "known", add);
     },
     false, false},
    {"LoopBody",
     [](TestModel& model, const Wrong& add) {
       GraphProto body;
       *body.add_input() = Tensor32("i", {}, kI64Type);
       *body.add_input() = Tensor32("go", {}, kBoolType);
       *body.add_input() = Tensor32("s", {"", ""});
       AddNode(*body.mutable_node(), "Identity", {"go"}, {"go_on"});
       add(*body.mutable_node());
       AddNode(*body.mutable_node(), "ReduceSum", {"t"}, {"sum"}, {IntAttribute("keepdims", 0)});
       AddNode(*body.mutable_node(), "Add", {"s", "sum"}, {"next"});
       body.add_output()->set_name("go_on");
       body.add_output()->set_name("next");
       model.Node("Loop", {"trips", "", "x"}, {"y"}, {GraphAttribute("body", body)});
     },
     false, true},
    {"Function",
     [](TestModel& model, const Wrong& add) {
       AddFunction(model, add, {"t"});
       model.Node("Fn", kFunctionInputs, {"y"}, {}, "mine");
     },
     true, true},
    {"FunctionOutputThatNobodyReads",
     [](TestModel& model, const Wrong& add) {
       AddFunction(model, add, {"same", "t"});
       model.Node("Fn", kFunctionInputs, {"y", "unread"}, {}, "mine");
     },
     false, false},
    {"FunctionInABranch",
     [](TestModel& model, const Wrong& add) {
       AddFunction(model, add, {"t"});
       AddIf(model, "c", [](Nodes& nodes) { AddNode(nodes, "Fn", kFunctionInputs, {"t"}, {}, "mine"); });
     },
     false, true},
    // The rest of the graph lies in both branches of the If, and every run comes to it.
    {"BehindAnIfThatDecidesARank",
     [](TestModel& model, const Wrong& add) {
       GraphProto unsqueezed = Body(One("Unsqueeze", {"w4", "axis0"})), same = Body(One("Identity", {"w4"}));
       model.Node("If", {"c"}, {"v"}, {GraphAttribute("then_branch", unsqueezed), GraphAttribute("else_branch", same)});
       model.Node("ReduceSum", {"v"}, {"sum"}, {IntAttribute("keepdims", 0)});
       add(*model.graph().mutable_node());
       model.Node("Add", {"t", "sum"}, {"y"});
     },
     true, true},
};

std::string Answer(const LoadedProgram& program, bool c, int64_t trips) {
  VmContext context;
  const Tensor x = Tensor::Zeros(DType::kF32, Dims{2, 3}), condition = Tensor::Zeros(DType::kBool, Dims{}),
               count = Tensor::Of<int64_t>(DType::kI64, Dims{}, std::span(&trips, 1));
  *condition.ref.as<bool>() = c;
  const TensorRef inputs[] = {x.ref, condition.ref, count.ref};
  const auto outputs = context.Run(program, inputs);
  if (!outputs.has_value()) return outputs.error().message;
  return (*outputs)[0].dims() == x.dims() ? "x" : (*outputs)[0].dims().ToString();
}

TEST(UnreachedNodes, AWrongNodeFailsWhereItIsReached) {
  for (const WrongNode& wrong : kWrong)
    for (const Place& place : kPlaces) {
      SCOPED_TRACE(std::string(wrong.name) + ", " + place.name);
      TestModel model = Common(wrong);
      model.proto().add_opset_import()->set_domain("mine");
      place.build(model, wrong.add);
      model.Output("y");
      auto imported = model.Import(Hinted(wrong.hints));
      if (place.refused) {
        ASSERT_FALSE(imported.has_value());
        EXPECT_THAT(ToString(imported.error()), AllOf(HasSubstr("node 'it' ("), HasSubstr(wrong.message)));
        continue;
      }
      ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
      const auto program = LoadedProgram::Load(std::move(imported->program));
      ASSERT_TRUE(program.has_value()) << ToString(program.error());
      EXPECT_EQ(Answer(**program, false, 0), "x");
      if (place.reached) {
        EXPECT_THAT(Answer(**program, true, 1), AllOf(HasSubstr("\"it\""), HasSubstr(wrong.message)));
      } else {
        EXPECT_EQ(Answer(**program, true, 1), "x");
      }
    }
}

TEST(UnreachedNodes, ATensorBeyondTheLimitsIsAnErrorWhereItIsMade) {
  const Wrong too_large = [](Nodes& nodes) {
    const int64_t size = int64_t{1} << 40;
    AddNode(nodes, "Constant", {}, {"sizes"}, {IntsAttribute("value_ints", {size, size})});
    AddNode(nodes, "ConstantOfShape", {"sizes"}, {"t"});
  };
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    TestModel model = Common(kWrong[0]);
    model.proto().add_opset_import()->set_domain("mine");
    place.build(model, too_large);
    model.Output("y");
    auto imported = model.Import();
    ASSERT_EQ(imported.has_value(), !place.refused);
    if (place.refused) {
      EXPECT_THAT(ToString(imported.error()), HasSubstr("passes the limit"));
      continue;
    }
    const auto program = LoadedProgram::Load(std::move(imported->program));
    ASSERT_TRUE(program.has_value()) << ToString(program.error());
    EXPECT_EQ(Answer(**program, false, 0), "x");
    EXPECT_THAT(Answer(**program, true, 1), HasSubstr(place.reached ? "passes the limit" : "x"));
  }
}

// What has nothing to do with sizes is refused wherever it stands.
TEST(UnreachedNodes, ANodeThatDoesNotFollowItsOperatorIsRefusedEverywhere) {
  const std::map<const char*, Wrong> kForms = {
      {"not supported", One("NoSuchOperator", {"x"})},
      {"attribute 'no_such'", One("Relu", {"x"}, {IntAttribute("no_such", 1)})},
      {"does not follow the operator", One("MatMul", {"x"})},
      {"but input 1 is i64", One("MatMul", {"x", "to44"})},
      {"blocksize 0", One("DepthToSpace", {"x"}, {IntAttribute("blocksize", 0)})},
      {"is not defined", One("Relu", {"nowhere"})},
  };
  for (const auto& [message, add] : kForms)
    for (const Place& place : kPlaces) {
      if (place.name == std::string("BranchNeverTaken")) continue;  // its nodes are left out
      SCOPED_TRACE(std::string(message) + ", " + place.name);
      TestModel model = Common({.name = "", .add = add, .x = {1, 4, 2, 2}, .hints = {}, .message = ""});
      model.proto().add_opset_import()->set_domain("mine");
      place.build(model, add);
      model.Output("y");
      EXPECT_THAT(FailureOf(model, {}), HasSubstr(message));
    }
}

// --- what a message says of hints ---

TEST(HintsInMessages, NameOnlyWhatHasAPartInTheFailure) {
  struct Case {
    std::vector<TestDim> a, b;
    std::vector<std::string> hints, named, unnamed;
  };
  const Case kCases[] = {
      {{"a", 2}, {3}, {"a=1..4"}, {}, {"a=1..4"}},
      {{"a", "b"}, {3}, {"a=1..4", "b=4..8"}, {"b is limited by --dim b=4..8"}, {"a=1..4"}},
      {{"a", "b"}, {"c"}, {"a=1..4", "b=4..8", "c=9..12"}, {"--dim b=4..8", "--dim c=9..12"}, {"a=1..4"}},
  };
  for (const Case& one : kCases) {
    TestModel model(18);
    model.Input(Tensor32("x", one.a)).Input(Tensor32("z", one.b)).Node("Add", {"x", "z"}, {"y"}).Output("y");
    const std::string failure = FailureOf(model, one.hints);
    EXPECT_THAT(failure, HasSubstr("cannot broadcast"));
    for (const std::string& text : one.named) EXPECT_THAT(failure, HasSubstr(text));
    for (const std::string& text : one.unnamed) EXPECT_THAT(failure, Not(HasSubstr(text)));
  }
}

TEST(HintsInMessages, AppearOnceHoweverDeepTheNodeLies) {
  TestModel model = Common(kWrong[0]);
  model.proto().add_opset_import()->set_domain("mine");
  AddFunction(model, kWrong[0].add, {"t"});
  model.Node("Fn", kFunctionInputs, {"y"}, {}, "mine").Output("y");
  const std::string failure = FailureOf(model, {"k=1..3"});
  const size_t first = failure.find("--dim k=1..3");
  ASSERT_NE(first, std::string::npos) << failure;
  EXPECT_EQ(failure.find("--dim k=1..3", first + 1), std::string::npos) << failure;
}

// --- hints that meet on one dim ---

TEST(HintsOfOneDim, AgreeOrAreRefused) {
  struct Case {
    std::vector<std::string> hints;
    std::string failure;  // "" where they agree
    Interval range;
  };
  const Case kCases[] = {
      {{"n=2..4", "x.0=6..8"}, "cannot have both sizes: --dim x.0=6..8; --dim n=2..4", {}},
      {{"n=2..8", "x.0=2..4"}, "cannot have both sizes", {}},
      {{"n=2..8:2", "x.0=3"}, "cannot have both sizes", {}},
      {{"n=2..8", "x.0=4"}, "", {4, 4}},
      {{"n=4", "x.0=2..8"}, "", {4, 4}},
      {{"n=2..8", "x.0=2..8"}, "", {2, 8}},
  };
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.hints[0] + " " + one.hints[1]);
    TestModel model(18);
    model.Input(Tensor32("x", {"n", 3})).Node("Relu", {"x"}, {"y"}).Output("y");
    const auto imported = model.Import(Hinted(one.hints));
    ASSERT_EQ(imported.has_value(), one.failure.empty());
    if (imported.has_value()) {
      EXPECT_EQ(imported->program.symbols.Bounds((*imported->inputs[0].desc.dims)[0]), one.range);
    } else {
      EXPECT_THAT(imported.error().message, HasSubstr(one.failure));
    }
  }
}

TEST(HintsOfOneDim, ASymbolThatHasOneSizeIsSharedByInputs) {
  for (const char* hint : {"n=0..1:3", "n=0:3", "n=3:3", "n=1..4:3"}) {
    TestModel model(18);
    model.Input(Tensor32("x", {"n", 3})).Input(Tensor32("z", {"n", 3})).Node("Add", {"x", "z"}, {"y"}).Output("y");
    EXPECT_EQ(FailureOf(model, {hint}), "") << hint;
  }
}

}  // namespace
}  // namespace kiln::onnx
