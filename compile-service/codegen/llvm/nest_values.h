// NestValues: which values of a loop nest's body exist where.
//
// Every node varies with some of the loops around it. Entering a loop is a scope that binds those; what has become
// computable is emitted there, once, in front of the loops inside, and forgotten when the scope ends. Nodes that vary
// with the inner dim have one vector per vector of the current block, the others one vector for all.
#pragma once

#include <functional>
#include <vector>

#include "compile-service/codegen/llvm/kernel_frame.h"

namespace kiln::codegen {

// What a value varies with: bits of loops, and of the reduce stages whose results it reads.
using Dependence = uint64_t;
inline constexpr Dependence kOuter = 1, kReduce = 2, kInner = 4;
inline constexpr Dependence StageBit(size_t stage) {
  return Dependence{8} << stage;
}

// Vectors at consecutive inner positions, emitted side by side.
struct Block {
  llvm::Value* base = nullptr;  // inner position of the first lane of the first vector
  std::vector<Active> vectors;
};

class NestValues {
 public:
  // Both outlive the object. The spec is verified.
  NestValues(KernelFrame& frame, const ir::LoopNestSpec& spec);

  // Runs `body` where the loops of `bound` are entered: coordinates (and the block, for kInner) are set before. Emits
  // what of `needed` (per node) is computable first.
  void InScope(Dependence bound, const std::vector<bool>& needed, const std::function<void()>& body);
  void SetCoordinate(size_t dim, llvm::Value* position) { coordinates_[dim] = position; }
  void SetBlock(Block block) { block_ = std::move(block); }
  const Block& block() const { return block_; }

  // A node's vector; precondition: it was needed by a scope around.
  llvm::Value* ValueOf(int32_t node, size_t vector) const;
  // Address of the first lane of a vector of the block.
  llvm::Value* InnerAddress(const ir::Access& access, size_t vector);
  // Stores a vector of the block where LoadAt `place` reads; its position was needed by a scope around.
  void StoreAt(int32_t place, size_t vector, llvm::Value* value, DType type);
  // Makes a stage's result (one vector for all, or one per vector of the block) readable until the scope around ends.
  void SetStageResult(size_t stage, std::vector<llvm::Value*> results);
  // After a store stage: values that read memory the kernel stores to are read again.
  void ForgetStored();

  const std::vector<bool>& NeededBy(size_t stage) const { return stage_needs_[stage]; }
  const std::vector<bool>& NeededByAll() const { return all_needs_; }
  bool VariesWithInner(size_t node) const { return (dependence_[node] & kInner) != 0; }

 private:
  size_t outer_count() const { return spec_.outer.size(); }
  size_t inner_dim() const { return spec_.outer.size() + spec_.reduce.size(); }
  bool Varies(const ir::Access& access, size_t dim) const { return access.strides[dim] != ir::SpecInt::Const(0); }
  void Analyse();
  Dependence LeafDependence(const ir::ScalarNode& node) const;
  void EmitReady(const std::vector<bool>& needed);
  void EmitNode(size_t index);
  llvm::Value* EmitLeaf(const ir::ScalarNode& node, size_t vector);
  llvm::Value* EmitLoad(const ir::ScalarNode& node, size_t vector);
  // LoadAt: one offset for all lanes where its position does not vary with the inner dim (made where the position is),
  // else one per lane.
  llvm::Value* EmitLoadAt(size_t index, size_t vector);
  llvm::Value* AddressAt(size_t index, size_t vector);
  llvm::Value* OffsetsAt(size_t index, size_t vector);
  llvm::Value* EmitRowOffset(const ir::ScalarNode& node);
  llvm::Value* FixedInt(int32_t node);  // i64: a constant or an argument
  void MovePointers(size_t first_dim, size_t last_dim);

  KernelFrame& frame_;
  VectorEmitter& e_;
  const ir::LoopNestSpec& spec_;

  std::vector<Dependence> dependence_;          // per node
  std::vector<bool> reads_stored_;              // per node: reads a pointer that the kernel stores to
  std::vector<std::vector<bool>> stage_needs_;  // per stage, per node
  std::vector<bool> all_needs_;

  Dependence bound_ = 0;
  Block block_;
  std::vector<std::vector<llvm::Value*>> values_;         // per node: none, one, or one per vector of the block
  std::vector<std::vector<llvm::Value*>> stage_results_;  // per stage, likewise
  std::vector<llvm::Value*> row_offsets_;                 // per node: of a LoadAt, elements; null where there is none
  std::vector<size_t>* emitted_ = nullptr;                // nodes emitted in the current scope
  std::vector<llvm::Value*> pointers_;                    // per access, at the current outer and reduce position
  std::vector<llvm::Value*> block_addresses_;  // per access, at the block's first position; null until needed
  std::vector<llvm::Value*> coordinates_;      // per outer and reduce dim
};

}  // namespace kiln::codegen
