// How a block's threads share a tile of a contraction: each has a small matrix of sums in registers, made from slices
// of both factors that lie in shared memory, twice, so that one is filled while the other is used.
#pragma once

#include <cstdint>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen::cuda {

struct ThreadTile {
  int64_t width = 0;             // columns of a block: those of a panel
  int64_t columns = 0;           // of a thread, in groups of four that are `across * 4` apart
  int64_t across = 0, down = 0;  // threads that have sums
  int64_t rows = 0;              // of a thread
  int64_t depth = 0;             // of a slice, in steps of k
  int64_t pass_rows() const { return down * rows; }
  // Whole warps: the last threads may have no sums, and only load.
  int64_t threads() const;
  bool has_idle_threads() const { return threads() != across * down; }
  int64_t row_pitch() const { return pass_rows() + 4; }  // of the left slice: fewer threads meet in one bank
  int64_t left_words() const { return depth * row_pitch(); }
  int64_t slice_words() const { return left_words() + depth * width; }
  // Shared words: two slices, or the pass's sums on their way to the epilogue.
  int64_t shared_words() const;
};

// For any tile that VerifySpec lets through; where a tile has more rows than the threads hold, it takes several passes.
ThreadTile ThreadTileFor(const ir::Tile& tile);

}  // namespace kiln::codegen::cuda
