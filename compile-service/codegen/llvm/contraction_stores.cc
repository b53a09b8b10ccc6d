#include "compile-service/codegen/llvm/contraction_emitter.h"

namespace kiln::codegen {

using llvm::ConstantInt;
using llvm::Value;

Epilogue::Position ContractionEmitter::Origin(const Place& place) {
  Values coordinates = place.batch;
  coordinates.push_back(place.row);
  coordinates.push_back(place.column);
  return epilogue_.At(coordinates);
}

void ContractionEmitter::StoreTile(const Place& place, Panel panel, const Values& sums) {
  const int64_t mr = spec_.tile.mr;
  if (!epilogue_.is_short(sums.size()) || (panel == Panel::kPartial && !e_.has_avx512()))
    return StoreFromBuffer(place, panel, sums);
  Value* whole = b_.CreateICmpEQ(place.rows, e_.I64(mr));
  if (panel == Panel::kEither) whole = b_.CreateAnd(whole, b_.CreateICmpEQ(place.columns, e_.I64(width_)));
  if (auto* known = llvm::dyn_cast<ConstantInt>(whole))
    return known->isOne() ? StoreFromRegisters(place, panel, sums) : StoreFromBuffer(place, panel, sums);
  e_.IfElse(
      whole,
      [&] {
        StoreFromRegisters(place, panel, sums);
        return Values{};
      },
      [&] {
        StoreFromBuffer(place, panel, sums);
        return Values{};
      });
}

void ContractionEmitter::StoreFromRegisters(const Place& place, Panel panel, const Values& sums) {
  const auto [mr, nv] = spec_.tile;
  Epilogue::Position origin = Origin(place);
  for (int j = 0; j < nv; ++j) {
    Epilogue::Position column = epilogue_.Moved(origin, column_dim(), Lanes(j));
    Epilogue::SharedLoads shared(spec_.epilogue.size(), nullptr);
    Value* left = Larger(Smaller(b_.CreateSub(place.columns, Lanes(j)), e_.lanes()), 0);
    const Active active = panel == Panel::kPartial ? e_.First(left) : e_.Full();
    for (int i = 0; i < mr; ++i)
      epilogue_.Emit(epilogue_.Moved(column, row_dim(), e_.I64(i)), sums[i * nv + j], active, &shared, row_dim());
  }
}

void ContractionEmitter::StoreFromBuffer(const Place& place, Panel panel, const Values& sums) {
  llvm::Type* vector = e_.VectorType(sum_type());
  if (!buffer_) buffer_ = NewVectors(e_, tile_vectors(), sum_type());
  StoreVectors(e_, sums, buffer_);
  Epilogue::Position origin = Origin(place);
  e_.Loop(e_.I64(0), place.rows, 1, {}, [&](Value* i, const Values&) {
    Value* buffer_row = b_.CreateGEP(vector, buffer_, b_.CreateMul(i, e_.I64(spec_.tile.nv)));
    StoreRow(place, panel, epilogue_.Moved(origin, row_dim(), i), buffer_row);
    return Values{};
  });
}

void ContractionEmitter::StoreRow(const Place& place, Panel panel, const Epilogue::Position& row, Value* buffer_row) {
  llvm::Type* vector = e_.VectorType(sum_type());
  EmitColumns(place, panel, [&](Value* j, const Active& active) {
    Value* sum = b_.CreateLoad(vector, b_.CreateGEP(vector, buffer_row, j));
    epilogue_.Emit(epilogue_.Moved(row, column_dim(), b_.CreateMul(j, Lanes(1))), sum, active);
  });
}

void ContractionEmitter::EmitColumns(const Place& place, Panel panel,
                                     const std::function<void(Value* vector, const Active& active)>& body) {
  auto left = [&](Value* j) { return b_.CreateSub(place.columns, b_.CreateMul(j, Lanes(1))); };
  Value* zero = e_.I64(0);
  if (panel != Panel::kWhole && e_.has_avx512()) {
    // Masks cost nothing: one copy of the program serves whole and partial vectors.
    e_.Loop(zero, Ceil(place.columns, e_.lanes()), 1, {}, [&](Value* j, const Values&) {
      body(j, e_.First(Smaller(left(j), e_.lanes())));
      return Values{};
    });
    return;
  }
  Value* vectors = panel == Panel::kWhole ? e_.I64(spec_.tile.nv) : b_.CreateUDiv(place.columns, Lanes(1));
  e_.Loop(zero, vectors, 1, {}, [&](Value* j, const Values&) {
    body(j, e_.Full());
    return Values{};
  });
  if (panel == Panel::kWhole) return;
  e_.If(b_.CreateICmpSGT(left(vectors), zero), [&] { body(vectors, e_.First(left(vectors))); });
}

}  // namespace kiln::codegen
