// Every form of every operator of ai.onnx is read with all its attributes, or refused by choice with a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

struct VersionRow {
  std::string op_type;
  int64_t since = 0;
  std::vector<std::string> attributes;  // "name:k"
};

std::vector<VersionRow> Versions() {
  std::vector<VersionRow> rows;
  std::ifstream file(KILN_SOURCE_DIR "/tests/vm-worker/onnx/operator_versions.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    VersionRow& row = rows.emplace_back();
    fields >> row.op_type >> row.since;
    for (std::string attribute; fields >> attribute;) row.attributes.push_back(attribute);
  }
  return rows;
}

// "name:k" of what a rule lists, without legal texts.
std::set<std::string> Listed(const NodeRule& rule) {
  std::set<std::string> listed = {"consumed_inputs:I"};
  std::istringstream entries{std::string(rule.attributes)};
  for (std::string entry; entries >> entry;) listed.insert(entry.substr(0, entry.find(':') + 2));
  return listed;
}

TEST(OperatorVersions, EveryFormIsReadOrRefusedByChoice) {
  const std::vector<VersionRow> rows = Versions();
  ASSERT_GE(rows.size(), 600u);
  int read = 0;
  for (const VersionRow& row : rows) {
    SCOPED_TRACE(row.op_type + " of operator set " + std::to_string(row.since));
    const auto rule = FindNodeRule("", row.op_type, row.since);
    const bool refused = !RefusalReason("", row.op_type).empty();
    EXPECT_NE(rule.has_value(), refused) << (rule.has_value() ? "read and refused" : ToString(rule.error()));
    if (!rule.has_value()) continue;
    ++read;
    for (const std::string& attribute : row.attributes) EXPECT_TRUE(Listed(**rule).contains(attribute)) << attribute;
  }
  EXPECT_GE(read, 600);
}

TEST(OperatorVersions, WhatIsRefusedByChoiceSaysWhy) {
  const auto error = [](const char* op, const char* domain) {
    TestModel model(20);
    model.Input(Tensor32("x", {2})).Node(op, {"x"}, {"y"}, {}, domain).Output("y");
    const auto imported = model.Import();
    return imported.has_value() ? "" : ToString(imported.error());
  };
  EXPECT_THAT(error("RegexFullMatch", ""), testing::HasSubstr("not supported: it works on strings"));
  EXPECT_THAT(error("TreeEnsemble", "ai.onnx.ml"), testing::HasSubstr("not supported: of ai.onnx.ml"));
}

}  // namespace
}  // namespace kiln::onnx
