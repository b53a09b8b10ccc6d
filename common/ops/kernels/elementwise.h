// The frame of element-wise kernels: a functor over compute types, applied in runs. A functor is made from the call (it
// reads its attributes there) and has a const operator(). Inputs may have any strides.
#pragma once

#include "common/ops/kernels/kernel.h"

namespace kiln::kernels {

// Functors without attributes derive from this.
struct Stateless {
  explicit Stateless(const KernelCall&) {}
};

template <class In, class Out, class F>
void UnaryLoop(char* const* p, const int64_t* s, int64_t n, const void* functor) {
  const F& f = *static_cast<const F*>(functor);
  if (s[0] == sizeof(Out) && s[1] == sizeof(In)) {
    Out* out = reinterpret_cast<Out*>(p[0]);
    const In* in = reinterpret_cast<const In*>(p[1]);
    for (int64_t i = 0; i < n; ++i) out[i] = Store<Out>(f(Load(in[i])));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<Out*>(p[0] + i * s[0]) = Store<Out>(f(Load(*reinterpret_cast<const In*>(p[1] + i * s[1]))));
  }
}

template <class A, class B, class Out, class F>
void BinaryLoop(char* const* p, const int64_t* s, int64_t n, const void* functor) {
  const F& f = *static_cast<const F*>(functor);
  Out* out = reinterpret_cast<Out*>(p[0]);
  const A* a = reinterpret_cast<const A*>(p[1]);
  const B* b = reinterpret_cast<const B*>(p[2]);
  const bool dense_out = s[0] == sizeof(Out);
  if (dense_out && s[1] == sizeof(A) && s[2] == sizeof(B)) {
    for (int64_t i = 0; i < n; ++i) out[i] = Store<Out>(f(Load(a[i]), Load(b[i])));
  } else if (dense_out && s[1] == sizeof(A) && s[2] == 0) {
    const auto right = Load(*b);
    for (int64_t i = 0; i < n; ++i) out[i] = Store<Out>(f(Load(a[i]), right));
  } else if (dense_out && s[1] == 0 && s[2] == sizeof(B)) {
    const auto left = Load(*a);
    for (int64_t i = 0; i < n; ++i) out[i] = Store<Out>(f(left, Load(b[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) {
      *reinterpret_cast<Out*>(p[0] + i * s[0]) = Store<Out>(
          f(Load(*reinterpret_cast<const A*>(p[1] + i * s[1])), Load(*reinterpret_cast<const B*>(p[2] + i * s[2]))));
    }
  }
}

template <class In, class Out, class F>
Status RunUnary(KernelCall& call) {
  const F functor(call);
  const TensorRef operands[] = {call.outputs[0], call.inputs[0]};
  ForEachRun(call.outputs[0].dims, operands, &UnaryLoop<In, Out, F>, &functor);
  return {};
}

template <class A, class B, class Out, class F>
Status RunBinary(KernelCall& call) {
  const F functor(call);
  const TensorRef operands[] = {call.outputs[0], call.inputs[0], call.inputs[1]};
  ForEachRun(call.outputs[0].dims, operands, &BinaryLoop<A, B, Out, F>, &functor);
  return {};
}

// Kernels over a class of dtypes; nullptr outside it. `Class<T>::value` says which.
#define KILN_TYPE_CLASS(Name, condition)     \
  template <class T>                         \
  struct Name {                              \
    static constexpr bool value = condition; \
  };
KILN_TYPE_CLASS(Floats, kIsFloat<T>)
KILN_TYPE_CLASS(Integers, kIsInteger<T>)
KILN_TYPE_CLASS(Unsigned, kIsInteger<T>&& std::is_unsigned_v<T>)
KILN_TYPE_CLASS(Numbers, kIsNumeric<T>)
KILN_TYPE_CLASS(Booleans, kIsBool<T>)
KILN_TYPE_CLASS(AnyType, sizeof(T) > 0)
#undef KILN_TYPE_CLASS

template <template <class> class Class, class F>
ReferenceKernel UnaryKernel(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (Class<T>::value) return &RunUnary<T, T, F>;
                          return nullptr;
                        }),
          true};
}
template <template <class> class Class, class F>
ReferenceKernel UnaryPredicate(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (Class<T>::value) return &RunUnary<T, bool, F>;
                          return nullptr;
                        }),
          true};
}
template <template <class> class Class, class F>
ReferenceKernel BinaryKernel(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (Class<T>::value) return &RunBinary<T, T, T, F>;
                          return nullptr;
                        }),
          true};
}
template <template <class> class Class, class F>
ReferenceKernel BinaryPredicate(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (Class<T>::value) return &RunBinary<T, T, bool, F>;
                          return nullptr;
                        }),
          true};
}

}  // namespace kiln::kernels
