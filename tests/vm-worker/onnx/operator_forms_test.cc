// Every old form of an operator gives what its newest form gives. The models have constants only, so that import folds
// the result, and its value can be read from the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ops/tensor_op.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {
namespace {

using testing::ElementsAreArray;
using testing::FloatNear;
using testing::Pointwise;

struct FormCase {
  std::string name;
  int64_t opset;
  std::string op;
  std::vector<TensorProto> inputs;
  std::vector<AttributeProto> attributes;
  std::vector<int64_t> dims;  // of output 0
  std::vector<float> values;
  int outputs = 1;
};

TensorProto Matrix() {
  return FloatTensor("x", {2, 3}, {1, 2, 3, 4, 5, 6});
}
TensorProto Ramp(std::vector<int64_t> dims) {
  std::vector<float> values;
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return FloatTensor("x", std::move(dims), std::move(values));
}

using FormCases = std::vector<FormCase>;

FormCases Movement() {
  return {
      {"Slice1",
       9,
       "Slice",
       {Matrix()},
       {IntsAttribute("starts", {1}), IntsAttribute("ends", {3}), IntsAttribute("axes", {1})},
       {2, 2},
       {2, 3, 5, 6}},
      {"Slice1WithoutAxes",
       9,
       "Slice",
       {Matrix()},
       {IntsAttribute("starts", {0, -1}), IntsAttribute("ends", {1, 100})},
       {1, 1},
       {3}},
      {"Squeeze1", 11, "Squeeze", {Ramp({1, 3, 1})}, {IntsAttribute("axes", {0})}, {3, 1}, {0, 1, 2}},
      {"Squeeze1All", 11, "Squeeze", {Ramp({1, 3, 1})}, {}, {3}, {0, 1, 2}},
      {"Unsqueeze1", 11, "Unsqueeze", {Ramp({3})}, {IntsAttribute("axes", {0, 2})}, {1, 3, 1}, {0, 1, 2}},
      {"Split2", 11, "Split", {Ramp({5})}, {IntsAttribute("split", {2, 3})}, {2}, {0, 1}, 2},
      {"Split13Equal", 13, "Split", {Ramp({4})}, {}, {2}, {0, 1}, 2},
      {"Split18Uneven", 18, "Split", {Ramp({5})}, {IntAttribute("num_outputs", 2)}, {3}, {0, 1, 2}, 2},
      {"Pad2",
       10,
       "Pad",
       {Ramp({2})},
       {IntsAttribute("pads", {1, 2}), FloatAttribute("value", 9)},
       {5},
       {9, 0, 1, 9, 9}},
      {"TopK1", 9, "TopK", {Matrix()}, {IntAttribute("k", 1)}, {2, 1}, {3, 6}, 2},
      {"TopK10", 10, "TopK", {Matrix(), IntTensor("k", {1}, {2})}, {IntAttribute("axis", 1)}, {2, 2}, {3, 2, 6, 5}, 2},
      {"Scatter9", 9, "Scatter", {Ramp({3}), IntTensor("i", {1}, {1}), FloatTensor("u", {1}, {9})}, {}, {3}, {0, 9, 2}},
  };
}

FormCases Resizes() {
  return {
      {"Upsample7",
       8,
       "Upsample",
       {Ramp({1, 1, 1, 2})},
       {FloatsAttribute("scales", {1, 1, 1, 2})},
       {1, 1, 1, 4},
       {0, 0, 1, 1}},
      {"Upsample9",
       9,
       "Upsample",
       {Ramp({1, 1, 1, 2}), FloatTensor("s", {4}, {1, 1, 2, 1})},
       {},
       {1, 1, 2, 2},
       {0, 1, 0, 1}},
      {"Resize10",
       10,
       "Resize",
       {Ramp({1, 1, 1, 4}), FloatTensor("s", {4}, {1, 1, 1, 0.5f})},
       {},
       {1, 1, 1, 2},
       {0, 2}},
      {"Resize11EmptyRoiAndScales",
       11,
       "Resize",
       {Ramp({1, 1, 1, 2}), FloatTensor("r", {0}, {}), FloatTensor("s", {0}, {}), IntTensor("z", {4}, {1, 1, 1, 4})},
       {TextAttribute("mode", "nearest"), TextAttribute("coordinate_transformation_mode", "asymmetric"),
        TextAttribute("nearest_mode", "floor")},
       {1, 1, 1, 4},
       {0, 0, 1, 1}},
  };
}

FormCases Arithmetic() {
  return {
      {"Add1WithAHintAboutMemory",
       1,
       "Add",
       {Ramp({2}), FloatTensor("y", {2}, {3, 4})},
       {IntsAttribute("consumed_inputs", {0, 0})},
       {2},
       {3, 5}},
      {"Clip6",
       10,
       "Clip",
       {Matrix()},
       {FloatAttribute("min", 2), FloatAttribute("max", 4)},
       {2, 3},
       {2, 2, 3, 4, 4, 4}},
      {"Clip6OnlyMax", 10, "Clip", {Matrix()}, {FloatAttribute("max", 2)}, {2, 3}, {1, 2, 2, 2, 2, 2}},
      {"Add6Axis",
       6,
       "Add",
       {Matrix(), FloatTensor("b", {2}, {10, 20})},
       {IntAttribute("broadcast", 1), IntAttribute("axis", 0)},
       {2, 3},
       {11, 12, 13, 24, 25, 26}},
      {"Mul6Suffix",
       6,
       "Mul",
       {Matrix(), FloatTensor("b", {3}, {1, 0, 2})},
       {IntAttribute("broadcast", 1)},
       {2, 3},
       {1, 0, 6, 4, 0, 12}},
      {"PRelu6PerChannel",
       6,
       "PRelu",
       {FloatTensor("x", {1, 2, 2}, {-1, 1, -1, 1}), FloatTensor("s", {2}, {2, 3})},
       {},
       {1, 2, 2},
       {-2, 1, -3, 1}},
      {"Gemm6",
       6,
       "Gemm",
       {Matrix(), FloatTensor("b", {3, 1}, {1, 1, 1}), FloatTensor("c", {1}, {1})},
       {IntAttribute("broadcast", 1)},
       {2, 1},
       {7, 16}},
      {"Dropout12", 12, "Dropout", {Matrix()}, {}, {2, 3}, {1, 2, 3, 4, 5, 6}, 2},
      {"CastLike", 15, "CastLike", {IntTensor("x", {2}, {1, 2}), FloatTensor("t", {1}, {0})}, {}, {2}, {1, 2}},
      {"ConstantFloats", 12, "Constant", {}, {FloatsAttribute("value_floats", {1, 2})}, {2}, {1, 2}},
      {"ConstantOfShape",
       9,
       "ConstantOfShape",
       {IntTensor("s", {2}, {1, 2})},
       {TensorAttribute("value", FloatTensor("", {1}, {3}))},
       {1, 2},
       {3, 3}},
      {"Swish", 24, "Swish", {FloatTensor("x", {2}, {0, 1})}, {FloatAttribute("alpha", 0)}, {2}, {0, 0.5f}},
  };
}

FormCases Reductions() {
  return {
      {"ReduceSum1",
       11,
       "ReduceSum",
       {Matrix()},
       {IntsAttribute("axes", {1}), IntAttribute("keepdims", 0)},
       {2},
       {6, 15}},
      {"ReduceSum13",
       13,
       "ReduceSum",
       {Matrix(), IntTensor("a", {1}, {1})},
       {IntAttribute("keepdims", 0)},
       {2},
       {6, 15}},
      {"ReduceMean1", 17, "ReduceMean", {Matrix()}, {IntsAttribute("axes", {-1})}, {2, 1}, {2, 5}},
      {"ReduceMax1All", 12, "ReduceMax", {Matrix()}, {IntAttribute("keepdims", 0)}, {}, {6}},
      {"GlobalLpPool", 7, "GlobalLpPool", {FloatTensor("x", {1, 1, 2, 1}, {3, 4})}, {}, {1, 1, 1, 1}, {5}},
      {"GlobalLpPoolOfThirdPowers",
       7,
       "GlobalLpPool",
       {FloatTensor("x", {1, 1, 3}, {3, -4, 5})},
       {IntAttribute("p", 3)},
       {1, 1, 1},
       {6}},
      {"Softmax1FlattensRows",
       11,
       "Softmax",
       {FloatTensor("x", {1, 2, 2}, {0, 0, 0, 0})},
       {},
       {1, 2, 2},
       {0.25f, 0.25f, 0.25f, 0.25f}},
      {"Softmax13LastAxis",
       13,
       "Softmax",
       {FloatTensor("x", {1, 2, 2}, {0, 0, 0, 0})},
       {},
       {1, 2, 2},
       {0.5f, 0.5f, 0.5f, 0.5f}},
      {"Hardmax1FlattensRows",
       12,
       "Hardmax",
       {FloatTensor("x", {1, 2, 2}, {1, 4, 2, 3})},
       {IntAttribute("axis", 1)},
       {1, 2, 2},
       {0, 1, 0, 0}},
  };
}

FormCases Normalizations() {
  return {
      {"BatchNormalization7PerActivation",
       7,
       "BatchNormalization",
       {FloatTensor("x", {2, 1, 2}, {3, 5, 7, 9}), FloatTensor("s", {1, 2}, {1, 2}), FloatTensor("b", {1, 2}, {0, 1}),
        FloatTensor("m", {1, 2}, {1, 2}), FloatTensor("v", {1, 2}, {4, 9})},
       {FloatAttribute("epsilon", 0), IntAttribute("spatial", 0)},
       {2, 1, 2},
       {1, 3, 3, 17.0f / 3}},
      {"BatchNormalization9",
       9,
       "BatchNormalization",
       {FloatTensor("x", {1, 2, 1}, {3, 5}), FloatTensor("s", {2}, {1, 2}), FloatTensor("b", {2}, {0, 1}),
        FloatTensor("m", {2}, {1, 1}), FloatTensor("v", {2}, {4, 4})},
       {FloatAttribute("epsilon", 0)},
       {1, 2, 1},
       {1, 5}},
      {"BatchNormalization15Training",
       15,
       "BatchNormalization",
       {FloatTensor("x", {2, 1, 1}, {1, 3}), FloatTensor("s", {1}, {1}), FloatTensor("b", {1}, {0}),
        FloatTensor("m", {1}, {7}), FloatTensor("v", {1}, {7})},
       {FloatAttribute("epsilon", 0), IntAttribute("training_mode", 1)},
       {2, 1, 1},
       {-1, 1},
       3},
      {"GroupNormalization18PerGroup",
       18,
       "GroupNormalization",
       {FloatTensor("x", {1, 4, 1}, {1, 3, 2, 6}), FloatTensor("s", {2}, {1, 2}), FloatTensor("b", {2}, {0, 1})},
       {FloatAttribute("epsilon", 0), IntAttribute("num_groups", 2)},
       {1, 4, 1},
       {-1, 1, -1, 3}},
  };
}

FormCases AllFormCases() {
  FormCases all;
  for (const auto& group : {Movement(), Resizes(), Arithmetic(), Reductions(), Normalizations()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

class OperatorForm : public testing::TestWithParam<FormCase> {};

TEST_P(OperatorForm, GivesTheNewestFormsValues) {
  const FormCase& form = GetParam();
  TestModel model(form.opset);
  NodeProto& node = *model.graph().add_node();
  node.set_op_type(form.op);
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    TensorProto input = form.inputs[i];
    input.set_name("in" + std::to_string(i));
    node.add_input(input.name());
    model.Initializer(input);
  }
  for (const AttributeProto& attribute : form.attributes) *node.add_attribute() = attribute;
  for (int i = 0; i < form.outputs; ++i) node.add_output("out" + std::to_string(i));
  model.Output("out0");
  const auto imported = model.Import();
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const Tensor* result = ConstantOutput(imported->program, 0);
  ASSERT_NE(result, nullptr) << "the result was not folded";
  EXPECT_THAT(std::vector<int64_t>(result->dims().begin(), result->dims().end()), ElementsAreArray(form.dims));
  ASSERT_EQ(result->dtype(), DType::kF32);
  EXPECT_THAT(result->values<float>(), Pointwise(FloatNear(1e-5f), form.values));
}

INSTANTIATE_TEST_SUITE_P(All, OperatorForm, testing::ValuesIn(AllFormCases()),
                         [](const auto& info) { return info.param.name; });

TEST(OperatorForm, RejectsAnAttributeTheFormDoesNotHave) {
  TestModel model(13);
  model.Input(Tensor32("x", {2})).Node("Relu", {"x"}, {"y"}, {FloatAttribute("alpha", 1)}).Output("y");
  const auto imported = model.Import();
  ASSERT_FALSE(imported.has_value());
  EXPECT_THAT(imported.error().message, testing::HasSubstr("attribute 'alpha'"));
}

TEST(OperatorForm, NamesNodeOperatorDomainAndOpsetOfWhatIsUnknown) {
  TestModel model(13);
  model.Input(Tensor32("x", {2}));
  model.Node("Frobnicate", {"x"}, {"y"}, {}, "example.org").Output("y");
  model.graph().mutable_node(0)->set_name("node7");
  const auto imported = model.Import();
  ASSERT_FALSE(imported.has_value());
  EXPECT_EQ(imported.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(imported.error().message, testing::HasSubstr("node 'node7' (Frobnicate, example.org"));
}

TEST(OperatorForm, RejectsAnOpsetOutsideTheSupportedSpan) {
  for (int64_t opset : {kOnnxOpsetMin - 1, kOnnxOpsetMax + 1}) {
    TestModel model(opset);
    model.Input(Tensor32("x", {2})).Node("Relu", {"x"}, {"y"}).Output("y");
    const auto imported = model.Import();
    ASSERT_FALSE(imported.has_value());
    EXPECT_EQ(imported.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(imported.error().message, testing::HasSubstr(std::to_string(opset)));
  }
}

}  // namespace
}  // namespace kiln::onnx
