// Epilogue: the arithmetic and stores behind a finished vector of sums, shared by contractions and windows.
//
// The vector runs along the last dim of the accesses' order; every other coordinate is one number.
#pragma once

#include <vector>

#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/codegen/llvm/vector_emitter.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

class Epilogue {
 public:
  using Values = VectorEmitter::Values;
  // The first lane's place: one pointer per access, one coordinate per dim.
  struct Position {
    Values pointers;
    Values coordinates;
  };
  // Loaded vectors by node; null until loaded.
  using SharedLoads = Values;

  // All of them outlive this.
  Epilogue(KernelFrame& frame, const std::vector<ir::Access>& accesses, const ir::ScalarProgram& program,
           const std::vector<ir::Store>& stores);

  Position At(const Values& coordinates);
  Position Moved(const Position& position, size_t dim, llvm::Value* distance);

  // The value of one node at a position.
  llvm::Value* ValueOf(int32_t node, const Position& position, llvm::Value* sum, const Active& active);

  // `shared`: where loads that do not move along `shared_dim` are kept, for vectors that differ in that coordinate
  // only.
  void Emit(const Position& position, llvm::Value* sum, const Active& active, SharedLoads* shared = nullptr,
            size_t shared_dim = 0);

  // Whether the program may be emitted this many times, or should be emitted once in a loop.
  bool is_short(size_t copies) const { return weight_ * copies <= kUnrolledWeight; }

 private:
  static constexpr size_t kUnrolledWeight = 256;

  llvm::Value* Leaf(const ir::ScalarNode& node, const Position& position, llvm::Value* sum, const Active& active);
  llvm::Value* Load(const ir::ScalarNode& node, const Position& position, const Active& active);

  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const std::vector<ir::Access>& accesses_;
  const ir::ScalarProgram& program_;
  const std::vector<ir::Store>& stores_;
  size_t weight_ = 0;  // about the number of vector instructions
  bool uses_coordinates_ = false;
};

}  // namespace kiln::codegen
