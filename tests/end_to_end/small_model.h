// y = softmax(relu(x * w + b)) with x : f32[n, inner], w : f32[inner, columns]: a matmul with epilogue and a row
// kernel, as an ONNX file.
#pragma once

#include <string>

#include "common/tensor/tensor.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::testing {

class SmallModel {
 public:
  // columns: of the output; another number, or another activation, is another segment.
  // With `bias_is_input` callers may override the bias "b".
  explicit SmallModel(int64_t columns = 24, const std::string& activation = "Relu", bool bias_is_input = false,
                      int64_t inner = 8);
  // Writes model.onnx into the directory; returns its path.
  std::string WriteTo(const std::string& directory) const;
  const std::shared_ptr<const LoadedProgram>& program() const { return program_; }
  Tensor Input(int64_t rows) const;
  // "" when `actual` is the interpreter's answer for Input(rows).
  std::string Difference(int64_t rows, const Tensor& actual);

 private:
  int64_t inner_;
  std::string bytes_;
  std::shared_ptr<const LoadedProgram> program_;
  VmContext context_;
};

}  // namespace kiln::testing
