#include "common/ops/kernels/elementwise.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

double FloatAttribute(const KernelCall& call, const char* name, double fallback) {
  return call.attributes->Float(name, fallback);
}

// y = expression(x) in the compute type C.
#define KILN_UNARY(Name, expression) \
  struct Name##Of : Stateless {      \
    using Stateless::Stateless;      \
    template <class C>               \
    C operator()(C x) const {        \
      return expression;             \
    }                                \
  };
KILN_UNARY(Ceil, std::ceil(x))
KILN_UNARY(Floor, std::floor(x))
KILN_UNARY(Round, std::nearbyint(x))  // the default rounding mode is half to even
KILN_UNARY(Sqrt, std::sqrt(x))
KILN_UNARY(Reciprocal, C(1) / x)
KILN_UNARY(Exp, std::exp(x))
KILN_UNARY(Log, std::log(x))
KILN_UNARY(Sin, std::sin(x))
KILN_UNARY(Cos, std::cos(x))
KILN_UNARY(Tan, std::tan(x))
KILN_UNARY(Asin, std::asin(x))
KILN_UNARY(Acos, std::acos(x))
KILN_UNARY(Atan, std::atan(x))
KILN_UNARY(Sinh, std::sinh(x))
KILN_UNARY(Cosh, std::cosh(x))
KILN_UNARY(Tanh, std::tanh(x))
KILN_UNARY(Asinh, std::asinh(x))
KILN_UNARY(Acosh, std::acosh(x))
KILN_UNARY(Atanh, std::atanh(x))
KILN_UNARY(Erf, std::erf(x))
KILN_UNARY(HardSwish, x* std::fmax(C(0), std::fmin(C(1), x / C(6) + C(0.5))))
KILN_UNARY(Softsign, x / (C(1) + std::fabs(x)))
#undef KILN_UNARY

template <class C>
C StableSigmoid(C x) {
  if (x >= C(0)) return C(1) / (C(1) + std::exp(-x));
  const C e = std::exp(x);
  return e / (C(1) + e);
}
template <class C>
C StableSoftplus(C x) {
  return x > C(0) ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

struct SigmoidOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    return StableSigmoid(x);
  }
};
struct SoftplusOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    return StableSoftplus(x);
  }
};
struct MishOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    return x * std::tanh(StableSoftplus(x));
  }
};

struct AbsOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) return std::fabs(x);
    if constexpr (std::is_unsigned_v<C>) return x;
    return x < C(0) ? WrapSub(C(0), x) : x;
  }
};
struct NegOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) return -x;
    return WrapSub(C(0), x);
  }
};
struct SignOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) {
      if (std::isnan(x)) return x;
    }
    return static_cast<C>(static_cast<int>(C(0) < x) - static_cast<int>(x < C(0)));
  }
};
struct ReluOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    return x < C(0) ? C(0) : x;  // keeps a NaN
  }
};
struct BitwiseNotOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  C operator()(C x) const {
    return static_cast<C>(~x);
  }
};
struct NotOf : Stateless {
  using Stateless::Stateless;
  bool operator()(bool x) const { return !x; }
};

struct LeakyReluOf {
  double alpha;
  explicit LeakyReluOf(const KernelCall& call) : alpha(FloatAttribute(call, "alpha", 0.01)) {}
  template <class C>
  C operator()(C x) const {
    return x < C(0) ? static_cast<C>(alpha) * x : x;
  }
};
struct ThresholdedReluOf {
  double alpha;
  explicit ThresholdedReluOf(const KernelCall& call) : alpha(FloatAttribute(call, "alpha", 1.0)) {}
  template <class C>
  C operator()(C x) const {
    return x > static_cast<C>(alpha) ? x : C(0);
  }
};
struct EluOf {
  double alpha;
  explicit EluOf(const KernelCall& call) : alpha(FloatAttribute(call, "alpha", 1.0)) {}
  template <class C>
  C operator()(C x) const {
    return x < C(0) ? static_cast<C>(alpha) * std::expm1(x) : x;
  }
};
struct CeluOf {
  double alpha;
  explicit CeluOf(const KernelCall& call) : alpha(FloatAttribute(call, "alpha", 1.0)) {}
  template <class C>
  C operator()(C x) const {
    const C a = static_cast<C>(alpha);
    return NanMax(C(0), x) + NanMin(C(0), a * std::expm1(x / a));
  }
};
struct SeluOf {
  double alpha, gamma;
  explicit SeluOf(const KernelCall& call)
      : alpha(FloatAttribute(call, "alpha", 1.67326319217681884765625)),
        gamma(FloatAttribute(call, "gamma", 1.05070102214813232421875)) {}
  template <class C>
  C operator()(C x) const {
    return static_cast<C>(gamma) * (x > C(0) ? x : static_cast<C>(alpha) * std::expm1(x));
  }
};
struct GeluOf {
  bool by_tanh;
  explicit GeluOf(const KernelCall& call) : by_tanh(call.attributes->Text("approximate", "none") == "tanh") {}
  template <class C>
  C operator()(C x) const {
    constexpr C kSqrtHalf = C(0.70710678118654752440);
    constexpr C kSqrtTwoByPi = C(0.79788456080286535588);
    if (!by_tanh) return C(0.5) * x * (C(1) + std::erf(x * kSqrtHalf));
    return C(0.5) * x * (C(1) + std::tanh(kSqrtTwoByPi * (x + C(0.044715) * x * x * x)));
  }
};
struct HardSigmoidOf {
  double alpha, beta;
  explicit HardSigmoidOf(const KernelCall& call)
      : alpha(FloatAttribute(call, "alpha", 0.2)), beta(FloatAttribute(call, "beta", 0.5)) {}
  template <class C>
  C operator()(C x) const {
    return NanMax(C(0), NanMin(C(1), static_cast<C>(alpha) * x + static_cast<C>(beta)));
  }
};
struct ShrinkOf {
  double bias, lambd;
  explicit ShrinkOf(const KernelCall& call)
      : bias(FloatAttribute(call, "bias", 0.0)), lambd(FloatAttribute(call, "lambd", 0.5)) {}
  template <class C>
  C operator()(C x) const {
    const double value = static_cast<double>(x);
    if (value < -lambd) return Convert<C>(value + bias);
    if (value > lambd) return Convert<C>(value - bias);
    return std::isnan(value) ? x : C(0);
  }
};

struct IsNaNOf : Stateless {
  using Stateless::Stateless;
  template <class C>
  bool operator()(C x) const {
    return std::isnan(x);
  }
};
struct IsInfOf {
  bool negative, positive;
  explicit IsInfOf(const KernelCall& call)
      : negative(call.attributes->Int("detect_negative", 1) != 0),
        positive(call.attributes->Int("detect_positive", 1) != 0) {}
  template <class C>
  bool operator()(C x) const {
    return std::isinf(x) && (x < C(0) ? negative : positive);
  }
};

template <class T>
struct SignedNumbers {
  static constexpr bool value = kIsFloat<T> || (kIsInteger<T> && std::is_signed_v<T>);
};

}  // namespace

#define KILN_FLOAT_KERNEL(Name)                  \
  ReferenceKernel Name(DType dtype) {            \
    return UnaryKernel<Floats, Name##Of>(dtype); \
  }
KILN_FLOAT_KERNEL(Ceil)
KILN_FLOAT_KERNEL(Floor)
KILN_FLOAT_KERNEL(Round)
KILN_FLOAT_KERNEL(Sqrt)
KILN_FLOAT_KERNEL(Reciprocal)
KILN_FLOAT_KERNEL(Exp)
KILN_FLOAT_KERNEL(Log)
KILN_FLOAT_KERNEL(Sin)
KILN_FLOAT_KERNEL(Cos)
KILN_FLOAT_KERNEL(Tan)
KILN_FLOAT_KERNEL(Asin)
KILN_FLOAT_KERNEL(Acos)
KILN_FLOAT_KERNEL(Atan)
KILN_FLOAT_KERNEL(Sinh)
KILN_FLOAT_KERNEL(Cosh)
KILN_FLOAT_KERNEL(Tanh)
KILN_FLOAT_KERNEL(Asinh)
KILN_FLOAT_KERNEL(Acosh)
KILN_FLOAT_KERNEL(Atanh)
KILN_FLOAT_KERNEL(Erf)
KILN_FLOAT_KERNEL(Sigmoid)
KILN_FLOAT_KERNEL(LeakyRelu)
KILN_FLOAT_KERNEL(ThresholdedRelu)
KILN_FLOAT_KERNEL(Elu)
KILN_FLOAT_KERNEL(Celu)
KILN_FLOAT_KERNEL(Selu)
KILN_FLOAT_KERNEL(Gelu)
KILN_FLOAT_KERNEL(HardSigmoid)
KILN_FLOAT_KERNEL(HardSwish)
KILN_FLOAT_KERNEL(Mish)
KILN_FLOAT_KERNEL(Softplus)
KILN_FLOAT_KERNEL(Softsign)
#undef KILN_FLOAT_KERNEL

ReferenceKernel Abs(DType dtype) {
  return UnaryKernel<Numbers, AbsOf>(dtype);
}
ReferenceKernel Neg(DType dtype) {
  return UnaryKernel<SignedNumbers, NegOf>(dtype);
}
ReferenceKernel Sign(DType dtype) {
  return UnaryKernel<Numbers, SignOf>(dtype);
}
ReferenceKernel Relu(DType dtype) {
  return UnaryKernel<SignedNumbers, ReluOf>(dtype);
}
ReferenceKernel Shrink(DType dtype) {
  return UnaryKernel<Numbers, ShrinkOf>(dtype);
}
ReferenceKernel BitwiseNot(DType dtype) {
  return UnaryKernel<Integers, BitwiseNotOf>(dtype);
}
ReferenceKernel Not(DType dtype) {
  return UnaryPredicate<Booleans, NotOf>(dtype);
}
ReferenceKernel IsNaN(DType dtype) {
  return UnaryPredicate<Floats, IsNaNOf>(dtype);
}
ReferenceKernel IsInf(DType dtype) {
  return UnaryPredicate<Floats, IsInfOf>(dtype);
}

}  // namespace kiln::kernels
