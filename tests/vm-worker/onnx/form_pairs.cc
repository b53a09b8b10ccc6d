#include "tests/vm-worker/onnx/form_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/numeric/difference.h"
#include "vm-worker/onnx/file_weights.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::onnx {

TestModel FormPair::ModelOf(const OperatorForm& form) const {
  TestModel model(form.opset);
  for (const TensorProto& tensor : data) {
    model.Input(Tensor32(tensor.name(), {tensor.dims().begin(), tensor.dims().end()}, tensor.data_type()));
  }
  for (const TensorProto& tensor : form.constants) model.Initializer(tensor);
  for (const FormNode& node : form.nodes) {
    NodeProto& added = AddNode(*model.graph().mutable_node(), node.op, {}, {});
    for (const std::string& input : node.inputs) added.add_input(input);
    for (const std::string& output : node.outputs) added.add_output(output);
    for (const AttributeProto& attribute : node.attributes) *added.add_attribute() = attribute;
  }
  for (const std::string& output : outputs) model.Output(output);
  return model;
}

std::vector<Tensor> FormPair::Inputs() const {
  std::vector<Tensor> inputs;
  WeightFiles none;
  for (TensorProto tensor : data) {
    auto read = ReadTensor(tensor, none);
    EXPECT_TRUE(read.has_value());
    inputs.push_back(*std::move(read));
  }
  return inputs;
}

void ExpectSameAnswers(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool half = expected[i].dtype() == DType::kF16;
    const ErrorBound bound{.scope = ErrorScope::kElement, .relative = half ? 2e-3 : 1e-5, .tiny = half ? 1e-3 : 1e-6};
    const auto difference = FirstDifference(expected[i].ref, got[i].ref, bound);
    EXPECT_FALSE(difference.has_value()) << "output " << i << " " << *difference;
  }
}

namespace {

int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Values of both signs around zero that repeat late.
std::vector<float> Values(int64_t count, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((i * 37 + 11) % 101 - 50) * scale);
  return values;
}

TensorProto Data(const std::string& name, const std::vector<int64_t>& dims, float scale = 0.0625f) {
  return FloatTensor(name, dims, Values(Elements(dims), scale));
}

TensorProto Positive(const std::string& name, const std::vector<int64_t>& dims) {
  std::vector<float> values = Values(Elements(dims), 0.0625f);
  for (float& value : values) value = std::fabs(value) + 0.25f;
  return FloatTensor(name, dims, values);
}

AttributeProto Ints(const char* name, std::vector<int64_t> values) {
  return IntsAttribute(name, std::move(values));
}
AttributeProto Int(const char* name, int64_t value) {
  return IntAttribute(name, value);
}

AttributeProto EmptyInts(const char* name) {
  return IntsAttribute(name, {});
}

OperatorForm One(int64_t opset, FormNode node, std::vector<TensorProto> constants = {}) {
  return {opset, {std::move(node)}, std::move(constants)};
}

using Cases = std::vector<FormPair>;

// Shapes alone change.
void AddReshapes(Cases& cases) {
  const TensorProto x = Data("x", {2, 3, 4});
  cases.push_back({"Reshape1",
                   {x},
                   One(1, {"Reshape", {"x"}, {Ints("shape", {0, -1, 2}), Ints("consumed_inputs", {0})}}),
                   One(14, {"Reshape", {"x", "s"}}, {IntTensor("s", {3}, {0, -1, 2})})});
  cases.push_back({"Reshape1ToAScalar",
                   {Data("x", {1, 1})},
                   One(4, {"Reshape", {"x"}, {EmptyInts("shape")}}),
                   One(13, {"Squeeze", {"x", "a"}}, {IntTensor("a", {2}, {0, 1})})});
  cases.push_back({"Squeeze1",
                   {Data("x", {1, 3, 1, 2})},
                   One(1, {"Squeeze", {"x"}, {Ints("axes", {0, 2})}}),
                   One(13, {"Squeeze", {"x", "a"}}, {IntTensor("a", {2}, {0, 2})})});
  cases.push_back({"Unsqueeze1",
                   {x},
                   One(1, {"Unsqueeze", {"x"}, {Ints("axes", {0, 4})}}),
                   One(13, {"Unsqueeze", {"x", "a"}}, {IntTensor("a", {2}, {0, 4})})});
}

void AddJoinsAndParts(Cases& cases) {
  const TensorProto x = Data("x", {2, 3, 4});
  const TensorProto z = Data("z", {2, 2, 4}, 0.5f);
  cases.push_back(
      {"Concat1", {x, z}, One(1, {"Concat", {"x", "z"}}), One(13, {"Concat", {"x", "z"}, {Int("axis", 1)}})});
  cases.push_back({"Concat1AlongTheFirst",
                   {x, Data("z", {1, 3, 4})},
                   One(3, {"Concat", {"x", "z"}, {Int("axis", 0)}}),
                   One(13, {"Concat", {"x", "z"}, {Int("axis", 0)}})});
  const std::vector<std::string> parts = {"y0", "y1"};
  cases.push_back({"Split1Attribute",
                   {x},
                   One(1, {"Split", {"x"}, {Int("axis", 2), Ints("split", {1, 3})}, parts}),
                   One(13, {"Split", {"x", "s"}, {Int("axis", 2)}, parts}, {IntTensor("s", {2}, {1, 3})}),
                   parts});
  cases.push_back({"Split1AlongTheFirst",
                   {x},
                   One(1, {"Split", {"x"}, {Ints("split", {1, 1})}, parts}),
                   One(13, {"Split", {"x", "s"}, {Int("axis", 0)}, parts}, {IntTensor("s", {2}, {1, 1})}),
                   parts});
  cases.push_back({"Split1Input",
                   {x, FloatTensor("s", {2}, {2, 1})},
                   One(1, {"Split", {"x", "s"}, {Int("axis", 1)}, parts}),
                   {13, {{"Cast", {"s"}, {Int("to", 7)}, {"i"}}, {"Split", {"x", "i"}, {Int("axis", 1)}, parts}}},
                   parts});
  cases.push_back({"Split1Equal",
                   {x},
                   One(1, {"Split", {"x"}, {Int("axis", 2)}, parts}),
                   One(13, {"Split", {"x"}, {Int("axis", 2)}, parts}),
                   parts});
  cases.push_back({"Slice1",
                   {x},
                   One(1, {"Slice", {"x"}, {Ints("starts", {1, -3}), Ints("ends", {9, -1}), Ints("axes", {1, 2})}}),
                   One(13, {"Slice", {"x", "s", "e", "a"}},
                       {IntTensor("s", {2}, {1, -3}), IntTensor("e", {2}, {9, -1}), IntTensor("a", {2}, {1, 2})})});
}

void AddMovement(Cases& cases) {
  const TensorProto x = Data("x", {2, 3, 4});
  for (const char* mode : {"constant", "reflect", "edge"}) {
    const std::vector<int64_t> pads = {0, 1, 2, 1, 2, 0};
    cases.push_back(
        {std::string("Pad1_") + mode,
         {x},
         One(1, {"Pad", {"x"}, {Ints("paddings", pads), TextAttribute("mode", mode), FloatAttribute("value", 1.5f)}}),
         One(18, {"Pad", {"x", "p", "v"}, {TextAttribute("mode", mode)}},
             {IntTensor("p", {6}, pads), FloatTensor("v", {}, {1.5f})})});
  }
  cases.push_back({"Tile1",
                   {x},
                   One(1, {"Tile", {"x", "n", "a"}}, {FloatTensor("n", {1}, {3}), FloatTensor("a", {1}, {1})}),
                   One(6, {"Tile", {"x", "r"}}, {IntTensor("r", {3}, {1, 3, 1})})});
  cases.push_back({"Tile1AtRunTime",
                   {x, FloatTensor("n", {}, {2}), FloatTensor("a", {}, {2})},
                   One(1, {"Tile", {"x", "n", "a"}}),
                   One(6, {"Tile", {"x", "r"}}, {IntTensor("r", {3}, {1, 1, 2})})});
  cases.push_back({"SpaceToDepth28ColumnsFirst",
                   {Data("x", {2, 3, 4, 6})},
                   One(28, {"SpaceToDepth", {"x"}, {Int("blocksize", 2), TextAttribute("mode", "CRD")}}),
                   {14,
                    {{"Reshape", {"x", "wide"}, {}, {"w"}},
                     {"Transpose", {"w"}, {Ints("perm", {0, 1, 3, 5, 2, 4})}, {"t"}},
                     {"Reshape", {"t", "flat"}}},
                    {IntTensor("wide", {6}, {2, 3, 2, 2, 3, 2}), IntTensor("flat", {4}, {2, 12, 2, 3})}}});
  cases.push_back({"TopK1",
                   {Data("x", {3, 5})},
                   One(1, {"TopK", {"x"}, {Int("k", 2)}, {"y0", "y1"}}),
                   One(11, {"TopK", {"x", "k"}, {}, {"y0", "y1"}}, {IntTensor("k", {1}, {2})}),
                   {"y0", "y1"}});
  cases.push_back(
      {"Upsample1",
       {Data("x", {1, 2, 3, 2})},
       One(1, {"Upsample", {"x"}, {FloatAttribute("height_scale", 2), FloatAttribute("width_scale", 1.5f)}}),
       One(9, {"Upsample", {"x", "s"}}, {FloatTensor("s", {4}, {1, 1, 2, 1.5f})})});
}

void AddCasts(Cases& cases) {
  struct Type {
    const char* name;
    int64_t number;
  };
  for (const auto& [name, number] : {Type{"FLOAT", 1},
                                     {"UINT8", 2},
                                     {"INT8", 3},
                                     {"UINT16", 4},
                                     {"INT16", 5},
                                     {"INT32", 6},
                                     {"INT64", 7},
                                     {"BOOL", 9},
                                     {"FLOAT16", 10},
                                     {"DOUBLE", 11},
                                     {"UINT32", 12},
                                     {"UINT64", 13}}) {
    const bool is_signed = number != 2 && number != 4 && number < 12;
    cases.push_back({std::string("Cast1_") + name,
                     {is_signed ? Data("x", {4, 5}, 1.25f) : Positive("x", {4, 5})},
                     One(1, {"Cast", {"x"}, {TextAttribute("to", name)}}),
                     One(13, {"Cast", {"x"}, {Int("to", number)}})});
  }
}

void AddBounds(Cases& cases) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  const TensorProto wild = FloatTensor("x", {5}, {-infinity, -2, 0.5f, 3, infinity});
  cases.push_back({"Clip1HasNoBounds",
                   {wild},
                   One(1, {"Clip", {"x"}, {FloatAttribute("max", 2)}}),
                   One(13, {"Clip", {"x", "", "b"}}, {FloatTensor("b", {}, {2})})});
  cases.push_back({"Clip6HasThoseOfFloats",
                   {wild},
                   One(6, {"Clip", {"x"}, {FloatAttribute("max", 2)}}),
                   One(13, {"Clip", {"x", "a", "b"}}, {FloatTensor("a", {}, {-largest}), FloatTensor("b", {}, {2})})});
  cases.push_back(
      {"Clip6Unbounded",
       {wild},
       One(10, {"Clip", {"x"}}),
       One(13, {"Clip", {"x", "a", "b"}}, {FloatTensor("a", {}, {-largest}), FloatTensor("b", {}, {largest})})});
}

void AddActivations(Cases& cases) {
  const TensorProto x = Data("x", {2, 3, 4});
  cases.push_back({"Selu1",
                   {x},
                   One(1, {"Selu", {"x"}}),
                   One(6, {"Selu", {"x"}, {FloatAttribute("alpha", 1.6732f), FloatAttribute("gamma", 1.0507f)}})});
  cases.push_back({"Selu1Alpha",
                   {x},
                   One(5, {"Selu", {"x"}, {FloatAttribute("alpha", 2)}}),
                   One(6, {"Selu", {"x"}, {FloatAttribute("alpha", 2), FloatAttribute("gamma", 1.0507f)}})});
  cases.push_back({"PRelu6PerChannel",
                   {x, Data("s", {3})},
                   One(6, {"PRelu", {"x", "s"}}),
                   {13, {{"Unsqueeze", {"s", "a"}, {}, {"u"}}, {"PRelu", {"x", "u"}}}, {IntTensor("a", {1}, {1})}}});
  cases.push_back(
      {"PRelu1OneSlope", {x, Data("s", {1})}, One(1, {"PRelu", {"x", "s"}}), One(9, {"PRelu", {"x", "s"}})});
  cases.push_back({"Dropout1",
                   {x},
                   One(1, {"Dropout", {"x"}, {Int("is_test", 1), FloatAttribute("ratio", 0.3f)}}),
                   One(13, {"Identity", {"x"}})});
  cases.push_back({"Dropout6", {x}, One(6, {"Dropout", {"x"}}), One(13, {"Identity", {"x"}})});
}

// Two operands, the second by the broadcasting of operator sets below 7.
void AddBroadcasts(Cases& cases) {
  struct Operand {
    const char* name;
    std::vector<int64_t> dims;
    std::vector<AttributeProto> attributes;
    std::vector<int64_t> later_dims;
  };
  const std::vector<Operand> operands = {{"Equal", {2, 3, 4}, {}, {2, 3, 4}},
                                         {"Suffix", {3, 4}, {Int("broadcast", 1)}, {1, 3, 4}},
                                         {"Axis", {3}, {Int("broadcast", 1), Int("axis", 1)}, {1, 3, 1}},
                                         {"NegativeAxis", {2, 3}, {Int("broadcast", 1), Int("axis", -3)}, {2, 3, 1}},
                                         {"Scalar", {}, {Int("broadcast", 1)}, {1}},
                                         {"OneElementOfAnyRank", {1, 1}, {Int("broadcast", 1), Int("axis", 2)}, {1}}};
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow", "Less", "Greater"}) {
    for (const Operand& operand : operands) {
      cases.push_back({std::string(op) + "6" + operand.name,
                       {Positive("x", {2, 3, 4})},
                       One(6, {op, {"x", "b"}, operand.attributes}, {Positive("b", operand.dims)}),
                       One(9, {op, {"x", "b"}}, {Positive("b", operand.later_dims)})});
    }
  }
}

void AddNormalization(Cases& cases) {
  const std::vector<TensorProto> channels = {Data("s", {3}), Data("b", {3}, 0.125f), Data("m", {3}),
                                             Positive("v", {3})};
  const std::vector<std::string> inputs = {"x", "s", "b", "m", "v"};
  const TensorProto x = Data("x", {2, 3, 2, 2});
  cases.push_back(
      {"BatchNormalization1",
       {x},
       One(1, {"BatchNormalization", inputs, {Int("is_test", 1), Ints("consumed_inputs", {0, 0, 0, 1, 1})}}, channels),
       One(15, {"BatchNormalization", inputs}, channels)});
  cases.push_back({"BatchNormalization6",
                   {x},
                   One(6, {"BatchNormalization", inputs, {FloatAttribute("epsilon", 0.5f)}}, channels),
                   One(15, {"BatchNormalization", inputs, {FloatAttribute("epsilon", 0.5f)}}, channels)});
  cases.push_back({"Softmax1",
                   {x},
                   One(1, {"Softmax", {"x"}}),
                   {13,
                    {{"Flatten", {"x"}, {}, {"f"}}, {"Softmax", {"f"}, {}, {"g"}}, {"Reshape", {"g", "d"}}},
                    {IntTensor("d", {4}, {2, 3, 2, 2})}}});
  cases.push_back({"ReduceSum1",
                   {x},
                   One(1, {"ReduceSum", {"x"}, {Ints("axes", {1, 3}), Int("keepdims", 0)}}),
                   One(13, {"ReduceSum", {"x", "a"}, {Int("keepdims", 0)}}, {IntTensor("a", {2}, {1, 3})})});
  cases.push_back({"ReduceMax1All", {x}, One(1, {"ReduceMax", {"x"}}), One(18, {"ReduceMax", {"x"}})});
  cases.push_back(
      {"Gemm6",
       {Data("x", {3, 4})},
       One(6, {"Gemm", {"x", "w", "c"}, {Int("broadcast", 1), FloatAttribute("alpha", 0.5f), Int("transB", 1)}},
           {Data("w", {5, 4}), Data("c", {5})}),
       One(13, {"Gemm", {"x", "w", "c"}, {FloatAttribute("alpha", 0.5f), Int("transB", 1)}},
           {Data("w", {5, 4}), Data("c", {1, 5})})});
}

void AddPools(Cases& cases) {
  const TensorProto x = Data("x", {2, 3, 5, 6});
  const std::vector<AttributeProto> window = {Ints("kernel_shape", {3, 2}), Ints("pads", {1, 0, 1, 1}),
                                              Ints("strides", {2, 1})};
  const auto with = [](std::vector<AttributeProto> attributes, const AttributeProto& more) {
    attributes.push_back(more);
    return attributes;
  };
  for (const int64_t p : {1, 2, 3}) {
    const AttributeProto power = FloatAttribute("p", static_cast<float>(p));
    cases.push_back({"LpPool1_" + std::to_string(p),
                     {x},
                     One(1, {"LpPool", {"x"}, with(window, power)}),
                     One(11, {"LpPool", {"x"}, with(window, Int("p", p))})});
    cases.push_back({"GlobalLpPool1_" + std::to_string(p),
                     {x},
                     One(1, {"GlobalLpPool", {"x"}, {power}}),
                     One(2, {"GlobalLpPool", {"x"}, {Int("p", p)}})});
  }
  cases.push_back({"LpPool1Default", {x}, One(1, {"LpPool", {"x"}, window}), One(11, {"LpPool", {"x"}, window})});
  // (sum of |x|^1.5)^(2/3), the sums as convolutions with ones.
  for (const bool same : {false, true}) {
    const std::vector<AttributeProto> place =
        same ? std::vector<AttributeProto>{Ints("kernel_shape", {3, 2}), TextAttribute("auto_pad", "SAME_UPPER"),
                                           Ints("strides", {2, 2})}
             : window;
    cases.push_back({std::string("LpPool1AnyPower") + (same ? "SamePads" : ""),
                     {x},
                     One(1, {"LpPool", {"x"}, with(place, FloatAttribute("p", 1.5f))}),
                     {13,
                      {{"Abs", {"x"}, {}, {"a"}},
                       {"Pow", {"a", "p"}, {}, {"b"}},
                       {"Conv", {"b", "w"}, with(place, Int("group", 3)), {"c"}},
                       {"Pow", {"c", "r"}}},
                      {FloatTensor("p", {}, {1.5f}), FloatTensor("r", {}, {1 / 1.5f}),
                       FloatTensor("w", {3, 1, 3, 2}, std::vector<float>(18, 1.0f))}}});
  }
  cases.push_back({"GlobalLpPool1AnyPower",
                   {x},
                   One(1, {"GlobalLpPool", {"x"}, {FloatAttribute("p", 2.5f)}}),
                   {18,
                    {{"Abs", {"x"}, {}, {"a"}},
                     {"Pow", {"a", "p"}, {}, {"b"}},
                     {"ReduceSum", {"b", "axes"}, {}, {"c"}},
                     {"Pow", {"c", "r"}}},
                    {FloatTensor("p", {}, {2.5f}), FloatTensor("r", {}, {1 / 2.5f}), IntTensor("axes", {2}, {2, 3})}}});
}

void AddRecurrent(Cases& cases) {
  struct Cell {
    const char* op;
    int64_t opset, gates;
    std::vector<std::string> outputs;
  };
  const std::vector<Cell> cells = {{"RNN", 1, 1, {"y0", "y1"}},
                                   {"GRU", 1, 3, {"y0", "y1"}},
                                   {"GRU", 3, 3, {"y0", "y1"}},
                                   {"LSTM", 1, 4, {"y0", "y1", "y2"}}};
  struct Kind {
    const char* name;
    const char* old_direction;
    const char* direction;
    int64_t directions;
    int64_t output_sequence;
  };
  for (const Cell& cell : cells) {
    for (const Kind& kind : {Kind{"", "", "forward", 1, 0},
                             {"Reverse", "reverse", "reverse", 1, 1},
                             {"Both", "bidirectional", "bidirectional", 2, 1}}) {
      std::vector<AttributeProto> old_attributes = {Int("hidden_size", 3),
                                                    Int("output_sequence", kind.output_sequence)};
      if (*kind.old_direction != 0) old_attributes.push_back(TextAttribute("direction", kind.old_direction));
      std::vector<AttributeProto> attributes = {Int("hidden_size", 3), TextAttribute("direction", kind.direction)};
      if (cell.opset == 3) {
        old_attributes.push_back(Int("linear_before_reset", 1));
        attributes.push_back(Int("linear_before_reset", 1));
      }
      const std::vector<TensorProto> weights = {Data("w", {kind.directions, cell.gates * 3, 2}),
                                                Data("r", {kind.directions, cell.gates * 3, 3}),
                                                Data("b", {kind.directions, cell.gates * 6})};
      cases.push_back({std::string(cell.op) + std::to_string(cell.opset) + kind.name,
                       {Data("x", {4, 2, 2})},
                       One(cell.opset, {cell.op, {"x", "w", "r", "b"}, old_attributes, cell.outputs}, weights),
                       One(14, {cell.op, {"x", "w", "r", "b"}, attributes, cell.outputs}, weights),
                       cell.outputs});
    }
  }
  const std::vector<TensorProto> weights = {Data("w", {1, 9, 2}), Data("r", {1, 9, 3})};
  cases.push_back(
      {"GRU1MisspeltDefault",
       {Data("x", {4, 2, 2})},
       One(1, {"GRU", {"x", "w", "r"}, {Int("hidden_size", 3), TextAttribute("direction", "foward")}}, weights),
       One(14, {"GRU", {"x", "w", "r"}, {Int("hidden_size", 3)}}, weights)});
}

// Attention whose queries see keys of a window; the later form says so by a mask.
void AddWindows(Cases& cases) {
  struct Window {
    int64_t left, right, causal;
  };
  constexpr int64_t kQueries = 4, kPast = 2, kKeys = kPast + kQueries;
  for (const auto& [left, right, causal] :
       {Window{2, 1, 0}, {2, 0, 0}, {-1, 1, 0}, {0, -1, 0}, {1, -1, 1}, {1, 3, 1}, {INT64_MAX, INT64_MAX, 0}}) {
    std::vector<bool> mask;
    for (int64_t i = 0; i < kQueries; ++i) {
      for (int64_t j = 0; j < kKeys; ++j) {
        const int64_t ahead = j - (kPast + i);
        mask.push_back((left < 0 || -ahead <= left) && (right < 0 || ahead <= right) && (causal == 0 || ahead <= 0));
      }
    }
    const std::vector<TensorProto> data = {Data("q", {2, 2, kQueries, 3}), Data("k", {2, 2, kQueries, 3}),
                                           Data("v", {2, 2, kQueries, 3}), Data("pk", {2, 2, kPast, 3}),
                                           Data("pv", {2, 2, kPast, 3})};
    const auto text = [](int64_t size) {
      return size < 0 ? "Any" : size == INT64_MAX ? "Largest" : std::to_string(size);
    };
    cases.push_back(
        {"Attention25_" + std::string(text(left)) + "_" + text(right) + (causal != 0 ? "_Causal" : ""), data,
         One(25, {"Attention",
                  {"q", "k", "v", "", "pk", "pv"},
                  {Int("left_window_size", left), Int("right_window_size", right), Int("is_causal", causal)}}),
         One(23, {"Attention", {"q", "k", "v", "mask", "pk", "pv"}}, {BoolTensor("mask", {kQueries, kKeys}, mask)})});
  }
  // More queries than keys: the last ones see none, and give zeros.
  std::vector<bool> mask;
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 2; ++j) mask.push_back(i - j <= 1);
  cases.push_back({"Attention25PastTheLastKey",
                   {Data("q", {2, 2, 6, 3}), Data("k", {2, 2, 2, 3}), Data("v", {2, 2, 2, 3})},
                   One(25, {"Attention", {"q", "k", "v"}, {Int("left_window_size", 1)}}),
                   One(23, {"Attention", {"q", "k", "v", "mask"}}, {BoolTensor("mask", {6, 2}, mask)})});
}

}  // namespace

std::vector<FormPair> AllFormPairs() {
  Cases cases;
  AddReshapes(cases);
  AddJoinsAndParts(cases);
  AddMovement(cases);
  AddCasts(cases);
  AddBounds(cases);
  AddActivations(cases);
  AddBroadcasts(cases);
  AddNormalization(cases);
  AddPools(cases);
  AddRecurrent(cases);
  AddWindows(cases);
  return cases;
}

}  // namespace kiln::onnx
