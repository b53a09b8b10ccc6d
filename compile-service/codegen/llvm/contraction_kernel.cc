#include "compile-service/codegen/llvm/contraction_kernel.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <optional>

#include "compile-service/codegen/llvm/contraction_dot.h"

namespace kiln::codegen {

using llvm::ConstantInt;
using llvm::Value;

namespace {

// Multiply-adds in flight that hide the latency of one: two units of four cycles.
constexpr int kSumsInFlight = 8;
// From this many sums on, a step is long enough that unrolling buys nothing for its compile time.
constexpr int kLargeTile = 16;
// A range of at most this many multiply-adds is emitted without a loop.
constexpr int64_t kStraightLine = 128;
// Bytes of one step.
constexpr int64_t kGroup = 4;

int SetsFor(const ir::Tile& tile) {
  int sums = tile.mr * tile.nv;
  if (sums >= kSumsInFlight) return 1;
  return sums >= kSumsInFlight / 2 ? 2 : 4;
}

std::optional<int64_t> ConstantOf(Value* value) {
  if (auto* constant = llvm::dyn_cast<ConstantInt>(value)) return constant->getSExtValue();
  return std::nullopt;
}

}  // namespace

Value* NewVectors(VectorEmitter& emitter, int64_t count, DType type) {
  llvm::IRBuilder<>& b = emitter.ir();
  llvm::IRBuilder<>::InsertPointGuard guard(b);
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  b.SetInsertPoint(&entry, entry.begin());
  return b.CreateAlloca(emitter.VectorType(type), emitter.I64(count));
}

Value* VectorAt(VectorEmitter& emitter, Value* vectors, Value* index) {
  return emitter.ir().CreateGEP(emitter.VectorType(DType::kF32), vectors, index);
}

Values LoadVectors(VectorEmitter& emitter, Value* address, size_t count) {
  llvm::Type* vector = emitter.VectorType(DType::kF32);
  Values values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(emitter.ir().CreateLoad(vector, emitter.ir().CreateConstGEP1_64(vector, address, i)));
  return values;
}

void StoreVectors(VectorEmitter& emitter, const Values& values, Value* address) {
  for (size_t i = 0; i < values.size(); ++i) {
    Value* place = emitter.ir().CreateConstGEP1_64(values[i]->getType(), address, i);
    emitter.ir().CreateStore(values[i], place);
  }
}

MicroKernel::MicroKernel(VectorEmitter& emitter, const Config& config)
    : e_(emitter),
      b_(emitter.ir()),
      config_(config),
      sets_(config.streams > 1 ? config.streams : SetsFor(config.tile)) {}

Values MicroKernel::Zero() const {
  return Values(static_cast<size_t>(sets_ * config_.tile.mr * config_.tile.nv),
                e_.Zero(is_bytes() ? DType::kI32 : DType::kF32));
}

int64_t MicroKernel::UnrollOf(Value* count) const {
  int64_t sums = int64_t{config_.tile.mr} * config_.tile.nv;
  auto known = ConstantOf(count);
  if (known && *known * sums <= kStraightLine) return std::max<int64_t>(*known, 1);
  if (sums >= kLargeTile) return known && *known % 2 == 0 ? 2 : 1;
  return 4;
}

Value* MicroKernel::BOffset(int64_t step, int vector) {
  if (!config_.b_step) return e_.I64((step * config_.tile.nv + vector) * e_.lanes() * (is_bytes() ? kGroup : 1));
  return b_.CreateAdd(b_.CreateMul(config_.b_step, e_.I64(step)), e_.I64(int64_t{vector} * e_.lanes()));
}

Value* MicroKernel::ASplat(const TileRows& a, int row, Value* offset) {
  bool shared = a.pointers.size() == 1;
  Value* address = e_.Address(a.pointers[shared ? 0 : row], config_.a_storage, offset);
  if (shared) address = e_.Address(address, config_.a_storage, e_.I64(row * a.row_stride));
  if (few_ != 0) return LoadFewBytesBroadcast(e_, config_.a_storage, address, few_);
  if (is_bytes()) return LoadBytesBroadcast(e_, config_.a_storage, address);
  return e_.LoadBroadcast(config_.a_storage, DType::kF32, address);
}

Value* MicroKernel::BVector(Value* address, const Active& active) {
  if (is_bytes()) return e_.Load(DType::kI32, DType::kI32, address, active);
  return e_.Load(config_.b_storage, DType::kF32, address, active);
}

Value* MicroKernel::Product(Value* a, Value* b, Value* sum) {
  return is_bytes() ? DotBytes(e_, sum, a, b) : e_.MulAdd(a, b, sum);
}

void MicroKernel::EmitPrefetch(Value* address, Prefetch::Into into) {
  constexpr int kRead = 0, kAllLevels = 3, kNotL1 = 2, kData = 1;
  const int locality = into == Prefetch::Into::kL1 ? kAllLevels : kNotL1;
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                     {address, b_.getInt32(kRead), b_.getInt32(static_cast<uint32_t>(locality)), b_.getInt32(kData)});
}

void MicroKernel::Step(const TileRows& a, Value* a_offset, Value* b, int64_t ahead, int64_t set,
                       const std::vector<Active>& columns, Values& sums) {
  const auto [mr, nv] = config_.tile;
  if (ahead != 0) a_offset = b_.CreateAdd(a_offset, b_.CreateMul(config_.a_step, e_.I64(ahead)));
  for (const Prefetch& prefetch : config_.prefetches) {
    Value* offset = b_.CreateAdd(BOffset(ahead, 0), prefetch.distance);
    EmitPrefetch(e_.Address(b, config_.b_storage, offset), prefetch.into);
  }
  const size_t first = static_cast<size_t>(set * mr * nv);
  auto vector = [&](int j) { return BVector(e_.Address(b, config_.b_storage, BOffset(ahead, j)), columns[j]); };
  auto add = [&](int i, int j, Value* scalar, Value* column) {
    Value*& sum = sums[first + static_cast<size_t>(i * nv + j)];
    sum = Product(scalar, column, sum);
  };
  // The shorter side waits in registers, the longer one passes by.
  Values held;
  if (nv <= mr) {
    for (int j = 0; j < nv; ++j) held.push_back(vector(j));
    for (int i = 0; i < mr; ++i) {
      Value* scalar = ASplat(a, i, a_offset);
      for (int j = 0; j < nv; ++j) add(i, j, scalar, held[j]);
    }
  } else {
    for (int i = 0; i < mr; ++i) held.push_back(ASplat(a, i, a_offset));
    for (int j = 0; j < nv; ++j) {
      Value* column = vector(j);
      for (int i = 0; i < mr; ++i) add(i, j, held[i], column);
    }
  }
}

void MicroKernel::Accumulate(const TileRows& rows, Value* count, const std::vector<Active>& columns, Value*& b,
                             Values& sums) {
  if (is_bytes()) return AccumulateBytes(rows, *ConstantOf(count), columns, b, sums);
  AccumulateSteps(rows, count, columns, b, sums);
}

void MicroKernel::AccumulateBytes(const TileRows& rows, int64_t count, const std::vector<Active>& columns, Value*& b,
                                  Values& sums) {
  AccumulateSteps(rows, e_.I64(count / kGroup), columns, b, sums);
  few_ = static_cast<int>(count % kGroup);
  if (few_ == 0) return;
  Step(rows, e_.I64(count / kGroup * kGroup), b, 0, 0, columns, sums);
  b = e_.Address(b, config_.b_storage, BOffset(1, 0));
  few_ = 0;
}

void MicroKernel::AccumulateSteps(const TileRows& rows, Value* count, const std::vector<Active>& columns, Value*& b,
                                  Values& sums) {
  // LLVM's loop strength reduction would take the row pointers apart into every sum and product they were made of, and
  // weigh all ways to put them together again, for most of the compile time. A frozen pointer has no parts.
  TileRows a = rows;
  for (Value*& pointer : a.pointers) pointer = b_.CreateFreeze(pointer);
  Value* start = e_.I64(0);
  if (config_.streams > 1) {
    Value* length = b_.CreateUDiv(count, e_.I64(config_.streams));
    AccumulateStreams(a, length, columns, b, sums);
    start = b_.CreateMul(length, e_.I64(config_.streams));
  }
  auto run = [&](Value* begin, Value* end, int64_t steps) {
    Values carried = sums;
    carried.push_back(b);
    carried = e_.Loop(begin, end, steps, carried, [&](Value* k, const Values& current) {
      Values next = current;
      Value* pointer = next.back();
      next.pop_back();
      Value* offset = b_.CreateMul(k, config_.a_step);
      for (int64_t u = 0; u < steps; ++u) Step(a, offset, pointer, u, u % sets_, columns, next);
      next.push_back(e_.Address(pointer, config_.b_storage, BOffset(steps, 0)));
      return next;
    });
    b = carried.back();
    carried.pop_back();
    sums = carried;
  };
  if (config_.streams > 1) return run(start, count, 1);
  int64_t unroll = UnrollOf(count);
  auto known = ConstantOf(count);
  Value* whole = count;
  if (known) {
    whole = e_.I64(*known / unroll * unroll);
  } else if (unroll > 1) {
    whole = b_.CreateAnd(count, e_.I64(-unroll));
  }
  run(e_.I64(0), whole, unroll);
  if (known && *known % unroll != 0) run(whole, count, *known % unroll);
  if (!known && unroll > 1) run(whole, count, 1);
}

void MicroKernel::AccumulateStreams(const TileRows& a, Value* length, const std::vector<Active>& columns, Value*& b,
                                    Values& sums) {
  const int64_t width = int64_t{config_.tile.nv} * e_.lanes();
  Value* first = b;
  sums = e_.Loop(e_.I64(0), length, 1, sums, [&](Value* k, const Values& current) {
    Values next = current;
    for (int q = 0; q < config_.streams; ++q) {
      Value* at = b_.CreateAdd(k, b_.CreateMul(length, e_.I64(q)));
      Value* place = e_.Address(first, config_.b_storage, b_.CreateMul(at, e_.I64(width)));
      Step(a, b_.CreateMul(at, config_.a_step), place, 0, q, columns, next);
    }
    return next;
  });
  b = e_.Address(first, config_.b_storage, b_.CreateMul(length, e_.I64(config_.streams * width)));
}

Values MicroKernel::Finish(const Values& sums) const {
  size_t size = sums.size() / sets_;
  Values result(sums.begin(), sums.begin() + static_cast<ptrdiff_t>(size));
  for (int set = 1; set < sets_; ++set)
    for (size_t i = 0; i < size; ++i) {
      Value* other = sums[set * size + i];
      result[i] = is_bytes() ? b_.CreateAdd(result[i], other) : b_.CreateFAdd(result[i], other);
    }
  return result;
}

}  // namespace kiln::codegen
