// Runs one op as the interpreter does: shape rule on constants, then view or reference kernel.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/ops/infer.h"
#include "common/ops/reference_kernel.h"

namespace kiln::testing {

// Memory of one run, kept until the object dies.
class TestMemory : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override;
  void* AllocateScratch(size_t bytes) override;

 private:
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

struct OpCase {
  TensorOp op;
  Attributes attributes;
  std::vector<std::optional<TensorRef>> inputs;  // nullopt: absent
  size_t outputs = 1;
  std::vector<Constant> constants;
  RandomDraw random = {};  // what ops that draw random numbers are given
};

// Contiguous outputs.
Result<std::vector<Tensor>> RunOp(const OpCase& test_case);

// The shape rule alone, on constants. Contents of inputs are known.
Result<std::vector<TensorDesc>> InferOp(const OpCase& test_case);

// --- making tensors ---
Tensor F32(const Dims& dims, const std::vector<float>& values);
Tensor I64(const Dims& dims, const std::vector<int64_t>& values);
Tensor I32(const Dims& dims, const std::vector<int32_t>& values);
Tensor BoolTensor(const Dims& dims, const std::vector<bool>& values);
// Values converted to any dtype.
Tensor Make(DType dtype, const Dims& dims, const std::vector<double>& values);
// All elements as doubles, row-major.
std::vector<double> Values(const TensorRef& ref);

}  // namespace kiln::testing
