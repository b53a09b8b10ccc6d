// Models over sequences whose length only running tells, with what they answer. The values are onnxruntime's.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {

struct SequenceRun {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::string error = {};  // part of the message; then there are no outputs
};

struct SequenceCase {
  std::string name;
  TestModel model;
  std::vector<SequenceRun> runs;
};

std::vector<SequenceCase> SequenceCases();
// Of these, those whose elements differ along several axes; those that a Loop makes; those that tensors are split into.
void AddFlatSequenceCases(std::vector<SequenceCase>& cases);
void AddGrownSequenceCases(std::vector<SequenceCase>& cases);
void AddSplitSequenceCases(std::vector<SequenceCase>& cases);

// Runs the case and compares bit for bit (whole numbers all of them, so that sums and products are exact), or what the
// error says.
using SequenceRunner = std::function<Result<std::vector<Tensor>>(std::span<const TensorRef>)>;
void ExpectAnswers(const SequenceCase& test, const SequenceRunner& run);

}  // namespace kiln::onnx
