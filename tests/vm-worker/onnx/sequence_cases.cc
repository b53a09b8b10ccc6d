#include "tests/vm-worker/onnx/sequence_cases.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kiln::onnx {
namespace {

void ExpectEqual(const TensorRef& got, const TensorRef& expected) {
  ASSERT_EQ(got.dtype, expected.dtype);
  ASSERT_EQ(got.dims, expected.dims);
  const Tensor whole = MakeContiguous(got);
  if (got.bytes() == 0) return;
  EXPECT_EQ(std::memcmp(whole.ref.data, expected.data, static_cast<size_t>(expected.bytes())), 0);
}

}  // namespace

void ExpectAnswers(const SequenceCase& test, const SequenceRunner& run) {
  for (size_t r = 0; r < test.runs.size(); ++r) {
    SCOPED_TRACE("run " + std::to_string(r));
    const SequenceRun& expected = test.runs[r];
    std::vector<TensorRef> inputs;
    for (const Tensor& input : expected.inputs) inputs.push_back(input.ref);
    const Result<std::vector<Tensor>> outputs = run(inputs);
    if (!expected.error.empty()) {
      ASSERT_FALSE(outputs.has_value());
      EXPECT_NE(ToString(outputs.error()).find(expected.error), std::string::npos) << ToString(outputs.error());
      continue;
    }
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    ASSERT_EQ(outputs->size(), expected.outputs.size());
    for (size_t i = 0; i < outputs->size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i));
      ExpectEqual((*outputs)[i].ref, expected.outputs[i].ref);
    }
  }
}

std::vector<SequenceCase> SequenceCases() {
  std::vector<SequenceCase> cases;
  AddFlatSequenceCases(cases);
  AddGrownSequenceCases(cases);
  AddSplitSequenceCases(cases);
  return cases;
}

}  // namespace kiln::onnx
