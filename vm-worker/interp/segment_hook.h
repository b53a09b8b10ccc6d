// Where another way of running segments plugs in (plans, profiles, shadow checks).
#pragma once

#include <cstdint>
#include <span>

#include "common/segment/segment.h"
#include "common/signature/signature.h"
#include "common/tensor/tensor.h"

namespace kiln {

class LoadedProgram;

// Memory of the running interpreter, for a hook.
class SegmentMemory {
 public:
  virtual ~SegmentMemory() = default;
  // Memory for output `index` of the segment: 64-byte aligned, uninitialised, alive as long as the tensor is used.
  // nullptr when out of memory. A second call for the same output replaces the first.
  virtual void* AllocateOutput(size_t index, size_t bytes) = 0;
  // Alive until Enter returns.
  virtual void* AllocateScratch(size_t bytes) = 0;
};

// One entry of a segment. Everything in it is valid until Leave has returned, or until Enter has when it runs the
// segment.
struct SegmentEntry {
  const LoadedProgram* program;
  int segment;                         // index into LoadedProgram::segments()
  std::span<const TensorRef> inputs;   // run-time inputs, canonical order
  std::span<const TensorRef> weights;  // canonical order
  std::span<const int64_t> parameters;
  const Signature* signature;    // of inputs and parameters
  std::span<TensorRef> outputs;  // canonical order; Enter fills them when it runs the segment, Leave reads them
  SegmentMemory* memory;
  int64_t deadline_ns = 0;  // of the run, on SystemClock; 0: none
};

enum class SegmentVerdict : uint8_t {
  kInterpret,         // not taken
  kInterpretAndTell,  // not taken; call Leave afterwards
  kExecuted,          // outputs are filled: memory from AllocateOutput, or views of inputs or weights
};

// Called on the interpreter's thread, never concurrently for one context.
class SegmentHook {
 public:
  virtual ~SegmentHook() = default;
  virtual SegmentVerdict Enter(const SegmentEntry& entry) = 0;
  // The interpreter has run the segment in `elapsed_ns`; `entry.outputs` are its results.
  virtual void Leave(const SegmentEntry& entry, int64_t elapsed_ns) = 0;
};

}  // namespace kiln
