// Long sums: the tiles of a panel go through k together, block by block.
#include "compile-service/codegen/llvm/contraction_emitter.h"

namespace kiln::codegen {

using llvm::Value;

namespace {

// A part of a panel that stays in the second-level cache beside the next one and the rows of A, and how many row tiles
// pass over it while their sums wait in memory.
constexpr int64_t kBlockBytes = 192 << 10;
constexpr int64_t kBlockTiles = 32;

}  // namespace

// Steps of k per block, or 0: the panels are short, or read once.
int64_t ContractionEmitter::BlockOf() const {
  if (spec_.conv || !spec_.b_panels || spec_.k.is_argument || is_bytes()) return 0;
  if (!spec_.m.is_argument && spec_.m.value <= 2 * int64_t{spec_.tile.mr}) return 0;
  const int64_t k = spec_.k.value, most = kBlockBytes / (width_ * DTypeBytes(spec_.b.storage));
  if (k <= most + most / 4) return 0;
  const int64_t blocks = (k + most - 1) / most;
  return ((k + blocks - 1) / blocks + 1) / 2 * 2;
}

// Tiles of one panel go through k together, block by block, so that the block of the panel and a stretch of their rows
// are near while they are used.
void ContractionEmitter::EmitBlocked(int64_t block) {
  const int64_t k = spec_.k.value;
  Value* sums = NewVectors(e_, tile_vectors() * kBlockTiles);
  e_.LoopFrom(frame_.begin(), frame_.end(), [&](Value* at) {
    const Item first = Decode(at);
    Value* count = TilesTogether(first, at);
    auto each_tile = [&](const std::function<void(const Item& item, Value* sums)>& body) {
      e_.Loop(e_.I64(0), count, 1, {}, [&](Value* t, const Values&) {
        Item item = first;
        item.tile = b_.CreateAdd(first.tile, t);
        body(item, VectorAt(e_, sums, b_.CreateMul(t, e_.I64(tile_vectors()))));
        return Values{};
      });
    };
    Value* vectors = b_.CreateMul(count, e_.I64(tile_vectors()));
    e_.Loop(e_.I64(0), vectors, 1, {}, [&](Value* i, const Values&) {
      StoreVectors(e_, {e_.Zero(DType::kF32)}, VectorAt(e_, sums, i));
      return Values{};
    });
    e_.Loop(e_.I64(0), e_.I64(k), block, {}, [&](Value* begin, const Values&) {
      Value* steps = k % block == 0 ? e_.I64(block) : Smaller(b_.CreateSub(e_.I64(k), begin), block);
      each_tile([&](const Item& item, Value* place) { AccumulateBlock(item, begin, steps, block, place); });
      return Values{};
    });
    each_tile([&](const Item& item, Value* place) {
      buffer_ = place;
      StoreTile(PlaceOf(item), Panel::kEither, LoadVectors(e_, place, tile_vectors()));
    });
    return b_.CreateAdd(at, count);
  });
}

// How many tiles of the panel, from `item` on, are in the range and go together.
Value* ContractionEmitter::TilesTogether(const Item& item, Value* at) {
  Value* in_range = b_.CreateSub(frame_.end(), at);
  Value* in_panel = b_.CreateSub(tiles_, item.tile);
  return Smaller(b_.CreateSelect(b_.CreateICmpSLT(in_range, in_panel), in_range, in_panel), kBlockTiles);
}

// Panels lie one behind the other, so the next block is always the memory behind this one.
void ContractionEmitter::AccumulateBlock(const Item& item, Value* begin, Value* steps, int64_t block, Value* sums) {
  const Place place = PlaceOf(item);
  const size_t batch = spec_.batch.size();
  Value* stride = frame_.Int(spec_.a.strides[batch]);
  Value* a_offset =
      b_.CreateAdd(b_.CreateMul(place.row, stride), b_.CreateMul(begin, frame_.Int(spec_.a.strides[batch + 1])));
  Value* a = e_.Address(Base(spec_.a, place.batch), spec_.a.storage, a_offset);
  Value* b_offset = b_.CreateAdd(b_.CreateMul(place.column, frame_.Int(spec_.k)), b_.CreateMul(begin, e_.I64(width_)));
  Value* b = e_.Address(Base(spec_.b, place.batch), spec_.b.storage, b_offset);
  const TileRows rows = StridedRows(e_, spec_.a.storage, a, stride, place.rows, spec_.tile.mr);
  MicroKernel kernel = KernelWith({LineAhead(place, e_.I64(block * width_))});
  Value* address = b_.CreateFreeze(sums);
  Values values = kernel.Zero();
  const Values before = LoadVectors(e_, address, tile_vectors());
  std::copy(before.begin(), before.end(), values.begin());
  kernel.Accumulate(rows, steps, BColumns(place, Panel::kWhole), b, values);
  StoreVectors(e_, kernel.Finish(values), address);
}

}  // namespace kiln::codegen
