// ScalarProgram to vector values. Leaves (Load, StageResult, Accumulator, Coordinate, Argument) come from a callback,
// because only the loop that surrounds the program knows them; Constants and operations are emitted here.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "compile-service/codegen/llvm/vector_emitter.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// One Constant or operation; `operand` is the type of its (last) operand, `a`, `b`, `c` its operands' vectors or null.
llvm::Value* EmitScalarOp(VectorEmitter& e, const ir::ScalarNode& node, DType operand, llvm::Value* a, llvm::Value* b,
                          llvm::Value* c);

// The vector of a leaf, of the node's type.
using LeafValue = std::function<llvm::Value*(const ir::ScalarNode& node)>;
// Emits what `roots` need of `program`, in order; the result has one entry per node, null where it was not needed.
std::vector<llvm::Value*> EmitScalarProgram(VectorEmitter& e, const ir::ScalarProgram& program,
                                            std::span<const int32_t> roots, const LeafValue& leaf);
// The nodes that stores write: the roots of an epilogue.
std::vector<int32_t> StoredNodes(std::span<const ir::Store> stores);

}  // namespace kiln::codegen
