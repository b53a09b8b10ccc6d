#include "common/ops/kernels/elementwise.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// f(a, b) for floats and for integers (which wrap).
#define KILN_ARITHMETIC(Name, float_expression, integer_expression) \
  struct Name##Of : Stateless {                                     \
    using Stateless::Stateless;                                     \
    template <class C>                                              \
    C operator()(C a, C b) const {                                  \
      if constexpr (std::is_floating_point_v<C>) {                  \
        return float_expression;                                    \
      } else {                                                      \
        return integer_expression;                                  \
      }                                                             \
    }                                                               \
  };
KILN_ARITHMETIC(Add, a + b, WrapAdd(a, b))
KILN_ARITHMETIC(Sub, a - b, WrapSub(a, b))
KILN_ARITHMETIC(Mul, a* b, WrapMul(a, b))
KILN_ARITHMETIC(PRelu, a < C(0) ? a * b : a, a < C(0) ? WrapMul(a, b) : a)
KILN_ARITHMETIC(Minimum, NanMin(a, b), NanMin(a, b))
KILN_ARITHMETIC(Maximum, NanMax(a, b), NanMax(a, b))
#undef KILN_ARITHMETIC

// Quotient and remainder of integers: INT_MIN / -1 wraps; a zero divisor is remembered and reported after the loop.
struct DivOf : Stateless {
  using Stateless::Stateless;
  mutable bool failed = false;
  template <class C>
  C operator()(C a, C b) const {
    if constexpr (std::is_floating_point_v<C>) {
      return a / b;
    } else {
      if (b == C(0)) {
        failed = true;
        return C(0);
      }
      if constexpr (std::is_signed_v<C>) {
        if (b == C(-1)) return WrapSub(C(0), a);
      }
      return static_cast<C>(a / b);
    }
  }
};
struct ModOf {
  bool fmod;
  mutable bool failed = false;
  explicit ModOf(const KernelCall& call) : fmod(call.attributes->Int("fmod", 0) != 0) {}
  template <class C>
  C operator()(C a, C b) const {
    if constexpr (std::is_floating_point_v<C>) {
      C rest = std::fmod(a, b);
      if (!fmod && rest != C(0) && ((rest < C(0)) != (b < C(0)))) rest += b;
      return rest;
    } else {
      if (b == C(0)) {
        failed = true;
        return C(0);
      }
      if constexpr (std::is_signed_v<C>) {
        if (b == C(-1)) return C(0);
      }
      C rest = static_cast<C>(a % b);
      if (!fmod && rest != C(0) && ((rest < C(0)) != (b < C(0)))) rest = static_cast<C>(rest + b);
      return rest;
    }
  }
};

// Integer power by squaring, wrapping; a negative exponent truncates the true value towards zero.
template <class T>
T IntegerPower(T base, int64_t exponent) {
  if (exponent < 0) {
    if (base == T(1)) return T(1);
    if constexpr (std::is_signed_v<T>) {
      if (base == T(-1)) return exponent % 2 == 0 ? T(1) : T(-1);
    }
    return T(0);
  }
  T result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = WrapMul(result, base);
    base = WrapMul(base, base);
  }
  return result;
}
struct PowOf : Stateless {
  using Stateless::Stateless;
  template <class A, class B>
  A operator()(A a, B b) const {
    if constexpr (std::is_floating_point_v<A>) {
      if (b == B(2)) return a * a;
      return std::pow(a, static_cast<A>(b));
    } else if constexpr (std::is_floating_point_v<B>) {
      return Convert<A>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    } else {
      return IntegerPower(a, Convert<int64_t>(b));
    }
  }
};

struct BitShiftOf {
  bool left;
  explicit BitShiftOf(const KernelCall& call) : left(call.attributes->Text("direction", "LEFT") == "LEFT") {}
  template <class C>
  C operator()(C a, C b) const {
    if (b >= C(sizeof(C) * 8)) return C(0);
    return left ? static_cast<C>(static_cast<Wrapping<C>>(a) << b) : static_cast<C>(a >> b);
  }
};

#define KILN_BINARY(Name, Result, expression) \
  struct Name##Of : Stateless {               \
    using Stateless::Stateless;               \
    template <class C>                        \
    Result operator()(C a, C b) const {       \
      return static_cast<Result>(expression); \
    }                                         \
  };
KILN_BINARY(BitwiseAnd, C, a& b)
KILN_BINARY(BitwiseOr, C, a | b)
KILN_BINARY(BitwiseXor, C, a ^ b)
KILN_BINARY(Equal, bool, a == b)
KILN_BINARY(Less, bool, a < b)
KILN_BINARY(LessOrEqual, bool, a <= b)
KILN_BINARY(Greater, bool, a > b)
KILN_BINARY(GreaterOrEqual, bool, a >= b)
KILN_BINARY(And, bool, a&& b)
KILN_BINARY(Or, bool, a || b)
KILN_BINARY(Xor, bool, a != b)
#undef KILN_BINARY

constexpr std::string_view kDividedByZero = "integer division by zero: input 1 holds a 0";

// For functors that may meet a zero divisor.
template <class T, class F>
Status RunDivision(KernelCall& call) {
  const F functor(call);
  const TensorRef operands[] = {call.outputs[0], call.inputs[0], call.inputs[1]};
  ForEachRun(call.outputs[0].dims, operands, &BinaryLoop<T, T, T, F>, &functor);
  if (functor.failed) {
    return Fail(ErrorCode::kInvalidArgument, std::string(kDividedByZero));
  }
  return {};
}
template <class T>
Status RunCheckDivisors(KernelCall& call) {
  bool has_zero = false;
  const TensorRef operands[] = {call.inputs[0]};
  Dims once = call.inputs[0].dims;  // what is broadcast is looked at once, unless there is none of it
  for (int d = 0; d < once.rank(); ++d)
    if (once[d] > 1 && call.inputs[0].strides[d] == 0) once[d] = 1;
  ForEachRun(
      once, operands,
      [](char* const* p, const int64_t* s, int64_t n, const void* functor) {
        bool& found = *static_cast<bool*>(const_cast<void*>(functor));
        for (int64_t i = 0; i < n; ++i) found |= *reinterpret_cast<const T*>(p[0] + i * s[0]) == T(0);
      },
      &has_zero);
  if (has_zero) return Fail(ErrorCode::kInvalidArgument, std::string(kDividedByZero));
  if (Wants(call, 0)) *call.outputs[0].as<int64_t>() = call.inputs[0].elements();
  return {};
}
template <class F>
ReferenceKernel DivisionKernel(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunDivision<T, F>;
                          return nullptr;
                        }),
          true};
}

template <class A>
Status RunPow(KernelCall& call) {
  return DispatchDType(call.inputs[1].dtype, [&]<class B>() -> Status {
    if constexpr (kIsNumeric<B>) return RunBinary<A, B, A, PowOf>(call);
    return UnsupportedType(call.inputs[1].dtype);
  });
}

// --- any number of inputs: out = x0, then out = f(out, xi) ---
struct CopyOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    return x;
  }
};
template <class C>
struct ScaleOf {
  C factor;
  C operator()(C x) const { return x * factor; }
};

// In `target`, whose elements are of type W.
template <class T, class W, class F>
void Accumulate(KernelCall& call, const TensorRef& target) {
  const CopyOf copy(call);
  const TensorRef first[] = {target, call.inputs[0]};
  ForEachRun(target.dims, first, &UnaryLoop<T, W, CopyOf>, &copy);
  const F functor(call);
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const TensorRef operands[] = {target, target, call.inputs[i]};
    ForEachRun(target.dims, operands, &BinaryLoop<W, T, W, F>, &functor);
  }
}
template <class From, class To, class F>
void Map(const TensorRef& from, const TensorRef& to, const F& functor) {
  const TensorRef operands[] = {to, from};
  ForEachRun(to.dims, operands, &UnaryLoop<From, To, F>, &functor);
}
// Sums of halves, which are rounded once, at their end.
template <class T>
Result<TensorRef> WideSum(KernelCall& call) {
  ASSIGN_OR_RETURN(float* sums, Scratch<float>(call, call.outputs[0].elements()));
  const TensorRef wide = MakeRef(DType::kF32, call.outputs[0].dims, sums);
  Accumulate<T, float, AddOf>(call, wide);
  return wide;
}

template <class T, class F>
Status RunVariadic(KernelCall& call) {
  if (call.inputs.size() == 2) return RunBinary<T, T, T, F>(call);
  if constexpr (kIsHalf<T> && std::is_same_v<F, AddOf>) {
    ASSIGN_OR_RETURN(const TensorRef sum, WideSum<T>(call));
    Map<float, T>(sum, call.outputs[0], CopyOf(call));
  } else {
    Accumulate<T, T, F>(call, call.outputs[0]);
  }
  return {};
}
template <class T>
Status RunMean(KernelCall& call) {
  const ScaleOf<Compute<T>> scale{Compute<T>(1) / static_cast<Compute<T>>(call.inputs.size())};
  if constexpr (kIsHalf<T>) {
    ASSIGN_OR_RETURN(const TensorRef sum, WideSum<T>(call));
    Map<float, T>(sum, call.outputs[0], scale);
  } else {
    RETURN_IF_ERROR((RunVariadic<T, AddOf>(call)));
    Map<T, T>(call.outputs[0], call.outputs[0], scale);
  }
  return {};
}
template <class F>
ReferenceKernel VariadicKernel(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunVariadic<T, F>;
                          return nullptr;
                        }),
          true};
}

}  // namespace

ReferenceKernel Add(DType dtype) {
  return BinaryKernel<Numbers, AddOf>(dtype);
}
ReferenceKernel Sub(DType dtype) {
  return BinaryKernel<Numbers, SubOf>(dtype);
}
ReferenceKernel Mul(DType dtype) {
  return BinaryKernel<Numbers, MulOf>(dtype);
}
ReferenceKernel PRelu(DType dtype) {
  return BinaryKernel<Numbers, PReluOf>(dtype);
}
ReferenceKernel Div(DType dtype) {
  return DivisionKernel<DivOf>(dtype);
}
ReferenceKernel Mod(DType dtype) {
  return DivisionKernel<ModOf>(dtype);
}
ReferenceKernel CheckDivisors(DType dtype) {
  if (dtype == DType::kI32) return {&RunCheckDivisors<int32_t>, true};
  if (dtype == DType::kI64) return {&RunCheckDivisors<int64_t>, true};
  return {};
}
ReferenceKernel Pow(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsFloat<T> || (kIsInteger<T> && sizeof(T) >= 4)) return &RunPow<T>;
                          return nullptr;
                        }),
          true};
}
ReferenceKernel BitShift(DType dtype) {
  return BinaryKernel<Unsigned, BitShiftOf>(dtype);
}
ReferenceKernel BitwiseAnd(DType dtype) {
  return BinaryKernel<Integers, BitwiseAndOf>(dtype);
}
ReferenceKernel BitwiseOr(DType dtype) {
  return BinaryKernel<Integers, BitwiseOrOf>(dtype);
}
ReferenceKernel BitwiseXor(DType dtype) {
  return BinaryKernel<Integers, BitwiseXorOf>(dtype);
}
ReferenceKernel Min(DType dtype) {
  return VariadicKernel<MinimumOf>(dtype);
}
ReferenceKernel Max(DType dtype) {
  return VariadicKernel<MaximumOf>(dtype);
}
ReferenceKernel Sum(DType dtype) {
  return VariadicKernel<AddOf>(dtype);
}
ReferenceKernel Mean(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsFloat<T>) return &RunMean<T>;
                          return nullptr;
                        }),
          true};
}
ReferenceKernel Equal(DType dtype) {
  return BinaryPredicate<AnyType, EqualOf>(dtype);
}
ReferenceKernel Less(DType dtype) {
  return BinaryPredicate<Numbers, LessOf>(dtype);
}
ReferenceKernel LessOrEqual(DType dtype) {
  return BinaryPredicate<Numbers, LessOrEqualOf>(dtype);
}
ReferenceKernel Greater(DType dtype) {
  return BinaryPredicate<Numbers, GreaterOf>(dtype);
}
ReferenceKernel GreaterOrEqual(DType dtype) {
  return BinaryPredicate<Numbers, GreaterOrEqualOf>(dtype);
}
ReferenceKernel And(DType dtype) {
  return BinaryPredicate<Booleans, AndOf>(dtype);
}
ReferenceKernel Or(DType dtype) {
  return BinaryPredicate<Booleans, OrOf>(dtype);
}
ReferenceKernel Xor(DType dtype) {
  return BinaryPredicate<Booleans, XorOf>(dtype);
}

}  // namespace kiln::kernels
