// Reductions over any axes of any layout: accumulators as a tensor of the output's shape, stretched over the reduced
// dims.
#include <algorithm>
#include <bitset>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// Accumulator types: sums of floats in double, of integers modulo 2^64; extremes in the compute type.
template <class T>
using SumType = std::conditional_t<kIsFloat<T>, double, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <class A>
A Plus(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return WrapAdd(a, b);
  } else {
    return a + b;
  }
}
template <class A>
A Times(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return WrapMul(a, b);
  } else {
    return a * b;
  }
}
template <class A>
A Magnitude(A a) {
  if constexpr (std::is_floating_point_v<A>) return std::fabs(a);
  if constexpr (std::is_unsigned_v<A>) return a;
  return a < A(0) ? WrapSub(A(0), a) : a;
}

// A reduction: First() is the neutral element, Step adds one element, Join adds what two chains gathered, Last makes
// the result of `count` elements.
template <class T>
struct SumOf {
  using A = SumType<T>;
  static A First() { return A(0); }
  static A Step(A sum, A x) { return Plus(sum, x); }
  static A Join(A a, A b) { return Plus(a, b); }
  static A Last(A sum, int64_t) { return sum; }
};
template <class T>
struct MeanOf : SumOf<T> {
  using A = SumType<T>;
  static A Last(A sum, int64_t count) {
    if constexpr (std::is_integral_v<A>) return count == 0 ? A(0) : static_cast<A>(sum / static_cast<A>(count));
    return sum / static_cast<A>(count);
  }
};
template <class T>
struct ProdOf : SumOf<T> {
  using A = SumType<T>;
  static A First() { return A(1); }
  static A Step(A product, A x) { return Times(product, x); }
  static A Join(A a, A b) { return Times(a, b); }
};
template <class T>
struct L1Of : SumOf<T> {
  using A = SumType<T>;
  static A Step(A sum, A x) { return Plus(sum, Magnitude(x)); }
};
template <class T>
struct SumSquareOf : SumOf<T> {
  using A = SumType<T>;
  static A Step(A sum, A x) { return Plus(sum, Times(x, x)); }
};
template <class T>
struct L2Of : SumSquareOf<T> {
  using A = SumType<T>;
  static A Last(A sum, int64_t) { return Convert<A>(std::sqrt(static_cast<double>(sum))); }
};
template <class T>
struct LogSumOf : SumOf<T> {
  using A = SumType<T>;
  static A Last(A sum, int64_t) { return Convert<A>(std::log(static_cast<double>(sum))); }
};
template <class T>
struct MaxOf {
  using A = Compute<T>;
  static A First() {
    if constexpr (kIsFloat<T>) return -std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::lowest();
  }
  static A Step(A best, A x) { return NanMax(best, x); }
  static A Join(A a, A b) { return NanMax(a, b); }
  static A Last(A best, int64_t) { return best; }
};
template <class T>
struct MinOf {
  using A = Compute<T>;
  static A First() {
    if constexpr (kIsFloat<T>) return std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::max();
  }
  static A Step(A best, A x) { return NanMin(best, x); }
  static A Join(A a, A b) { return NanMin(a, b); }
  static A Last(A best, int64_t) { return best; }
};

template <class T, class R>
void ReduceLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
  using A = typename R::A;
  if (s[0] == 0) {
    A& target = *reinterpret_cast<A*>(p[0]);
    // Four chains, so that additions overlap.
    A a = target;
    A b = R::First();
    A c = b;
    A d = b;
    int64_t i = 0;
    const auto at = [&](int64_t j) { return static_cast<A>(Load(*reinterpret_cast<const T*>(p[1] + j * s[1]))); };
    for (; i + 4 <= n; i += 4) {
      a = R::Step(a, at(i));
      b = R::Step(b, at(i + 1));
      c = R::Step(c, at(i + 2));
      d = R::Step(d, at(i + 3));
    }
    for (; i < n; ++i) a = R::Step(a, at(i));
    target = R::Join(R::Join(a, b), R::Join(c, d));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    A& target = *reinterpret_cast<A*>(p[0] + i * s[0]);
    target = R::Step(target, static_cast<A>(Load(*reinterpret_cast<const T*>(p[1] + i * s[1]))));
  }
}

// Which dims of the input a reduction folds.
using DimSet = std::bitset<limits::kRankMax>;
Result<DimSet> ReducedDims(const KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  DimSet reduced;
  if (call.Has(1) && call.inputs[1].elements() > 0) {
    TensorRef axis_ref = call.inputs[1];
    const int64_t step = axis_ref.rank() == 0 ? 0 : axis_ref.strides[0] * DTypeBytes(axis_ref.dtype);
    for (int64_t i = 0; i < call.inputs[1].elements(); ++i) {
      ASSIGN_OR_RETURN(const int axis, NormalizeAxis(ReadInt(axis_ref), in.rank()));
      reduced.set(static_cast<size_t>(axis));
      axis_ref.data = axis_ref.as<char>() + step;
    }
  } else if (call.attributes->Int("noop_with_empty_axes", 0) == 0) {
    reduced.set();
  }
  return reduced;
}

// Accumulators with the rank of the input: reduced dims have size 1 and so stretch.
struct Accumulators {
  Dims dims;
  int64_t count = 1;   // accumulators
  int64_t folded = 1;  // elements per accumulator
};
Result<Accumulators> PlanAccumulators(const KernelCall& call) {
  ASSIGN_OR_RETURN(const DimSet reduced, ReducedDims(call));
  Accumulators plan;
  for (int d = 0; d < call.inputs[0].rank(); ++d) {
    const int64_t dim = call.inputs[0].dims[d];
    const bool folds = reduced[static_cast<size_t>(d)];
    plan.dims.push_back(folds ? 1 : dim);
    (folds ? plan.folded : plan.count) *= dim;
  }
  return plan;
}

// A tensor whose element size is that of the accumulator; ForEachRun reads sizes only.
template <class A>
TensorRef AccumulatorRef(const Dims& dims, A* data) {
  const DType dtype = sizeof(A) == 8   ? DType::kI64
                      : sizeof(A) == 4 ? DType::kI32
                      : sizeof(A) == 2 ? DType::kI16
                                       : DType::kI8;
  return MakeRef(dtype, dims, data);
}

template <class T, template <class> class Reduction>
Status RunReduce(KernelCall& call) {
  using R = Reduction<T>;
  using A = typename R::A;
  ASSIGN_OR_RETURN(const Accumulators plan, PlanAccumulators(call));
  ASSIGN_OR_RETURN(A * accumulators, Scratch<A>(call, plan.count));
  std::fill_n(accumulators, plan.count, R::First());
  const TensorRef operands[] = {AccumulatorRef(plan.dims, accumulators), call.inputs[0]};
  ForEachRun(call.inputs[0].dims, operands, &ReduceLoop<T, R>, nullptr);
  T* out = call.outputs[0].as<T>();
  for (int64_t i = 0; i < plan.count; ++i) {
    out[i] = Convert<T>(R::Last(accumulators[i], plan.folded));
  }
  return {};
}

template <class T>
void ExpSumLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) {
    const double largest = *reinterpret_cast<const double*>(p[1] + i * s[1]);
    const double x = static_cast<double>(Load(*reinterpret_cast<const T*>(p[2] + i * s[2])));
    *reinterpret_cast<double*>(p[0] + i * s[0]) += std::isinf(largest) ? std::exp(x) : std::exp(x - largest);
  }
}
template <class T>
void LargestLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) {
    double& best = *reinterpret_cast<double*>(p[0] + i * s[0]);
    best = NanMax(best, static_cast<double>(Load(*reinterpret_cast<const T*>(p[1] + i * s[1]))));
  }
}

// log(sum(e^x)) as m + log(sum(e^(x-m))) with the largest element m.
template <class T>
Status RunLogSumExp(KernelCall& call) {
  ASSIGN_OR_RETURN(const Accumulators plan, PlanAccumulators(call));
  ASSIGN_OR_RETURN(double* largest, Scratch<double>(call, plan.count));
  ASSIGN_OR_RETURN(double* sums, Scratch<double>(call, plan.count));
  std::fill_n(largest, plan.count, -std::numeric_limits<double>::infinity());
  std::fill_n(sums, plan.count, 0.0);
  const TensorRef best = AccumulatorRef(plan.dims, largest);
  const TensorRef first[] = {best, call.inputs[0]};
  ForEachRun(call.inputs[0].dims, first, &LargestLoop<T>, nullptr);
  const TensorRef second[] = {AccumulatorRef(plan.dims, sums), best, call.inputs[0]};
  ForEachRun(call.inputs[0].dims, second, &ExpSumLoop<T>, nullptr);
  for (int64_t i = 0; i < plan.count; ++i) {
    const double shift = std::isinf(largest[i]) ? 0.0 : largest[i];
    call.outputs[0].as<T>()[i] = Convert<T>(shift + std::log(sums[i]));
  }
  return {};
}

// Which elements share a chain depends on strides, and with it what is rounded.
bool TakesStrides(DType dtype) {
  return !IsFloat(dtype);
}

template <template <class> class Reduction, bool kTakesBool = false>
ReferenceKernel ReduceKernel(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T> || (kTakesBool && kIsBool<T>)) return &RunReduce<T, Reduction>;
                          return nullptr;
                        }),
          TakesStrides(dtype)};
}

}  // namespace

ReferenceKernel ReduceSum(DType dtype) {
  return ReduceKernel<SumOf>(dtype);
}
ReferenceKernel ReduceMean(DType dtype) {
  return ReduceKernel<MeanOf>(dtype);
}
ReferenceKernel ReduceMax(DType dtype) {
  return ReduceKernel<MaxOf, true>(dtype);
}
ReferenceKernel ReduceMin(DType dtype) {
  return ReduceKernel<MinOf, true>(dtype);
}
ReferenceKernel ReduceProd(DType dtype) {
  return ReduceKernel<ProdOf>(dtype);
}
ReferenceKernel ReduceL1(DType dtype) {
  return ReduceKernel<L1Of>(dtype);
}
ReferenceKernel ReduceL2(DType dtype) {
  return ReduceKernel<L2Of>(dtype);
}
ReferenceKernel ReduceSumSquare(DType dtype) {
  return ReduceKernel<SumSquareOf>(dtype);
}
ReferenceKernel ReduceLogSum(DType dtype) {
  return ReduceKernel<LogSumOf>(dtype);
}
ReferenceKernel ReduceLogSumExp(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunLogSumExp<T>;
                          return nullptr;
                        }),
          TakesStrides(dtype)};
}

}  // namespace kiln::kernels
