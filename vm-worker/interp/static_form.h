// Static form: a segment resolved for one signature. Shapes, views and contents that follow from shapes are gone; what
// is left is a flat array of kernel calls with their operands, and where each tensor lies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/signature/signature.h"
#include "vm-worker/interp/check_shapes.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln {

inline constexpr uint32_t kNoOperand = 0xffffffff;
inline constexpr uint32_t kCopyNode = 0xffffffff;

// Owned by one context's memo and changed by its runs (addresses are patched in place).
struct StaticForm {
  // Address bases of a run: the block of temporaries, the run-time inputs, then the blocks of `escaping`.
  static constexpr uint32_t kTemporaries = 0;

  struct Step {
    KernelFunction run;
    const Attributes* attributes;
    const void* prepared;
    TensorOp op;
    uint16_t inputs;
    uint16_t outputs;
    uint32_t first_operand;  // inputs, then outputs
    uint32_t node;           // index into the code's nodes, kCopyNode for a copy
  };
  // tensors[tensor].data = base + offset
  struct Patch {
    uint32_t tensor;
    uint32_t base;
    int64_t offset;
  };
  struct Output {
    uint32_t tensor;
    int32_t base;  // -1: a constant
  };

  uint32_t segment = 0;
  uint32_t inputs = 0;
  std::vector<Step> steps;
  std::vector<uint32_t> operands;  // indices into `tensors`, kNoOperand where absent
  std::vector<TensorRef> tensors;
  std::vector<Patch> patches;
  size_t temporary_bytes = 0;
  size_t alive_bytes = 0;        // of temporaries, the most at one step: no packing needs less
  std::vector<size_t> escaping;  // bytes of each block that outlives the segment
  std::vector<Output> outputs;
  std::vector<Tensor> literals;  // contents that follow from shapes
  std::vector<char*> bases;      // of the last run; `patches` were applied with them

  size_t bytes() const;
  // Whether a tensor lies in memory of this form.
  bool IsLiteral(uint32_t tensor) const;
};

// Resolves a segment for tensors that look like `inputs`; `frame` holds the symbols known at its entry and is used as
// scratch. nullptr when something in it cannot be resolved from shapes alone; an error when the shapes themselves are
// wrong.
Result<std::unique_ptr<StaticForm>> ResolveSegment(const LoadedProgram& program, int segment,
                                                   std::span<const TensorRef> inputs, std::span<int64_t> frame,
                                                   ShapeRule* rule);

}  // namespace kiln
