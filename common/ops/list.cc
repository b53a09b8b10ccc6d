#include "common/ops/list.h"

#include <algorithm>
#include <memory>

namespace kiln {
namespace {

constexpr size_t kAlignment = 16;
constexpr size_t kFirstChunkBytes = size_t{16} << 10;
// What a thread keeps between calls.
constexpr size_t kKeptBytesMax = size_t{1} << 20;

// Chunks are filled one after the other, and all are empty again when the last list has gone.
class ListMemory {
 public:
  void* Take(size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    while (chunk_ < chunks_.size() && chunks_[chunk_].bytes - used_ < bytes) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      const size_t size = std::max(bytes, chunks_.empty() ? kFirstChunkBytes : 2 * chunks_.back().bytes);
      chunks_.push_back({std::make_unique<std::byte[]>(size), size});
      total_ += size;
    }
    void* const taken = chunks_[chunk_].memory.get() + used_;
    used_ += bytes;
    ++lists_;
    return taken;
  }

  void Return(void* memory, size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ >= bytes && chunks_[chunk_].memory.get() + used_ - bytes == memory) used_ -= bytes;
    if (--lists_ > 0) return;
    chunk_ = used_ = 0;
    if (total_ <= kKeptBytesMax) return;
    chunks_.clear();
    total_ = 0;
  }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> memory;  // operator new aligns to 16 bytes
    size_t bytes;
  };
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0, used_ = 0;  // where the next list goes
  size_t lists_ = 0, total_ = 0;
};

static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= kAlignment);
thread_local ListMemory list_memory;

}  // namespace

void* TakeListMemory(size_t bytes) {
  return list_memory.Take(bytes);
}
void ReturnListMemory(void* memory, size_t bytes) {
  list_memory.Return(memory, bytes);
}

}  // namespace kiln
