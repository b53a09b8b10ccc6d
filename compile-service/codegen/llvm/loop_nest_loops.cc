#include <llvm/IR/Constants.h>

#include <algorithm>

#include "compile-service/codegen/llvm/loop_nest_emitter.h"

namespace kiln::codegen {

using ir::Combine;
using ir::Stage;
using llvm::Value;
using Values = VectorEmitter::Values;

namespace {

// A transposed nest's tiles: points of the last outer dim that one cache line of an operand holds, at 4 bytes, and
// inner positions whose lines stay in the first-level cache meanwhile.
constexpr int64_t kTransposedPoints = 16, kTransposedPositions = 128;

}  // namespace

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
  const auto next_point = [&](const Values& now) {
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
  };
  e_.Loop(frame_.begin(), frame_.end(), static_cast<int64_t>(rows_.size()), first, [&](Value* at, const Values& now) {
    for (size_t dim = 0; dim < count; ++dim) values_.SetCoordinate(dim, now[dim]);
    Values last = now;
    if (rows_.size() > 1) {
      last = next_point(now);
      has_second_ = ir.CreateICmpSLT(ir.CreateAdd(at, e_.I64(1)), frame_.end());
      for (size_t dim = 0; dim < count; ++dim)
        rows_[1].SetCoordinate(dim, ir.CreateSelect(has_second_, last[dim], now[dim]));
    }
    body();
    return next_point(last);
  });
}

// Whether an operand's neighbours lie along the last outer dim instead of the inner one, as a transposed one's do.
bool LoopNestEmitter::IsTransposed() const {
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
// kTransposedPoints of the last outer dim at a time, and all of them for one piece of the inner dim before the next.
void LoopNestEmitter::ForTransposed(const std::function<void(Value* begin, Value* end)>& body) {
  auto& ir = e_.ir();
  const auto smaller = [&](Value* a, Value* b) { return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b); };
  const auto larger = [&](Value* a, Value* b) { return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b); };
  const size_t last = outer_count() - 1;
  Value* inner = frame_.Int(spec_.inner);
  Value* extent = larger(frame_.Int(spec_.outer[last]), e_.I64(1));
  Value* tiles = ir.CreateUDiv(ir.CreateAdd(extent, e_.I64(kTransposedPoints - 1)), e_.I64(kTransposedPoints));
  const auto tile_of = [&](Value* point) {
    return ir.CreateAdd(ir.CreateMul(ir.CreateUDiv(point, extent), tiles),
                        ir.CreateUDiv(ir.CreateURem(point, extent), e_.I64(kTransposedPoints)));
  };
  Value* end = ir.CreateSelect(ir.CreateICmpSLT(frame_.begin(), frame_.end()),
                               ir.CreateAdd(tile_of(ir.CreateSub(frame_.end(), e_.I64(1))), e_.I64(1)), e_.I64(0));
  e_.Loop(tile_of(frame_.begin()), end, 1, {}, [&](Value* tile, const Values&) -> Values {
    Value* row = ir.CreateUDiv(tile, tiles);
    Value* first = ir.CreateMul(ir.CreateURem(tile, tiles), e_.I64(kTransposedPoints));
    Value* row_begin = ir.CreateMul(row, extent);
    Value* points_begin = larger(ir.CreateAdd(row_begin, first), frame_.begin());
    Value* points_end =
        smaller(ir.CreateAdd(row_begin, smaller(ir.CreateAdd(first, e_.I64(kTransposedPoints)), extent)), frame_.end());
    for (size_t dim = last; dim-- > 0;) {
      Value* dim_extent = frame_.Int(spec_.outer[dim]);
      values_.SetCoordinate(dim, dim == 0 ? row : ir.CreateURem(row, dim_extent));
      if (dim > 0) row = ir.CreateUDiv(row, dim_extent);
    }
    e_.Loop(e_.I64(0), inner, kTransposedPositions, {}, [&](Value* at, const Values&) -> Values {
      Value* positions_end = smaller(ir.CreateAdd(at, e_.I64(kTransposedPositions)), inner);
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
    SetCoordinate(dim, i);
    return ForReduce(dim + 1, now, body);
  });
  SetCoordinate(dim, e_.I64(0));
  return result;
}

Values LoopNestEmitter::Combined(const Stage& stage, const Values& a, const Values& b) {
  Values result;
  for (size_t i = 0; i < a.size(); ++i) result.push_back(Combined(stage.combine, TypeOf(stage), a[i], b[i]));
  return result;
}

// The sum of `sum` over pieces of [0, extent), of `chain` each.
Values LoopNestEmitter::InChains(Value* extent, int64_t chain, const Stage& stage, const Values& zeros,
                                 const std::function<Values(Value* begin, Value* end)>& sum) {
  auto& ir = e_.ir();
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(extent); constant && constant->getSExtValue() <= chain)
    return sum(e_.I64(0), extent);
  return e_.Loop(e_.I64(0), extent, chain, zeros, [&](Value* begin, const Values& now) {
    Value* end = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir.CreateAdd(begin, e_.I64(chain)), extent);
    return Combined(stage, now, sum(begin, end));
  });
}

// What a stage combines over the reduce dims from `dim` on, beginning with `start`; `add` adds one position's. Float
// sums in chains of kChainMax terms, of every dim.
Values LoopNestEmitter::ForSums(size_t dim, const Stage& stage, const Values& start, const Adder& add) {
  if (!AddsFloats(stage)) return ForReduce(dim, start, add);
  if (dim == inner_dim()) return add(start);
  const ir::SpecInt extent = spec_.reduce[dim - outer_count()];
  if (extent == ir::SpecInt::Const(1)) return ForSums(dim + 1, stage, start, add);
  Values result = InChains(frame_.Int(extent), kChainMax, stage, start, [&](Value* begin, Value* end) {
    return e_.Loop(begin, end, 1, start, [&](Value* i, const Values& now) {
      SetCoordinate(dim, i);
      return dim + 1 == inner_dim() ? add(now) : Combined(stage, now, ForSums(dim + 1, stage, start, add));
    });
  });
  SetCoordinate(dim, e_.I64(0));
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

}  // namespace kiln::codegen
