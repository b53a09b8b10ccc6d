// The interpreter: runs loaded programs, one VmContext per thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random_bits.h"
#include "common/base/result.h"
#include "common/tensor/tensor.h"
#include "vm-worker/interp/arena.h"
#include "vm-worker/interp/loaded_program.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln {

struct VmOptions {
  size_t arena_limit_bytes = size_t{1} << 36;  // temporary memory of a run; outputs that Run copies may have as much
  MemoryBudget* budget = nullptr;              // where temporary memory is booked; outlives the context
  // Bounds of the memoised static forms, over all programs of the context; the newest one is always kept.
  size_t memo_bytes = size_t{3} << 19;
  size_t memo_entries = 1024;
  // Programs whose registers, forms and random sequences are kept; the one that ran longest ago goes first.
  size_t programs = 16;
  const Clock* clock = &SystemClock();  // for SegmentHook::Leave and deadlines
  // Seeds the nodes that draw random numbers and have no attribute `seed`: asked whenever the context begins with a
  // program that has nodes which draw.
  RandomBits random = SystemRandomBits;
};

struct RunOptions {
  SegmentHook* hook = nullptr;
  bool static_forms = true;  // false: every instruction in its variant form
  // Values of symbols that no input shows, indexed by symbol; may be shorter. -1: none.
  std::span<const int64_t> symbols;
  // On the context's clock; a run that goes on past it ends with DeadlineExceeded: looked at between the trips of
  // loops, between segments, and every few steps within them. 0: none.
  int64_t deadline_ns = 0;
};

struct VmStats {
  uint64_t runs = 0;
  uint64_t memo_hits = 0;
  uint64_t memo_misses = 0;
  uint64_t memo_evictions = 0;
  size_t memo_entries = 0;
  size_t memo_bytes = 0;
  ArenaStats arena;
};

// Not thread-safe. After an error the context is as usable as before the call. Nodes that draw random numbers draw
// others every time they run, those with an attribute `seed` along a sequence that is the seed's. A context that lets
// go of a program (VmOptions::programs) and meets it again begins with it as a fresh one does: these sequences start
// over, and the other nodes have a new seed.
class VmContext {
 public:
  explicit VmContext(const VmOptions& options = {});
  ~VmContext();
  VmContext(const VmContext&) = delete;
  VmContext& operator=(const VmContext&) = delete;

  // Checks the inputs (any strides, element alignment) against the program's: an error names input, dimension and
  // constraint. Outputs are copies that own their memory.
  Result<std::vector<Tensor>> Run(const LoadedProgram& program, std::span<const TensorRef> inputs,
                                  const RunOptions& options = {});
  // As Run, without copying: outputs lie in the context's arena, in an input or in a constant, may have any strides,
  // and are valid until the next run. Makes no heap allocation once the signatures of its segments are known.
  Result<std::span<const TensorRef>> RunBorrowed(const LoadedProgram& program, std::span<const TensorRef> inputs,
                                                 const RunOptions& options = {});

  VmStats stats() const;
  // Lets go of all temporary memory, for an idle worker. Outputs of RunBorrowed end.
  void Trim();

 private:
  std::unique_ptr<struct VmState> state_;
};

// Contiguous copies of outputs that own their memory. A view may be far larger than the memory that it shows (Expand):
// ResourceExhausted if together they need more than `limit_bytes`, before anything is copied.
Result<std::vector<Tensor>> CopyOutputs(std::span<const TensorRef> outputs, size_t limit_bytes);

// Runs one canonical segment, loaded by LoadSegmentBody, on given tensors: what validation, shadow checks and tests
// compare with.
Result<std::vector<Tensor>> RunSegment(VmContext& context, const LoadedProgram& body, const Segment& segment,
                                       std::span<const TensorRef> inputs, std::span<const TensorRef> weights,
                                       std::span<const int64_t> parameters, const RunOptions& options = {});

}  // namespace kiln
