// How `onnx-test` executes a program. One implementation per mode; each case makes its own runner.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/tensor/tensor.h"

namespace kiln::onnx_test {

// A loaded program. Not thread-safe.
class ProgramRunner {
 public:
  virtual ~ProgramRunner() = default;
  // Inputs in the program's order, as BindInputs gives them. Outputs own their memory or share the runner's.
  virtual Result<std::vector<Tensor>> Run(std::span<const TensorRef> inputs) = 0;
};

struct RunnerMode {
  std::string name;  // "interpreted", "compiled"
  std::function<Result<std::unique_ptr<ProgramRunner>>(Program)> load;
  // Whether the form with dynamic dims must give the same bits as the declared one; otherwise both are held to the
  // tolerance.
  bool same_bits_when_dynamic = true;
};

}  // namespace kiln::onnx_test
