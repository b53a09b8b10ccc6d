// ArgMax, ArgMin, TopK, NonZero, Compress.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

template <class T, bool kMax>
Status RunArg(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 0), in.rank()));
  const bool last = call.attributes->Int("select_last_index", 0) != 0;
  const AxisSplit split = SplitAt(in.dims, axis);
  int64_t* out = call.outputs[0].as<int64_t>();
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t inner = 0; inner < split.inner; ++inner) {
      const T* x = in.as<T>() + outer * split.size * split.inner + inner;
      int64_t best = 0;
      for (int64_t i = 1; i < split.size; ++i) {
        const auto a = Load(x[i * split.inner]);
        const auto b = Load(x[best * split.inner]);
        const bool better = kMax ? a > b : a < b;
        if (better || (last && a == b)) best = i;
      }
      *out++ = best;
    }
  }
  return {};
}

template <bool kMax>
ReferenceKernel ArgKernel(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunArg<T, kMax>;
                          return nullptr;
                        }),
          false};
}

// A NaN is the largest value, as in a descending sort; among equals the lower index comes first.
template <class C>
bool Precedes(C a, C b, bool largest) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a) || std::isnan(b))
      return largest ? std::isnan(a) && !std::isnan(b) : !std::isnan(a) && std::isnan(b);
  }
  return largest ? a > b : a < b;
}

template <class T>
Status RunTopK(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", -1), in.rank()));
  const int64_t k = ReadInt(call.inputs[1]);
  const AxisSplit split = SplitAt(in.dims, axis);
  if (k < 0 || k > split.size) {
    return Fail(ErrorCode::kShapeMismatch, "k of TopK is " + std::to_string(k) + ", but dim " + std::to_string(axis) +
                                               " has " + std::to_string(split.size) + " elements");
  }
  Dims dims = in.dims;
  dims[axis] = k;
  RETURN_IF_ERROR(AllocateOutput(call, 0, in.dtype, dims));
  RETURN_IF_ERROR(AllocateOutput(call, 1, DType::kI64, dims));
  if (call.outputs[0].elements() == 0) return {};
  const bool largest = call.attributes->Int("largest", 1) != 0;
  ASSIGN_OR_RETURN(int64_t* order, Scratch<int64_t>(call, split.size));
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t inner = 0; inner < split.inner; ++inner) {
      const T* x = in.as<T>() + outer * split.size * split.inner + inner;
      std::iota(order, order + split.size, int64_t{0});
      std::partial_sort(order, order + k, order + split.size, [&](int64_t a, int64_t b) {
        const auto left = Load(x[a * split.inner]);
        const auto right = Load(x[b * split.inner]);
        if (Precedes(left, right, largest)) return true;
        if (Precedes(right, left, largest)) return false;
        return a < b;
      });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = (outer * k + i) * split.inner + inner;
        call.outputs[0].as<T>()[at] = x[order[i] * split.inner];
        if (call.outputs.size() > 1) call.outputs[1].as<int64_t>()[at] = order[i];
      }
    }
  }
  return {};
}

template <class T>
Status RunNonZero(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const int64_t count = in.elements();
  const auto is_set = [&](int64_t i) { return Convert<bool>(in.as<T>()[i]); };
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += is_set(i) ? 1 : 0;
  RETURN_IF_ERROR(AllocateOutput(call, 0, DType::kI64, Dims{in.rank(), found}));
  int64_t* out = call.outputs[0].as<int64_t>();
  int64_t column = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!is_set(i)) continue;
    int64_t rest = i;
    for (int d = in.rank() - 1; d >= 0; --d) {
      out[d * found + column] = rest % in.dims[d];
      rest /= in.dims[d];
    }
    ++column;
  }
  return {};
}

Status RunCompress(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const bool flat = !call.attributes->Has("axis");
  int axis = 0;
  if (!flat) {
    ASSIGN_OR_RETURN(axis, NormalizeAxis(call.attributes->Int("axis", 0), in.rank()));
  }
  const AxisSplit split = flat ? AxisSplit{1, in.elements(), 1} : SplitAt(in.dims, axis);
  const bool* keeps = call.inputs[1].as<bool>();
  const int64_t conditions = call.inputs[1].elements();
  if (conditions > split.size) {
    return Fail(ErrorCode::kShapeMismatch, "the condition of Compress has " + std::to_string(conditions) +
                                               " entries for " + std::to_string(split.size) + " elements");
  }
  const int64_t kept = std::count(keeps, keeps + conditions, true);
  Dims dims = flat ? Dims{kept} : in.dims;
  if (!flat) dims[axis] = kept;
  RETURN_IF_ERROR(AllocateOutput(call, 0, in.dtype, dims));
  if (call.outputs[0].elements() == 0) return {};
  const size_t run = static_cast<size_t>(split.inner * DTypeBytes(in.dtype));
  char* to = call.outputs[0].as<char>();
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t i = 0; i < conditions; ++i) {
      if (!keeps[i]) continue;
      std::memcpy(to, in.as<char>() + static_cast<size_t>(outer * split.size + i) * run, run);
      to += run;
    }
  }
  return {};
}

}  // namespace

ReferenceKernel ArgMax(DType dtype) {
  return ArgKernel<true>(dtype);
}
ReferenceKernel ArgMin(DType dtype) {
  return ArgKernel<false>(dtype);
}
ReferenceKernel TopK(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunTopK<T>;
                          return nullptr;
                        }),
          false};
}
ReferenceKernel NonZero(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunNonZero<T>; }), false};
}
ReferenceKernel Compress(DType) {
  return {&RunCompress, false};
}

}  // namespace kiln::kernels
