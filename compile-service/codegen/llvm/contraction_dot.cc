#include "compile-service/codegen/llvm/contraction_dot.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace kiln::codegen {

using llvm::Value;

namespace {

constexpr int kBytes = 4, kByteBits = 8;
// The rung from which int8 dot products are part of the target.
constexpr int kDotRung = 5;

llvm::Intrinsic::ID PairProduct(int lanes) {
  if (lanes == 16) return llvm::Intrinsic::x86_avx512_pmaddw_d_512;
  return lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd : llvm::Intrinsic::x86_sse2_pmadd_wd;
}

// Products of 16-bit pairs do not saturate, unlike those of bytes: the even and the odd bytes apart.
Value* DotByPairs(VectorEmitter& e, Value* sum, Value* a, Value* b) {
  llvm::IRBuilder<>& ir = e.ir();
  auto* pairs = llvm::FixedVectorType::get(ir.getInt16Ty(), static_cast<unsigned>(2 * e.lanes()));
  Value* low = e.SplatI32(0x00ff00ff);
  Value* shift = llvm::ConstantInt::get(pairs, kByteBits);
  Value* a_even = ir.CreateBitCast(ir.CreateAnd(a, low), pairs);
  Value* a_odd = ir.CreateBitCast(ir.CreateAnd(ir.CreateLShr(a, e.SplatI32(kByteBits)), low), pairs);
  Value* b_pairs = ir.CreateBitCast(b, pairs);
  Value* b_even = ir.CreateAShr(ir.CreateShl(b_pairs, shift), shift);
  Value* b_odd = ir.CreateAShr(b_pairs, shift);
  const llvm::Intrinsic::ID product = PairProduct(e.lanes());
  sum = ir.CreateAdd(sum, ir.CreateIntrinsic(product, {}, {a_even, b_even}));
  return ir.CreateAdd(sum, ir.CreateIntrinsic(product, {}, {a_odd, b_odd}));
}

Value* DotByElements(VectorEmitter& e, Value* sum, Value* a, Value* b) {
  llvm::IRBuilder<>& ir = e.ir();
  for (int i = 0; i < kBytes; ++i) {
    Value* left = ir.CreateAnd(ir.CreateLShr(a, e.SplatI32(i * kByteBits)), e.SplatI32(0xff));
    Value* top = ir.CreateShl(b, e.SplatI32((kBytes - 1 - i) * kByteBits));
    sum = ir.CreateAdd(sum, ir.CreateMul(left, ir.CreateAShr(top, e.SplatI32((kBytes - 1) * kByteBits))));
  }
  return sum;
}

// Unsigned order from signed: the top bit of each of `count` bytes flips.
Value* Unsigned(VectorEmitter& e, DType storage, Value* word, int count) {
  const uint32_t top_bits = 0x80808080u >> ((kBytes - count) * kByteBits);
  return storage == DType::kI8 ? e.ir().CreateXor(word, e.ir().getInt32(top_bits)) : word;
}

}  // namespace

Value* DotBytes(VectorEmitter& e, Value* sum, Value* a, Value* b) {
  if (e.target().architecture != Architecture::kX86) return DotByElements(e, sum, a, b);
  if (e.target().rung < kDotRung) return DotByPairs(e, sum, a, b);
  return e.ir().CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {}, {sum, a, b});
}

Value* LoadBytesBroadcast(VectorEmitter& e, DType storage, Value* address) {
  Value* word = e.ir().CreateAlignedLoad(e.ir().getInt32Ty(), address, llvm::Align(1));
  return e.Splat(Unsigned(e, storage, word, kBytes));
}

Value* LoadFewBytesBroadcast(VectorEmitter& e, DType storage, Value* address, int count) {
  llvm::IRBuilder<>& ir = e.ir();
  Value* word = ir.getInt32(0);
  for (int i = 0; i < count; ++i) {
    Value* byte =
        ir.CreateLoad(ir.getInt8Ty(), ir.CreateConstGEP1_64(ir.getInt8Ty(), address, static_cast<uint64_t>(i)));
    word = ir.CreateOr(word, ir.CreateShl(ir.CreateZExt(byte, ir.getInt32Ty()), static_cast<uint64_t>(i * kByteBits)));
  }
  return e.Splat(Unsigned(e, storage, word, count));
}

}  // namespace kiln::codegen
