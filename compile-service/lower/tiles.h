// Choice of register tiles (tiles.def).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/artifact/target.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::lower {

// The tile with the least estimated work for a product of m rows, n columns and k steps; sizes are hints (any tile is
// correct for all). `packed`: for weights, whose width follows from n and k alone, so that plans for other rows share
// them, and is at most `vectors_max`.
ir::Tile ChooseTile(Target target, int64_t m, int64_t n, int64_t k, bool packed,
                    int64_t vectors_max = std::numeric_limits<int64_t>::max());
// Other tiles for the same product, the least estimated work first; of one width where weights are packed already
// (`width_fixed`).
std::vector<ir::Tile> OtherTiles(Target target, int64_t m, int64_t n, int64_t k, ir::Tile chosen, bool width_fixed);

// The tile for dot products of few rows (at most kDotRowsMax) with the rows of a transposed B.
ir::Tile DotTile(Target target, int64_t m);

}  // namespace kiln::lower
