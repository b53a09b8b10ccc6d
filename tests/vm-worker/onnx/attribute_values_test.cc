// Texts in attributes: every row of the importer's table and every row of the op table refuses what is none of the
// legal values, naming node, attribute, value and what is legal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"
#include "common/ops/attribute_texts.h"
#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(by, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

struct TextAttributeRow {
  std::string domain, op_type;
  int64_t opset;
  std::string name;
  bool is_list;
  std::string legal;
};

std::vector<TextAttributeRow> TextAttributeRows() {
  constexpr int64_t kAnyOpset = INT64_MAX;
  std::vector<TextAttributeRow> rows;
  const auto add = [&](std::string domain, std::string op_type, int64_t opset, int64_t, TensorOp op,
                       std::string_view attributes) {
    for (const std::string& entry : Split(attributes, ' ')) {
      if (entry.empty()) continue;
      const size_t colon = entry.find(':');
      const char kind = entry[colon + 1];
      if (kind != 's' && kind != 'S') continue;
      const std::string name = entry.substr(0, colon);
      const std::string legal = entry.size() > colon + 2 ? entry.substr(colon + 3) : std::string(LegalTexts(op, name));
      rows.push_back({domain, op_type, opset, name, kind == 'S', legal});
    }
  };
#define KILN_ONNX_OP(domain, name, opset_min, opset_max, rewrite, op, attributes) \
  add(domain, #name, opset_min, opset_max, TensorOp::k##op, attributes);
#include "vm-worker/onnx/node_rules.def"
#undef KILN_ONNX_OP
  return rows;
}

std::string ImportError(const TextAttributeRow& row, const std::string& value) {
  TestModel model(row.domain.empty() ? row.opset : 20);
  NodeProto& node = AddNode(*model.graph().mutable_node(), row.op_type, {}, {"y"}, {}, row.domain);
  node.set_name("node7");
  AttributeProto& attribute = *node.add_attribute();
  attribute = TextAttribute(row.name, value);
  if (row.is_list) {
    attribute.clear_s();
    attribute.set_type(static_cast<int32_t>(AttributeKind::kStrings));
    attribute.add_strings(value);
  }
  const auto imported = model.Output("y").Import();
  return imported.has_value() ? "" : ToString(imported.error());
}

TEST(AttributeValues, OtherTextsThanTheLegalOnesAreRefusedAtImport) {
  int refused = 0;
  for (const TextAttributeRow& row : TextAttributeRows()) {
    SCOPED_TRACE(row.op_type + " " + std::to_string(row.opset) + " " + row.name);
    ASSERT_FALSE(row.legal.empty()) << "neither the row nor the op table states the legal values";
    if (row.legal == "*") continue;
    const std::string error = ImportError(row, "no_such_value");
    EXPECT_THAT(error, HasSubstr("node7"));
    EXPECT_THAT(error, HasSubstr("attribute '" + row.name + "' is 'no_such_value'; it is one of "));
    for (const std::string& value : Split(row.legal, '|')) {
      EXPECT_THAT(error, HasSubstr(value));
      EXPECT_THAT(ImportError(row, value), Not(HasSubstr("it is one of"))) << value;
    }
    ++refused;
  }
  EXPECT_GE(refused, 42);
}

TEST(AttributeValues, OtherTextsThanTheLegalOnesAreRefusedByTheVerifier) {
  int refused = 0;
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    for (const OpAttributeInfo& attribute : OpAttributes(row.op)) {
      if (attribute.type != AttributeType::kText && attribute.type != AttributeType::kTexts) continue;
      const std::string_view legal = LegalTexts(row.op, attribute.name);
      if (legal == "*") continue;
      SCOPED_TRACE(std::string(row.name) + " " + std::string(attribute.name));
      const bool is_list = attribute.type == AttributeType::kTexts;
      std::string parameters, operands;
      for (int input = 0; input < row.min_inputs; ++input) {
        const std::string name = "%x" + std::to_string(input);
        parameters += (input == 0 ? "" : ", ") + name + ": f32[*]";
        operands += (input == 0 ? "" : ", ") + name;
      }
      const std::string text = "program \"p\" { func main(" + parameters +
                               ") -> (%y) { %y : f32[*] = " + std::string(row.name) + "(" + operands + ") {" +
                               std::string(attribute.name) + " = " +
                               (is_list ? "[\"no_such_value\"]" : "\"no_such_value\"") + "} } }";
      const auto program = ParseProgram(text);
      const Status status = program.has_value() ? VerifyProgram(*program) : std::unexpected(program.error());
      ASSERT_FALSE(status.has_value());
      EXPECT_THAT(ToString(status.error()), HasSubstr("is 'no_such_value'; it is one of "));
      ++refused;
    }
  }
  EXPECT_GE(refused, 28);
}

// Runtimes read the names of activations in any case, and an empty auto_pad as absent.
TEST(AttributeValues, ActivationsAreReadInAnyCase) {
  EXPECT_TRUE(CheckText(LegalTexts(TensorOp::kLSTM, "activations"), "activations", "hardsigmoid", true));
  EXPECT_FALSE(CheckText(LegalTexts(TensorOp::kLSTM, "activations"), "activations", "hard", true));
  EXPECT_FALSE(CheckText(LegalTexts(TensorOp::kPad, "mode"), "mode", "Reflect", false));
  EXPECT_TRUE(CheckText(LegalTexts(TensorOp::kConv, "auto_pad"), "auto_pad", "", false));
}

}  // namespace
}  // namespace kiln::onnx
