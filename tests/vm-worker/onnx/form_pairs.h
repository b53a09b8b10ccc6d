// Nodes in an old form of their operator, and what says the same in later operator sets. Both must give equal answers,
// however they run.
#pragma once

#include <string>
#include <vector>

#include "common/tensor/tensor.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {

struct FormNode {
  std::string op;
  std::vector<std::string> inputs;  // data of the case, constants of the form, or outputs of earlier nodes
  std::vector<AttributeProto> attributes = {};
  std::vector<std::string> outputs = {"y0"};
};

struct OperatorForm {
  int64_t opset;
  std::vector<FormNode> nodes;
  std::vector<TensorProto> constants = {};
};

struct FormPair {
  std::string name;
  std::vector<TensorProto> data;  // run-time inputs of both forms
  OperatorForm old_form, later_form;
  std::vector<std::string> outputs = {"y0"};

  TestModel ModelOf(const OperatorForm& form) const;
  // The run-time inputs, in the order of the models' inputs.
  std::vector<Tensor> Inputs() const;
};

std::vector<FormPair> AllFormPairs();

// Compares integers and bool bit for bit, floats within a few roundings of their type.
void ExpectSameAnswers(const std::vector<Tensor>& got, const std::vector<Tensor>& expected);

}  // namespace kiln::onnx
