#include "compile-service/codegen/cuda/contraction_tile.h"

#include <algorithm>

#include "compile-service/codegen/cuda/cuda_source.h"

namespace kiln::codegen::cuda {
namespace {

constexpr int64_t kWarp = 32, kGroup = 4;
constexpr int64_t kDepth = 16;      // of a slice, where there is room
constexpr int64_t kSumsMax = 32;    // of a thread
constexpr int64_t kColumnsMax = 8;  // of a thread
constexpr int64_t kRowsMax = 4;     // of a thread
constexpr int64_t kLoadsMax = 8;    // of one factor's slice, of a thread

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int64_t ThreadTile::threads() const {
  return CeilDiv(across * down, kWarp) * kWarp;
}

int64_t ThreadTile::shared_words() const {
  return std::max(2 * slice_words(), pass_rows() * width);
}

ThreadTile ThreadTileFor(const ir::Tile& tile) {
  ThreadTile t;
  t.width = tile.nv * kWarp;
  t.columns = t.width < kColumnsMax * kWarp ? kGroup : kColumnsMax;
  t.across = t.width / t.columns;
  const int64_t down_max = std::max<int64_t>(kBlockThreads / t.across, 1);
  t.rows = std::clamp<int64_t>(CeilDiv(tile.mr, down_max), 1, std::min(kRowsMax, kSumsMax / t.columns));
  t.down = std::min(CeilDiv(tile.mr, t.rows), down_max);
  t.depth = kDepth;
  constexpr int64_t kWords = kStaticSharedBytes / 4;
  const auto too_deep = [&] {
    return 2 * t.slice_words() > kWords || t.depth * std::max(t.width, t.pass_rows()) > kLoadsMax * t.threads();
  };
  while (too_deep() && t.depth > kGroup) t.depth /= 2;
  while (t.shared_words() > kWords && t.down > 1) --t.down;
  while (t.shared_words() > kWords && t.rows > 1) --t.rows;
  return t;
}

}  // namespace kiln::codegen::cuda
