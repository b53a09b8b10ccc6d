#include "compile-service/codegen/llvm/contraction_epilogue.h"

#include "compile-service/codegen/llvm/scalar_emitter.h"

namespace kiln::codegen {

using ir::ScalarOp;
using llvm::Value;

namespace {

// Vector instructions of one operation, roughly: polynomials are long, everything else is one or a few.
size_t WeightOf(ScalarOp op) {
  switch (op) {
    case ScalarOp::kConstant:
    case ScalarOp::kAccumulator:
    case ScalarOp::kArgument:
    case ScalarOp::kStageResult:
      return 0;
    case ScalarOp::kLoad:
    case ScalarOp::kLoadAt:
    case ScalarOp::kCoordinate:
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kDiv:
    case ScalarOp::kFma:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kSqrt:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kRound:
    case ScalarOp::kLess:
    case ScalarOp::kLessEqual:
    case ScalarOp::kEqual:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kNot:
    case ScalarOp::kIsNaN:
    case ScalarOp::kSelect:
      return 1;
    case ScalarOp::kConvert:
    case ScalarOp::kRoundF16:
      return 2;
    case ScalarOp::kRoundBF16:
      return 8;
    case ScalarOp::kExp:
    case ScalarOp::kLog:
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kSigmoid:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
      return 25;
    case ScalarOp::kPow:
      return 50;
  }
  __builtin_unreachable();
}

}  // namespace

Epilogue::Epilogue(KernelFrame& frame, const std::vector<ir::Access>& accesses, const ir::ScalarProgram& program,
                   const std::vector<ir::Store>& stores)
    : frame_(frame),
      e_(frame.emitter()),
      b_(frame.emitter().ir()),
      accesses_(accesses),
      program_(program),
      stores_(stores) {
  weight_ = stores.size();
  for (const ir::ScalarNode& node : program) {
    weight_ += WeightOf(node.op);
    uses_coordinates_ |= node.op == ScalarOp::kCoordinate;
  }
}

Epilogue::Position Epilogue::At(const Values& coordinates) {
  Position position;
  for (const ir::Access& access : accesses_) {
    Value* offset = e_.I64(0);
    for (size_t i = 0; i < coordinates.size(); ++i)
      offset = b_.CreateAdd(offset, b_.CreateMul(coordinates[i], frame_.Int(access.strides[i])));
    // Frozen, so that loop strength reduction does not take it apart (see MicroKernel::Accumulate).
    position.pointers.push_back(b_.CreateFreeze(e_.Address(frame_.Pointer(access.pointer), access.storage, offset)));
  }
  if (uses_coordinates_) position.coordinates = coordinates;
  return position;
}

Epilogue::Position Epilogue::Moved(const Position& position, size_t dim, Value* distance) {
  Position moved = position;
  for (size_t i = 0; i < accesses_.size(); ++i) {
    Value* offset = b_.CreateMul(distance, frame_.Int(accesses_[i].strides[dim]));
    moved.pointers[i] = e_.Address(position.pointers[i], accesses_[i].storage, offset);
  }
  if (uses_coordinates_) moved.coordinates[dim] = b_.CreateAdd(position.coordinates[dim], distance);
  return moved;
}

Value* Epilogue::Load(const ir::ScalarNode& node, const Position& position, const Active& active) {
  const ir::Access& access = accesses_[node.index];
  Value* address = position.pointers[node.index];
  const ir::SpecInt& stride = access.strides.back();
  if (stride == ir::SpecInt::Const(0)) return e_.LoadBroadcast(access.storage, node.type, address);
  if (stride == ir::SpecInt::Const(1)) return e_.Load(access.storage, node.type, address, active);
  return e_.LoadStrided(access.storage, node.type, address, frame_.Int(stride), active);
}

Value* Epilogue::Leaf(const ir::ScalarNode& node, const Position& position, Value* sum, const Active& active) {
  if (node.op == ScalarOp::kAccumulator) {
    const bool is_float = sum->getType()->getScalarType()->isFloatTy();
    return e_.Convert(sum, is_float ? DType::kF32 : DType::kI32, node.type);
  }
  if (node.op == ScalarOp::kArgument) return e_.Splat(frame_.Dim(node.index));
  if (node.op != ScalarOp::kCoordinate) return Load(node, position, active);
  Value* coordinate = e_.Splat(position.coordinates[node.index]);
  bool along = static_cast<size_t>(node.index) + 1 == position.coordinates.size();
  return along ? b_.CreateAdd(coordinate, e_.LaneIndices()) : coordinate;
}

Value* Epilogue::ValueOf(int32_t node, const Position& position, Value* sum, const Active& active) {
  auto leaf = [&](const ir::ScalarNode& leaf_node) { return Leaf(leaf_node, position, sum, active); };
  return EmitScalarProgram(e_, program_, std::span(&node, 1), leaf)[node];
}

void Epilogue::Emit(const Position& position, Value* sum, const Active& active, SharedLoads* shared,
                    size_t shared_dim) {
  auto leaf = [&](const ir::ScalarNode& node) -> Value* {
    const bool keep =
        node.op == ScalarOp::kLoad && shared && accesses_[node.index].strides[shared_dim] == ir::SpecInt::Const(0);
    if (!keep) return Leaf(node, position, sum, active);
    Value*& kept = (*shared)[&node - program_.data()];
    if (!kept) kept = Load(node, position, active);
    return kept;
  };
  Values values = EmitScalarProgram(e_, program_, StoredNodes(stores_), leaf);
  for (const ir::Store& store : stores_) {
    const ir::Access& access = accesses_[store.access];
    Value* address = position.pointers[store.access];
    DType type = program_[store.node].type;
    const ir::SpecInt& stride = access.strides.back();
    if (stride == ir::SpecInt::Const(1)) {
      e_.Store(values[store.node], type, access.storage, address, active);
    } else {
      e_.StoreStrided(values[store.node], type, access.storage, address, frame_.Int(stride), active);
    }
  }
}

}  // namespace kiln::codegen
