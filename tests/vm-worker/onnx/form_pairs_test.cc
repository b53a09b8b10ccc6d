// Old forms of operators answer what their later forms answer, interpreted, as declared and with every dim a symbol.
#include "tests/vm-worker/onnx/form_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm-worker/interp/interpreter.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln::onnx {
namespace {

class FormPairs : public testing::TestWithParam<FormPair> {
 protected:
  static std::vector<Tensor> Answers(const OperatorForm& form, bool dynamic) {
    auto imported = GetParam().ModelOf(form).Import({.all_dims_dynamic = dynamic});
    EXPECT_TRUE(imported.has_value()) << "operator set " << form.opset << ": " << ToString(imported.error());
    if (!imported.has_value()) return {};
    const auto program = LoadedProgram::Load(std::move(imported->program));
    EXPECT_TRUE(program.has_value()) << ToString(program.error());
    if (!program.has_value()) return {};
    const std::vector<Tensor> data = GetParam().Inputs();
    std::vector<TensorRef> inputs;
    for (const Tensor& tensor : data) inputs.push_back(tensor.ref);
    auto outputs = VmContext().Run(**program, inputs);
    EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
    if (!outputs.has_value()) return {};
    for (Tensor& output : *outputs) output = MakeContiguous(output.ref);  // a context's memory ends with it
    return *std::move(outputs);
  }
};

TEST_P(FormPairs, AnswerAlike) {
  const std::vector<Tensor> later = Answers(GetParam().later_form, false);
  ASSERT_FALSE(later.empty());
  ExpectSameAnswers(Answers(GetParam().old_form, false), later);
  ExpectSameAnswers(Answers(GetParam().old_form, true), later);
}

INSTANTIATE_TEST_SUITE_P(All, FormPairs, testing::ValuesIn(AllFormPairs()),
                         [](const auto& info) { return info.param.name; });

struct Refused {
  const char* name;
  OperatorForm form;
  const char* reason;
};

TEST(OldForms, WhatTheyDoNotSayIsRefused) {
  const std::vector<std::string> normalized = {"x", "s", "s", "s", "s"};
  const Refused cases[] = {
      {"Dropout in training", {6, {{"Dropout", {"x"}, {IntAttribute("is_test", 0)}}}}, "training"},
      {"BatchNormalization in training",
       {6, {{"BatchNormalization", normalized, {IntAttribute("is_test", 0)}}}},
       "training"},
      {"Cast1 to strings", {1, {{"Cast", {"x"}, {TextAttribute("to", "STRING")}}}}, "attribute 'to' is 'STRING'"},
      {"Pad1 by a later name", {1, {{"Pad", {"x"}, {IntsAttribute("pads", {0, 0, 1, 1})}}}}, "attribute 'pads'"},
      {"Pad1 in a later mode",
       {1, {{"Pad", {"x"}, {IntsAttribute("paddings", {0, 0, 1, 1}), TextAttribute("mode", "wrap")}}}},
       "'wrap'"},
      {"LpPool1 without a window", {1, {{"LpPool", {"x"}}}}, "kernel_shape"},
      {"LpPool1 of power 0",
       {1, {{"LpPool", {"x"}, {IntsAttribute("kernel_shape", {1}), FloatAttribute("p", 0)}}}},
       "p is 0"},
      {"A slope per channel of x of unknown rank", {6, {{"PRelu", {"u", "s"}}}}, "known ranks"},
      {"Attention with a window below -1",
       {25, {{"Attention", {"q", "q", "q"}, {IntAttribute("left_window_size", -2)}}}},
       "at least -1"},
  };
  for (const Refused& refused : cases) {
    SCOPED_TRACE(refused.name);
    TestModel model(refused.form.opset);
    model.Input(Tensor32("x", {2, 3})).Input(Tensor32("s", {3})).Input(Tensor32("q", {1, 1, 2, 3}));
    ValueInfoProto unranked = Tensor32("u", {});
    unranked.mutable_type()->mutable_tensor_type()->clear_shape();
    model.Input(unranked);
    for (const FormNode& node : refused.form.nodes) {
      NodeProto& added = AddNode(*model.graph().mutable_node(), node.op, {}, {"y0"});
      for (const std::string& input : node.inputs) added.add_input(input);
      for (const AttributeProto& attribute : node.attributes) *added.add_attribute() = attribute;
    }
    const auto imported = model.Output("y0").Import();
    ASSERT_FALSE(imported.has_value());
    EXPECT_THAT(ToString(imported.error()), testing::HasSubstr(refused.reason));
  }
}

TEST(OldForms, TileRefusesAnAxisOutsideItsInput) {
  FormPair pair{.name = "",
                .data = {FloatTensor("x", {2}, {1, 2}), FloatTensor("n", {1}, {2}), FloatTensor("a", {1}, {1})}};
  const auto imported = pair.ModelOf({1, {{"Tile", {"x", "n", "a"}}}}).Import();
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const auto program = LoadedProgram::Load(imported->program);
  ASSERT_TRUE(program.has_value());
  const std::vector<Tensor> data = pair.Inputs();
  const std::vector<TensorRef> inputs = {data[0].ref, data[1].ref, data[2].ref};
  EXPECT_FALSE(VmContext().Run(**program, inputs).has_value());
}

}  // namespace
}  // namespace kiln::onnx
