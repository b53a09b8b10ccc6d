#include "vm-worker/interp/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/checked_math.h"
#include "common/base/sanitizer.h"

namespace kiln {
namespace {

constexpr size_t kChunkBytesMin = size_t{1} << 18;
constexpr size_t kHugePage = size_t{2} << 20;

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t RoundTo(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

Arena::~Arena() {
  RemoveChunks();
}

void Arena::RemoveChunks() {
  for (Chunk& chunk : chunks_) {
    AllowAccess(chunk.base, chunk.bytes);
    munmap(chunk.base - PageBytes(), chunk.bytes + 2 * PageBytes());
  }
  chunks_.clear();
  stats_.reserved_bytes = 0;
}

Status Arena::AddChunk(size_t bytes) {
  bytes = RoundTo(std::max(bytes, kChunkBytesMin), bytes >= kHugePage ? kHugePage : PageBytes());
  if (bytes > limit_ - std::min(limit_, stats_.reserved_bytes))
    return Fail(ErrorCode::kResourceExhausted, "the run needs " + std::to_string(stats_.reserved_bytes + bytes) +
                                                   " bytes of temporary memory; the limit is " +
                                                   std::to_string(limit_));
  ASSIGN_OR_RETURN(MemoryCharge charge, MemoryCharge::Take(budget_, MemoryUse::kArenas, static_cast<int64_t>(bytes)));
  void* mapped = mmap(nullptr, bytes + 2 * PageBytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return Fail(ErrorCode::kResourceExhausted,
                "mapping " + std::to_string(bytes) + " bytes failed: " + std::strerror(errno));
  char* base = static_cast<char*>(mapped) + PageBytes();
  if (mprotect(base, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, bytes + 2 * PageBytes());
    return Fail(ErrorCode::kResourceExhausted,
                "making " + std::to_string(bytes) + " bytes writable failed: " + std::strerror(errno));
  }
  // Children that run unproven code (RunContained) get no copy of it: forking stays cheap, and a store into it faults.
  (void)madvise(mapped, bytes + 2 * PageBytes(), MADV_DONTFORK);
  stats_.huge_pages = bytes >= kHugePage && madvise(base, bytes, MADV_HUGEPAGE) == 0;
  if (!stats_.huge_pages)
    (void)madvise(base, bytes, MADV_POPULATE_WRITE);  // page faults now or in the first run: only time differs
  ForbidAccess(base, bytes);
  chunks_.push_back({base, bytes, RangeAllocator(bytes), std::move(charge)});
  stats_.reserved_bytes += bytes;
  ++stats_.mappings;
  return {};
}

Result<BlockId> Arena::Allocate(size_t bytes) {
  if (bytes > limit_)
    return Fail(ErrorCode::kResourceExhausted, std::to_string(bytes) + " bytes for tensors pass the limit of " +
                                                   std::to_string(limit_) + " bytes of temporary memory");
  const size_t size = RoundTo(std::max<size_t>(bytes, 1), kArenaAlignment);
  std::optional<size_t> offset;
  size_t chunk = 0;
  for (; chunk < chunks_.size() && !offset; ++chunk) offset = chunks_[chunk].ranges.Allocate(size);
  if (!offset) {
    // Chunks that are too small for a run's first block would only count against the limit.
    if (stats_.used_bytes == 0) RemoveChunks();
    RETURN_IF_ERROR(AddChunk(std::max(size, std::min(stats_.reserved_bytes, limit_ - stats_.reserved_bytes))));
    offset = chunks_.back().ranges.Allocate(size);
    chunk = chunks_.size();
  }
  --chunk;
  if (free_blocks_.empty()) {
    free_blocks_.push_back(static_cast<BlockId>(blocks_.size()));
    blocks_.emplace_back();
  }
  const BlockId id = free_blocks_.back();
  free_blocks_.pop_back();
  char* data = chunks_[chunk].base + *offset;
  AllowAccess(data, bytes);
  Scribble(data, bytes);
  blocks_[static_cast<size_t>(id)] = {data, size, static_cast<int32_t>(chunk), 1};
  stats_.used_bytes += size;
  run_peak_ = std::max(run_peak_, stats_.used_bytes);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.used_bytes);
  return id;
}

void Arena::Release(BlockId id) {
  Block& block = blocks_[static_cast<size_t>(id)];
  KILN_CHECK(block.references > 0);
  if (--block.references > 0) return;
  Chunk& chunk = chunks_[static_cast<size_t>(block.chunk)];
  ForbidAccess(block.data, block.bytes);
  chunk.ranges.Free(static_cast<size_t>(static_cast<char*>(block.data) - chunk.base), block.bytes);
  stats_.used_bytes -= block.bytes;
  free_blocks_.push_back(id);
}

void Arena::Recycle() {
  if (stats_.used_bytes > 0) {
    free_blocks_.clear();
    for (size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].references > 0) ForbidAccess(blocks_[i].data, blocks_[i].bytes);
      blocks_[i].references = 0;
      free_blocks_.push_back(static_cast<BlockId>(i));
    }
    for (Chunk& chunk : chunks_) chunk.ranges.Reset(chunk.bytes);
    stats_.used_bytes = 0;
  }
  if (chunks_.size() > 1) {
    // One chunk that holds what the last run held; if it cannot be had, the next run grows again from nothing.
    RemoveChunks();
    (void)AddChunk(run_peak_ + run_peak_ / 4);
  }
  run_peak_ = 0;
}

void Arena::Trim() {
  KILN_CHECK(stats_.used_bytes == 0);
  RemoveChunks();
}

}  // namespace kiln
