// One or two rows by packed weights: reading the panels is all the work. One panel after the other is one stream of
// memory; several side by side keep more of it under way.
#include <algorithm>

#include "compile-service/codegen/llvm/contraction_emitter.h"

namespace kiln::codegen {

using llvm::Value;

// 1: the work is not of this kind.
int ContractionEmitter::PanelsAbreast() const {
  constexpr int kRowsMax = 2;
  if (spec_.conv || !in_panels() || is_bytes() || spec_.tile.mr > kRowsMax || spec_.n.is_argument) return 1;
  const bool many_registers = e_.has_avx512() || e_.target().architecture == Architecture::kArm;
  const int64_t sums = many_registers ? 16 : 8, panels = (spec_.n.value + width_ - 1) / width_;
  return static_cast<int>(std::min(panels, sums / tile_vectors()));
}

void ContractionEmitter::EmitAbreast(int panels) {
  Value* all = NewVectors(e_, panels * tile_vectors());
  Value* one_tile = b_.CreateICmpEQ(tiles_, e_.I64(1));
  e_.LoopFrom(frame_.begin(), frame_.end(), [&](Value* at) {
    const Item first = Decode(at);
    Value* fits = b_.CreateAnd(b_.CreateICmpSLE(b_.CreateAdd(at, e_.I64(panels)), frame_.end()),
                               b_.CreateICmpSLE(b_.CreateAdd(first.panel, e_.I64(panels)), panels_));
    Value* abreast = b_.CreateAnd(one_tile, fits);
    const Place place = PlaceOf(first);
    e_.IfElse(
        abreast,
        [&] {
          StoreVectors(e_, AbreastSums(place, panels), all);
          return Values{};
        },
        [&] {
          StoreVectors(e_, Sums(place, KnownPanel()), all);
          return Values{};
        });
    Value* count = b_.CreateSelect(abreast, e_.I64(panels), e_.I64(1));
    e_.Loop(e_.I64(0), count, 1, {}, [&](Value* p, const Values&) {
      Item item = first;
      item.panel = b_.CreateAdd(first.panel, p);
      Value* sums = VectorAt(e_, all, b_.CreateMul(p, e_.I64(tile_vectors())));
      StoreTile(PlaceOf(item), KnownPanel(), LoadVectors(e_, sums, static_cast<size_t>(tile_vectors())));
      return Values{};
    });
    return b_.CreateAdd(at, count);
  });
}

// The sums of the panels from `place` on, one panel's tile behind the other.
Values ContractionEmitter::AbreastSums(const Place& place, int panels) {
  const int mr = spec_.tile.mr, nv = spec_.tile.nv;
  const size_t batch = spec_.batch.size();
  MicroKernel::Config config = ConfigWith({});
  config.tile.nv = nv * panels;
  config.panels = panels;
  config.panel_stride = b_.CreateMul(PanelDepth(), e_.I64(width_));
  MicroKernel kernel(e_, config);
  Value* b = e_.Address(Base(spec_.b, place.batch), spec_.b.storage, b_.CreateMul(place.column, PanelDepth()));
  Value* stride = frame_.Int(spec_.a.strides[batch]);
  Value* a = e_.Address(Base(spec_.a, place.batch), spec_.a.storage, b_.CreateMul(place.row, stride));
  Values sums = kernel.Zero();
  kernel.Accumulate(StridedRows(e_, spec_.a.storage, a, stride, place.rows, mr), frame_.Int(spec_.k),
                    std::vector<Active>(static_cast<size_t>(nv * panels), e_.Full()), b, sums);
  sums = kernel.Finish(sums);
  Values by_panel;
  for (int p = 0; p < panels; ++p)
    for (int i = 0; i < mr; ++i)
      for (int j = 0; j < nv; ++j) by_panel.push_back(sums[static_cast<size_t>((i * panels + p) * nv + j)]);
  return by_panel;
}

}  // namespace kiln::codegen
