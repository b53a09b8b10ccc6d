// What every family of reference kernels shares: the compute type of a storage type, the strided loop over several
// operands, scratch memory, and kernels in half precision by way of float. Private to common/ops.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/checked_math.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/reference_kernel.h"

namespace kiln::kernels {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || kIsHalf<T>;
template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <class T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !kIsBool<T>;
template <class T>
inline constexpr bool kIsNumeric = kIsFloat<T> || kIsInteger<T>;

// Arithmetic on a storage type happens in this type.
template <class T>
using Compute = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
inline Compute<T> Load(const T& value) {
  if constexpr (kIsHalf<T>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}
template <class T>
inline T Store(Compute<T> value) {
  return T(value);
}

// Integer arithmetic modulo 2^bits: never undefined.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>;
template <class T>
inline T WrapAdd(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
}
template <class T>
inline T WrapSub(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
}
template <class T>
inline T WrapMul(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
}

// Smaller and larger of two values; a NaN wins.
template <class C>
inline C NanMin(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return b < a ? b : a;
}
template <class C>
inline C NanMax(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return a < b ? b : a;
}

// Value conversion of Cast: float to integer truncates and saturates, NaN becomes 0; integers wrap; bool is "not zero".
template <class To, class From>
inline To Convert(const From& from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (kIsHalf<From>) {
    return Convert<To>(static_cast<float>(from));
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(from));
  } else if constexpr (kIsBool<To>) {
    return from != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // 2^digits is exact in every float type, so the upper comparison is exact where max() itself is not.
    const From above = std::ldexp(From(1), std::numeric_limits<To>::digits);
    if (std::isnan(from)) return To(0);
    if (from >= above) return std::numeric_limits<To>::max();
    if (from <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

// --- strided loops ---
inline constexpr int kOperandsMax = 5;
// One run of `n` elements; pointers and strides (in bytes) per operand.
using InnerLoop = void (*)(char* const* pointers, const int64_t* strides, int64_t n, const void* functor);

// Calls `loop` over all elements of `dims`. refs[i] is broadcast to `dims` (trailing dims aligned, size 1 stretches);
// runs are as long as the layouts allow. Precondition: broadcasting is legal, at most kOperandsMax operands.
void ForEachRun(const Dims& dims, std::span<const TensorRef> refs, InnerLoop loop, const void* functor);

// `ref` as seen with the dims `dims`: stretched dims get stride 0. Precondition: broadcasting is legal.
TensorRef BroadcastRef(const TensorRef& ref, const Dims& dims);

// --- memory ---
// `count` uninitialised elements; LimitExceeded and ResourceExhausted as for tensors.
template <class T>
Result<T*> Scratch(KernelCall& call, int64_t count) {
  if (count > limits::kTensorBytesMax / static_cast<int64_t>(sizeof(T))) {
    return Fail(ErrorCode::kLimitExceeded,
                "the op needs scratch for " + std::to_string(count) + " elements; lower the batch");
  }
  void* memory = call.memory->AllocateScratch(static_cast<size_t>(count > 0 ? count : 1) * sizeof(T));
  if (memory == nullptr) {
    return Fail(ErrorCode::kResourceExhausted, "no memory for " +
                                                   std::to_string(count * static_cast<int64_t>(sizeof(T))) +
                                                   " bytes of scratch; lower the batch or raise the memory budget");
  }
  return static_cast<T*>(memory);
}
// Sets dims and memory of an output whose size only the kernel knows; keeps what the caller allocated.
Status AllocateOutput(KernelCall& call, size_t output, DType dtype, const Dims& dims);
// Whether output i is wanted (data-shape ops excepted, see KernelCall).
inline bool Wants(const KernelCall& call, size_t output) {
  return output < call.outputs.size() && call.outputs[output].data != nullptr;
}

// --- operands ---
int64_t ReadInt(const TensorRef& ref);   // first element; precondition: not empty
double ReadFloat(const TensorRef& ref);  // first element; precondition: not empty
// `axis` counted from the end when negative; InvalidArgument outside [-rank, rank).
Result<int> NormalizeAxis(int64_t axis, int rank);
// Products of the dims before, at and behind `axis`.
struct AxisSplit {
  int64_t outer, size, inner;
};
AxisSplit SplitAt(const Dims& dims, int axis);

// --- dtypes ---
inline Status UnsupportedType(DType dtype) {
  return Fail(ErrorCode::kUnsupported, "no reference kernel for dtype " + std::string(DTypeName(dtype)));
}
// Runs `kernel`, made for f32, on half precision operands: widens the f16 or bf16 inputs, narrows the outputs.
Status RunInFloat(KernelCall& call, KernelFunction kernel);
template <KernelFunction kFloatKernel>
Status ViaFloat(KernelCall& call) {
  return RunInFloat(call, kFloatKernel);
}
// The kernel of a family of float templates: `F::template Run<T>` for f32 and f64, halves by way of f32.
template <class F>
KernelFunction FloatKernel(DType dtype) {
  return DispatchDType(dtype, []<class T>() -> KernelFunction {
    if constexpr (std::is_floating_point_v<T>) {
      return &F::template Run<T>;
    } else if constexpr (kIsHalf<T>) {
      return &ViaFloat<&F::template Run<float>>;
    } else {
      return nullptr;
    }
  });
}
// A dtype-blind kernel over element bytes: `F::template Run<U>` with the unsigned type of the element's size.
template <class F>
KernelFunction BytesKernel(DType dtype) {
  return DispatchDType(dtype, []<class T>() -> KernelFunction {
    if constexpr (sizeof(T) == 1) return &F::template Run<uint8_t>;
    if constexpr (sizeof(T) == 2) return &F::template Run<uint16_t>;
    if constexpr (sizeof(T) == 4) return &F::template Run<uint32_t>;
    if constexpr (sizeof(T) == 8) return &F::template Run<uint64_t>;
  });
}

}  // namespace kiln::kernels
