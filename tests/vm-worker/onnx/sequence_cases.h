// Models over sequences whose length only running tells, with what they answer. The values are onnxruntime's.
#pragma once

#include <functional>
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

// Loop bodies: inputs i, go, s; outputs goes_on, the sequence `longer`.
GraphProto LoopBody(const std::function<void(GraphProto&)>& nodes);

}  // namespace kiln::onnx
