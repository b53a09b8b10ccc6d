// Shape, Size, ConstantOfShape, Range, EyeLike.
#include <algorithm>
#include <cstring>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

Status RunShape(KernelCall& call) {
  const Dims& dims = call.inputs[0].dims;
  const int64_t rank = dims.rank();
  const auto clamped = [rank](int64_t bound) { return std::clamp<int64_t>(bound < 0 ? bound + rank : bound, 0, rank); };
  const int64_t start = clamped(call.attributes->Int("start", 0));
  for (int64_t i = 0; i < call.outputs[0].elements(); ++i) {
    call.outputs[0].as<int64_t>()[i] = dims[static_cast<int>(start + i)];
  }
  return {};
}

Status RunSize(KernelCall& call) {
  *call.outputs[0].as<int64_t>() = call.inputs[0].elements();
  return {};
}

Status RunConstantOfShape(KernelCall& call) {
  const TensorRef& out = call.outputs[0];
  const size_t bytes = static_cast<size_t>(DTypeBytes(out.dtype));
  const ConstantId id = call.attributes->Constant("value");
  if (id < 0 || static_cast<size_t>(id) >= call.constants.size()) {
    std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
    return {};
  }
  const void* value = call.constants[static_cast<size_t>(id)].tensor.ref.data;
  char* to = out.as<char>();
  for (int64_t i = 0; i < out.elements(); ++i) std::memcpy(to + static_cast<size_t>(i) * bytes, value, bytes);
  return {};
}

template <class T>
Status RunRange(KernelCall& call) {
  using C = Compute<T>;
  const C start = Load(*call.inputs[0].as<T>());
  const C limit = Load(*call.inputs[1].as<T>());
  const C delta = Load(*call.inputs[2].as<T>());
  if (delta == C(0)) return Fail(ErrorCode::kInvalidArgument, "the delta of Range is 0; it must not be");
  int64_t count = 0;
  if constexpr (std::is_floating_point_v<C>) {
    const double length =
        std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
    count = std::max<int64_t>(0, Convert<int64_t>(length));
  } else {
    // In 128 bits, so that no pair of limits overflows.
    const __int128 span = static_cast<__int128>(limit) - start;
    const __int128 step = delta;
    const __int128 length = step > 0 ? (span + step - 1) / step : (-span - step - 1) / -step;
    count = length <= 0 ? 0 : length > INT64_MAX ? INT64_MAX : static_cast<int64_t>(length);
  }
  RETURN_IF_ERROR(AllocateOutput(call, 0, call.inputs[0].dtype, Dims{count}));
  T* out = call.outputs[0].as<T>();
  const int64_t fill = std::min(count, call.outputs[0].elements());
  for (int64_t i = 0; i < fill; ++i) {
    if constexpr (std::is_floating_point_v<C>) {
      out[i] = Store<T>(start + static_cast<C>(i) * delta);
    } else {
      out[i] = WrapAdd(start, WrapMul(static_cast<C>(i), delta));
    }
  }
  return {};
}

Status RunEyeLike(KernelCall& call) {
  const TensorRef& out = call.outputs[0];
  std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
  const int64_t k = call.attributes->Int("k", 0);
  const int64_t rows = out.dims[0];
  const int64_t columns = out.dims[1];
  DispatchDType(out.dtype, [&]<class T>() {
    for (int64_t row = 0; row < rows; ++row) {
      const std::optional<int64_t> column = CheckedAdd(row, k);
      if (column && *column >= 0 && *column < columns) out.as<T>()[row * columns + *column] = Convert<T>(1.0f);
    }
  });
  return {};
}

}  // namespace

// Its dims are the interpreter's to evaluate: no kernel.
ReferenceKernel ShapeVector(DType) {
  return {};
}
ReferenceKernel Shape(DType) {
  return {&RunShape, true};
}
ReferenceKernel Size(DType) {
  return {&RunSize, true};
}
ReferenceKernel ConstantOfShape(DType) {
  return {&RunConstantOfShape, true};
}
ReferenceKernel Range(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunRange<T>;
                          return nullptr;
                        }),
          true};
}
ReferenceKernel EyeLike(DType) {
  return {&RunEyeLike, true};
}

}  // namespace kiln::kernels
