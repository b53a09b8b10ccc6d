// Long sums, and sums over a transposed B: the tiles of a panel go through k together, block by block.
#include <algorithm>
#include <limits>

#include "compile-service/codegen/llvm/contraction_emitter.h"

namespace kiln::codegen {

using llvm::Value;

namespace {

// A part of a panel that stays in the second-level cache beside the next one and the rows of A, and how many row tiles
// pass over it while their sums wait in memory.
constexpr int64_t kBlockBytes = 192 << 10;
constexpr int64_t kBlockTiles = 64;
// Blocks of a transposed panel lie on the stack. With few tiles to pass over it, transposing is much of the work, and
// better done into the first-level cache.
constexpr int64_t kFewTilesBytes = 24 << 10;
constexpr int64_t kFewTiles = 8;

}  // namespace

// Steps of k in even blocks of at most so many bytes of a panel, about.
int64_t ContractionEmitter::BlockOf(int64_t bytes) const {
  constexpr int64_t kUnit = 4;
  const int64_t most = bytes / (width_ * DTypeBytes(spec_.b.storage)), k = spec_.k.value;
  if (spec_.k.is_argument) return most;
  if (k <= most + most / 4) return std::max<int64_t>(k, 1);
  const int64_t blocks = (k + most - 1) / most;
  return ((k + blocks - 1) / blocks + kUnit - 1) / kUnit * kUnit;
}

// 0: the panels are short, or read once.
int64_t ContractionEmitter::LongestBlock() const {
  if (spec_.conv || spec_.b_layout == ir::BLayout::kRows || takes_dots() || is_bytes()) return 0;
  const int64_t block = BlockOf(kBlockBytes);
  if (is_transposed()) return block;
  if (spec_.k.is_argument || spec_.k.value <= block) return 0;
  return !spec_.m.is_argument && spec_.m.value <= 2 * int64_t{spec_.tile.mr} ? 0 : block;
}

// Tiles of one panel go through k together, block by block, so that the block of the panel and a stretch of their rows
// are near while they are used.
void ContractionEmitter::EmitBlocked(int64_t longest) {
  const int64_t shortest = is_transposed() ? BlockOf(kFewTilesBytes) : longest;
  Value* k = frame_.Int(spec_.k);
  Value* few = b_.CreateICmpSLE(tiles_, e_.I64(kFewTiles));
  Value* length = b_.CreateSelect(few, e_.I64(shortest), e_.I64(longest));
  if (shortest == longest) length = e_.I64(longest);
  const bool even = shortest == longest && !spec_.k.is_argument && spec_.k.value > 0 && spec_.k.value % longest == 0;
  Value* in_one = b_.CreateICmpSLE(k, length);
  Value* most = b_.CreateSelect(in_one, e_.I64(std::numeric_limits<int64_t>::max()), e_.I64(kBlockTiles));
  if (is_transposed()) transposed_ = NewVectors(e_, longest * spec_.tile.nv);
  Value* waiting = llvm::isa<llvm::Constant>(in_one) && !llvm::cast<llvm::Constant>(in_one)->isNullValue()
                       ? nullptr
                       : NewVectors(e_, tile_vectors() * kBlockTiles);
  e_.LoopFrom(frame_.begin(), frame_.end(), [&](Value* at) {
    const Item first = Decode(at);
    Value* count = TilesTogether(first, at, most);
    auto emit = [&](Value* begin) {
      Value* left = b_.CreateSub(k, begin);
      Value* ends = b_.CreateICmpSLE(left, length);
      Value* steps = even ? length : b_.CreateSelect(ends, left, length);
      const Block block{begin, steps, length, b_.CreateICmpEQ(begin, e_.I64(0)), ends};
      if (is_transposed()) TransposeBlock(first, block);
      EmitBlock(first, count, block, waiting);
      return b_.CreateAdd(begin, length);
    };
    // Without any k, once: sums over nothing.
    if (waiting == nullptr)
      emit(e_.I64(0));
    else
      e_.LoopFrom(e_.I64(0), k, emit);
    return b_.CreateAdd(at, count);
  });
}

void ContractionEmitter::EmitBlock(const Item& first, Value* count, const Block& block, Value* waiting) {
  const auto size = static_cast<size_t>(tile_vectors());
  const Values zero(size, e_.Zero(DType::kF32));
  e_.Loop(e_.I64(0), count, 1, {}, [&](Value* t, const Values&) {
    Item item = first;
    item.tile = b_.CreateAdd(first.tile, t);
    const Place place = PlaceOf(item);
    if (waiting == nullptr) {
      StoreTile(place, KnownPanel(), BlockSums(place, block, zero));
      return Values{};
    }
    // With all of k in one block any number of tiles go together, and none of them waits.
    Value* slot = b_.CreateSelect(b_.CreateAnd(block.is_first, block.is_last), e_.I64(0), t);
    Value* address = b_.CreateFreeze(VectorAt(e_, waiting, b_.CreateMul(slot, e_.I64(tile_vectors()))));
    const Values before =
        e_.IfElse(block.is_first, [&] { return zero; }, [&] { return LoadVectors(e_, address, size); });
    const Values sums = BlockSums(place, block, before);
    buffer_ = address;
    return e_.IfElse(
        block.is_last,
        [&] {
          StoreTile(place, KnownPanel(), sums);
          return Values{};
        },
        [&] {
          StoreVectors(e_, sums, address);
          return Values{};
        });
  });
}

// How many tiles of the panel, from `item` on, are in the range and go together.
Value* ContractionEmitter::TilesTogether(const Item& item, Value* at, Value* most) {
  auto smaller = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); };
  Value* in_range = b_.CreateSub(frame_.end(), at);
  Value* in_panel = b_.CreateSub(BlockEnd(item.first), item.tile);
  return smaller(smaller(in_range, in_panel), most);
}

// `before` + the products of one block. Panels lie one behind the other, so the next block is always the memory behind
// this one.
Values ContractionEmitter::BlockSums(const Place& place, const Block& block, const Values& before) {
  const size_t batch = spec_.batch.size();
  Value* stride = frame_.Int(spec_.a.strides[batch]);
  Value* a_offset =
      b_.CreateAdd(b_.CreateMul(place.row, stride), b_.CreateMul(block.begin, frame_.Int(spec_.a.strides[batch + 1])));
  Value* a = e_.Address(Base(spec_.a, place.batch), spec_.a.storage, a_offset);
  Value* b = transposed_;
  Prefetches many;
  if (!is_transposed()) {
    Value* offset =
        b_.CreateAdd(b_.CreateMul(place.column, frame_.Int(spec_.k)), b_.CreateMul(block.begin, e_.I64(width_)));
    b = e_.Address(Base(spec_.b, place.batch), spec_.b.storage, offset);
    many = {LineAhead(place, b_.CreateMul(block.length, e_.I64(width_)))};
  }
  const TileRows rows = StridedRows(e_, spec_.a.storage, a, stride, place.rows, spec_.tile.mr);
  return SumsOver(rows, block.steps, BColumns(place, Panel::kWhole), b, many, before);
}

}  // namespace kiln::codegen
