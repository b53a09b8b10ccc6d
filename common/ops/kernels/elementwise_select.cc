// Cast, Clip, Where: element-wise with more than one dtype or with scalar operands.
#include "common/ops/kernels/elementwise.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

template <class To, class From>
void CastLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
  if (s[0] == sizeof(To) && s[1] == sizeof(From)) {
    To* out = reinterpret_cast<To*>(p[0]);
    const From* in = reinterpret_cast<const From*>(p[1]);
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<To>(in[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<To*>(p[0] + i * s[0]) = Convert<To>(*reinterpret_cast<const From*>(p[1] + i * s[1]));
  }
}

template <class From>
Status RunCast(KernelCall& call) {
  const TensorRef operands[] = {call.outputs[0], call.inputs[0]};
  const InnerLoop loop =
      DispatchDType(call.outputs[0].dtype, []<class To>() -> InnerLoop { return &CastLoop<To, From>; });
  ForEachRun(call.outputs[0].dims, operands, loop, nullptr);
  return {};
}

template <class T>
struct ClipOf {
  Compute<T> low = std::numeric_limits<Compute<T>>::lowest();
  Compute<T> high = std::numeric_limits<Compute<T>>::max();
  explicit ClipOf(const KernelCall& call) {
    if constexpr (kIsFloat<T>) {
      low = -std::numeric_limits<Compute<T>>::infinity();
      high = std::numeric_limits<Compute<T>>::infinity();
    }
    if (call.Has(1)) low = Load(*call.inputs[1].as<T>());
    if (call.Has(2)) high = Load(*call.inputs[2].as<T>());
  }
  Compute<T> operator()(Compute<T> x) const {
    const Compute<T> raised = x < low ? low : x;  // keeps a NaN
    return raised > high ? high : raised;
  }
};
template <class T>
Status RunClip(KernelCall& call) {
  return RunUnary<T, T, ClipOf<T>>(call);
}

template <class U>
void WhereLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) {
    const bool condition = *reinterpret_cast<const bool*>(p[1] + i * s[1]);
    const char* chosen = condition ? p[2] + i * s[2] : p[3] + i * s[3];
    *reinterpret_cast<U*>(p[0] + i * s[0]) = *reinterpret_cast<const U*>(chosen);
  }
}
struct WhereOf {
  template <class U>
  static Status Run(KernelCall& call) {
    const TensorRef operands[] = {call.outputs[0], call.inputs[0], call.inputs[1], call.inputs[2]};
    ForEachRun(call.outputs[0].dims, operands, &WhereLoop<U>, nullptr);
    return {};
  }
};

}  // namespace

ReferenceKernel Cast(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunCast<T>; }), true};
}
ReferenceKernel Clip(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunClip<T>;
                          return nullptr;
                        }),
          true};
}
ReferenceKernel Where(DType dtype) {
  return {BytesKernel<WhereOf>(dtype), true};
}

}  // namespace kiln::kernels
