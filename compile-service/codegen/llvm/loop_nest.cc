#include "compile-service/codegen/llvm/loop_nest.h"

#include <llvm/IR/Constants.h>

#include "compile-service/codegen/llvm/scalar_emitter.h"

namespace kiln::codegen {

using ir::Combine;
using ir::LoopNestSpec;
using ir::ScalarNode;
using ir::ScalarOp;
using ir::Stage;
using llvm::Value;
using Values = VectorEmitter::Values;

namespace {

// What a node's value varies with; a loop binds bits, and a node can be emitted once all of its bits are bound.
using Dependence = uint64_t;
constexpr Dependence kOuter = 1, kReduce = 2, kInner = 4;
constexpr Dependence StageBit(size_t stage) {
  return Dependence{8} << stage;
}

// Vectors at consecutive inner positions, emitted side by side.
struct Block {
  Value* base = nullptr;  // inner position of the first lane of the first vector
  std::vector<Active> vectors;
};

class LoopNestEmitter {
 public:
  LoopNestEmitter(KernelFrame& frame, const LoopNestSpec& spec) : frame_(frame), e_(frame.emitter()), spec_(spec) {}

  void Emit();

 private:
  size_t outer_count() const { return spec_.outer.size(); }
  size_t inner_dim() const { return spec_.outer.size() + spec_.reduce.size(); }
  bool is_flat() const { return spec_.outer.empty() && spec_.reduce.empty() && !spec_.reduce_inner; }
  bool Varies(const ir::Access& access, size_t dim) const { return access.strides[dim] != ir::SpecInt::Const(0); }

  void Analyse();
  Dependence LeafDependence(const ScalarNode& node) const;
  std::vector<int32_t> RootsOf(const Stage& stage) const;
  size_t UnrollOf(const std::vector<bool>& needed) const;

  // Scopes: what is emitted inside is forgotten when the scope ends.
  template <class F>
  void InScope(Dependence bound, const std::vector<bool>& needed, const F& body);
  void EmitReady(const std::vector<bool>& needed);
  void EmitNode(size_t index);
  Value* EmitLeaf(const ScalarNode& node, size_t vector);
  Value* EmitLoad(const ScalarNode& node, size_t vector);
  Value* InnerAddress(const ir::Access& access, size_t vector);
  void MovePointers(size_t first_dim, size_t last_dim);

  // Loops.
  void ForOuter(const std::function<void()>& body);
  Values ForReduce(size_t dim, const Values& carried, const std::function<Values(const Values&)>& body);
  using BlockBody = std::function<Values(const Block&, const Values&)>;
  Values ForInner(Value* begin, Value* end, size_t unroll, Values carried, const BlockBody& body);
  Values ForInnerConstant(int64_t extent, size_t unroll, Values carried, const BlockBody& body);
  Block FullBlock(Value* base, size_t vectors) const { return {base, std::vector<Active>(vectors)}; }

  // Stages.
  void RunRowStage(size_t index);
  void ReduceRow(size_t index);
  void StoreRow(size_t index);
  void RunColumnBlock(const Block& block);
  void ReduceColumns(size_t index);
  void StoreColumns(size_t index);
  void StoreStage(const Stage& stage);
  void ForgetStored();
  Value* Identity(Combine combine, DType type) const;
  Value* Combined(Combine combine, DType type, Value* a, Value* b);

  KernelFrame& frame_;
  VectorEmitter& e_;
  const LoopNestSpec& spec_;

  std::vector<Dependence> dependence_;          // per node
  std::vector<bool> reads_stored_;              // per node: reads a pointer that the kernel stores to
  std::vector<std::vector<bool>> stage_needs_;  // per stage, per node
  std::vector<bool> all_needs_;

  Dependence bound_ = 0;
  Block block_;
  std::vector<std::vector<Value*>> values_;  // per node: none, one (all vectors alike) or one per vector of the block
  std::vector<std::vector<Value*>> stage_results_;  // per stage, likewise
  std::vector<size_t>* emitted_ = nullptr;          // nodes emitted in the current scope
  std::vector<Value*> pointers_;                    // per access, at the current outer and reduce position
  std::vector<Value*> block_addresses_;             // per access, at the block's first position; null until needed
  std::vector<Value*> coordinates_;                 // per outer and reduce dim
};

// --- analysis ---

std::vector<int32_t> LoopNestEmitter::RootsOf(const Stage& stage) const {
  if (stage.kind == Stage::Kind::kReduce) return {stage.node};
  return StoredNodes(stage.stores);
}

Dependence LoopNestEmitter::LeafDependence(const ScalarNode& node) const {
  auto of_dim = [&](size_t dim) { return dim < outer_count() ? kOuter : dim < inner_dim() ? kReduce : kInner; };
  if (node.op == ScalarOp::kCoordinate) return of_dim(static_cast<size_t>(node.index));
  if (node.op == ScalarOp::kStageResult)
    return kOuter | StageBit(static_cast<size_t>(node.index)) | (spec_.reduce_inner ? 0 : kInner);
  if (node.op != ScalarOp::kLoad) return 0;
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  Dependence result = 0;
  for (size_t dim = 0; dim < access.strides.size(); ++dim)
    if (Varies(access, dim)) result |= of_dim(dim);
  return result;
}

void LoopNestEmitter::Analyse() {
  auto stored = [&](int32_t pointer) {
    for (const Stage& stage : spec_.stages)
      for (const ir::Store& store : stage.stores)
        if (spec_.accesses[static_cast<size_t>(store.access)].pointer == pointer) return true;
    return false;
  };
  for (const ScalarNode& node : spec_.body) {
    Dependence dependence = LeafDependence(node);
    bool reads = node.op == ScalarOp::kLoad && stored(spec_.accesses[static_cast<size_t>(node.index)].pointer);
    for (int32_t operand : {node.a, node.b, node.c}) {
      if (operand < 0) continue;
      dependence |= dependence_[static_cast<size_t>(operand)];
      reads = reads || reads_stored_[static_cast<size_t>(operand)];
    }
    dependence_.push_back(dependence);
    reads_stored_.push_back(reads);
  }
  all_needs_.assign(spec_.body.size(), false);
  for (const Stage& stage : spec_.stages) {
    stage_needs_.push_back(ReachableNodes(spec_.body, RootsOf(stage)));
    for (size_t i = 0; i < all_needs_.size(); ++i)
      if (stage_needs_.back()[i]) all_needs_[i] = true;
  }
  values_.resize(spec_.body.size());
  stage_results_.resize(spec_.stages.size());
  coordinates_.assign(inner_dim(), e_.I64(0));
  for (const ir::Access& access : spec_.accesses) pointers_.push_back(frame_.Pointer(access.pointer));
}

// Vectors side by side: enough to cover latencies, few enough for the registers and for compile time.
size_t LoopNestEmitter::UnrollOf(const std::vector<bool>& needed) const {
  size_t heavy = 0, live = 0;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const auto op = static_cast<int>(spec_.body[i].op);
    const bool function = op >= static_cast<int>(ScalarOp::kExp) && op <= static_cast<int>(ScalarOp::kCos);
    heavy += function || spec_.body[i].op == ScalarOp::kPow;
    live += (dependence_[i] & kInner) != 0;
  }
  const bool many_registers = e_.has_avx512() || e_.target().architecture == Architecture::kArm;
  if (heavy > 0) return many_registers && heavy <= 2 ? 2 : 1;
  if (live > 24) return 1;
  return many_registers && live <= 12 ? 4 : 2;
}

// --- scopes and nodes ---

template <class F>
void LoopNestEmitter::InScope(Dependence bound, const std::vector<bool>& needed, const F& body) {
  const Dependence outside = bound_;
  std::vector<size_t>* const outside_emitted = emitted_;
  const std::vector<Value*> outside_pointers = pointers_, outside_addresses = block_addresses_;
  std::vector<size_t> emitted;
  bound_ |= bound;
  emitted_ = &emitted;
  if (bound != 0) block_addresses_.assign(spec_.accesses.size(), nullptr);
  if ((bound & kOuter) != 0) MovePointers(0, outer_count());
  if ((bound & kReduce) != 0) MovePointers(outer_count(), inner_dim());
  EmitReady(needed);
  body();
  for (size_t node : emitted) values_[node].clear();
  bound_ = outside;
  emitted_ = outside_emitted;
  pointers_ = outside_pointers;
  block_addresses_ = outside_addresses;
}

void LoopNestEmitter::EmitReady(const std::vector<bool>& needed) {
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i] && values_[i].empty() && (dependence_[i] & ~bound_) == 0) EmitNode(i);
}

void LoopNestEmitter::EmitNode(size_t index) {
  const ScalarNode& node = spec_.body[index];
  const size_t copies = (dependence_[index] & kInner) != 0 ? block_.vectors.size() : 1;
  auto operand = [&](int32_t of, size_t vector) -> Value* {
    if (of < 0) return nullptr;
    const std::vector<Value*>& values = values_[static_cast<size_t>(of)];
    return values.size() == 1 ? values[0] : values[vector];
  };
  const int32_t last = node.c >= 0 ? node.c : node.b >= 0 ? node.b : node.a;
  const DType type = last >= 0 ? spec_.body[static_cast<size_t>(last)].type : node.type;
  std::vector<Value*> results;
  for (size_t vector = 0; vector < copies; ++vector) {
    results.push_back(IsLeaf(node.op) ? EmitLeaf(node, vector)
                                      : EmitScalarOp(e_, node, type, operand(node.a, vector), operand(node.b, vector),
                                                     operand(node.c, vector)));
  }
  values_[index] = std::move(results);
  emitted_->push_back(index);
}

Value* LoopNestEmitter::EmitLeaf(const ScalarNode& node, size_t vector) {
  auto& ir = e_.ir();
  const auto index = static_cast<size_t>(node.index);
  switch (node.op) {
    case ScalarOp::kLoad:
      return EmitLoad(node, vector);
    case ScalarOp::kStageResult: {
      const std::vector<Value*>& results = stage_results_[index];
      return results.size() == 1 ? results[0] : results[vector];
    }
    case ScalarOp::kArgument:
      return e_.Splat(frame_.Dim(node.index));
    case ScalarOp::kCoordinate: {
      if (index < inner_dim()) return e_.Splat(coordinates_[index]);
      Value* base = ir.CreateAdd(block_.base, e_.I64(static_cast<int64_t>(vector) * e_.lanes()));
      return ir.CreateAdd(e_.Splat(base), e_.LaneIndices());
    }
    default:
      return nullptr;
  }
}

// Of the vector's first lane. The block's own address is computed once; its vectors lie at (mostly constant) offsets
// from it.
Value* LoopNestEmitter::InnerAddress(const ir::Access& access, size_t vector) {
  auto& ir = e_.ir();
  const auto index = static_cast<size_t>(&access - spec_.accesses.data());
  const ir::SpecInt stride = access.strides[inner_dim()];
  auto times_stride = [&](Value* count) {
    return stride == ir::SpecInt::Const(1) ? count : ir.CreateMul(count, frame_.Int(stride));
  };
  Value*& block_address = block_addresses_[index];
  if (block_address == nullptr) block_address = e_.Address(pointers_[index], access.storage, times_stride(block_.base));
  if (vector == 0) return block_address;
  return e_.Address(block_address, access.storage, times_stride(e_.I64(static_cast<int64_t>(vector) * e_.lanes())));
}

Value* LoopNestEmitter::EmitLoad(const ScalarNode& node, size_t vector) {
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  const ir::SpecInt stride = access.strides[inner_dim()];
  if (stride == ir::SpecInt::Const(0))
    return e_.LoadBroadcast(access.storage, node.type, pointers_[static_cast<size_t>(node.index)]);
  const Active& active = block_.vectors[vector];
  Value* address = InnerAddress(access, vector);
  if (stride == ir::SpecInt::Const(1)) return e_.Load(access.storage, node.type, address, active);
  return e_.LoadStrided(access.storage, node.type, address, frame_.Int(stride), active);
}

void LoopNestEmitter::MovePointers(size_t first_dim, size_t last_dim) {
  auto& ir = e_.ir();
  for (size_t a = 0; a < spec_.accesses.size(); ++a) {
    const ir::Access& access = spec_.accesses[a];
    Value* offset = nullptr;
    for (size_t dim = first_dim; dim < last_dim; ++dim) {
      if (!Varies(access, dim) || coordinates_[dim] == e_.I64(0)) continue;
      Value* term = coordinates_[dim];
      if (access.strides[dim] != ir::SpecInt::Const(1)) term = ir.CreateMul(term, frame_.Int(access.strides[dim]));
      offset = offset == nullptr ? term : ir.CreateAdd(offset, term);
    }
    if (offset != nullptr) pointers_[a] = e_.Address(pointers_[a], access.storage, offset);
  }
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
    std::copy(now.begin(), now.end(), coordinates_.begin());
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

Values LoopNestEmitter::ForReduce(size_t dim, const Values& carried, const std::function<Values(const Values&)>& body) {
  if (dim == inner_dim()) return body(carried);
  const ir::SpecInt extent = spec_.reduce[dim - outer_count()];
  if (extent == ir::SpecInt::Const(1)) return ForReduce(dim + 1, carried, body);
  Values result = e_.Loop(e_.I64(0), frame_.Int(extent), 1, carried, [&](Value* i, const Values& now) {
    coordinates_[dim] = i;
    return ForReduce(dim + 1, now, body);
  });
  coordinates_[dim] = e_.I64(0);
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

// Values that read memory the kernel stores to are read again after a store stage.
void LoopNestEmitter::ForgetStored() {
  for (size_t i = 0; i < values_.size(); ++i)
    if (reads_stored_[i]) values_[i].clear();
}

void LoopNestEmitter::StoreStage(const Stage& stage) {
  for (const ir::Store& store : stage.stores) {
    const ir::Access& access = spec_.accesses[static_cast<size_t>(store.access)];
    const DType type = spec_.body[static_cast<size_t>(store.node)].type;
    const std::vector<Value*>& values = values_[static_cast<size_t>(store.node)];
    const ir::SpecInt stride = access.strides[inner_dim()];
    for (size_t vector = 0; vector < block_.vectors.size(); ++vector) {
      Value* value = values.size() == 1 ? values[0] : values[vector];
      Value* address = InnerAddress(access, vector);
      const Active& active = block_.vectors[vector];
      if (stage.domain == Stage::Domain::kRow) {
        e_.StoreFirstLane(value, type, access.storage, address);
      } else if (stride == ir::SpecInt::Const(1)) {
        e_.Store(value, type, access.storage, address, active);
      } else {
        e_.StoreStrided(value, type, access.storage, address, frame_.Int(stride), active);
      }
    }
  }
}

void LoopNestEmitter::ReduceRow(size_t index) {
  const Stage& stage = spec_.stages[index];
  const std::vector<bool>& needed = stage_needs_[index];
  const DType type = spec_.body[static_cast<size_t>(stage.node)].type;
  const size_t unroll = UnrollOf(needed);
  Values accumulators(unroll, Identity(stage.combine, type));
  accumulators = ForReduce(outer_count(), accumulators, [&](const Values& carried) {
    Values result;
    InScope(kReduce, needed, [&] {
      result =
          ForInner(e_.I64(0), frame_.Int(spec_.inner), unroll, carried, [&](const Block& block, const Values& now) {
            Values next = now;
            block_ = block;
            InScope(kInner, needed, [&] {
              const std::vector<Value*>& values = values_[static_cast<size_t>(stage.node)];
              for (size_t vector = 0; vector < block.vectors.size(); ++vector) {
                Value* value = values.size() == 1 ? values[0] : values[vector];
                Value* combined = Combined(stage.combine, type, now[vector], value);
                const Active& active = block.vectors[vector];
                next[vector] = active.all() ? combined : e_.ir().CreateSelect(active.mask, combined, now[vector]);
              }
            });
            return next;
          });
    });
    return result;
  });
  Value* total = accumulators[0];
  for (size_t i = 1; i < unroll; ++i) total = Combined(stage.combine, type, total, accumulators[i]);
  stage_results_[index] = {
      e_.ReduceLanes(total, [&](Value* a, Value* b) { return Combined(stage.combine, type, a, b); })};
}

void LoopNestEmitter::StoreRow(size_t index) {
  const Stage& stage = spec_.stages[index];
  const std::vector<bool>& needed = stage_needs_[index];
  auto over_inner = [&](const Values&) -> Values {
    InScope(kReduce, needed, [&] {
      ForInner(e_.I64(0), frame_.Int(spec_.inner), UnrollOf(needed), {},
               [&](const Block& block, const Values&) -> Values {
                 block_ = block;
                 InScope(kInner, needed, [&] { StoreStage(stage); });
                 return {};
               });
    });
    return {};
  };
  switch (stage.domain) {
    case Stage::Domain::kRow:
      block_ = Block{e_.I64(0), {e_.First(e_.I64(1))}};
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
  InScope(0, stage_needs_[index], [&] {
    if (spec_.stages[index].kind == Stage::Kind::kReduce) {
      ReduceRow(index);
    } else {
      StoreRow(index);
      ForgetStored();
    }
  });
  bound_ |= StageBit(index);
}

void LoopNestEmitter::ReduceColumns(size_t index) {
  const Stage& stage = spec_.stages[index];
  const DType type = spec_.body[static_cast<size_t>(stage.node)].type;
  const Values start(block_.vectors.size(), Identity(stage.combine, type));
  stage_results_[index] = ForReduce(outer_count(), start, [&](const Values& now) {
    Values next = now;
    InScope(kReduce, stage_needs_[index], [&] {
      const std::vector<Value*>& values = values_[static_cast<size_t>(stage.node)];
      for (size_t vector = 0; vector < now.size(); ++vector)
        next[vector] = Combined(stage.combine, type, now[vector], values.size() == 1 ? values[0] : values[vector]);
    });
    return next;
  });
}

void LoopNestEmitter::StoreColumns(size_t index) {
  const Stage& stage = spec_.stages[index];
  auto store = [&](const Values&) -> Values {
    InScope(kReduce, stage_needs_[index], [&] { StoreStage(stage); });
    return {};
  };
  if (stage.domain == Stage::Domain::kFull) {
    ForReduce(outer_count(), {}, store);
  } else {
    store({});
  }
}

void LoopNestEmitter::RunColumnBlock(const Block& block) {
  block_ = block;
  InScope(kInner, all_needs_, [&] {
    for (size_t index = 0; index < spec_.stages.size(); ++index) {
      InScope(0, stage_needs_[index], [&] {
        if (spec_.stages[index].kind == Stage::Kind::kReduce) {
          ReduceColumns(index);
        } else {
          StoreColumns(index);
          ForgetStored();
        }
      });
      bound_ |= StageBit(index);
    }
  });
}

void LoopNestEmitter::Emit() {
  Analyse();
  InScope(0, all_needs_, [&] {
    auto columns = [&](Value* begin, Value* end) {
      ForInner(begin, end, UnrollOf(all_needs_), {}, [&](const Block& block, const Values&) -> Values {
        RunColumnBlock(block);
        return {};
      });
    };
    if (is_flat()) {
      InScope(kOuter, all_needs_, [&] { columns(frame_.begin(), frame_.end()); });
      return;
    }
    ForOuter([&] {
      InScope(kOuter, all_needs_, [&] {
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
