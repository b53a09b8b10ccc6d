// ONNX's Attention operator, with every kind of mask, is one attention kernel; nothing of the size of all heads' scores
// is stored.
#include <gtest/gtest.h>

#include "tests/compile-service/lower/check_program.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::testing {
namespace {

constexpr int64_t kHeads = 4, kLength = 96, kSize = 16;
constexpr int32_t kFloat = 1, kInt64 = 7, kBool = 9;  // TensorProto.DataType

struct Form {
  const char* name;
  int64_t opset;
  int32_t mask;  // ONNX's number of its type; 0: none
  int64_t key_heads;
  bool lengths;  // of what is no padding
  std::vector<onnx::AttributeProto> attributes;
};

std::vector<Form> Forms() {
  using onnx::FloatAttribute;
  using onnx::IntAttribute;
  return {{"Plain", 23, 0, kHeads, false, {}},
          {"FloatMask", 23, kFloat, kHeads, false, {}},
          {"BoolMask", 23, kBool, kHeads, false, {}},
          {"Causal", 23, 0, kHeads, false, {IntAttribute("is_causal", 1)}},
          {"CausalWithAMask", 23, kFloat, kHeads, false, {IntAttribute("is_causal", 1)}},
          {"Softcap", 23, kFloat, kHeads, false, {FloatAttribute("softcap", 5)}},
          {"GroupedHeads", 23, kBool, 2, false, {FloatAttribute("scale", 0.5f)}},
          {"Padding", 24, 0, kHeads, true, {}}};
}

class OnnxAttention : public ::testing::TestWithParam<Form> {};

Result<ImportedModel> Import(const Form& form) {
  onnx::TestModel model(form.opset);
  for (const char* name : {"q", "k", "v"})
    model.Input(onnx::Tensor32(name, {1, name[0] == 'q' ? kHeads : form.key_heads, kLength, kSize}));
  if (form.mask != 0) model.Input(onnx::Tensor32("mask", {kLength, kLength}, form.mask));
  if (form.lengths) model.Input(onnx::Tensor32("lengths", {1}, kInt64));
  onnx::NodeProto& node =
      onnx::AddNode(*model.graph().mutable_node(), "Attention",
                    {"q", "k", "v", form.mask == 0 ? "" : "mask", "", "", form.lengths ? "lengths" : ""}, {"y"});
  for (const onnx::AttributeProto& attribute : form.attributes) *node.add_attribute() = attribute;
  return model.Output("y").Import();
}

TEST_P(OnnxAttention, StoresNoScores) {
  const Result<ImportedModel> model = Import(GetParam());
  ASSERT_TRUE(model.has_value()) << ToString(model.error());
  int attentions = 0;
  for (const SegmentSite& site : FindSegments(model->program)) {
    const Result<Segment> segment = CanonicalSegment(model->program, site);
    ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
    const std::vector<int64_t> symbols(segment->symbols.size(), kLength);
    const auto lowered = lower::LowerSegment({*segment, Target::kX86V4, NumericMode::kDefault, symbols, {}});
    ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
    for (const PlanStep& step : lowered->plan.steps) attentions += step.label.starts_with("attention") ? 1 : 0;
    for (const PlanBuffer& buffer : lowered->plan.buffers) {
      const Result<int64_t> bytes = lowered->plan.symbols.Evaluate(buffer.bytes, symbols);
      ASSERT_TRUE(bytes.has_value());
      EXPECT_LT(*bytes, kHeads * kLength * kLength * 4) << Describe(*lowered);
    }
  }
  EXPECT_EQ(attentions, 1);
}

INSTANTIATE_TEST_SUITE_P(Forms, OnnxAttention, ::testing::ValuesIn(Forms()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing
