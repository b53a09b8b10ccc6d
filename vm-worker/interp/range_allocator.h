// Offsets within [0, size): best fit over sorted free ranges, lowest offset among equals. Deterministic; holds no
// memory itself.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace kiln {

// Not thread-safe. Sizes are multiples of one alignment of the caller's choice.
class RangeAllocator {
 public:
  explicit RangeAllocator(size_t size) { Reset(size); }

  // Everything is free again.
  void Reset(size_t size);
  std::optional<size_t> Allocate(size_t bytes);  // precondition: bytes > 0
  void Free(size_t offset, size_t bytes);        // precondition: was allocated with the same size
  bool IsWholeFree() const { return free_.size() == 1 && free_[0].begin == 0 && free_[0].end == size_; }
  size_t size() const { return size_; }

 private:
  struct Range {
    size_t begin;
    size_t end;
  };
  size_t size_ = 0;
  std::vector<Range> free_;  // sorted, never adjacent
};

}  // namespace kiln
