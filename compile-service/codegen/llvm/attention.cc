#include "compile-service/codegen/llvm/attention.h"

#include <limits>

#include "compile-service/codegen/llvm/contraction_epilogue.h"
#include "compile-service/codegen/llvm/contraction_kernel.h"
#include "compile-service/codegen/llvm/contraction_rows.h"
#include "compile-service/codegen/llvm/math.h"
#include "compile-service/codegen/llvm/transpose.h"

namespace kiln::codegen {
namespace {

using llvm::Value;

constexpr int64_t kFour = 4;
constexpr int64_t kKeysTogether = 64;  // scores of one tile: 8 KB with two vectors of 16 queries

class AttentionEmitter {
 public:
  AttentionEmitter(KernelFrame& frame, const ir::AttentionSpec& spec)
      : frame_(frame),
        e_(frame.emitter()),
        b_(frame.emitter().ir()),
        spec_(spec),
        score_(frame, spec.accesses, spec.scores, no_stores_),
        mr_(spec.tile.mr),
        nv_(spec.tile.nv) {}

  void Emit();

 private:
  // One item of the range.
  struct Item {
    Values batch;
    Value* query;  // first
    std::vector<Active> active;
  };
  // Per vector of queries: the largest score and the sum of weights so far.
  struct Softmax {
    Values largest, total;
  };

  Item ItemAt(Value* index);
  Value* Base(const ir::Access& access, const Item& item);
  Value* RowStride(const ir::Access& access) { return frame_.Int(access.strides[spec_.batch.size()]); }
  Value* ElementStride(const ir::Access& access) { return frame_.Int(access.strides[spec_.batch.size() + 1]); }
  Value* Slot(Value* vectors, Value* row) { return VectorAt(e_, vectors, b_.CreateMul(row, e_.I64(nv_))); }
  Value* Smaller(Value* a, int64_t b) { return b_.CreateSelect(b_.CreateICmpSLT(a, e_.I64(b)), a, e_.I64(b)); }

  Value* FirstOf(const ir::Access& access, Value* base, const Item& item, int64_t vector);
  Value* WholeFours(const ir::Access& access, const Active& active, int64_t elements);
  void TransposeQueries(const Item& item);
  void ClearResult();
  Softmax AddKeys(const Item& item, Value* first, Value* keys, const Softmax& before);
  Values Scores(const Item& item, Value* first, Value* keys, const Values& largest);
  Values Weights(Value* keys, const Values& shift, const Values& total);
  void AddValues(const Item& item, Value* first, Value* keys, const Values& scale);
  void Store(const Item& item, const Values& total);
  MicroKernel Kernel(DType storage, Value* a_step) {
    return MicroKernel(e_, {.tile = spec_.tile,
                            .a_storage = storage,
                            .b_storage = DType::kF32,
                            .a_step = a_step,
                            .b_step = nullptr,
                            .prefetches = {}});
  }

  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const ir::AttentionSpec& spec_;
  const std::vector<ir::Store> no_stores_;
  Epilogue score_;
  int64_t mr_, nv_;
  // nv vectors per element of a query, per key of the tile, per element of a result.
  Value* queries_ = nullptr;
  Value* weights_ = nullptr;
  Value* results_ = nullptr;
};

void AttentionEmitter::Emit() {
  queries_ = NewVectors(e_, spec_.key_elements * nv_);
  weights_ = NewVectors(e_, (kKeysTogether + mr_) * nv_);
  results_ = NewVectors(e_, (spec_.value_elements + mr_) * nv_);
  e_.Loop(frame_.begin(), frame_.end(), 1, {}, [&](Value* index, const Values&) {
    const Item item = ItemAt(index);
    TransposeQueries(item);
    ClearResult();
    Values state(static_cast<size_t>(nv_), e_.SplatF32(-std::numeric_limits<float>::infinity()));
    state.resize(static_cast<size_t>(2 * nv_), e_.Zero(DType::kF32));
    Value* keys = frame_.Int(spec_.n);
    state = e_.Loop(e_.I64(0), keys, kKeysTogether, state, [&](Value* first, const Values& current) {
      const Softmax before{Values(current.begin(), current.begin() + nv_),
                           Values(current.begin() + nv_, current.end())};
      Softmax after = AddKeys(item, first, Smaller(b_.CreateSub(keys, first), kKeysTogether), before);
      after.largest.insert(after.largest.end(), after.total.begin(), after.total.end());
      return after.largest;
    });
    Store(item, Values(state.begin() + nv_, state.end()));
    return Values{};
  });
}

AttentionEmitter::Item AttentionEmitter::ItemAt(Value* index) {
  const int64_t queries = nv_ * e_.lanes();
  Value* m = frame_.Int(spec_.m);
  Value* tiles = b_.CreateUDiv(b_.CreateAdd(m, e_.I64(queries - 1)), e_.I64(queries));
  Item item;
  item.query = b_.CreateMul(b_.CreateURem(index, tiles), e_.I64(queries));
  Value* rest = b_.CreateUDiv(index, tiles);
  item.batch.resize(spec_.batch.size());
  for (size_t i = spec_.batch.size(); i-- > 0;) {
    Value* extent = frame_.Int(spec_.batch[i]);
    item.batch[i] = b_.CreateURem(rest, extent);
    rest = b_.CreateUDiv(rest, extent);
  }
  for (int64_t j = 0; j < nv_; ++j) {
    Value* left = Smaller(b_.CreateSub(m, b_.CreateAdd(item.query, e_.I64(j * e_.lanes()))), e_.lanes());
    item.active.push_back(e_.First(b_.CreateSelect(b_.CreateICmpSGT(left, e_.I64(0)), left, e_.I64(0))));
  }
  return item;
}

Value* AttentionEmitter::Base(const ir::Access& access, const Item& item) {
  Value* offset = e_.I64(0);
  for (size_t i = 0; i < item.batch.size(); ++i)
    offset = b_.CreateAdd(offset, b_.CreateMul(item.batch[i], frame_.Int(access.strides[i])));
  return b_.CreateFreeze(e_.Address(frame_.Pointer(access.pointer), access.storage, offset));
}

void AttentionEmitter::TransposeQueries(const Item& item) {
  const ir::Access& q = spec_.q;
  Value* base = Base(q, item);
  for (int64_t j = 0; j < nv_; ++j) {
    const Active& active = item.active[static_cast<size_t>(j)];
    Value* first = FirstOf(q, base, item, j);
    Value* fours = WholeFours(q, active, spec_.key_elements);
    auto slot = [&](Value* i) { return VectorAt(e_, Slot(queries_, i), e_.I64(j)); };
    e_.Loop(e_.I64(0), fours, kFour, {}, [&](Value* i, const Values&) {
      const Values four = LoadFourTransposed(e_, e_.Address(first, q.storage, i), RowStride(q));
      for (int64_t u = 0; u < kFour; ++u)
        StoreVectors(e_, {four[static_cast<size_t>(u)]}, slot(b_.CreateAdd(i, e_.I64(u))));
      return Values{};
    });
    e_.Loop(fours, e_.I64(spec_.key_elements), 1, {}, [&](Value* i, const Values&) {
      Value* address = e_.Address(first, q.storage, b_.CreateMul(i, ElementStride(q)));
      StoreVectors(e_, {e_.LoadStrided(q.storage, DType::kF32, address, RowStride(q), active)}, slot(i));
      return Values{};
    });
  }
}

// The first of a vector of queries.
Value* AttentionEmitter::FirstOf(const ir::Access& access, Value* base, const Item& item, int64_t vector) {
  Value* query = b_.CreateAdd(item.query, e_.I64(vector * e_.lanes()));
  return b_.CreateFreeze(e_.Address(base, access.storage, b_.CreateMul(query, RowStride(access))));
}

// How many elements of the rows of a vector of queries are moved four at a time: where they lie together, and no query
// is missing.
Value* AttentionEmitter::WholeFours(const ir::Access& access, const Active& active, int64_t elements) {
  if (access.storage != DType::kF32 || ElementStride(access) != e_.I64(1)) return e_.I64(0);
  Value* fours = e_.I64(elements / kFour * kFour);
  return active.all() ? fours : b_.CreateSelect(b_.CreateICmpEQ(active.count, e_.I64(e_.lanes())), fours, e_.I64(0));
}

void AttentionEmitter::ClearResult() {
  e_.Loop(e_.I64(0), e_.I64((spec_.value_elements + mr_ - 1) / mr_ * mr_), 1, {}, [&](Value* i, const Values&) {
    StoreVectors(e_, Values(static_cast<size_t>(nv_), e_.Zero(DType::kF32)), Slot(results_, i));
    return Values{};
  });
}

AttentionEmitter::Softmax AttentionEmitter::AddKeys(const Item& item, Value* first, Value* keys,
                                                    const Softmax& before) {
  Softmax after;
  after.largest = Scores(item, first, keys, before.largest);
  Values shift, scale;
  for (size_t j = 0; j < after.largest.size(); ++j) {
    // Before the first score above -infinity there is nothing to scale, and no difference to take.
    Value* nothing = b_.CreateFCmpOEQ(after.largest[j], e_.SplatF32(-std::numeric_limits<float>::infinity()));
    shift.push_back(b_.CreateSelect(nothing, e_.Zero(DType::kF32), after.largest[j]));
    scale.push_back(EmitWeightExp(e_, b_.CreateFSub(before.largest[j], shift[j])));
    after.total.push_back(b_.CreateFMul(before.total[j], scale[j]));
  }
  after.total = Weights(keys, shift, after.total);
  AddValues(item, first, keys, scale);
  return after;
}

// The scores of a tile of keys, into weights_; returns the largest.
Values AttentionEmitter::Scores(const Item& item, Value* first, Value* keys, const Values& largest) {
  const ir::Access& k = spec_.k;
  Value* base = Base(k, item);
  return e_.Loop(e_.I64(0), keys, mr_, largest, [&](Value* at, const Values& current) {
    Value* key = b_.CreateAdd(first, at);
    Value* rows = Smaller(b_.CreateSub(keys, at), mr_);
    Value* row = e_.Address(base, k.storage, b_.CreateMul(key, RowStride(k)));
    MicroKernel kernel = Kernel(k.storage, ElementStride(k));
    Values sums = kernel.Zero();
    Value* queries = queries_;
    const std::vector<Active> columns(static_cast<size_t>(nv_), e_.Full());
    kernel.Accumulate(StridedRows(e_, k.storage, row, RowStride(k), rows, static_cast<int>(mr_)),
                      e_.I64(spec_.key_elements), columns, queries, sums);
    Value* place = b_.CreateFreeze(Slot(weights_, at));
    StoreVectors(e_, kernel.Finish(sums), place);
    return e_.Loop(e_.I64(0), rows, 1, current, [&](Value* i, const Values& so_far) {
      Value* address = Slot(place, i);
      Values scores = LoadVectors(e_, address, static_cast<size_t>(nv_)), next;
      for (size_t j = 0; j < scores.size(); ++j) {
        Values coordinates = item.batch;
        coordinates.push_back(b_.CreateAdd(key, i));
        coordinates.push_back(b_.CreateAdd(item.query, e_.I64(static_cast<int64_t>(j) * e_.lanes())));
        scores[j] = score_.ValueOf(spec_.score, score_.At(coordinates), scores[j], item.active[j]);
        next.push_back(e_.Maximum(so_far[j], scores[j], DType::kF32));
      }
      StoreVectors(e_, scores, address);
      return next;
    });
  });
}

// Scores to weights; returns `total` with them added.
Values AttentionEmitter::Weights(Value* keys, const Values& shift, const Values& total) {
  return e_.Loop(e_.I64(0), keys, 1, total, [&](Value* i, const Values& current) {
    Value* address = Slot(weights_, i);
    Values weights = LoadVectors(e_, address, shift.size()), next;
    for (size_t j = 0; j < weights.size(); ++j) {
      weights[j] = EmitWeightExp(e_, b_.CreateFSub(weights[j], shift[j]));
      next.push_back(b_.CreateFAdd(current[j], weights[j]));
    }
    StoreVectors(e_, weights, address);
    return next;
  });
}

// results_ * scale + the tile's values by their weights.
void AttentionEmitter::AddValues(const Item& item, Value* first, Value* keys, const Values& scale) {
  const ir::Access& v = spec_.v;
  Value* base = e_.Address(Base(v, item), v.storage, b_.CreateMul(first, RowStride(v)));
  e_.Loop(e_.I64(0), e_.I64(spec_.value_elements), mr_, {}, [&](Value* at, const Values&) {
    Value* rows =
        spec_.value_elements % mr_ == 0 ? e_.I64(mr_) : Smaller(b_.CreateSub(e_.I64(spec_.value_elements), at), mr_);
    Value* row = e_.Address(base, v.storage, b_.CreateMul(at, ElementStride(v)));
    Value* place = b_.CreateFreeze(Slot(results_, at));
    MicroKernel kernel = Kernel(v.storage, RowStride(v));
    Values sums = kernel.Zero();
    const Values before = LoadVectors(e_, place, static_cast<size_t>(mr_ * nv_));
    for (size_t i = 0; i < before.size(); ++i) sums[i] = b_.CreateFMul(before[i], scale[i % static_cast<size_t>(nv_)]);
    Value* weights = weights_;
    const std::vector<Active> columns(static_cast<size_t>(nv_), e_.Full());
    kernel.Accumulate(StridedRows(e_, v.storage, row, ElementStride(v), rows, static_cast<int>(mr_)), keys, columns,
                      weights, sums);
    StoreVectors(e_, kernel.Finish(sums), place);
    return Values{};
  });
}

void AttentionEmitter::Store(const Item& item, const Values& total) {
  const ir::Access& out = spec_.out;
  // No keys: the sum over nothing.
  Value* has_keys = b_.CreateICmpSGT(frame_.Int(spec_.n), e_.I64(0));
  Values inverse;
  for (Value* sum : total)
    inverse.push_back(b_.CreateSelect(has_keys, b_.CreateFDiv(e_.SplatF32(1), sum), e_.Zero(DType::kF32)));
  Value* base = Base(out, item);
  for (int64_t j = 0; j < nv_; ++j) {
    const Active& active = item.active[static_cast<size_t>(j)];
    Value* first = FirstOf(out, base, item, j);
    Value* fours = WholeFours(out, active, spec_.value_elements);
    auto result = [&](Value* i) {
      Value* sum = LoadVectors(e_, VectorAt(e_, Slot(results_, i), e_.I64(j)), 1)[0];
      return b_.CreateFMul(sum, inverse[static_cast<size_t>(j)]);
    };
    e_.Loop(e_.I64(0), fours, kFour, {}, [&](Value* i, const Values&) {
      Values four;
      for (int64_t u = 0; u < kFour; ++u) four.push_back(result(b_.CreateAdd(i, e_.I64(u))));
      StoreFourTransposed(e_, four, e_.Address(first, out.storage, i), RowStride(out));
      return Values{};
    });
    e_.Loop(fours, e_.I64(spec_.value_elements), 1, {}, [&](Value* i, const Values&) {
      Value* address = e_.Address(first, out.storage, b_.CreateMul(i, ElementStride(out)));
      e_.StoreStrided(result(i), DType::kF32, out.storage, address, RowStride(out), active);
      return Values{};
    });
  }
}

}  // namespace

void EmitAttention(KernelFrame& frame, const ir::AttentionSpec& spec) {
  AttentionEmitter(frame, spec).Emit();
}

}  // namespace kiln::codegen
