#include "vm-worker/interp/range_allocator.h"

#include <algorithm>

namespace kiln {

void RangeAllocator::Reset(size_t size) {
  size_ = size;
  free_.clear();
  if (size > 0) free_.push_back({0, size});
}

std::optional<size_t> RangeAllocator::Allocate(size_t bytes) {
  size_t best = free_.size(), best_size = 0;
  for (size_t i = 0; i < free_.size(); ++i) {
    const size_t size = free_[i].end - free_[i].begin;
    if (size < bytes || (best < free_.size() && size >= best_size)) continue;
    best = i;
    best_size = size;
    if (size == bytes) break;
  }
  if (best == free_.size()) return std::nullopt;
  const size_t offset = free_[best].begin;
  free_[best].begin += bytes;
  if (free_[best].begin == free_[best].end) free_.erase(free_.begin() + static_cast<ptrdiff_t>(best));
  return offset;
}

void RangeAllocator::Free(size_t offset, size_t bytes) {
  auto next = std::lower_bound(free_.begin(), free_.end(), offset,
                               [](const Range& range, size_t at) { return range.begin < at; });
  const bool joins_next = next != free_.end() && next->begin == offset + bytes;
  if (next != free_.begin()) {
    auto previous = next - 1;
    if (previous->end == offset) {
      previous->end = offset + bytes;
      if (joins_next) {
        previous->end = next->end;
        free_.erase(next);
      }
      return;
    }
  }
  if (joins_next) {
    next->begin = offset;
  } else {
    free_.insert(next, {offset, offset + bytes});
  }
}

}  // namespace kiln
