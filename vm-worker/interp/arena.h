// Run-time memory of one thread's interpreter: a few mapped chunks, cut into reference-counted blocks.
//
// Chunks have an inaccessible page at both ends, lie on huge pages where the host allows and are otherwise touched
// once. All blocks of a run are let go together by Recycle, which also joins what a growing run left in several chunks
// into one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/memory_budget.h"
#include "common/base/result.h"
#include "vm-worker/interp/range_allocator.h"

namespace kiln {

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;
inline constexpr size_t kArenaAlignment = 64;

struct ArenaStats {
  size_t reserved_bytes = 0;  // mapped, without guard pages
  size_t used_bytes = 0;
  size_t peak_bytes = 0;    // most used at once since the arena exists
  uint64_t mappings = 0;    // chunks mapped since the arena exists
  bool huge_pages = false;  // whether the newest chunk was offered to huge pages
};

// Not thread-safe.
class Arena {
 public:
  // `budget` may be null; outlives this. What is mapped is booked there as arenas.
  explicit Arena(size_t limit_bytes, MemoryBudget* budget = nullptr) : limit_(limit_bytes), budget_(budget) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block with one reference, aligned to kArenaAlignment (also at 0 bytes). ResourceExhausted past the limit or when
  // the system gives no memory.
  Result<BlockId> Allocate(size_t bytes);
  void* data(BlockId block) const { return blocks_[static_cast<size_t>(block)].data; }
  size_t size(BlockId block) const { return blocks_[static_cast<size_t>(block)].bytes; }
  void Retain(BlockId block) { ++blocks_[static_cast<size_t>(block)].references; }
  void Release(BlockId block);
  // Ends every block.
  void Recycle();
  // Gives all memory back to the system. Precondition: no block is in use.
  void Trim();
  const ArenaStats& stats() const { return stats_; }

 private:
  struct Chunk {
    char* base = nullptr;
    size_t bytes = 0;
    RangeAllocator ranges{0};
    MemoryCharge charge;
  };
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
    int32_t chunk = 0;
    int32_t references = 0;
  };
  Status AddChunk(size_t bytes);
  void RemoveChunks();

  const size_t limit_;
  MemoryBudget* budget_;
  std::vector<Chunk> chunks_;
  std::vector<Block> blocks_;
  std::vector<BlockId> free_blocks_;
  size_t run_peak_ = 0;
  ArenaStats stats_;
};

}  // namespace kiln
