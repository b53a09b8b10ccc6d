// A transposed second factor, read where it lies: few rows take dot products along k; for more of them its blocks are
// transposed into panels in the kernel's own memory, once for all tiles of a panel.
#include "compile-service/codegen/llvm/contraction_emitter.h"
#include "compile-service/codegen/llvm/transpose.h"

namespace kiln::codegen {

using llvm::Value;

namespace {

// Columns of B that are worked on together with one tile: as many sums as hide the latency of a multiply-add, and fit
// the registers beside the operands.
int DotColumns(const VectorEmitter& e, int rows) {
  const bool many_registers = e.has_avx512() || e.target().architecture == Architecture::kArm;
  if (rows == 1) return 8;
  if (many_registers) return rows <= 3 ? 8 : 4;
  return rows <= 3 ? 4 : 2;
}

}  // namespace

// A block of the item's panel, into transposed_.
void ContractionEmitter::TransposeBlock(const Item& item, const Block& block) {
  constexpr int64_t kFour = 4;
  const int64_t nv = spec_.tile.nv, lanes = e_.lanes();
  const bool whole_fours = !spec_.k.is_argument && spec_.k.value % kFour == 0;
  Value* stride = frame_.Int(spec_.b.strides[spec_.batch.size()]);
  Value* column = b_.CreateMul(item.panel, e_.I64(width_));
  Value* offset = b_.CreateAdd(b_.CreateMul(column, stride), block.begin);
  Value* steps = block.steps;
  Value* base = e_.Address(Base(spec_.b, item.batch), DType::kF32, offset);
  e_.Loop(e_.I64(0), e_.I64(nv), 1, {}, [&](Value* j, const Values&) {
    Value* vector = b_.CreateMul(j, e_.I64(lanes));
    Value* left = b_.CreateSub(frame_.Int(spec_.n), b_.CreateAdd(column, vector));
    left = KnownPanel() == Panel::kWhole ? e_.I64(lanes) : Larger(Smaller(left, lanes), 0);
    Value* rows = b_.CreateFreeze(e_.Address(base, DType::kF32, b_.CreateMul(vector, stride)));
    Value* to = b_.CreateFreeze(VectorAt(e_, transposed_, j));
    Value* fours = whole_fours ? steps : b_.CreateAnd(steps, e_.I64(-kFour));
    fours = b_.CreateSelect(b_.CreateICmpEQ(left, e_.I64(lanes)), fours, e_.I64(0));
    e_.Loop(e_.I64(0), fours, kFour, {}, [&](Value* k, const Values&) {
      const Values four = LoadFourTransposed(e_, e_.Address(rows, DType::kF32, k), stride);
      Value* place = VectorAt(e_, to, b_.CreateMul(k, e_.I64(nv)));
      for (int64_t i = 0; i < kFour; ++i)
        StoreVectors(e_, {four[static_cast<size_t>(i)]}, VectorAt(e_, place, e_.I64(i * nv)));
      return Values{};
    });
    e_.Loop(fours, steps, 1, {}, [&](Value* k, const Values&) {
      Value* address = e_.Address(rows, DType::kF32, k);
      StoreVectors(e_, {e_.LoadStrided(DType::kF32, DType::kF32, address, stride, e_.First(left))},
                   VectorAt(e_, to, b_.CreateMul(k, e_.I64(nv))));
      return Values{};
    });
    return Values{};
  });
}

// --- dot products ---

// Each group of columns leaves its sums in a row of memory; the next group overwrites what repeats behind them.
Values ContractionEmitter::DotSums(const Place& place) {
  const int mr = spec_.tile.mr, nv = spec_.tile.nv, lanes = e_.lanes(), together = DotColumns(e_, mr);
  const size_t batch = spec_.batch.size();
  Value* a_stride = frame_.Int(spec_.a.strides[batch]);
  Value* a = e_.Address(Base(spec_.a, place.batch), spec_.a.storage, b_.CreateMul(place.row, a_stride));
  const TileRows rows = StridedRows(e_, spec_.a.storage, a, a_stride, place.rows, mr);
  Value* b = Base(spec_.b, place.batch);
  Value* b_stride = frame_.Int(spec_.b.strides[batch]);
  Value* last = b_.CreateSub(frame_.Int(spec_.n), e_.I64(1));
  Value* buffer = NewVectors(e_, int64_t{mr} * (nv + 1));
  e_.Loop(e_.I64(0), place.columns, together, {}, [&](Value* first, const Values&) {
    Values columns;
    for (int c = 0; c < together; ++c) {
      Value* column = b_.CreateAdd(b_.CreateAdd(place.column, first), e_.I64(c));
      if (KnownPanel() != Panel::kWhole || width_ % together != 0)
        column = b_.CreateSelect(b_.CreateICmpSLT(column, last), column, last);
      columns.push_back(b_.CreateFreeze(e_.Address(b, DType::kF32, b_.CreateMul(column, b_stride))));
    }
    const Values sums = DotProducts(rows, columns);
    for (int i = 0; i < mr; ++i)
      for (int c = 0; c < together; c += lanes) {
        const auto from = sums.begin() + i * together + c;
        Value* address = VectorAt(e_, buffer, e_.I64(int64_t{i} * (nv + 1)));
        address = e_.Address(address, DType::kF32, b_.CreateAdd(first, e_.I64(c)));
        b_.CreateAlignedStore(LaneSums(e_, Values(from, from + std::min(lanes, together))), address,
                              llvm::Align(sizeof(float)));
      }
    return Values{};
  });
  Values result;
  for (int i = 0; i < mr; ++i) {
    const Values row = LoadVectors(e_, VectorAt(e_, buffer, e_.I64(int64_t{i} * (nv + 1))), static_cast<size_t>(nv));
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

// Per row and column the products of all k, in lanes that are yet to be added.
Values ContractionEmitter::DotProducts(const TileRows& a, const Values& columns) {
  Value* k = frame_.Int(spec_.k);
  const size_t together = columns.size();
  auto step = [&](Values sums, const std::function<Value*(DType storage, Value * row)>& load) {
    Values left;
    for (int i = 0; i < spec_.tile.mr; ++i) {
      const bool shared = a.pointers.size() == 1;
      Value* row = a.pointers[shared ? 0 : static_cast<size_t>(i)];
      if (shared) row = e_.Address(row, spec_.a.storage, e_.I64(i * a.row_stride));
      left.push_back(load(spec_.a.storage, row));
    }
    for (size_t c = 0; c < together; ++c) {
      Value* right = load(DType::kF32, columns[c]);
      for (size_t i = 0; i < left.size(); ++i) {
        Value*& sum = sums[i * together + c];
        sum = e_.MulAdd(left[i], right, sum);
      }
    }
    return sums;
  };
  Value* whole = b_.CreateAnd(k, e_.I64(-int64_t{e_.lanes()}));
  Values sums(static_cast<size_t>(spec_.tile.mr) * together, e_.Zero(DType::kF32));
  sums = e_.Loop(e_.I64(0), whole, e_.lanes(), sums, [&](Value* at, const Values& current) {
    return step(current, [&](DType storage, Value* row) {
      return e_.Load(storage, DType::kF32, e_.Address(row, storage, at), e_.Full());
    });
  });
  if (e_.has_avx512()) {
    const Active rest = e_.First(b_.CreateSub(k, whole));
    return e_.IfElse(
        b_.CreateICmpSGT(rest.count, e_.I64(0)),
        [&] {
          return step(sums, [&](DType storage, Value* row) {
            return e_.Load(storage, DType::kF32, e_.Address(row, storage, whole), rest);
          });
        },
        [&] { return sums; });
  }
  return e_.Loop(whole, k, 1, sums, [&](Value* at, const Values& current) {
    return step(current, [&](DType storage, Value* row) {
      Value* element = b_.CreateLoad(e_.StorageType(storage), e_.Address(row, storage, at));
      auto* type = llvm::FixedVectorType::get(element->getType(), static_cast<unsigned>(e_.lanes()));
      Value* alone = b_.CreateInsertElement(llvm::Constant::getNullValue(type), element, uint64_t{0});
      return e_.FromStorage(alone, storage, DType::kF32);
    });
  });
}

}  // namespace kiln::codegen
