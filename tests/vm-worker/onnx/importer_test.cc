#include "vm-worker/onnx/importer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/ops/tensor_op.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kI64Type = 7;
constexpr int32_t kBoolType = 9;

ImportedModel MustImport(const TestModel& model, const ImportOptions& options = {}) {
  auto imported = model.Import(options);
  EXPECT_TRUE(imported.has_value()) << ToString(imported.error());
  return imported.has_value() ? *std::move(imported) : ImportedModel{};
}

Error MustFail(const TestModel& model) {
  auto imported = model.Import();
  EXPECT_FALSE(imported.has_value());
  return imported.has_value() ? Error{ErrorCode::kInternal, "it was imported", {}} : imported.error();
}

TEST(ImportOnnx, EqualDimNamesAmongInputsAreOneSymbol) {
  TestModel model(13);
  model.Input(Tensor32("a", {"n", 4}))
      .Input(Tensor32("b", {"n", ""}))
      .Node("Relu", {"a"}, {"y"})
      .Node("Relu", {"b"}, {"z"});
  model.Output("y").Output("z");
  const ImportedModel imported = MustImport(model);
  ASSERT_EQ(imported.inputs.size(), 2u);
  EXPECT_EQ((*imported.inputs[0].desc.dims)[0], (*imported.inputs[1].desc.dims)[0]);
  EXPECT_EQ((*imported.inputs[0].desc.dims)[1], Dim::Const(4));
  EXPECT_FALSE((*imported.inputs[1].desc.dims)[1].is_const());
  EXPECT_EQ(imported.outputs[0].name, "y");
  EXPECT_EQ(imported.outputs[0].desc.dims, imported.inputs[0].desc.dims);
  EXPECT_EQ(imported.opset, 13);
}

TEST(ImportOnnx, DynamicFormHasOneSymbolPerDimAndKeepsLengthsThatDetermineARank) {
  TestModel model(13);
  model.Input(Tensor32("x", {2, 6})).Input(Tensor32("shape", {3}, kI64Type));
  model.Node("Reshape", {"x", "shape"}, {"y"}).Output("y");
  const ImportedModel imported = MustImport(model, ImportOptions{.all_dims_dynamic = true});
  EXPECT_FALSE((*imported.inputs[0].desc.dims)[0].is_const());
  EXPECT_FALSE((*imported.inputs[0].desc.dims)[1].is_const());
  EXPECT_NE((*imported.inputs[0].desc.dims)[0], (*imported.inputs[0].desc.dims)[1]);
  EXPECT_EQ((*imported.inputs[1].desc.dims)[0], Dim::Const(3));
  EXPECT_EQ(imported.outputs[0].desc.rank(), 3);
}

TEST(ImportOnnx, FoldsShapeArithmeticIntoExpressionsOfInputDims) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n", "m", 8}))
      .Initializer(IntTensor("one", {1}, {1}))
      .Initializer(IntTensor("two", {1}, {2}));
  model.Initializer(IntTensor("rest", {1}, {-1}));
  model.Node("Shape", {"x"}, {"s"}).Node("Gather", {"s", "one"}, {"m"}).Node("Mul", {"m", "two"}, {"m2"});
  model.Node("Concat", {"m2", "rest"}, {"target"}, {IntAttribute("axis", 0)});
  model.Node("Reshape", {"x", "target"}, {"y"}).Output("y");
  const ImportedModel imported = MustImport(model);
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kShape), 0);
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kGather), 0);
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kConcat), 0);
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kShapeVector), 1);
  EXPECT_EQ(DescText(imported, imported.outputs[0]).substr(0, 9), "f32[2*m, ");
}

TEST(ImportOnnx, InitializersListedAsInputsAreConstantsAndReported) {
  TestModel model(8);
  model.Input(Tensor32("x", {2})).Input(Tensor32("w", {2})).Initializer(FloatTensor("w", {2}, {1, 2}));
  model.Node("Add", {"x", "w"}, {"y"}).Output("y");
  const ImportedModel imported = MustImport(model);
  ASSERT_EQ(imported.inputs.size(), 1u);
  EXPECT_EQ(imported.inputs[0].name, "x");
  ASSERT_EQ(imported.overridable.size(), 1u);
  EXPECT_EQ(imported.overridable[0].name, "w");
  EXPECT_EQ(imported.overridable[0].text, "f32[2]");
}

TEST(ImportOnnx, AnOverriddenInitializerIsAnInputWithTheSizesThatItDeclares) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n", 2})).Input(Tensor32("w", {"k", 2}));
  model.Initializer(FloatTensor("w", {1, 2}, {1, 2}));
  model.Node("Add", {"x", "w"}, {"y"}).Output("y");
  const ImportedModel as_is = MustImport(model);
  EXPECT_EQ(as_is.inputs.size(), 1u);
  EXPECT_EQ(as_is.overridable.at(0).text, "f32[k, 2]");
  EXPECT_EQ(as_is.overridable.at(0).dims, (std::vector<int64_t>{-1, 2}));

  const auto overridden = model.Import({.overrides = {"w"}});
  ASSERT_TRUE(overridden.has_value()) << ToString(overridden.error());
  ASSERT_EQ(overridden->inputs.size(), 2u);
  EXPECT_EQ(overridden->inputs[1].name, "w");
  EXPECT_EQ(DescText(*overridden, overridden->inputs[1]), "f32[k, 2]");
  EXPECT_TRUE(overridden->overridable.empty());
}

TEST(ImportOnnx, WhatCannotBeOverriddenIsNamed) {
  TestModel model(13);
  model.Input(Tensor32("x", {2})).Input(Tensor32("w", {2})).Initializer(FloatTensor("w", {2}, {1, 2}));
  model.Initializer(FloatTensor("inner", {2}, {1, 2}));
  model.Node("Add", {"x", "w"}, {"z"}).Node("Add", {"z", "inner"}, {"y"}).Output("y");
  for (const std::string name : {"x", "inner", "nothing"}) {
    const auto imported = model.Import({.overrides = {name}});
    ASSERT_FALSE(imported.has_value()) << name;
    EXPECT_THAT(imported.error().message, ::testing::HasSubstr("'" + name + "' cannot be overridden"));
  }
  model.proto().set_ir_version(3);
  EXPECT_TRUE(MustImport(model).overridable.empty()) << "every initialiser had to be an input then";
  EXPECT_THAT(model.Import({.overrides = {"w"}}).error().message, ::testing::HasSubstr("format version 3"));
}

TEST(ImportOnnx, OutputNamesSurviveAliasesInputsAndDuplicates) {
  TestModel model(13);
  model.Input(Tensor32("x", {2}));
  model.Node("Relu", {"x"}, {"r"}).Node("Identity", {"r"}, {"first"}).Node("Identity", {"r"}, {"second"});
  model.Node("Identity", {"x"}, {"through"});
  model.Output("first").Output("second").Output("through");
  const ImportedModel imported = MustImport(model);
  ASSERT_EQ(imported.outputs.size(), 3u);
  EXPECT_EQ(imported.outputs[0].name, "first");
  EXPECT_EQ(imported.outputs[1].name, "second");
  EXPECT_EQ(imported.outputs[2].name, "through");
  EXPECT_EQ(imported.inputs[0].name, "x");
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kRelu), 1);
}

TEST(ImportOnnx, OrdersNodesAndRejectsCyclesAndMissingValues) {
  TestModel unsorted(13);
  unsorted.Input(Tensor32("x", {2})).Node("Neg", {"a"}, {"y"}).Node("Relu", {"x"}, {"a"}).Output("y");
  EXPECT_EQ(CountNodes(MustImport(unsorted).program, TensorOp::kNeg), 1);

  TestModel cyclic(13);
  cyclic.Input(Tensor32("x", {2})).Node("Add", {"x", "b"}, {"a"}).Node("Relu", {"a"}, {"b"}).Output("b");
  EXPECT_EQ(MustFail(cyclic).code, ErrorCode::kMalformed);

  TestModel missing(13);
  missing.Input(Tensor32("x", {2})).Node("Add", {"x", "nowhere"}, {"y"}).Output("y");
  EXPECT_THAT(MustFail(missing).message, HasSubstr("'nowhere'"));

  TestModel no_output(13);
  no_output.Input(Tensor32("x", {2})).Node("Relu", {"x"}, {"a"}).Output("y");
  EXPECT_THAT(MustFail(no_output).message, HasSubstr("output 'y'"));

  TestModel twice(13);
  twice.Input(Tensor32("x", {2})).Node("Relu", {"x"}, {"a"}).Node("Neg", {"x"}, {"a"}).Output("a");
  EXPECT_THAT(MustFail(twice).message, HasSubstr("defined twice"));
}

TEST(ImportOnnx, LastOfSeveralConstantsOfOneNameCounts) {
  TestModel model(13);
  model.Node("Constant", {}, {"c"}, {IntAttribute("value_int", 1)});
  model.Node("Constant", {}, {"c"}, {IntAttribute("value_int", 2)}).Output("c");
  const ImportedModel imported = MustImport(model);
  const Tensor* constant = ConstantOutput(imported.program, 0);
  ASSERT_NE(constant, nullptr);
  EXPECT_EQ(constant->values<int64_t>()[0], 2);
}

TEST(ImportOnnx, RejectsTensorsWhoseDataDisagreesWithTheirShape) {
  TestModel short_data(13);
  short_data.Input(Tensor32("x", {2}))
      .Initializer(FloatTensor("w", {3}, {1, 2}))
      .Node("Add", {"x", "w"}, {"y"})
      .Output("y");
  const Error error = MustFail(short_data);
  EXPECT_EQ(error.code, ErrorCode::kMalformed);
  EXPECT_THAT(error.message, HasSubstr("'w'"));

  TestModel overflow(13);
  overflow.Input(Tensor32("x", {2}))
      .Initializer(FloatTensor("w", {int64_t{1} << 62, 16}, {1}))
      .Node("Add", {"x", "w"}, {"y"})
      .Output("y");
  EXPECT_EQ(MustFail(overflow).code, ErrorCode::kLimitExceeded);

  TestModel negative(13);
  negative.Input(Tensor32("x", {2})).Initializer(FloatTensor("w", {-1}, {})).Node("Add", {"x", "w"}, {"y"}).Output("y");
  EXPECT_FALSE(negative.Import().has_value());
}

// --- functions ---

void AddScaleFunction(TestModel& model, std::string_view domain) {
  FunctionProto& function = *model.proto().add_functions();
  function.set_name("Scale");
  function.set_domain(std::string(domain));
  function.add_input("v");
  function.add_output("r");
  *function.add_attribute_proto() = FloatAttribute("by", 2);
  OperatorSetIdProto& import = *function.add_opset_import();
  import.set_domain("");
  import.set_version(13);
  AddNode(*function.mutable_node(), "Constant", {}, {"c"}, {ReferenceAttribute("value_float", "by")});
  AddNode(*function.mutable_node(), "Mul", {"v", "c"}, {"r"});
}

TEST(ImportOnnx, InlinesFunctionsWithAttributesAndDefaults) {
  TestModel model(13);
  AddScaleFunction(model, "local");
  model.Initializer(FloatTensor("x", {1}, {3}));
  model.Node("Scale", {"x"}, {"a"}, {}, "local")
      .Node("Scale", {"a"}, {"y"}, {FloatAttribute("by", 5)}, "local")
      .Output("y");
  const ImportedModel imported = MustImport(model);
  const Tensor* result = ConstantOutput(imported.program, 0);
  ASSERT_NE(result, nullptr);
  EXPECT_FLOAT_EQ(result->values<float>()[0], 30);
}

TEST(ImportOnnx, RejectsFunctionsThatCallThemselves) {
  TestModel model(13);
  FunctionProto& function = *model.proto().add_functions();
  function.set_name("Again");
  function.set_domain("local");
  function.add_input("v");
  function.add_output("r");
  AddNode(*function.mutable_node(), "Again", {"v"}, {"r"}, {}, "local");
  model.Input(Tensor32("x", {1})).Node("Again", {"x"}, {"y"}, {}, "local").Output("y");
  EXPECT_EQ(MustFail(model).code, ErrorCode::kLimitExceeded);
}

TEST(ImportOnnx, BoundsTheExpansionOfNestedFunctions) {
  TestModel model(13);
  constexpr int kLevels = 30;
  for (int level = 0; level < kLevels; ++level) {
    FunctionProto& function = *model.proto().add_functions();
    function.set_name("F" + std::to_string(level));
    function.set_domain("local");
    function.add_input("v");
    function.add_output("r");
    const std::string callee = level == 0 ? "Identity" : "F" + std::to_string(level - 1);
    const std::string domain = level == 0 ? "" : "local";
    AddNode(*function.mutable_node(), callee, {"v"}, {"t"}, {}, domain);
    AddNode(*function.mutable_node(), callee, {"t"}, {"r"}, {}, domain);
  }
  model.Input(Tensor32("x", {1})).Node("F" + std::to_string(kLevels - 1), {"x"}, {"y"}, {}, "local").Output("y");
  EXPECT_EQ(MustFail(model).code, ErrorCode::kLimitExceeded);
}

// --- control flow ---

GraphProto BranchGivingUnsqueezed(bool unsqueeze) {
  GraphProto graph;
  if (unsqueeze) {
    *graph.add_initializer() = IntTensor("axis", {1}, {0});
    AddNode(*graph.mutable_node(), "Unsqueeze", {"x", "axis"}, {"branch_out"});
  } else {
    AddNode(*graph.mutable_node(), "Identity", {"x"}, {"branch_out"});
  }
  graph.add_output()->set_name("branch_out");
  return graph;
}

TEST(ImportOnnx, IfBranchesOfDifferentRankMergeToUnknownRank) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n"})).Input(Tensor32("c", {}, kBoolType));
  model.Node("If", {"c"}, {"y"},
             {GraphAttribute("then_branch", BranchGivingUnsqueezed(true)),
              GraphAttribute("else_branch", BranchGivingUnsqueezed(false))});
  model.Output("y");
  const ImportedModel imported = MustImport(model);
  EXPECT_FALSE(imported.outputs[0].desc.has_rank());
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kIf), 1);
}

// squeeze(x, 1) as it is exported, then `op`.
TestModel SqueezedThen(std::string_view op, std::initializer_list<std::string> inputs) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n", "t", 4})).Input(Tensor32("c", {}, kBoolType));
  model.Initializer(FloatTensor("w", {4, 2}, std::vector<float>(8, 0.5f)));
  GraphProto squeeze;
  *squeeze.add_initializer() = IntTensor("axis", {1}, {1});
  AddNode(*squeeze.mutable_node(), "Squeeze", {"x", "axis"}, {"branch_out"});
  squeeze.add_output()->set_name("branch_out");
  GraphProto same;
  AddNode(*same.mutable_node(), "Identity", {"x"}, {"branch_out"});
  same.add_output()->set_name("branch_out");
  model.Node("If", {"c"}, {"v"}, {GraphAttribute("then_branch", squeeze), GraphAttribute("else_branch", same)});
  model.Node(op, inputs, {"p"}).Node("Relu", {"p"}, {"y"}).Output("y");
  return model;
}

std::vector<int> RanksOfInputs(const Program& program, TensorOp op) {
  std::vector<int> ranks;
  for (const Region& region : program.entry().regions) {
    for (const Node& node : region.nodes) {
      const TensorDesc& desc = program.entry().values[static_cast<size_t>(node.op == op ? node.inputs[0] : 0)].desc;
      if (node.op == op) ranks.push_back(desc.has_rank() ? desc.rank() : -1);
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

TEST(ImportOnnx, WhatFollowsAnIfOfTwoRanksIsImportedWithEach) {
  const ImportedModel imported = MustImport(SqueezedThen("MatMul", {"v", "w"}));
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kIf), 1);
  EXPECT_THAT(RanksOfInputs(imported.program, TensorOp::kMatMul), ::testing::ElementsAre(2, 3));
  EXPECT_EQ(imported.outputs[0].name, "y");
}

TEST(ImportOnnx, ARankThatWhatFollowsRefusesStaysAnErrorOfTheRun) {
  const ImportedModel imported = MustImport(SqueezedThen("Gemm", {"v", "w"}));
  EXPECT_EQ(CountNodes(imported.program, TensorOp::kIf), 2);  // the else branch has the whole If, and reports
  EXPECT_THAT(RanksOfInputs(imported.program, TensorOp::kGemm), ::testing::ElementsAre(-1, 2));
}

TEST(ImportOnnx, IfWithAKnownConditionLeavesItsBranch) {
  for (const bool condition : {false, true}) {
    TestModel model(13);
    model.Input(Tensor32("x", {"n"})).Initializer(BoolTensor("c", {}, {condition}));
    model.Node("If", {"c"}, {"y"},
               {GraphAttribute("then_branch", BranchGivingUnsqueezed(true)),
                GraphAttribute("else_branch", BranchGivingUnsqueezed(false))});
    model.Output("y");
    const ImportedModel imported = MustImport(model);
    EXPECT_EQ(CountNodes(imported.program, TensorOp::kIf), 0);
    EXPECT_EQ(imported.outputs[0].desc.rank(), condition ? 2 : 1);
  }
}

// state = Concat(state, x), and the iteration number as a scan output.
GraphProto GrowingBody() {
  GraphProto body;
  *body.add_input() = Tensor32("i", {}, kI64Type);
  *body.add_input() = Tensor32("keep", {}, kBoolType);
  body.add_input()->set_name("state");
  AddNode(*body.mutable_node(), "Concat", {"state", "x"}, {"grown"}, {IntAttribute("axis", 0)});
  AddNode(*body.mutable_node(), "Identity", {"i"}, {"index"});
  for (const char* output : {"keep", "grown", "index"}) body.add_output()->set_name(output);
  return body;
}

TEST(ImportOnnx, LoopStateThatChangesShapeGetsASymbolAndTheRestStays) {
  TestModel model(13);
  model.Input(Tensor32("x", {"n", 3})).Input(Tensor32("trips", {}, kI64Type));
  model.Node("Loop", {"trips", "", "x"}, {"y", "indices"}, {GraphAttribute("body", GrowingBody())});
  model.Output("y").Output("indices");
  const ImportedModel imported = MustImport(model);
  const TensorDesc& state = imported.outputs[0].desc;
  ASSERT_EQ(state.rank(), 2);
  EXPECT_FALSE((*state.dims)[0].is_const());
  EXPECT_NE((*state.dims)[0], (*imported.inputs[0].desc.dims)[0]);
  EXPECT_EQ((*state.dims)[1], Dim::Const(3));
  EXPECT_EQ(imported.outputs[1].desc.dtype, DType::kI64);
  EXPECT_EQ(imported.outputs[1].desc.rank(), 1);
}

TEST(ImportOnnx, ScanOutputsHaveTheLengthOfTheScanInputs) {
  GraphProto body;
  body.add_input()->set_name("sum");
  body.add_input()->set_name("row");
  AddNode(*body.mutable_node(), "Add", {"sum", "row"}, {"next"});
  AddNode(*body.mutable_node(), "Identity", {"next"}, {"partial"});
  body.add_output()->set_name("next");
  body.add_output()->set_name("partial");
  TestModel model(13);
  model.Input(Tensor32("start", {4})).Input(Tensor32("rows", {"t", 4}));
  model.Node("Scan", {"start", "rows"}, {"total", "partials"},
             {GraphAttribute("body", body), IntAttribute("num_scan_inputs", 1)});
  model.Output("total").Output("partials");
  const ImportedModel imported = MustImport(model);
  EXPECT_EQ(DescText(imported, imported.outputs[0]), "f32[4]");
  EXPECT_EQ(DescText(imported, imported.outputs[1]), "f32[t, 4]");
}

}  // namespace
}  // namespace kiln::onnx
