#include "compile-service/lower/tiles.h"

#include <algorithm>

namespace kiln::lower {
namespace {

struct TileRow {
  int rung;
  int32_t mr, nv;
  int64_t m_max;  // 0: any
  double efficiency;
};

constexpr TileRow kTiles[] = {
#define KILN_TILE(rung, mr, nv, m_max, efficiency) {rung, mr, nv, m_max, efficiency},
#include "compile-service/lower/tiles.def"
#undef KILN_TILE
};

// Rungs above 4 have the registers of rung 4; devices share one set of tiles.
int TileRung(const TargetInfo& info) {
  if (info.is_device()) return 80;
  return info.architecture == Architecture::kArm ? 1 : std::min(info.rung, 4);
}

// Row tiles pass over a panel while it is in the second-level cache, and the next one is on its way there: larger
// panels fall out.
constexpr int64_t kPanelBytesMax = 640 << 10;
constexpr double kLargePanel = 0.75;
// Up to here each panel is read once anyway.
constexpr int64_t kStreamingRows = 8;

int64_t RoundUp(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

double Work(const TargetInfo& info, const TileRow& row, int64_t m, int64_t n, int64_t k) {
  const int64_t rows = RoundUp(m, row.mr), columns = RoundUp(n, row.nv * info.f32_lanes());
  const double work = static_cast<double>(rows) * static_cast<double>(columns) / row.efficiency;
  return m > kStreamingRows && k * row.nv * info.vector_bytes > kPanelBytesMax ? work / kLargePanel : work;
}

bool ForRows(const TileRow& row, int64_t m) {
  return row.m_max == 0 || m <= row.m_max;
}

// The tile with the least work among those that `fits`.
template <class Fits>
ir::Tile Least(Target target, int64_t m, int64_t n, int64_t k, Fits fits) {
  const TargetInfo& info = InfoOf(target);
  ir::Tile best;
  double least = 0;
  for (const TileRow& row : kTiles) {
    if (row.rung != TileRung(info) || !fits(row)) continue;
    const double work = Work(info, row, m, n, k);
    if (least == 0 || work < least) {
      least = work;
      best = {row.mr, row.nv};
    }
  }
  return best;
}

// Divisible by the rows of every tile, so that none wastes any.
constexpr int64_t kManyRows = 840;

}  // namespace

ir::Tile DotTile(Target target, int64_t m) {
  // One vector of sums, or what the columns worked on together fill.
  return {static_cast<int32_t>(std::clamp<int64_t>(m, 1, ir::kDotRowsMax)), InfoOf(target).f32_lanes() == 4 ? 2 : 1};
}

ir::Tile ChooseTile(Target target, int64_t m, int64_t n, int64_t k, bool packed, int64_t vectors_max) {
  m = std::max<int64_t>(m, 1);
  n = std::max<int64_t>(n, 1);
  const auto for_rows = [&](const TileRow& row) { return ForRows(row, m); };
  if (!packed) return Least(target, m, n, k, for_rows);
  const int32_t width =
      Least(target, kManyRows, n, k, [&](const TileRow& row) { return row.m_max == 0 && row.nv <= vectors_max; }).nv;
  return Least(target, m, n, k, [&](const TileRow& row) { return row.nv == width && for_rows(row); });
}

std::vector<ir::Tile> OtherTiles(Target target, int64_t m, int64_t n, int64_t k, ir::Tile chosen, bool width_fixed) {
  m = std::max<int64_t>(m, 1);
  n = std::max<int64_t>(n, 1);
  const TargetInfo& info = InfoOf(target);
  std::vector<TileRow> rows;
  for (const TileRow& row : kTiles)
    if (row.rung == TileRung(info) && ForRows(row, m) && (!width_fixed || row.nv == chosen.nv) &&
        ir::Tile{row.mr, row.nv} != chosen)
      rows.push_back(row);
  std::ranges::stable_sort(rows, {}, [&](const TileRow& row) { return Work(info, row, m, n, k); });
  std::vector<ir::Tile> tiles;
  for (const TileRow& row : rows) tiles.push_back({row.mr, row.nv});
  return tiles;
}

}  // namespace kiln::lower
