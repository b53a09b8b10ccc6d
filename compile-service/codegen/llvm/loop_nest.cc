#include "compile-service/codegen/llvm/loop_nest.h"

#include <llvm/IR/Constants.h>

#include <algorithm>

#include "compile-service/codegen/llvm/loop_nest_emitter.h"

namespace kiln::codegen {

using ir::Combine;
using ir::LoopNestSpec;
using ir::ScalarOp;
using ir::Stage;
using llvm::Value;
using Values = VectorEmitter::Values;

void LoopNestEmitter::InScope(Dependence bound, const std::vector<bool>& needed, const std::function<void()>& body,
                              size_t row) {
  if (row == rows_.size()) return body();
  rows_[row].InScope(bound, needed, [&] { InScope(bound, needed, body, row + 1); });
}

void LoopNestEmitter::SetCoordinate(size_t dim, Value* position) {
  for (NestValues& row : rows_) row.SetCoordinate(dim, position);
}

void LoopNestEmitter::SetBlock(const Block& block) {
  for (NestValues& row : rows_) row.SetBlock(block);
}

Active LoopNestEmitter::Stored(size_t row, const Active& active) {
  if (row == 0) return active;
  Value* count = active.all() ? e_.I64(e_.lanes()) : active.count;
  return e_.First(e_.ir().CreateSelect(has_second_, count, e_.I64(0)));
}

// Vectors of one row side by side: enough to cover latencies, few enough for the registers and for compile time.
size_t LoopNestEmitter::UnrollOf(const std::vector<bool>& needed) const {
  size_t heavy = 0, live = 0;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    heavy += ir::IsFunction(spec_.body[i].op);
    live += values_.VariesWithInner(i);
  }
  const bool many_registers = e_.has_avx512() || e_.target().architecture == Architecture::kArm;
  size_t vectors = 1;
  if (heavy > 0) {
    vectors = many_registers && heavy <= 2 ? 2 : 1;
  } else if (live <= 24) {
    vectors = many_registers && live <= 12 ? 4 : 2;
  }
  return std::max<size_t>(1, vectors / rows_.size());
}

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
  for (size_t row = 0; row < rows_.size(); ++row)
    for (const ir::Store& store : stage.stores) StoreBlock(stage, store, row);
}

void LoopNestEmitter::StoreBlock(const Stage& stage, const ir::Store& store, size_t row) {
  NestValues& values = rows_[row];
  const ir::Access& access = spec_.accesses[static_cast<size_t>(store.access)];
  const DType type = spec_.body[static_cast<size_t>(store.node)].type;
  const ir::SpecInt stride = access.strides[inner_dim()];
  const bool one_element = stage.domain == Stage::Domain::kRow || stride == ir::SpecInt::Const(0);
  for (size_t vector = 0; vector < values.block().vectors.size(); ++vector) {
    Value* value = values.ValueOf(store.node, vector);
    Value* address = values.InnerAddress(access, vector);
    if (one_element && row == 0) {
      e_.StoreFirstLane(value, type, access.storage, address);
      continue;
    }
    const Active active = Stored(row, one_element ? e_.First(e_.I64(1)) : values.block().vectors[vector]);
    if (one_element || stride == ir::SpecInt::Const(1)) {
      e_.Store(value, type, access.storage, address, active);
    } else {
      e_.StoreStrided(value, type, access.storage, address, frame_.Int(stride), active);
    }
  }
}

void LoopNestEmitter::Scatter(const Stage& stage) {
  const int32_t value = stage.stores.front().node;
  for (size_t vector = 0; vector < values_.block().vectors.size(); ++vector)
    values_.StoreAt(stage.node, vector, values_.ValueOf(value, vector), spec_.body[static_cast<size_t>(value)].type);
}

Values LoopNestEmitter::ReduceRow(const Stage& stage, const std::vector<bool>& needed) {
  const DType type = TypeOf(stage);
  const size_t unroll = UnrollOf(needed);
  auto add_block = [&](const Block& block, const Values& now) {
    Values next = now;
    SetBlock(block);
    InScope(kInner, needed, [&] {
      for (size_t row = 0; row < rows_.size(); ++row)
        for (size_t vector = 0; vector < block.vectors.size(); ++vector) {
          const size_t sum = row * unroll + vector;
          Value* combined = Combined(stage.combine, type, now[sum], rows_[row].ValueOf(stage.node, vector));
          const Active& active = block.vectors[vector];
          next[sum] = active.all() ? combined : e_.ir().CreateSelect(active.mask, combined, now[sum]);
        }
    });
    return next;
  };
  const Values zeros(rows_.size() * unroll, Identity(stage.combine, type));
  const int64_t chain = kChainMax * static_cast<int64_t>(unroll) * e_.lanes();
  const Values sums = ForSums(outer_count(), stage, zeros, [&](const Values& carried) {
    Values result;
    InScope(kReduce, needed, [&] {
      Value* inner = frame_.Int(spec_.inner);
      if (!AddsFloats(stage)) {
        result = ForInner(e_.I64(0), inner, unroll, carried, add_block);
        return;
      }
      result = InChains(inner, chain, stage, zeros,
                        [&](Value* begin, Value* end) { return ForInner(begin, end, unroll, zeros, add_block); });
      if (!spec_.reduce.empty()) result = Combined(stage, carried, result);
    });
    return result;
  });
  Values totals;
  for (size_t row = 0; row < rows_.size(); ++row) {
    Value* total = sums[row * unroll];
    for (size_t i = 1; i < unroll; ++i) total = Combined(stage.combine, type, total, sums[row * unroll + i]);
    totals.push_back(e_.ReduceLanes(total, [&](Value* a, Value* b) { return Combined(stage.combine, type, a, b); }));
  }
  return totals;
}

void LoopNestEmitter::StoreRow(const Stage& stage, const std::vector<bool>& needed) {
  auto over_inner = [&](const Values&) -> Values {
    InScope(kReduce, needed, [&] {
      ForInner(e_.I64(0), frame_.Int(spec_.inner), UnrollOf(needed), {},
               [&](const Block& block, const Values&) -> Values {
                 SetBlock(block);
                 InScope(kInner, needed, [&] { StoreStage(stage); });
                 return {};
               });
    });
    return {};
  };
  switch (stage.domain) {
    case Stage::Domain::kRow:
      SetBlock(Block{e_.I64(0), {e_.First(e_.I64(1))}});
      InScope(kReduce | kInner, needed, [&] { StoreStage(stage); });
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
  Values results;
  InScope(0, needed, [&] {
    if (stage.kind == Stage::Kind::kReduce) {
      results = ReduceRow(stage, needed);
    } else {
      StoreRow(stage, needed);
      for (NestValues& row : rows_) row.ForgetStored();
    }
  });
  for (size_t row = 0; row < results.size(); ++row) rows_[row].SetStageResult(index, {results[row]});
}

Values LoopNestEmitter::ReduceColumns(const Stage& stage, const std::vector<bool>& needed) {
  const DType type = TypeOf(stage);
  const Values start(values_.block().vectors.size(), Identity(stage.combine, type));
  return ForSums(outer_count(), stage, start, [&](const Values& now) {
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
  InScope(0, needed, [&] {
    if (is_flat()) {
      values_.InScope(kOuter, needed, [&] { columns(frame_.begin(), frame_.end()); });
      return;
    }
    if (IsTransposed()) {
      ForTransposed([&](Value* begin, Value* end) { values_.InScope(kOuter, needed, [&] { columns(begin, end); }); });
      return;
    }
    ForOuter([&] {
      InScope(kOuter, needed, [&] {
        if (!spec_.reduce_inner) {
          columns(e_.I64(0), frame_.Int(spec_.inner));
          return;
        }
        for (size_t index = 0; index < spec_.stages.size(); ++index) RunRowStage(index);
      });
    });
  });
}

void EmitLoopNest(KernelFrame& frame, const LoopNestSpec& spec) {
  LoopNestEmitter(frame, spec).Emit();
}

}  // namespace kiln::codegen
