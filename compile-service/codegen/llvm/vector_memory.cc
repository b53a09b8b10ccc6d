// Loads and stores of VectorEmitter: contiguous, broadcast and strided, whole and partial.
//
// A partial access uses masked instructions where the target has them for the element size. Elsewhere it goes through a
// stack slot with a scalar loop over the active elements: nothing outside them is touched, and only tails pay for it.
#include <llvm/IR/Constants.h>

#include "compile-service/codegen/llvm/vector_emitter.h"

namespace kiln::codegen {

using llvm::Value;

bool VectorEmitter::HasNativeMask(DType storage) const {
  if (target_.architecture != Architecture::kX86) return false;
  return target_.rung >= 4 || (target_.rung == 3 && DTypeBytes(storage) >= 4);
}
bool VectorEmitter::HasNativeGather(DType storage) const {
  return target_.architecture == Architecture::kX86 && target_.rung >= 3 && DTypeBytes(storage) >= 4;
}
bool VectorEmitter::HasNativeScatter(DType storage) const {
  return has_avx512() && DTypeBytes(storage) >= 4;
}

Value* VectorEmitter::StackSlot(llvm::Type* element) {
  llvm::IRBuilder<>::InsertPointGuard guard(builder_);
  llvm::BasicBlock& entry = function_->getEntryBlock();
  builder_.SetInsertPoint(&entry, entry.begin());
  llvm::AllocaInst* slot = builder_.CreateAlloca(llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes())));
  slot->setAlignment(llvm::Align(64));
  return slot;
}

Value* VectorEmitter::Address(Value* pointer, DType storage, Value* elements) {
  return builder_.CreateGEP(StorageType(storage), pointer, elements);
}

Value* VectorEmitter::LoadRaw(DType storage, Value* address, const Active& active) {
  llvm::Type* element = StorageType(storage);
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes()));
  const llvm::Align align(static_cast<uint64_t>(DTypeBytes(storage)));
  if (active.all()) return builder_.CreateAlignedLoad(type, address, align);
  if (HasNativeMask(storage))
    return builder_.CreateMaskedLoad(type, address, align, active.mask, llvm::Constant::getNullValue(type));
  Value* slot = StackSlot(element);
  builder_.CreateAlignedStore(llvm::Constant::getNullValue(type), slot, llvm::Align(64));
  Loop(I64(0), active.count, 1, {}, [&](Value* i, const Values&) -> Values {
    builder_.CreateStore(builder_.CreateLoad(element, builder_.CreateGEP(element, address, i)),
                         builder_.CreateGEP(element, slot, i));
    return {};
  });
  return builder_.CreateAlignedLoad(type, slot, llvm::Align(64));
}

void VectorEmitter::StoreRaw(Value* raw, DType storage, Value* address, const Active& active) {
  llvm::Type* element = StorageType(storage);
  const llvm::Align align(static_cast<uint64_t>(DTypeBytes(storage)));
  if (active.all()) {
    builder_.CreateAlignedStore(raw, address, align);
    return;
  }
  if (HasNativeMask(storage)) {
    builder_.CreateMaskedStore(raw, address, align, active.mask);
    return;
  }
  Value* slot = StackSlot(element);
  builder_.CreateAlignedStore(raw, slot, llvm::Align(64));
  Loop(I64(0), active.count, 1, {}, [&](Value* i, const Values&) -> Values {
    builder_.CreateStore(builder_.CreateLoad(element, builder_.CreateGEP(element, slot, i)),
                         builder_.CreateGEP(element, address, i));
    return {};
  });
}

Value* VectorEmitter::Load(DType storage, DType compute, Value* address, const Active& active) {
  return FromStorage(LoadRaw(storage, address, active), storage, compute);
}

Value* VectorEmitter::LoadBroadcast(DType storage, DType compute, Value* address) {
  return FromStorage(Splat(builder_.CreateLoad(StorageType(storage), address)), storage, compute);
}

// Element offsets of the lanes; 32-bit where a constant stride proves that they fit, which halves the number of
// gathers.
Value* VectorEmitter::StrideIndices(Value* stride) {
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(stride)) {
    const int64_t step = constant->getSExtValue();
    if (step >= -(int64_t{1} << 24) && step <= (int64_t{1} << 24)) {
      std::vector<llvm::Constant*> offsets;
      for (int i = 0; i < lanes(); ++i)
        offsets.push_back(builder_.getInt32(static_cast<uint32_t>(static_cast<int32_t>(i * step))));
      return llvm::ConstantVector::get(offsets);
    }
  }
  return builder_.CreateMul(LaneIndices(), Splat(stride));
}

Value* VectorEmitter::LoadStrided(DType storage, DType compute, Value* address, Value* stride, const Active& active) {
  if (HasNativeGather(storage)) return Gather(storage, compute, address, StrideIndices(stride), active);
  return LoadLanes(storage, compute, address, active, [&](Value* lane) { return builder_.CreateMul(stride, lane); });
}

Value* VectorEmitter::LoadIndexed(DType storage, DType compute, Value* pointer, Value* offsets, const Active& active) {
  if (HasNativeGather(storage)) return Gather(storage, compute, pointer, offsets, active);
  return LoadLanes(storage, compute, pointer, active, LaneOf(offsets, active));
}

std::function<Value*(Value* lane)> VectorEmitter::LaneOf(Value* offsets, const Active& active) {
  if (active.all()) return [this, offsets](Value* lane) { return builder_.CreateExtractElement(offsets, lane); };
  llvm::Type* i64 = builder_.getInt64Ty();
  Value* places = StackSlot(i64);
  builder_.CreateAlignedStore(offsets, places, llvm::Align(64));
  return [this, places, i64](Value* lane) { return builder_.CreateLoad(i64, builder_.CreateGEP(i64, places, lane)); };
}

Value* VectorEmitter::Gather(DType storage, DType compute, Value* pointer, Value* offsets, const Active& active) {
  llvm::Type* element = StorageType(storage);
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes()));
  Value* addresses = builder_.CreateGEP(element, pointer, offsets);
  Value* mask = active.all() ? llvm::Constant::getAllOnesValue(VectorType(DType::kBool)) : active.mask;
  Value* raw = builder_.CreateMaskedGather(type, addresses, llvm::Align(static_cast<uint64_t>(DTypeBytes(storage))),
                                           mask, llvm::Constant::getNullValue(type));
  return FromStorage(raw, storage, compute);
}

Value* VectorEmitter::LoadLanes(DType storage, DType compute, Value* pointer, const Active& active,
                                const std::function<Value*(Value* lane)>& offset_of) {
  llvm::Type* element = StorageType(storage);
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes()));
  if (active.all()) {
    Value* raw = llvm::PoisonValue::get(type);
    for (int i = 0; i < lanes(); ++i) {
      Value* from = builder_.CreateGEP(element, pointer, offset_of(I64(i)));
      raw = builder_.CreateInsertElement(raw, builder_.CreateLoad(element, from), static_cast<uint64_t>(i));
    }
    return FromStorage(raw, storage, compute);
  }
  Value* slot = StackSlot(element);
  builder_.CreateAlignedStore(llvm::Constant::getNullValue(type), slot, llvm::Align(64));
  Loop(I64(0), active.count, 1, {}, [&](Value* i, const Values&) -> Values {
    Value* from = builder_.CreateGEP(element, pointer, offset_of(i));
    builder_.CreateStore(builder_.CreateLoad(element, from), builder_.CreateGEP(element, slot, i));
    return {};
  });
  return FromStorage(builder_.CreateAlignedLoad(type, slot, llvm::Align(64)), storage, compute);
}

void VectorEmitter::Store(Value* value, DType compute, DType storage, Value* address, const Active& active) {
  StoreRaw(ToStorage(value, compute, storage), storage, address, active);
}

void VectorEmitter::StoreStrided(Value* value, DType compute, DType storage, Value* address, Value* stride,
                                 const Active& active) {
  Value* raw = ToStorage(value, compute, storage);
  if (HasNativeScatter(storage)) return Scatter(raw, storage, address, StrideIndices(stride), active);
  StoreLanes(raw, storage, address, active, [&](Value* lane) { return builder_.CreateMul(stride, lane); });
}

void VectorEmitter::StoreIndexed(Value* value, DType compute, DType storage, Value* pointer, Value* offsets,
                                 const Active& active) {
  Value* raw = ToStorage(value, compute, storage);
  if (HasNativeScatter(storage)) return Scatter(raw, storage, pointer, offsets, active);
  StoreLanes(raw, storage, pointer, active, LaneOf(offsets, active));
}

void VectorEmitter::Scatter(Value* raw, DType storage, Value* pointer, Value* offsets, const Active& active) {
  Value* addresses = builder_.CreateGEP(StorageType(storage), pointer, offsets);
  Value* mask = active.all() ? llvm::Constant::getAllOnesValue(VectorType(DType::kBool)) : active.mask;
  builder_.CreateMaskedScatter(raw, addresses, llvm::Align(static_cast<uint64_t>(DTypeBytes(storage))), mask);
}

void VectorEmitter::StoreLanes(Value* raw, DType storage, Value* pointer, const Active& active,
                               const std::function<Value*(Value* lane)>& offset_of) {
  llvm::Type* element = StorageType(storage);
  if (active.all()) {
    for (int i = 0; i < lanes(); ++i)
      builder_.CreateStore(builder_.CreateExtractElement(raw, static_cast<uint64_t>(i)),
                           builder_.CreateGEP(element, pointer, offset_of(I64(i))));
    return;
  }
  Value* slot = StackSlot(element);
  builder_.CreateAlignedStore(raw, slot, llvm::Align(64));
  Loop(I64(0), active.count, 1, {}, [&](Value* i, const Values&) -> Values {
    builder_.CreateStore(builder_.CreateLoad(element, builder_.CreateGEP(element, slot, i)),
                         builder_.CreateGEP(element, pointer, offset_of(i)));
    return {};
  });
}

void VectorEmitter::StoreFirstLane(Value* value, DType compute, DType storage, Value* address) {
  Value* raw = ToStorage(value, compute, storage);
  builder_.CreateStore(builder_.CreateExtractElement(raw, uint64_t{0}), address);
}

}  // namespace kiln::codegen
