// Every case of cases.txt; every row of the op table that computes has at least one.
#include <gtest/gtest.h>

#include <set>

#include "tests/common/ops/case_file.h"

namespace kiln::testing {
namespace {

const std::vector<FileCase>& AllCases() {
  static const std::vector<FileCase> cases = ReadCaseFile(KILN_SOURCE_DIR "/tests/common/ops/cases.txt");
  return cases;
}

class OpCases : public ::testing::TestWithParam<size_t> {};

TEST_P(OpCases, MatchExpectedValues) {
  const FileCase& file_case = AllCases()[GetParam()];
  SCOPED_TRACE("cases.txt:" + std::to_string(file_case.line) + ": " + file_case.text);
  const Result<std::vector<Tensor>> results = RunOp(file_case.op);
  ASSERT_TRUE(results) << ToString(results.error());
  ASSERT_EQ(results->size(), file_case.expected.size());
  for (size_t i = 0; i < results->size(); ++i) {
    EXPECT_EQ(Difference((*results)[i], file_case.expected[i]), "") << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(File, OpCases, ::testing::Range(size_t{0}, AllCases().size()), [](const auto& info) {
  const FileCase& file_case = AllCases()[info.param];
  return std::string(OpInfo(file_case.op.op).name) + "_line" + std::to_string(file_case.line);
});

TEST(OpTable, EveryComputingRowHasACase) {
  std::set<TensorOp> covered;
  for (const FileCase& file_case : AllCases()) covered.insert(file_case.op.op);
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    const bool due = row.family != OpFamily::kControl && row.family != OpFamily::kConstant &&
                     row.op != TensorOp::kShapeVector &&
                     row.op != TensorOp::kCallFunc;  // tests/vm-worker/plugin: its meaning is in libraries
    EXPECT_EQ(covered.contains(row.op), due) << row.name;
  }
}

}  // namespace
}  // namespace kiln::testing
