// Operators that are imported as several ops, on tensors without elements: what is reshaped back keeps its sizes of 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using Shape = std::vector<int64_t>;

struct EmptyCase {
  std::string name;
  int64_t opset;
  std::string op;
  std::vector<Shape> inputs;  // f32 zeros
  std::vector<AttributeProto> attributes;
  std::vector<Shape> outputs;
};

Shape With(Shape shape, size_t at, int64_t size) {
  shape[at] = size;
  return shape;
}

void AddSoftmaxes(std::vector<EmptyCase>& cases) {
  const Shape full = {2, 3, 4};
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    for (const int64_t opset : {1, 11, 12, 13}) {
      for (int64_t axis = opset < 11 ? 0 : -3; axis < 3; ++axis) {
        for (size_t at = 0; at < full.size(); ++at) {
          const Shape shape = With(full, at, 0);
          cases.push_back({std::string(op) + std::to_string(opset) + " axis " + std::to_string(axis) + " without dim " +
                               std::to_string(at),
                           opset,
                           op,
                           {shape},
                           {IntAttribute("axis", axis)},
                           {shape}});
        }
      }
    }
  }
}

// Two query heads for each key and value head; head sizes 3 and 5.
void AddAttention(std::vector<EmptyCase>& cases) {
  for (const auto& [batch, queries, keys] :
       {std::tuple<int64_t, int64_t, int64_t>{0, 4, 6}, {2, 0, 6}, {2, 4, 0}, {2, 0, 0}, {0, 0, 0}}) {
    const std::string sizes = " " + std::to_string(batch) + "/" + std::to_string(queries) + "/" + std::to_string(keys);
    cases.push_back({"Attention by heads" + sizes,
                     23,
                     "Attention",
                     {{batch, 4, queries, 3}, {batch, 2, keys, 3}, {batch, 2, keys, 5}},
                     {},
                     {{batch, 4, queries, 5}}});
    cases.push_back({"Attention" + sizes,
                     23,
                     "Attention",
                     {{batch, queries, 12}, {batch, keys, 6}, {batch, keys, 10}},
                     {IntAttribute("q_num_heads", 4), IntAttribute("kv_num_heads", 2)},
                     {{batch, queries, 20}}});
  }
}

void AddOthers(std::vector<EmptyCase>& cases) {
  for (const auto& [batch, time] : {std::pair<int64_t, int64_t>{0, 3}, {2, 0}, {0, 0}}) {
    const std::string sizes = " " + std::to_string(batch) + "/" + std::to_string(time);
    for (const int64_t interleaved : {0, 1}) {
      cases.push_back({"RotaryEmbedding" + std::to_string(interleaved) + sizes,
                       23,
                       "RotaryEmbedding",
                       {{batch, time, 8}, {batch, time, 2}, {batch, time, 2}},
                       {IntAttribute("num_heads", 2), IntAttribute("interleaved", interleaved)},
                       {{batch, time, 8}}});
      cases.push_back({"RotaryEmbedding by heads" + std::to_string(interleaved) + sizes,
                       23,
                       "RotaryEmbedding",
                       {{batch, 2, time, 4}, {batch, time, 2}, {batch, time, 2}},
                       {IntAttribute("interleaved", interleaved)},
                       {{batch, 2, time, 4}}});
    }
    cases.push_back(
        {"LinearAttention" + sizes,
         27,
         "LinearAttention",
         {{batch, time, 12}, {batch, time, 6}, {batch, time, 10}},
         {IntAttribute("q_num_heads", 4), IntAttribute("kv_num_heads", 2), TextAttribute("update_rule", "linear")},
         {{batch, time, 20}}});
    cases.push_back({"GroupNormalization" + sizes,
                     18,
                     "GroupNormalization",
                     {{batch, 4, time}, {2}, {2}},
                     {IntAttribute("num_groups", 2)},
                     {{batch, 4, time}}});
  }
}

std::vector<EmptyCase> EmptyCases() {
  std::vector<EmptyCase> cases;
  AddSoftmaxes(cases);
  AddAttention(cases);
  AddOthers(cases);
  return cases;
}

TEST(EmptyInputs, OutputsKeepTheirSizesOfZero) {
  std::map<std::string, int> ran;
  for (const EmptyCase& test : EmptyCases()) {
    for (const bool dynamic : {false, true}) {
      SCOPED_TRACE(test.name + (dynamic ? " (sizes unknown at import)" : ""));
      TestModel model(test.opset);
      NodeProto& node = *model.graph().add_node();
      node.set_op_type(test.op);
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < test.inputs.size(); ++i) {
        const std::string name = "in" + std::to_string(i);
        model.Input(Tensor32(name, std::vector<TestDim>(test.inputs[i].begin(), test.inputs[i].end())));
        node.add_input(name);
        tensors.push_back(Tensor::Zeros(DType::kF32, Dims(std::span<const int64_t>(test.inputs[i]))));
      }
      for (const AttributeProto& attribute : test.attributes) *node.add_attribute() = attribute;
      for (size_t i = 0; i < test.outputs.size(); ++i) {
        node.add_output("out" + std::to_string(i));
        model.Output("out" + std::to_string(i));
      }
      auto imported = model.Import({.all_dims_dynamic = dynamic});
      ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
      const auto program = LoadedProgram::Load(std::move(imported->program));
      ASSERT_TRUE(program.has_value()) << ToString(program.error());
      std::vector<TensorRef> inputs;
      for (const Tensor& tensor : tensors) inputs.push_back(tensor.ref);
      VmContext context;
      const auto outputs = context.Run(**program, inputs);
      ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
      for (size_t i = 0; i < test.outputs.size(); ++i) {
        const Tensor& got = (*outputs)[i];
        EXPECT_EQ(std::vector<int64_t>(got.dims().begin(), got.dims().end()), test.outputs[i]);
        for (const float value : got.values<float>()) ASSERT_EQ(value, 0.0f);  // attention to no keys
      }
      ++ran[test.op];
    }
  }
  EXPECT_THAT(ran, testing::SizeIs(7));
  EXPECT_EQ(ran["Softmax"], 2 * 3 * (3 + 3 * 6));
}

}  // namespace
}  // namespace kiln::onnx
