#include "compile-service/codegen/llvm/loop_nest.h"

#include <llvm/IR/Constants.h>

#include <algorithm>

#include "compile-service/codegen/llvm/nest_values.h"

namespace kiln::codegen {

using ir::Combine;
using ir::LoopNestSpec;
using ir::ScalarOp;
using ir::Stage;
using llvm::Value;
using Values = VectorEmitter::Values;

namespace {

// A turned nest's tiles: points of the last outer dim that one cache line of an operand holds, at 4 bytes, and inner
// positions whose lines stay in the first-level cache meanwhile.
constexpr int64_t kTurnedPoints = 16, kTurnedPositions = 128;

class LoopNestEmitter {
 public:
  LoopNestEmitter(KernelFrame& frame, const LoopNestSpec& spec)
      : frame_(frame), e_(frame.emitter()), spec_(spec), values_(frame, spec) {}

  void Emit();

 private:
  size_t outer_count() const { return spec_.outer.size(); }
  size_t inner_dim() const { return spec_.outer.size() + spec_.reduce.size(); }
  bool is_flat() const { return spec_.outer.empty() && spec_.reduce.empty() && !spec_.reduce_inner; }
  size_t UnrollOf(const std::vector<bool>& needed) const;
  bool IsTurned() const;

  // Loops.
  void ForOuter(const std::function<void()>& body);
  void ForTurned(const std::function<void(Value* begin, Value* end)>& body);
  Values ForReduce(size_t dim, const Values& carried, const std::function<Values(const Values&)>& body);
  using BlockBody = std::function<Values(const Block&, const Values&)>;
  Values ForInner(Value* begin, Value* end, size_t unroll, Values carried, const BlockBody& body);
  Values ForInnerConstant(int64_t extent, size_t unroll, Values carried, const BlockBody& body);
  Block FullBlock(Value* base, size_t vectors) const { return {base, std::vector<Active>(vectors)}; }

  // Stages.
  void RunRowStage(size_t index);
  Value* ReduceRow(const Stage& stage, const std::vector<bool>& needed);
  void StoreRow(const Stage& stage, const std::vector<bool>& needed);
  void RunColumnBlock();
  Values ReduceColumns(const Stage& stage, const std::vector<bool>& needed);
  void StoreColumns(const Stage& stage, const std::vector<bool>& needed);
  void StoreStage(const Stage& stage);
  void Scatter(const Stage& stage);
  void ScanColumns(size_t index, const std::vector<bool>& needed);
  Value* Identity(Combine combine, DType type) const;
  Value* Combined(Combine combine, DType type, Value* a, Value* b);

  KernelFrame& frame_;
  VectorEmitter& e_;
  const LoopNestSpec& spec_;
  NestValues values_;
};

// Vectors side by side: enough to cover latencies, few enough for the registers and for compile time.
size_t LoopNestEmitter::UnrollOf(const std::vector<bool>& needed) const {
  size_t heavy = 0, live = 0;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const auto op = static_cast<int>(spec_.body[i].op);
    const bool function = op >= static_cast<int>(ScalarOp::kExp) && op <= static_cast<int>(ScalarOp::kCos);
    heavy += function || spec_.body[i].op == ScalarOp::kPow;
    live += values_.VariesWithInner(i);
  }
  const bool many_registers = e_.has_avx512() || e_.target().architecture == Architecture::kArm;
  if (heavy > 0) return many_registers && heavy <= 2 ? 2 : 1;
  if (live > 24) return 1;
  return many_registers && live <= 12 ? 4 : 2;
}

// --- loops ---

// Coordinates of the outer dims are carried from point to point like an odometer; only the first point is divided out.
void LoopNestEmitter::ForOuter(const std::function<void()>& body) {
  auto& ir = e_.ir();
  const size_t count = outer_count();
  Values first(count);
  Value* rest = frame_.begin();
  for (size_t dim = count; dim-- > 1;) {
    Value* extent = frame_.Int(spec_.outer[dim]);
    first[dim] = ir.CreateURem(rest, extent);
    rest = ir.CreateUDiv(rest, extent);
  }
  if (count > 0) first[0] = rest;
  e_.Loop(frame_.begin(), frame_.end(), 1, first, [&](Value*, const Values& now) {
    for (size_t dim = 0; dim < count; ++dim) values_.SetCoordinate(dim, now[dim]);
    body();
    Values next = now;
    Value* carry = nullptr;
    for (size_t dim = count; dim-- > 0;) {
      Value* moved = ir.CreateAdd(now[dim], e_.I64(1));
      if (carry != nullptr) moved = ir.CreateSelect(carry, moved, now[dim]);
      Value* full = ir.CreateICmpEQ(moved, frame_.Int(spec_.outer[dim]));
      next[dim] = dim > 0 ? ir.CreateSelect(full, e_.I64(0), moved) : moved;
      carry = full;
    }
    return next;
  });
}

// Whether an operand's neighbours lie along the last outer dim instead of the inner one, as a transposed one's do.
bool LoopNestEmitter::IsTurned() const {
  const ir::SpecInt zero = ir::SpecInt::Const(0), one = ir::SpecInt::Const(1);
  if (spec_.outer.empty() || !spec_.reduce.empty() || spec_.reduce_inner) return false;
  if (std::ranges::any_of(spec_.stages, [](const Stage& stage) { return stage.kind != Stage::Kind::kStore; }))
    return false;
  return std::ranges::any_of(spec_.accesses, [&](const ir::Access& access) {
    const ir::SpecInt inner = access.strides[inner_dim()];
    return access.strides[outer_count() - 1] == one && inner != one && inner != zero;
  });
}

// The points of ForOuter in tiles, so that a line of a transposed operand is used up while it is in a cache: up to
// kTurnedPoints of the last outer dim at a time, and all of them for one piece of the inner dim before the next.
void LoopNestEmitter::ForTurned(const std::function<void(Value* begin, Value* end)>& body) {
  auto& ir = e_.ir();
  const auto smaller = [&](Value* a, Value* b) { return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b); };
  const auto larger = [&](Value* a, Value* b) { return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b); };
  const size_t last = outer_count() - 1;
  Value* inner = frame_.Int(spec_.inner);
  Value* extent = larger(frame_.Int(spec_.outer[last]), e_.I64(1));
  Value* tiles = ir.CreateUDiv(ir.CreateAdd(extent, e_.I64(kTurnedPoints - 1)), e_.I64(kTurnedPoints));
  const auto tile_of = [&](Value* point) {
    return ir.CreateAdd(ir.CreateMul(ir.CreateUDiv(point, extent), tiles),
                        ir.CreateUDiv(ir.CreateURem(point, extent), e_.I64(kTurnedPoints)));
  };
  Value* end = ir.CreateSelect(ir.CreateICmpSLT(frame_.begin(), frame_.end()),
                               ir.CreateAdd(tile_of(ir.CreateSub(frame_.end(), e_.I64(1))), e_.I64(1)), e_.I64(0));
  e_.Loop(tile_of(frame_.begin()), end, 1, {}, [&](Value* tile, const Values&) -> Values {
    Value* row = ir.CreateUDiv(tile, tiles);
    Value* first = ir.CreateMul(ir.CreateURem(tile, tiles), e_.I64(kTurnedPoints));
    Value* row_begin = ir.CreateMul(row, extent);
    Value* points_begin = larger(ir.CreateAdd(row_begin, first), frame_.begin());
    Value* points_end =
        smaller(ir.CreateAdd(row_begin, smaller(ir.CreateAdd(first, e_.I64(kTurnedPoints)), extent)), frame_.end());
    for (size_t dim = last; dim-- > 0;) {
      Value* dim_extent = frame_.Int(spec_.outer[dim]);
      values_.SetCoordinate(dim, dim == 0 ? row : ir.CreateURem(row, dim_extent));
      if (dim > 0) row = ir.CreateUDiv(row, dim_extent);
    }
    e_.Loop(e_.I64(0), inner, kTurnedPositions, {}, [&](Value* at, const Values&) -> Values {
      Value* positions_end = smaller(ir.CreateAdd(at, e_.I64(kTurnedPositions)), inner);
      e_.Loop(points_begin, points_end, 1, {}, [&](Value* point, const Values&) -> Values {
        values_.SetCoordinate(last, ir.CreateSub(point, row_begin));
        body(at, positions_end);
        return {};
      });
      return {};
    });
    return {};
  });
}

Values LoopNestEmitter::ForReduce(size_t dim, const Values& carried, const std::function<Values(const Values&)>& body) {
  if (dim == inner_dim()) return body(carried);
  const ir::SpecInt extent = spec_.reduce[dim - outer_count()];
  if (extent == ir::SpecInt::Const(1)) return ForReduce(dim + 1, carried, body);
  Values result = e_.Loop(e_.I64(0), frame_.Int(extent), 1, carried, [&](Value* i, const Values& now) {
    values_.SetCoordinate(dim, i);
    return ForReduce(dim + 1, now, body);
  });
  values_.SetCoordinate(dim, e_.I64(0));
  return result;
}

// Main blocks of `unroll` vectors, then what is left in single vectors, the last one partial.
Values LoopNestEmitter::ForInner(Value* begin, Value* end, size_t unroll, Values carried, const BlockBody& body) {
  auto& ir = e_.ir();
  auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  if (first && last && first->isZero()) return ForInnerConstant(last->getSExtValue(), unroll, std::move(carried), body);

  const int64_t lanes = e_.lanes();
  auto whole_blocks = [&](size_t vectors, Value* from) {
    const int64_t step = static_cast<int64_t>(vectors) * lanes;
    Value* length = ir.CreateSub(end, from);
    Value* whole = ir.CreateAdd(from, ir.CreateAnd(length, e_.I64(-step)));  // step is a power of two
    carried = e_.Loop(from, whole, step, carried,
                      [&](Value* i, const Values& now) { return body(FullBlock(i, vectors), now); });
    return whole;
  };
  Value* position = whole_blocks(unroll, begin);
  // AVX-512 masks cost nothing, so one masked loop takes whole and partial vectors.
  if (e_.has_avx512()) {
    return e_.Loop(position, end, lanes, carried, [&](Value* i, const Values& now) {
      Value* left = ir.CreateSub(end, i);
      Value* count = ir.CreateSelect(ir.CreateICmpSLT(left, e_.I64(lanes)), left, e_.I64(lanes));
      return body(Block{i, {e_.First(count)}}, now);
    });
  }
  if (unroll > 1) position = whole_blocks(1, position);
  Value* left = ir.CreateSub(end, position);
  return e_.IfElse(
      ir.CreateICmpSGT(left, e_.I64(0)), [&] { return body(Block{position, {e_.First(left)}}, carried); },
      [&] { return carried; });
}

Values LoopNestEmitter::ForInnerConstant(int64_t extent, size_t unroll, Values carried, const BlockBody& body) {
  const int64_t lanes = e_.lanes();
  const int64_t step = static_cast<int64_t>(unroll) * lanes;
  const int64_t whole = extent / step * step;
  if (whole == step) {
    carried = body(FullBlock(e_.I64(0), unroll), carried);
  } else if (whole > 0) {
    carried = e_.Loop(e_.I64(0), e_.I64(whole), step, carried,
                      [&](Value* i, const Values& now) { return body(FullBlock(i, unroll), now); });
  }
  if (whole == extent) return carried;
  Block block{e_.I64(whole), {}};
  for (int64_t at = whole; at < extent; at += lanes) block.vectors.push_back(e_.First(e_.I64(extent - at)));
  return body(block, carried);
}

// --- stages ---

Value* LoopNestEmitter::Identity(Combine combine, DType type) const {
  llvm::Type* vector = e_.VectorType(type);
  const unsigned bits = type == DType::kI64 ? 64 : 32;
  switch (combine) {
    case Combine::kSum:
      return e_.Zero(type);
    case Combine::kProduct:
      return IsFloat(type) ? llvm::ConstantFP::get(vector, 1.0) : llvm::ConstantInt::get(vector, 1);
    case Combine::kMax:
      return IsFloat(type) ? llvm::ConstantFP::getInfinity(vector, true)
                           : llvm::ConstantInt::get(vector, llvm::APInt::getSignedMinValue(bits));
    case Combine::kMin:
      return IsFloat(type) ? llvm::ConstantFP::getInfinity(vector, false)
                           : llvm::ConstantInt::get(vector, llvm::APInt::getSignedMaxValue(bits));
  }
  __builtin_unreachable();
}

Value* LoopNestEmitter::Combined(Combine combine, DType type, Value* a, Value* b) {
  auto& ir = e_.ir();
  switch (combine) {
    case Combine::kSum:
      return IsFloat(type) ? ir.CreateFAdd(a, b) : ir.CreateAdd(a, b);
    case Combine::kProduct:
      return IsFloat(type) ? ir.CreateFMul(a, b) : ir.CreateMul(a, b);
    case Combine::kMax:
      return e_.Maximum(a, b, type);
    case Combine::kMin:
      return e_.Minimum(a, b, type);
  }
  __builtin_unreachable();
}

void LoopNestEmitter::StoreStage(const Stage& stage) {
  if (stage.kind == Stage::Kind::kScatter) return Scatter(stage);
  for (const ir::Store& store : stage.stores) {
    const ir::Access& access = spec_.accesses[static_cast<size_t>(store.access)];
    const DType type = spec_.body[static_cast<size_t>(store.node)].type;
    const ir::SpecInt stride = access.strides[inner_dim()];
    for (size_t vector = 0; vector < values_.block().vectors.size(); ++vector) {
      Value* value = values_.ValueOf(store.node, vector);
      Value* address = values_.InnerAddress(access, vector);
      const Active& active = values_.block().vectors[vector];
      if (stage.domain == Stage::Domain::kRow || stride == ir::SpecInt::Const(0)) {  // one element
        e_.StoreFirstLane(value, type, access.storage, address);
      } else if (stride == ir::SpecInt::Const(1)) {
        e_.Store(value, type, access.storage, address, active);
      } else {
        e_.StoreStrided(value, type, access.storage, address, frame_.Int(stride), active);
      }
    }
  }
}

void LoopNestEmitter::Scatter(const Stage& stage) {
  const int32_t value = stage.stores.front().node;
  for (size_t vector = 0; vector < values_.block().vectors.size(); ++vector)
    values_.StoreAt(stage.node, vector, values_.ValueOf(value, vector), spec_.body[static_cast<size_t>(value)].type);
}

Value* LoopNestEmitter::ReduceRow(const Stage& stage, const std::vector<bool>& needed) {
  const DType type = spec_.body[static_cast<size_t>(stage.node)].type;
  const size_t unroll = UnrollOf(needed);
  auto add_block = [&](const Block& block, const Values& now) {
    Values next = now;
    values_.SetBlock(block);
    values_.InScope(kInner, needed, [&] {
      for (size_t vector = 0; vector < block.vectors.size(); ++vector) {
        Value* combined = Combined(stage.combine, type, now[vector], values_.ValueOf(stage.node, vector));
        const Active& active = block.vectors[vector];
        next[vector] = active.all() ? combined : e_.ir().CreateSelect(active.mask, combined, now[vector]);
      }
    });
    return next;
  };
  Values sums(unroll, Identity(stage.combine, type));
  sums = ForReduce(outer_count(), sums, [&](const Values& carried) {
    Values result;
    values_.InScope(kReduce, needed,
                    [&] { result = ForInner(e_.I64(0), frame_.Int(spec_.inner), unroll, carried, add_block); });
    return result;
  });
  Value* total = sums[0];
  for (size_t i = 1; i < unroll; ++i) total = Combined(stage.combine, type, total, sums[i]);
  return e_.ReduceLanes(total, [&](Value* a, Value* b) { return Combined(stage.combine, type, a, b); });
}

void LoopNestEmitter::StoreRow(const Stage& stage, const std::vector<bool>& needed) {
  auto over_inner = [&](const Values&) -> Values {
    values_.InScope(kReduce, needed, [&] {
      ForInner(e_.I64(0), frame_.Int(spec_.inner), UnrollOf(needed), {},
               [&](const Block& block, const Values&) -> Values {
                 values_.SetBlock(block);
                 values_.InScope(kInner, needed, [&] { StoreStage(stage); });
                 return {};
               });
    });
    return {};
  };
  switch (stage.domain) {
    case Stage::Domain::kRow:
      values_.SetBlock(Block{e_.I64(0), {e_.First(e_.I64(1))}});
      values_.InScope(kReduce | kInner, needed, [&] { StoreStage(stage); });
      break;
    case Stage::Domain::kInner:
      over_inner({});
      break;
    case Stage::Domain::kFull:
      ForReduce(outer_count(), {}, over_inner);
      break;
  }
}

void LoopNestEmitter::RunRowStage(size_t index) {
  const Stage& stage = spec_.stages[index];
  const std::vector<bool>& needed = values_.NeededBy(index);
  Value* result = nullptr;
  values_.InScope(0, needed, [&] {
    if (stage.kind == Stage::Kind::kReduce) {
      result = ReduceRow(stage, needed);
    } else {
      StoreRow(stage, needed);
      values_.ForgetStored();
    }
  });
  if (result != nullptr) values_.SetStageResult(index, {result});
}

Values LoopNestEmitter::ReduceColumns(const Stage& stage, const std::vector<bool>& needed) {
  const DType type = spec_.body[static_cast<size_t>(stage.node)].type;
  const Values start(values_.block().vectors.size(), Identity(stage.combine, type));
  return ForReduce(outer_count(), start, [&](const Values& now) {
    Values next = now;
    values_.InScope(kReduce, needed, [&] {
      for (size_t vector = 0; vector < now.size(); ++vector)
        next[vector] = Combined(stage.combine, type, now[vector], values_.ValueOf(stage.node, vector));
    });
    return next;
  });
}

void LoopNestEmitter::StoreColumns(const Stage& stage, const std::vector<bool>& needed) {
  auto store = [&](const Values&) -> Values {
    values_.InScope(kReduce, needed, [&] { StoreStage(stage); });
    return {};
  };
  if (stage.domain == Stage::Domain::kFull) {
    ForReduce(outer_count(), {}, store);
  } else {
    store({});
  }
}

// The running value is carried from one reduce position to the next.
void LoopNestEmitter::ScanColumns(size_t index, const std::vector<bool>& needed) {
  const Stage& stage = spec_.stages[index];
  const DType type = spec_.body[static_cast<size_t>(stage.node)].type;
  // A float alone is carried as a scalar, which is added sooner; an integer would go back and forth between registers.
  const bool single = spec_.inner == ir::SpecInt::Const(1) && IsFloat(type);
  Values start(values_.block().vectors.size(), Identity(stage.combine, type));
  const auto first = [&](Value* vector) { return e_.ir().CreateExtractElement(vector, uint64_t{0}); };
  if (single) start = {first(start[0])};
  ForReduce(outer_count(), start, [&](const Values& now) {
    Values next(now.size());
    values_.InScope(kReduce, needed, [&] {
      values_.SetStageResult(index, single ? Values{e_.Splat(now[0])} : now);
      values_.InScope(0, needed, [&] {
        for (size_t vector = 0; vector < now.size(); ++vector) next[vector] = values_.ValueOf(stage.node, vector);
        if (single) next = {first(next[0])};
        StoreStage(stage);
      });
    });
    return next;
  });
}

void LoopNestEmitter::RunColumnBlock() {
  values_.InScope(kInner, values_.NeededByAll(), [&] {
    for (size_t index = 0; index < spec_.stages.size(); ++index) {
      const Stage& stage = spec_.stages[index];
      const std::vector<bool>& needed = values_.NeededBy(index);
      Values results;
      values_.InScope(0, needed, [&] {
        if (stage.kind == Stage::Kind::kReduce) {
          results = ReduceColumns(stage, needed);
        } else if (stage.kind == Stage::Kind::kScan) {
          ScanColumns(index, needed);
          values_.ForgetStored();
        } else {
          StoreColumns(stage, needed);
          values_.ForgetStored();
        }
      });
      if (!results.empty()) values_.SetStageResult(index, std::move(results));
    }
  });
}

void LoopNestEmitter::Emit() {
  const std::vector<bool>& needed = values_.NeededByAll();
  auto columns = [&](Value* begin, Value* end) {
    ForInner(begin, end, UnrollOf(needed), {}, [&](const Block& block, const Values&) -> Values {
      values_.SetBlock(block);
      RunColumnBlock();
      return {};
    });
  };
  values_.InScope(0, needed, [&] {
    if (is_flat()) {
      values_.InScope(kOuter, needed, [&] { columns(frame_.begin(), frame_.end()); });
      return;
    }
    if (IsTurned()) {
      ForTurned([&](Value* begin, Value* end) { values_.InScope(kOuter, needed, [&] { columns(begin, end); }); });
      return;
    }
    ForOuter([&] {
      values_.InScope(kOuter, needed, [&] {
        if (!spec_.reduce_inner) {
          columns(e_.I64(0), frame_.Int(spec_.inner));
          return;
        }
        for (size_t index = 0; index < spec_.stages.size(); ++index) RunRowStage(index);
      });
    });
  });
}

}  // namespace

void EmitLoopNest(KernelFrame& frame, const LoopNestSpec& spec) {
  LoopNestEmitter(frame, spec).Emit();
}

}  // namespace kiln::codegen
