#include "compile-service/codegen/cuda/prelude.h"

namespace kiln::codegen::cuda {

// KILN_SHIM stands for the processor: there the macros and what is written in a device's assembly come from
// tests/support/cuda/cuda_shim.h.
const std::string_view kPrelude = R"(#ifndef KILN_SHIM
#define KILN_DEVICE static __device__ __forceinline__
#define KILN_METHOD __device__ __forceinline__
#define KILN_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define KILN_GET(name, index) (name[index])
#define KILN_GET4(name, index) (*reinterpret_cast<const float4*>(&name[index]))
#define KILN_PUT(name, index, value) (name[index] = (value))
KILN_DEVICE float kiln_from_f16(unsigned short bits) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
  return number;
}
KILN_DEVICE unsigned short kiln_to_f16(float number) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(number));
  return bits;
}
KILN_DEVICE int kiln_dot4(unsigned a, unsigned b, int sum) {
  int result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
}
#endif
typedef float kiln_f32 __attribute__((__may_alias__));
typedef double kiln_f64 __attribute__((__may_alias__));
typedef unsigned short kiln_f16 __attribute__((__may_alias__));
typedef unsigned short kiln_bf16 __attribute__((__may_alias__));
typedef signed char kiln_i8 __attribute__((__may_alias__));
typedef unsigned char kiln_u8 __attribute__((__may_alias__));
typedef short kiln_i16 __attribute__((__may_alias__));
typedef unsigned short kiln_u16 __attribute__((__may_alias__));
typedef int kiln_i32 __attribute__((__may_alias__));
typedef unsigned kiln_u32 __attribute__((__may_alias__));
typedef long long kiln_i64 __attribute__((__may_alias__));
typedef unsigned long long kiln_u64 __attribute__((__may_alias__));
typedef unsigned char kiln_bool __attribute__((__may_alias__));

KILN_DEVICE float kiln_from_bf16(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
KILN_DEVICE unsigned short kiln_to_bf16(float number) {
  const unsigned bits = __float_as_uint(number);
  if (number != number) return static_cast<unsigned short>(bits >> 16 | 0x40u);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
template <class T>
KILN_DEVICE T kiln_max(T a, T b) {
  return a != a ? a : b != b ? b : a < b ? b : a;
}
template <class T>
KILN_DEVICE T kiln_min(T a, T b) {
  return a != a ? a : b != b ? b : b < a ? b : a;
}
KILN_DEVICE float kiln_add(float a, float b) { return a + b; }
KILN_DEVICE double kiln_add(double a, double b) { return a + b; }
KILN_DEVICE int kiln_add(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
KILN_DEVICE long long kiln_add(long long a, long long b) {
  return static_cast<long long>(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
}
KILN_DEVICE float kiln_sub(float a, float b) { return a - b; }
KILN_DEVICE double kiln_sub(double a, double b) { return a - b; }
KILN_DEVICE int kiln_sub(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) - static_cast<unsigned>(b)); }
KILN_DEVICE long long kiln_sub(long long a, long long b) {
  return static_cast<long long>(static_cast<unsigned long long>(a) - static_cast<unsigned long long>(b));
}
KILN_DEVICE float kiln_mul(float a, float b) { return a * b; }
KILN_DEVICE double kiln_mul(double a, double b) { return a * b; }
KILN_DEVICE int kiln_mul(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) * static_cast<unsigned>(b)); }
KILN_DEVICE long long kiln_mul(long long a, long long b) {
  return static_cast<long long>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
}
KILN_DEVICE float kiln_div(float a, float b) { return a / b; }
KILN_DEVICE double kiln_div(double a, double b) { return a / b; }
KILN_DEVICE int kiln_div(int a, int b) { return b == 0 ? 0 : b == -1 ? kiln_sub(0, a) : a / b; }
KILN_DEVICE long long kiln_div(long long a, long long b) { return b == 0 ? 0 : b == -1 ? kiln_sub(0LL, a) : a / b; }
KILN_DEVICE float kiln_sigmoid(float x) {
  const float power = expf(x < 0.0f ? x : -x);
  return (x < 0.0f ? power : 1.0f) / (1.0f + power);
}
template <class T, class F>
KILN_DEVICE T kiln_saturated(F number, F low, F high, T low_value, T high_value) {
  return number != number ? T(0) : number <= low ? low_value : number >= high ? high_value : static_cast<T>(number);
}
KILN_DEVICE long long kiln_least(long long a, long long b) { return a < b ? a : b; }
// An element's offset from a position of memory: brought into [0, extent).
KILN_DEVICE long long kiln_position(long long at, long long extent) {
  const long long below = at < extent ? at : extent - 1;
  return below > 0 ? below : 0;
}
// Four bytes, wherever they lie.
KILN_DEVICE unsigned kiln_word(const kiln_u8* bytes) {
  if ((reinterpret_cast<unsigned long long>(bytes) & 3ull) == 0) return *reinterpret_cast<const kiln_u32*>(bytes);
  return bytes[0] | static_cast<unsigned>(bytes[1]) << 8 | static_cast<unsigned>(bytes[2]) << 16 |
         static_cast<unsigned>(bytes[3]) << 24;
}
// A sum in short chains, so that rounding does not grow with its length.
struct kiln_long_sum {
  float low = 0.0f, middle = 0.0f, high = 0.0f;
  unsigned terms = 0;
  KILN_METHOD void add(float term) {
    low += term;
    if ((++terms & 127u) != 0) return;
    middle += low;
    low = 0.0f;
    if ((terms & 16383u) != 0) return;
    high += middle;
    middle = 0.0f;
  }
  KILN_METHOD float total() const { return high + (middle + low); }
};
struct kiln_combine_sum {
  template <class T> static KILN_METHOD T of(T a, T b) { return kiln_add(a, b); }
};
struct kiln_combine_product {
  template <class T> static KILN_METHOD T of(T a, T b) { return kiln_mul(a, b); }
};
struct kiln_combine_max {
  template <class T> static KILN_METHOD T of(T a, T b) { return kiln_max(a, b); }
};
struct kiln_combine_min {
  template <class T> static KILN_METHOD T of(T a, T b) { return kiln_min(a, b); }
};
// What the 32 threads of a warp have, combined; the same for all of them.
template <class Combine, class T>
KILN_DEVICE T kiln_warp_combined(T value) {
  for (int distance = 16; distance > 0; distance >>= 1)
    value = Combine::of(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return __shfl_sync(0xffffffffu, value, 0);
}
)";

}  // namespace kiln::codegen::cuda
