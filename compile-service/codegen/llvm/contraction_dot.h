// Dot products of bytes, four at a time, into 32-bit sums.
#pragma once

#include "compile-service/codegen/llvm/vector_emitter.h"

namespace kiln::codegen {

// sum + a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3 per i32 lane: the four bytes of `a` are unsigned, those of `b` signed,
// lowest first. Exact modulo 2^32. One instruction where the target has it.
llvm::Value* DotBytes(VectorEmitter& emitter, llvm::Value* sum, llvm::Value* a, llvm::Value* b);
// Four neighbouring bytes at `address`, of any alignment, in every lane; i8 storage counts from -128 as 0.
llvm::Value* LoadBytesBroadcast(VectorEmitter& emitter, DType storage, llvm::Value* address);
// The same of the first `count` (1..3) bytes; the others are not read and their products are nothing.
llvm::Value* LoadFewBytesBroadcast(VectorEmitter& emitter, DType storage, llvm::Value* address, int count);

}  // namespace kiln::codegen
