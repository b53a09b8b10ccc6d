#include "compile-service/lower/tiles.h"

#include <algorithm>

namespace kiln::lower {
namespace {

struct TileRow {
  int rung;
  int32_t mr, nv;
  int64_t m_max;   // 0: any
  double efficiency;
};

constexpr TileRow kTiles[] = {
#define KILN_TILE(rung, mr, nv, m_max, efficiency) {rung, mr, nv, m_max, efficiency},
#include "compile-service/lower/tiles.def"
#undef KILN_TILE
};

// Rungs above 4 have the registers of rung 4.
int TileRung(const TargetInfo& info) { return info.architecture == Architecture::kArm ? 1 : std::min(info.rung, 4); }

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

ir::Tile ChooseTile(Target target, int64_t m, int64_t n) {
  const TargetInfo& info = InfoOf(target);
  m = std::max<int64_t>(m, 1);
  n = std::max<int64_t>(n, 1);
  ir::Tile best;
  double least = 0;
  for (const TileRow& row : kTiles) {
    if (row.rung != TileRung(info) || (row.m_max != 0 && m > row.m_max)) continue;
    const int64_t rows = RoundUp(m, row.mr), columns = RoundUp(n, row.nv * info.f32_lanes());
    const double work = static_cast<double>(rows) * static_cast<double>(columns) / row.efficiency;
    if (least == 0 || work < least) {
      least = work;
      best = {row.mr, row.nv};
    }
  }
  return best;
}

}  // namespace kiln::lower
