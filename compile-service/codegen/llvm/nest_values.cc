#include "compile-service/codegen/llvm/nest_values.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "compile-service/codegen/llvm/scalar_emitter.h"
#include "compile-service/ir/nest_stages.h"

namespace kiln::codegen {

using ir::ScalarNode;
using ir::ScalarOp;
using ir::Stage;
using llvm::Value;

NestValues::NestValues(KernelFrame& frame, const ir::LoopNestSpec& spec)
    : frame_(frame), e_(frame.emitter()), spec_(spec) {
  Analyse();
  values_.resize(spec_.body.size());
  row_offsets_.assign(spec_.body.size(), nullptr);
  stage_results_.resize(spec_.stages.size());
  coordinates_.assign(inner_dim(), e_.I64(0));
  block_addresses_.assign(spec_.accesses.size(), nullptr);
  for (const ir::Access& access : spec_.accesses) pointers_.push_back(frame_.Pointer(access.pointer));
}

// --- analysis ---

Dependence NestValues::LeafDependence(const ScalarNode& node) const {
  auto of_dim = [&](size_t dim) { return dim < outer_count() ? kOuter : dim < inner_dim() ? kReduce : kInner; };
  if (node.op == ScalarOp::kCoordinate) return of_dim(static_cast<size_t>(node.index));
  if (node.op == ScalarOp::kStageResult)
    return kOuter | StageBit(static_cast<size_t>(node.index)) | (spec_.reduce_inner ? 0 : kInner);
  if (node.op != ScalarOp::kLoad && node.op != ScalarOp::kLoadAt) return 0;
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  Dependence result = 0;
  for (size_t dim = 0; dim < access.strides.size(); ++dim)
    if (Varies(access, dim)) result |= of_dim(dim);
  return result;
}

void NestValues::Analyse() {
  auto stored = [&](int32_t pointer) {
    for (const Stage& stage : spec_.stages)
      for (const ir::Store& store : stage.stores)
        if (spec_.accesses[static_cast<size_t>(store.access)].pointer == pointer) return true;
    return false;
  };
  for (const ScalarNode& node : spec_.body) {
    Dependence dependence = LeafDependence(node);
    const bool loads = node.op == ScalarOp::kLoad || node.op == ScalarOp::kLoadAt;
    bool reads = loads && stored(spec_.accesses[static_cast<size_t>(node.index)].pointer);
    // What a scatter stores to may be another element at every position, or the same one changed.
    if (reads && node.op == ScalarOp::kLoadAt) dependence |= kOuter | kReduce | kInner;
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
    stage_needs_.push_back(ir::ReachableNodes(spec_.body, ir::RootsOf(spec_, stage)));
    for (size_t i = 0; i < all_needs_.size(); ++i)
      if (stage_needs_.back()[i]) all_needs_[i] = true;
  }
}

// --- scopes and nodes ---

void NestValues::InScope(Dependence bound, const std::vector<bool>& needed, const std::function<void()>& body) {
  const Dependence outside = bound_;
  std::vector<size_t>* const outside_emitted = emitted_;
  const std::vector<Value*> outside_pointers = pointers_, outside_addresses = block_addresses_;
  const std::vector<Value*> outside_offsets = row_offsets_;
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
  row_offsets_ = outside_offsets;
}

Value* NestValues::ValueOf(int32_t node, size_t vector) const {
  const std::vector<Value*>& values = values_[static_cast<size_t>(node)];
  return values.size() == 1 ? values[0] : values[vector];
}

void NestValues::SetStageResult(size_t stage, std::vector<Value*> results) {
  stage_results_[stage] = std::move(results);
  bound_ |= StageBit(stage);
}

void NestValues::EmitReady(const std::vector<bool>& needed) {
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i] && values_[i].empty() && (dependence_[i] & ~bound_) == 0) EmitNode(i);
  for (size_t i = 0; i < needed.size(); ++i) {
    const ScalarNode& node = spec_.body[i];
    if (!needed[i] || node.op != ScalarOp::kLoadAt || row_offsets_[i] != nullptr) continue;
    const auto position = static_cast<size_t>(node.a);
    if (!VariesWithInner(position) && !values_[position].empty()) row_offsets_[i] = EmitRowOffset(node);
  }
}

void NestValues::EmitNode(size_t index) {
  const ScalarNode& node = spec_.body[index];
  const size_t copies = (dependence_[index] & kInner) != 0 ? block_.vectors.size() : 1;
  auto operand = [&](int32_t of, size_t vector) { return of < 0 ? nullptr : ValueOf(of, vector); };
  const int32_t last = node.c >= 0 ? node.c : node.b >= 0 ? node.b : node.a;
  const DType type = last >= 0 ? spec_.body[static_cast<size_t>(last)].type : node.type;
  std::vector<Value*> results;
  for (size_t vector = 0; vector < copies; ++vector) {
    if (node.op == ScalarOp::kLoadAt) {
      results.push_back(EmitLoadAt(index, vector));
      continue;
    }
    results.push_back(ir::IsLeaf(node.op) ? EmitLeaf(node, vector)
                                          : EmitScalarOp(e_, node, type, operand(node.a, vector),
                                                         operand(node.b, vector), operand(node.c, vector)));
  }
  values_[index] = std::move(results);
  emitted_->push_back(index);
}

Value* NestValues::EmitLeaf(const ScalarNode& node, size_t vector) {
  auto& ir = e_.ir();
  const auto index = static_cast<size_t>(node.index);
  if (node.op == ScalarOp::kLoad) return EmitLoad(node, vector);
  if (node.op == ScalarOp::kArgument) return e_.Splat(frame_.Dim(node.index));
  if (node.op == ScalarOp::kCoordinate) {
    if (index < inner_dim()) return e_.Splat(coordinates_[index]);
    Value* base = ir.CreateAdd(block_.base, e_.I64(static_cast<int64_t>(vector) * e_.lanes()));
    return ir.CreateAdd(e_.Splat(base), e_.LaneIndices());
  }
  const std::vector<Value*>& results = stage_results_[index];
  return results.size() == 1 ? results[0] : results[vector];
}

// Of the vector's first lane. The block's own address is computed once; its vectors lie at (mostly constant) offsets
// from it.
Value* NestValues::InnerAddress(const ir::Access& access, size_t vector) {
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

Value* NestValues::EmitLoad(const ScalarNode& node, size_t vector) {
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  const ir::SpecInt stride = access.strides[inner_dim()];
  if (stride == ir::SpecInt::Const(0))
    return e_.LoadBroadcast(access.storage, node.type, pointers_[static_cast<size_t>(node.index)]);
  const Active& active = block_.vectors[vector];
  Value* address = InnerAddress(access, vector);
  if (stride == ir::SpecInt::Const(1)) return e_.Load(access.storage, node.type, address, active);
  return e_.LoadStrided(access.storage, node.type, address, frame_.Int(stride), active);
}

Value* NestValues::FixedInt(int32_t node) {
  const ScalarNode& fixed = spec_.body[static_cast<size_t>(node)];
  return fixed.op == ScalarOp::kArgument ? frame_.Dim(fixed.index) : e_.I64(fixed.integer);
}

Value* NestValues::EmitRowOffset(const ScalarNode& node) {
  auto& ir = e_.ir();
  Value* position = ir.CreateExtractElement(ValueOf(node.a, 0), uint64_t{0});
  position = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, position, e_.I64(0));
  Value* last = ir.CreateSub(FixedInt(node.b), e_.I64(1));
  return ir.CreateMul(ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, position, last), FixedInt(node.c));
}

// Of the vector's first lane, where its position is the same for all lanes.
Value* NestValues::AddressAt(size_t index, size_t vector) {
  auto& ir = e_.ir();
  const ScalarNode& node = spec_.body[index];
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  const ir::SpecInt stride = access.strides[inner_dim()];
  if (row_offsets_[index] == nullptr) row_offsets_[index] = EmitRowOffset(node);
  Value* row = e_.Address(pointers_[static_cast<size_t>(node.index)], access.storage, row_offsets_[index]);
  if (stride == ir::SpecInt::Const(0)) return row;
  Value* first = ir.CreateAdd(block_.base, e_.I64(static_cast<int64_t>(vector) * e_.lanes()));
  if (stride != ir::SpecInt::Const(1)) first = ir.CreateMul(first, frame_.Int(stride));
  return e_.Address(row, access.storage, first);
}

// Elements behind the access's pointer, one per lane.
Value* NestValues::OffsetsAt(size_t index, size_t vector) {
  auto& ir = e_.ir();
  const ScalarNode& node = spec_.body[index];
  const ir::SpecInt stride = spec_.accesses[static_cast<size_t>(node.index)].strides[inner_dim()];
  Value* position = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, ValueOf(node.a, vector), e_.Zero(DType::kI64));
  Value* last = e_.Splat(ir.CreateSub(FixedInt(node.b), e_.I64(1)));
  position = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, position, last);
  Value* offsets = ir.CreateMul(position, e_.Splat(FixedInt(node.c)));
  if (stride == ir::SpecInt::Const(0)) return offsets;
  Value* first = ir.CreateAdd(block_.base, e_.I64(static_cast<int64_t>(vector) * e_.lanes()));
  Value* lanes = ir.CreateAdd(e_.Splat(first), e_.LaneIndices());
  return ir.CreateAdd(offsets, ir.CreateMul(lanes, e_.Splat(frame_.Int(stride))));
}

Value* NestValues::EmitLoadAt(size_t index, size_t vector) {
  const ScalarNode& node = spec_.body[index];
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  const ir::SpecInt stride = access.strides[inner_dim()];
  if (VariesWithInner(static_cast<size_t>(node.a)))
    return e_.LoadIndexed(access.storage, node.type, pointers_[static_cast<size_t>(node.index)],
                          OffsetsAt(index, vector), block_.vectors[vector]);
  Value* address = AddressAt(index, vector);
  if (stride == ir::SpecInt::Const(0)) return e_.LoadBroadcast(access.storage, node.type, address);
  const Active& active = block_.vectors[vector];
  if (stride == ir::SpecInt::Const(1)) return e_.Load(access.storage, node.type, address, active);
  return e_.LoadStrided(access.storage, node.type, address, frame_.Int(stride), active);
}

void NestValues::StoreAt(int32_t place, size_t vector, Value* value, DType type) {
  const auto index = static_cast<size_t>(place);
  const ScalarNode& node = spec_.body[index];
  const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  const ir::SpecInt stride = access.strides[inner_dim()];
  const Active& active = block_.vectors[vector];
  if (VariesWithInner(static_cast<size_t>(node.a)))
    return e_.StoreIndexed(value, type, access.storage, pointers_[static_cast<size_t>(node.index)],
                           OffsetsAt(index, vector), active);
  Value* address = AddressAt(index, vector);
  if (stride == ir::SpecInt::Const(0)) return e_.StoreFirstLane(value, type, access.storage, address);
  if (stride == ir::SpecInt::Const(1)) return e_.Store(value, type, access.storage, address, active);
  e_.StoreStrided(value, type, access.storage, address, frame_.Int(stride), active);
}

void NestValues::MovePointers(size_t first_dim, size_t last_dim) {
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

// Values that read memory the kernel stores to are read again after a store stage.
void NestValues::ForgetStored() {
  for (size_t i = 0; i < values_.size(); ++i)
    if (reads_stored_[i]) values_[i].clear();
}

}  // namespace kiln::codegen
