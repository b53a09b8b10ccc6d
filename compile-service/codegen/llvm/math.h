// Elementary functions as IR over f32 vectors, within 2 ulp (the numeric mode's bound), with IEEE special values: NaN
// in gives NaN out, infinities, denormals and signed zeros are right. No library calls. Polynomials:
// fit_polynomials.py.
#pragma once

#include "compile-service/codegen/llvm/vector_emitter.h"

namespace kiln::codegen {

llvm::Value* EmitExp(VectorEmitter& e, llvm::Value* x);
// e^x without denormals, which slow the products that follow down a hundredfold: below 2^-126 it is that, or 0.
llvm::Value* EmitWeightExp(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitLog(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitTanh(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitErf(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitSigmoid(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitSin(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitCos(VectorEmitter& e, llvm::Value* x);
llvm::Value* EmitPow(VectorEmitter& e, llvm::Value* x, llvm::Value* y);

}  // namespace kiln::codegen
