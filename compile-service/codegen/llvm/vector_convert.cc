// Conversions of VectorEmitter between compute types and storage dtypes.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "compile-service/codegen/llvm/vector_emitter.h"

namespace kiln::codegen {

using llvm::Value;

namespace {
llvm::Type* WithElement(Value* like, llvm::Type* element) {
  return llvm::FixedVectorType::get(element, llvm::cast<llvm::FixedVectorType>(like->getType())->getNumElements());
}
}  // namespace

Value* VectorEmitter::Convert(Value* value, DType from, DType to) {
  if (from == to) return value;
  llvm::Type* type = VectorType(to);
  if (to == DType::kBool) {
    return IsFloat(from) ? builder_.CreateFCmpUNE(value, Zero(from)) : builder_.CreateICmpNE(value, Zero(from));
  }
  if (from == DType::kBool) return IsFloat(to) ? builder_.CreateUIToFP(value, type) : builder_.CreateZExt(value, type);
  if (IsFloat(from) && IsFloat(to)) return builder_.CreateFPCast(value, type);
  if (IsFloat(to)) return builder_.CreateSIToFP(value, type);
  if (IsFloat(from)) return FloatToInteger(value, to);
  return builder_.CreateSExtOrTrunc(value, type);
}

// Any integer dtype. Narrow ones clamp as floats first: the bounds are exact there, and one conversion to i32 follows.
Value* VectorEmitter::FloatToInteger(Value* value, DType integer) {
  llvm::Type* target = WithElement(value, StorageType(integer));
  const int64_t bits = 8 * DTypeBytes(integer);
  const bool is_unsigned = DTypeClassOf(integer) == DTypeClass::kUnsigned;
  if (bits >= 32) {
    const auto intrinsic = is_unsigned ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
    return builder_.CreateIntrinsic(intrinsic, {target, value->getType()}, {value});
  }
  const double low = is_unsigned ? 0.0 : -static_cast<double>(int64_t{1} << (bits - 1));
  const double high = static_cast<double>((int64_t{1} << (is_unsigned ? bits : bits - 1)) - 1);
  Value* zero = llvm::Constant::getNullValue(value->getType());
  Value* low_value = llvm::ConstantFP::get(value->getType(), low);
  Value* high_value = llvm::ConstantFP::get(value->getType(), high);
  Value* clamped = builder_.CreateSelect(builder_.CreateFCmpUNO(value, value), zero, value);
  clamped = builder_.CreateSelect(builder_.CreateFCmpOGT(clamped, low_value), clamped, low_value);
  clamped = builder_.CreateSelect(builder_.CreateFCmpOLT(clamped, high_value), clamped, high_value);
  return builder_.CreateTrunc(builder_.CreateFPToSI(clamped, VectorType(DType::kI32)), target);
}

Value* VectorEmitter::FromStorage(Value* raw, DType storage, DType compute) {
  switch (storage) {
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
      return Convert(raw, storage, compute);
    case DType::kBool:
      return Convert(builder_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType())), DType::kBool, compute);
    case DType::kF16:
      return Convert(HalfToFloat(raw), DType::kF32, compute);
    case DType::kBF16: {
      Value* bits = builder_.CreateShl(builder_.CreateZExt(raw, VectorType(DType::kI32)), SplatI32(16));
      return Convert(builder_.CreateBitCast(bits, VectorType(DType::kF32)), DType::kF32, compute);
    }
    case DType::kU8:
    case DType::kU16:
      return Convert(builder_.CreateZExt(raw, VectorType(DType::kI32)), DType::kI32, compute);
    case DType::kI8:
    case DType::kI16:
      return Convert(builder_.CreateSExt(raw, VectorType(DType::kI32)), DType::kI32, compute);
    case DType::kU32:
    case DType::kU64:
      if (IsFloat(compute)) return builder_.CreateUIToFP(raw, VectorType(compute));
      if (compute == DType::kBool) return builder_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
      return builder_.CreateZExtOrTrunc(raw, VectorType(compute));
  }
  __builtin_unreachable();
}

Value* VectorEmitter::ToStorage(Value* value, DType compute, DType storage) {
  switch (storage) {
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
      return Convert(value, compute, storage);
    case DType::kBool:
      return builder_.CreateZExt(Convert(value, compute, DType::kBool), WithElement(value, builder_.getInt8Ty()));
    case DType::kF16:
      return FloatToHalf(Convert(value, compute, DType::kF32));
    case DType::kBF16:
      return FloatToBFloat(Convert(value, compute, DType::kF32));
    case DType::kU8:
    case DType::kU16:
    case DType::kI8:
    case DType::kI16:
    case DType::kU32:
    case DType::kU64: {
      if (IsFloat(compute)) return FloatToInteger(value, storage);
      llvm::Type* type = WithElement(value, StorageType(storage));
      if (compute == DType::kBool) return builder_.CreateZExt(value, type);
      return builder_.CreateSExtOrTrunc(value, type);
    }
  }
  __builtin_unreachable();
}

// Without F16C LLVM would call the runtime library, so the integer form is written out: shifting the exponent and
// mantissa into place and multiplying by 2^112 corrects the exponent bias, denormals included.
Value* VectorEmitter::HalfToFloat(Value* raw) {
  if (has_fma())
    return builder_.CreateFPExt(builder_.CreateBitCast(raw, WithElement(raw, builder_.getHalfTy())),
                                VectorType(DType::kF32));
  llvm::Type* i32 = VectorType(DType::kI32);
  llvm::Type* f32 = VectorType(DType::kF32);
  Value* wide = builder_.CreateZExt(raw, i32);
  Value* magnitude = builder_.CreateAnd(wide, SplatI32(0x7fff));
  Value* sign = builder_.CreateShl(builder_.CreateAnd(wide, SplatI32(0x8000)), SplatI32(16));
  Value* shifted = builder_.CreateShl(magnitude, SplatI32(13));
  Value* scaled = builder_.CreateFMul(builder_.CreateBitCast(shifted, f32), SplatF32(0x1p112f));
  Value* special = builder_.CreateOr(shifted, SplatI32(0x7f800000));
  Value* bits = builder_.CreateSelect(builder_.CreateICmpSGE(magnitude, SplatI32(0x7c00)), special,
                                      builder_.CreateBitCast(scaled, i32));
  return builder_.CreateBitCast(builder_.CreateOr(bits, sign), f32);
}

// Round to nearest even. Below 2^-14, adding 0.5 makes the hardware round at the half's denormal unit.
Value* VectorEmitter::FloatToHalf(Value* value) {
  llvm::Type* i32 = VectorType(DType::kI32);
  llvm::Type* i16 = WithElement(value, builder_.getInt16Ty());
  if (has_fma())
    return builder_.CreateBitCast(builder_.CreateFPTrunc(value, WithElement(value, builder_.getHalfTy())), i16);
  Value* bits = builder_.CreateBitCast(value, i32);
  Value* magnitude = builder_.CreateAnd(bits, SplatI32(0x7fffffff));
  Value* sign = builder_.CreateAnd(builder_.CreateLShr(bits, SplatI32(16)), SplatI32(0x8000));
  Value* odd = builder_.CreateAnd(builder_.CreateLShr(magnitude, SplatI32(13)), SplatI32(1));
  Value* rounded = builder_.CreateAdd(builder_.CreateAdd(magnitude, SplatI32(((15 - 127) * (1 << 23)) + 0xfff)), odd);
  Value* normal = builder_.CreateLShr(rounded, SplatI32(13));
  Value* small = builder_.CreateFAdd(builder_.CreateBitCast(magnitude, VectorType(DType::kF32)), SplatF32(0.5f));
  Value* denormal = builder_.CreateSub(builder_.CreateBitCast(small, i32), SplatI32(0x3f000000));
  Value* is_nan = builder_.CreateICmpSGT(magnitude, SplatI32(0x7f800000));
  Value* special = builder_.CreateSelect(is_nan, SplatI32(0x7e00), SplatI32(0x7c00));
  Value* half = builder_.CreateSelect(builder_.CreateICmpSLT(magnitude, SplatI32(0x38800000)), denormal, normal);
  half = builder_.CreateSelect(builder_.CreateICmpSGE(magnitude, SplatI32(0x47800000)), special, half);
  return builder_.CreateTrunc(builder_.CreateOr(half, sign), i16);
}

// By integers on every target: the bf16 conversion instruction flushes denormals.
Value* VectorEmitter::FloatToBFloat(Value* value) {
  Value* bits = builder_.CreateBitCast(value, VectorType(DType::kI32));
  Value* high = builder_.CreateLShr(bits, SplatI32(16));
  Value* odd = builder_.CreateAnd(high, SplatI32(1));
  Value* rounded =
      builder_.CreateLShr(builder_.CreateAdd(builder_.CreateAdd(bits, SplatI32(0x7fff)), odd), SplatI32(16));
  Value* quiet = builder_.CreateOr(high, SplatI32(0x40));
  Value* chosen = builder_.CreateSelect(builder_.CreateFCmpUNO(value, value), quiet, rounded);
  return builder_.CreateTrunc(chosen, WithElement(value, builder_.getInt16Ty()));
}

}  // namespace kiln::codegen
