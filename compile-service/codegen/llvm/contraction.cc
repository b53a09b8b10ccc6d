#include "compile-service/codegen/llvm/contraction.h"

#include <algorithm>

#include "compile-service/codegen/llvm/contraction_emitter.h"

namespace kiln::codegen {
namespace {

using llvm::ConstantInt;
using llvm::Value;

// Panels are read as they lie, which the processor foresees; asking for the steps just ahead costs a quarter of the
// speed at which the third-level cache gives them. Rows of B are a hop apart.
constexpr int kRowSteps = 8;
// B larger than this comes from memory, which one row's stream of loads does not keep busy.
constexpr int64_t kLargeBytes = 4 << 20;
constexpr int kFarSteps = 128;
constexpr int kStreamsMax = 4;
// Vectors of sums of all streams, beside the operands in registers: of 32, of 16.
constexpr int kStreamSumsMax = 24, kStreamSumsOfFewMax = 12;
// Panels below this size come and go without notice.
constexpr int64_t kLargePanelBytes = 64 << 10;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kFewChannels = 8;
// Bytes that are multiplied together.
constexpr int64_t kByteGroup = 4;

}  // namespace

void ContractionEmitter::Emit() {
  panels_ = Ceil(frame_.Int(spec_.n), width_);
  tiles_ = Ceil(frame_.Int(spec_.m), spec_.tile.mr);
  if (const int64_t most = ir::ContractionOrder::BlockTilesMax(spec_); most > 0) {
    Value* blocks = Larger(Ceil(tiles_, most), 1);
    block_tiles_ = b_.CreateUDiv(b_.CreateAdd(tiles_, b_.CreateSub(blocks, e_.I64(1))), blocks);
  }
  for (const ir::SpecInt& extent : spec_.batch) batch_extents_.push_back(frame_.Int(extent));
  if (spec_.conv) {
    pixels_.emplace(frame_, *spec_.conv, spec_.a.storage, spec_.tile.mr, frame_.Int(spec_.m),
                    spec_.zeros >= 0 ? frame_.Pointer(spec_.zeros) : nullptr);
    channels_ = b_.CreateUDiv(frame_.Int(spec_.k), e_.I64(int64_t{spec_.conv->kernel_h} * spec_.conv->kernel_w));
  }
  if (spec_.winograd) return EmitWinograd();
  if (const int64_t block = LongestBlock(); block > 0) return EmitBlocked(block);
  Item first = Decode(frame_.begin());
  Values start = first.batch;
  start.insert(start.end(), {first.panel, first.tile, first.first});
  e_.Loop(frame_.begin(), frame_.end(), 1, start, [&](Value*, const Values& current) {
    const size_t batch = batch_extents_.size();
    Item item{Values(current.begin(), current.begin() + static_cast<ptrdiff_t>(batch)), current[batch],
              current[batch + 1], current[batch + 2]};
    EmitItem(item);
    return Next(item);
  });
}

ContractionEmitter::Item ContractionEmitter::Decode(Value* begin) {
  Item item;
  item.first = e_.I64(0);
  Value* rest = begin;
  Value* count = tiles_;
  if (block_tiles_ != nullptr) {
    Value *matrix = b_.CreateMul(tiles_, panels_), *block = b_.CreateMul(block_tiles_, panels_);
    Value* in_matrix = b_.CreateURem(begin, matrix);
    item.first = b_.CreateMul(b_.CreateUDiv(in_matrix, block), block_tiles_);
    count = b_.CreateSub(BlockEnd(item.first), item.first);
    Value* in_block = b_.CreateURem(in_matrix, block);
    item.tile = b_.CreateAdd(item.first, b_.CreateURem(in_block, count));
    item.panel = b_.CreateUDiv(in_block, count);
    rest = b_.CreateUDiv(begin, matrix);
  } else {
    item.tile = b_.CreateURem(begin, tiles_);
    rest = b_.CreateUDiv(begin, tiles_);
    item.panel = b_.CreateURem(rest, panels_);
    rest = b_.CreateUDiv(rest, panels_);
  }
  item.batch.resize(batch_extents_.size());
  for (size_t i = batch_extents_.size(); i-- > 0;) {
    item.batch[i] = b_.CreateURem(rest, batch_extents_[i]);
    rest = b_.CreateUDiv(rest, batch_extents_[i]);
  }
  return item;
}

// Of the tiles of the block that begins with `first`.
Value* ContractionEmitter::BlockEnd(Value* first) {
  if (block_tiles_ == nullptr) return tiles_;
  Value* end = b_.CreateAdd(first, block_tiles_);
  return b_.CreateSelect(b_.CreateICmpSLT(end, tiles_), end, tiles_);
}

Values ContractionEmitter::Next(const Item& item) {
  Value* carry = e_.I64(1);
  auto advance = [&](Value* value, Value* extent) {
    Value* next = b_.CreateAdd(value, carry);
    Value* wraps = b_.CreateICmpEQ(next, extent);
    carry = b_.CreateZExt(wraps, b_.getInt64Ty());
    return b_.CreateSelect(wraps, e_.I64(0), next);
  };
  Value* end = BlockEnd(item.first);
  Value* tile = b_.CreateAdd(item.tile, carry);
  Value* passed = b_.CreateICmpEQ(tile, end);  // the panel
  carry = b_.CreateZExt(passed, b_.getInt64Ty());
  Value* panel = advance(item.panel, panels_);
  Value* first = item.first;
  if (block_tiles_ != nullptr) {
    Value* block_ends = b_.CreateICmpNE(carry, e_.I64(0));
    Value* matrix_ends = b_.CreateAnd(block_ends, b_.CreateICmpEQ(end, tiles_));
    first = b_.CreateSelect(matrix_ends, e_.I64(0), b_.CreateSelect(block_ends, end, first));
    carry = b_.CreateZExt(matrix_ends, b_.getInt64Ty());
  }
  tile = b_.CreateSelect(passed, first, tile);
  Values next(item.batch.size());
  for (size_t i = item.batch.size(); i-- > 0;) next[i] = advance(item.batch[i], batch_extents_[i]);
  next.insert(next.end(), {panel, tile, first});
  return next;
}

ContractionEmitter::Place ContractionEmitter::PlaceOf(const Item& item) {
  const int64_t mr = spec_.tile.mr;
  Place place;
  place.batch = item.batch;
  place.panel = item.panel;
  place.tile = item.tile;
  place.row = b_.CreateMul(item.tile, e_.I64(mr));
  place.column = b_.CreateMul(item.panel, e_.I64(width_));
  place.columns = Smaller(b_.CreateSub(frame_.Int(spec_.n), place.column), width_);
  bool known = !spec_.m.is_argument;
  if (known && spec_.m.value % mr == 0) {
    place.rows = e_.I64(mr);
  } else if (known && spec_.m.value < mr) {
    place.rows = e_.I64(spec_.m.value);
  } else {
    place.rows = Smaller(b_.CreateSub(frame_.Int(spec_.m), place.row), mr);
  }
  return place;
}

ContractionEmitter::Panel ContractionEmitter::KnownPanel() const {
  if (spec_.n.is_argument) return Panel::kEither;
  if (spec_.n.value % width_ == 0) return Panel::kWhole;
  return spec_.n.value < width_ ? Panel::kPartial : Panel::kEither;
}

void ContractionEmitter::EmitItem(const Item& item) {
  Place place = PlaceOf(item);
  const Panel known = KnownPanel();
  if (known != Panel::kEither || spec_.b_layout != ir::BLayout::kRows || e_.has_avx512())
    return EmitPlace(place, known);
  // Masks on the rows of B cost registers or time here: one loop over k for whole panels, one for the last.
  e_.IfElse(
      b_.CreateICmpEQ(place.columns, e_.I64(width_)),
      [&] {
        EmitPlace(place, Panel::kWhole);
        return Values{};
      },
      [&] {
        EmitPlace(place, Panel::kPartial);
        return Values{};
      });
}

// --- sums ---

Value* ContractionEmitter::Base(const ir::Access& access, const Values& batch) {
  Value* offset = e_.I64(0);
  for (size_t i = 0; i < batch.size(); ++i)
    offset = b_.CreateAdd(offset, b_.CreateMul(batch[i], frame_.Int(access.strides[i])));
  return e_.Address(frame_.Pointer(access.pointer), access.storage, offset);
}

std::vector<Active> ContractionEmitter::BColumns(const Place& place, Panel panel) {
  std::vector<Active> columns(static_cast<size_t>(spec_.tile.nv), e_.Full());
  if (spec_.b_layout != ir::BLayout::kRows || panel == Panel::kWhole) return columns;
  for (int j = 0; j < spec_.tile.nv; ++j)
    columns[j] = e_.First(Larger(Smaller(b_.CreateSub(place.columns, Lanes(j)), e_.lanes()), 0));
  return columns;
}

// The next panel, while this one is worked on.
ContractionEmitter::Prefetches ContractionEmitter::NextPanel(const Place& place) {
  const int64_t element = DTypeBytes(spec_.b.storage);
  if (!in_panels() || (!spec_.k.is_argument && spec_.k.value * width_ * element < kLargePanelBytes)) return {};
  Value* is_last = b_.CreateICmpEQ(b_.CreateAdd(place.panel, e_.I64(1)), panels_);
  Value* next = b_.CreateSelect(is_last, e_.I64(0), b_.CreateMul(PanelDepth(), e_.I64(width_)));
  return {LineAhead(place, next)};
}

bool ContractionEmitter::IsLarge() const {
  return !spec_.n.is_argument && !spec_.k.is_argument &&
         spec_.n.value * spec_.k.value * DTypeBytes(spec_.b.storage) > kLargeBytes;
}

// Into how many stretches of k, read side by side, a tile of few rows cuts its panel.
int ContractionEmitter::Streams() const {
  if (!in_panels() || spec_.conv || is_bytes() || !IsLarge()) return 1;
  const bool many_registers = e_.has_avx512() || e_.target().architecture == Architecture::kArm;
  const int sums = many_registers ? kStreamSumsMax : kStreamSumsOfFewMax;
  int streams = kStreamsMax;
  while (streams > 1 && streams * tile_vectors() > sums) streams /= 2;
  return streams;
}

// What lies ahead and would come late.
ContractionEmitter::Prefetches ContractionEmitter::StreamingPrefetches() {
  using Into = MicroKernel::Prefetch::Into;
  Prefetches prefetches;
  auto ask = [&](int steps, Into into) {
    Value* distance = in_panels() ? e_.I64(steps * width_)
                                  : b_.CreateMul(frame_.Int(spec_.b.strides[spec_.batch.size()]), e_.I64(steps));
    for (int j = 0; j < spec_.tile.nv; ++j) prefetches.push_back({b_.CreateAdd(distance, Lanes(j)), into});
  };
  if (!in_panels()) ask(kRowSteps, Into::kL1);
  if (IsLarge() && Streams() == 1) ask(kFarSteps, Into::kL2);
  return prefetches;
}

// Each row tile asks for one cache line of every step, so that the first few tiles bring all of them, and the others
// ask for what is there already.
MicroKernel::Prefetch ContractionEmitter::LineAhead(const Place& place, Value* distance) {
  const int64_t element = DTypeBytes(spec_.b.storage), lines = std::max<int64_t>(1, width_ * element / kLineBytes);
  Value* line = b_.CreateMul(b_.CreateURem(place.tile, e_.I64(lines)), e_.I64(kLineBytes / element));
  return {b_.CreateAdd(distance, line), MicroKernel::Prefetch::Into::kL2};
}

MicroKernel ContractionEmitter::KernelWith(Prefetches prefetches, int streams) {
  const size_t batch = spec_.batch.size();
  return MicroKernel(e_, {.tile = spec_.tile,
                          .a_storage = spec_.a.storage,
                          .b_storage = spec_.b.storage,
                          .a_step = is_bytes()   ? e_.I64(kByteGroup)
                                    : spec_.conv ? e_.I64(1)
                                                 : frame_.Int(spec_.a.strides[batch + 1]),
                          .b_step = spec_.b_layout == ir::BLayout::kRows ? frame_.Int(spec_.b.strides[batch]) : nullptr,
                          .prefetches = std::move(prefetches),
                          .streams = streams});
}

Values ContractionEmitter::SumsOver(const TileRows& rows, Value* count, const std::vector<Active>& columns, Value* b,
                                    const Prefetches& many, const Values& before) {
  auto with = [&](Prefetches prefetches, int streams = 1) {
    MicroKernel kernel = KernelWith(std::move(prefetches), streams);
    Values sums = kernel.Zero();
    std::ranges::copy(before, sums.begin());
    Value* at = b;
    kernel.Accumulate(rows, count, columns, at, sums);
    return kernel.Finish(sums);
  };
  if (is_streaming() && !is_transposed()) return with(StreamingPrefetches(), Streams());
  // What takes nothing from far away needs no other way with few rows.
  if (!spec_.few_rows || many.empty()) return with(many);
  return e_.IfElse(
      b_.CreateICmpSLE(frame_.Int(spec_.m), e_.I64(kStreamingRows)), [&] { return with(StreamingPrefetches()); },
      [&] { return with(many); });
}

Values ContractionEmitter::Sums(const Place& place, Panel panel) {
  if (takes_dots()) return DotSums(place);
  const size_t batch = spec_.batch.size();
  // The elements of a panel lie together, so the panel of column c begins at c times its depth.
  Value* b = e_.Address(Base(spec_.b, place.batch), spec_.b.storage,
                        in_panels() ? b_.CreateMul(place.column, PanelDepth()) : place.column);
  std::vector<Active> columns = BColumns(place, panel);
  if (spec_.conv) {
    MicroKernel kernel = KernelWith(is_streaming() ? StreamingPrefetches() : NextPanel(place));
    return ConvSums(kernel, place, columns, b);
  }

  Value* stride = frame_.Int(spec_.a.strides[batch]);
  Value* first = e_.Address(Base(spec_.a, place.batch), spec_.a.storage, b_.CreateMul(place.row, stride));
  TileRows rows = StridedRows(e_, spec_.a.storage, first, stride, place.rows, spec_.tile.mr);
  return SumsOver(rows, frame_.Int(spec_.k), columns, b, NextPanel(place));
}

Values ContractionEmitter::ConvSums(MicroKernel& kernel, const Place& place, const std::vector<Active>& columns,
                                    Value* b) {
  pixels_->Locate(place.row, Base(spec_.a, place.batch));
  if (!MergesKernelColumns()) return ConvSumsByPosition(kernel, columns, b);
  Value* inside = pixels_->AllInside();
  if (llvm::isa<ConstantInt>(inside)) return ConvSumsByRow(kernel, columns, b);
  return e_.IfElse(
      inside, [&] { return ConvSumsByRow(kernel, columns, b); },
      [&] { return ConvSumsByPosition(kernel, columns, b); });
}

// Whether a row of the kernel reads elements that lie together, and so few channels that going position by position
// costs more than a second copy of the code.
bool ContractionEmitter::MergesKernelColumns() const {
  const ir::WindowGeometry& geometry = *spec_.conv;
  auto* channels = llvm::dyn_cast<ConstantInt>(channels_);
  return !is_bytes() && channels && channels->getSExtValue() <= kFewChannels && geometry.kernel_w > 1 &&
         geometry.dilation_w == 1 && geometry.column_stride == ir::SpecInt::Const(channels->getSExtValue());
}

Values ContractionEmitter::ConvSumsByRow(MicroKernel& kernel, const std::vector<Active>& columns, Value* b) {
  const ir::WindowGeometry& geometry = *spec_.conv;
  Value* count = b_.CreateMul(channels_, e_.I64(geometry.kernel_w));
  Values state = kernel.Zero();
  state.push_back(b);
  state = e_.Loop(e_.I64(0), e_.I64(geometry.kernel_h), 1, state, [&](Value* down, const Values& current) {
    return Accumulated(kernel, pixels_->Inside(down, e_.I64(0)), count, columns, current);
  });
  state.pop_back();
  return kernel.Finish(state);
}

Values ContractionEmitter::ConvSumsByPosition(MicroKernel& kernel, const std::vector<Active>& columns, Value* b) {
  const ir::WindowGeometry& geometry = *spec_.conv;
  Values state = kernel.Zero();
  state.push_back(b);
  state = e_.Loop(e_.I64(0), e_.I64(geometry.kernel_h), 1, state, [&](Value* down, const Values& row_state) {
    return e_.Loop(e_.I64(0), e_.I64(geometry.kernel_w), 1, row_state, [&](Value* right, const Values& current) {
      return Accumulated(kernel, pixels_->InsideOrZeros(down, right), channels_, columns, current);
    });
  });
  state.pop_back();
  return kernel.Finish(state);
}

Values ContractionEmitter::Accumulated(MicroKernel& kernel, const TileRows& rows, Value* count,
                                       const std::vector<Active>& columns, Values state) {
  Value* b = state.back();
  state.pop_back();
  kernel.Accumulate(rows, count, columns, b, state);
  state.push_back(b);
  return state;
}

void EmitContraction(KernelFrame& frame, const ir::ContractionSpec& spec) {
  if (!spec.few_rows || spec.tile.mr == 1) return ContractionEmitter(frame, spec).Emit();
  // A taller tile works on a single row again and again. The tile of one row covers as much of the range: all of m.
  ir::ContractionSpec one_row = spec;
  one_row.m = ir::SpecInt::Const(1);
  one_row.tile.mr = 1;
  VectorEmitter& e = frame.emitter();
  e.IfElse(
      e.ir().CreateICmpEQ(frame.Int(spec.m), e.I64(1)),
      [&] {
        ContractionEmitter(frame, one_row).Emit();
        return Values{};
      },
      [&] {
        ContractionEmitter(frame, spec).Emit();
        return Values{};
      });
}

}  // namespace kiln::codegen
