#include "tests/vm-worker/onnx/sequence_models.h"

namespace kiln::onnx {

Tensor F(const Dims& dims, const std::vector<float>& values) {
  return Tensor::Of<float>(DType::kF32, dims, std::span<const float>(values));
}
Tensor I(const Dims& dims, const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(DType::kI64, dims, std::span<const int64_t>(values));
}
Tensor Scalar(int64_t value) {
  return I({}, {value});
}

GraphProto LoopBody(const std::function<void(GraphProto&)>& nodes) {
  GraphProto body;
  *body.add_input() = Tensor32("i", {}, 7);
  *body.add_input() = Tensor32("go", {}, 9);
  body.add_input()->set_name("s");
  AddNode(*body.mutable_node(), "Identity", {"go"}, {"goes_on"});
  nodes(body);
  for (const char* name : {"goes_on", "longer"}) body.add_output()->set_name(name);
  return body;
}

TestModel& Join(TestModel& model, const std::string& sequence, const std::string& output, int64_t axis,
                int64_t new_axis) {
  return model
      .Node("ConcatFromSequence", {sequence}, {output},
            {IntAttribute("axis", axis), IntAttribute("new_axis", new_axis)})
      .Output(output);
}
TestModel& Length(TestModel& model, const std::string& sequence, const std::string& output) {
  return model.Node("SequenceLength", {sequence}, {output}).Output(output);
}
TestModel& At(TestModel& model, const std::string& sequence, const std::string& position, const std::string& output) {
  return model.Node("SequenceAt", {sequence, position}, {output}).Output(output);
}

}  // namespace kiln::onnx
