// Reference kernels: the executable meaning of every tensor op, and what interpreter and plans run where no generated
// kernel exists. Written for clarity first; contractions and convolutions use blocked routines.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "common/base/philox.h"
#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Memory for outputs whose size only the kernel knows, and for scratch. Implemented by the interpreter's arena.
// Used from one thread.
class KernelMemory {
 public:
  virtual ~KernelMemory() = default;
  // 64-byte aligned, uninitialised, valid until the owner of the run recycles it; nullptr when out of memory.
  virtual void* AllocateOutput(size_t bytes) = 0;
  // As above, but valid only until the kernel returns.
  virtual void* AllocateScratch(size_t bytes) = 0;
};

// One call. Inputs may be absent (data == nullptr and rank 0 with `present` false, see Has). Outputs of pure ops are
// allocated by the caller, contiguous, with the dims that the shape rule gave; an optional output that nobody wants is
// missing at the end or has data == nullptr. Ops with OpEffects::kDataShape find data == nullptr where the size was not
// known, and set dims and data themselves through `memory`; where the caller did allocate, they fill that.
struct KernelCall {
  TensorOp op;
  const Attributes* attributes;
  std::span<const Constant> constants;
  std::span<const TensorRef> inputs;
  std::span<TensorRef> outputs;
  KernelMemory* memory;
  const void* prepared = nullptr;      // what the kernel's `prepare` made, or nullptr
  const RandomDraw* random = nullptr;  // the numbers of this call; ops with OpEffects::kRandom need them

  bool Has(size_t input) const { return input < inputs.size() && inputs[input].data != nullptr; }
};

using KernelFunction = Status (*)(KernelCall&);

struct ReferenceKernel {
  KernelFunction run = nullptr;
  // Whether inputs may have any strides, without changing a bit of a result; else the caller passes contiguous ones.
  bool strided_inputs = false;
  // Optional: parse attributes once per resolved step. The result is passed as `prepared`.
  std::shared_ptr<const void> (*prepare)(const Attributes&) = nullptr;
};

// The kernel of an op for the dtype of its first input (for Where: of the second). Unsupported names op and dtype.
// Views, Constant, ShapeVector and control ops have none: the interpreter handles them.
Result<ReferenceKernel> FindReferenceKernel(TensorOp op, DType dtype);

// Views: the output of a kView op as a view of input 0's memory, or nullopt when the strides do not allow it (Reshape
// of a transposed tensor) and elements must be copied. `dims` is the output's shape; `output` tells Split's part,
// `call.outputs` how many parts there are (their contents are not read), and `inputs` carry the integer operands
// (Slice's starts…). LimitExceeded for a shape that no tensor has.
Result<std::optional<TensorRef>> MakeView(const KernelCall& call, int output, const Dims& dims);

}  // namespace kiln
