// What models over sequences are made of in tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {

using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

// f32 and i64 tensors, and an i64 scalar.
Tensor F(const Dims& dims, const std::vector<float>& values);
Tensor I(const Dims& dims, const std::vector<int64_t>& values);
Tensor Scalar(int64_t value);

// Loop bodies: inputs i, go, s; outputs goes_on, the sequence `longer`.
GraphProto LoopBody(const std::function<void(GraphProto&)>& nodes);

// Each adds a node over the sequence and, as an output of the model, what it makes.
TestModel& Join(TestModel& model, const std::string& sequence, const std::string& output, int64_t axis,
                int64_t new_axis = 0);
TestModel& Length(TestModel& model, const std::string& sequence, const std::string& output);
TestModel& At(TestModel& model, const std::string& sequence, const std::string& position, const std::string& output);

}  // namespace kiln::onnx
