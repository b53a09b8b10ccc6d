#include "compile-service/lower/kernel_dtypes.h"

namespace kiln::lower {

bool IsByte(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8;
}

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

bool IsKernelDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32 || dtype == DType::kI64 ||
         dtype == DType::kBool || IsByte(dtype) || IsHalf(dtype);
}

DType ComputeType(DType dtype) {
  if (IsHalf(dtype)) return DType::kF32;
  return IsByte(dtype) ? DType::kI32 : dtype;
}

std::optional<DType> WideType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
      return DType::kF32;
    case DType::kF64:
    case DType::kI64:
    case DType::kBool:
      return dtype;
    case DType::kU8:
    case DType::kI8:
    case DType::kU16:
    case DType::kI16:
    case DType::kI32:
      return DType::kI32;
    case DType::kU32:
    case DType::kU64:
      return DType::kI64;
  }
  return std::nullopt;
}

}  // namespace kiln::lower
