// The requests of one workload: data sets on disk, in the order they are sent.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/tensor/tensor.h"

namespace kiln::bench {

struct Request {
  std::string name;               // of the directory
  std::vector<Tensor> tensors;    // keep `inputs` alive
  std::vector<TensorRef> inputs;  // in the program's order, 64-byte aligned
};

// Reads input_i.pb of each directory and binds them to the program's inputs.
Result<std::vector<Request>> ReadRequests(const Program& program, const std::vector<std::string>& directories);

}  // namespace kiln::bench
