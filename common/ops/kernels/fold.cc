// Ops that put pieces back where they came from: Col2Im, MaxUnpool, TensorScatter.
#include <algorithm>
#include <cstring>

#include "common/base/checked_math.h"
#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/kernels/table.h"
#include "common/ops/window.h"

namespace kiln::kernels {
namespace {

// Counts through the positions of a box, last dim fastest.
void Advance(Dims& position, const Dims& sizes) {
  for (int d = sizes.rank() - 1; d >= 0; --d) {
    if (++position[d] < sizes[d]) return;
    position[d] = 0;
  }
}

template <class T>
void AddTo(T& target, const T& value) {
  if constexpr (kIsBool<T>) {
    target = target || value;
  } else if constexpr (kIsInteger<T>) {
    target = WrapAdd(target, value);
  } else {
    target = Store<T>(Load(target) + Load(value));
  }
}

template <class T>
Status RunCol2Im(KernelCall& call) {
  const TensorRef& columns = call.inputs[0];
  const TensorRef& image = call.outputs[0];
  const int rank = image.rank() - 2;
  ASSIGN_OR_RETURN(Window window, ReadWindow(*call.attributes, rank));
  const Dims block(std::span<const int64_t>(IntsOf(call.inputs[2])));
  window.kernel = block;
  Dims sizes = Dims::Filled(rank, 0);
  Dims steps = Dims::Filled(rank, 0);
  for (int d = 0; d < rank; ++d) {
    sizes[d] = image.dims[d + 2];
    const int64_t room = sizes[d] + window.pads_begin[d] + window.pads_end[d] - window.Extent(d);
    steps[d] = std::max<int64_t>(0, FloorDiv(room, window.strides[d]) + 1);
  }
  const int64_t plane = NumElements(sizes);
  const int64_t taps = NumElements(block);
  const int64_t positions = NumElements(steps);
  std::fill_n(image.as<T>(), image.elements(), T{});
  const T* from = columns.as<T>();
  for (int64_t nc = 0; nc < image.dims[0] * image.dims[1]; ++nc) {
    T* to = image.as<T>() + nc * plane;
    Dims tap = Dims::Filled(rank, 0);
    for (int64_t k = 0; k < taps; ++k, Advance(tap, block)) {
      Dims step = Dims::Filled(rank, 0);
      for (int64_t p = 0; p < positions; ++p, ++from, Advance(step, steps)) {
        int64_t offset = 0;
        bool inside = true;
        for (int d = 0; d < rank && inside; ++d) {
          const int64_t at = step[d] * window.strides[d] + tap[d] * window.dilations[d] - window.pads_begin[d];
          inside = at >= 0 && at < sizes[d];
          offset = offset * sizes[d] + at;
        }
        if (inside) AddTo(to[offset], *from);
      }
    }
  }
  return {};
}

// Indices count through the tensor that pooling of these attributes had read; an output shape may be larger than that
// in any dim, and what lies behind stays zero.
struct MaxUnpoolOf {
  template <class U>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const TensorRef& out = call.outputs[0];
    ASSIGN_OR_RETURN(const Window window, ReadWindow(*call.attributes, in.rank() - 2));
    Dims pooled = in.dims;
    for (int d = 0; d < window.rank; ++d) {
      const auto reach = CheckedMul(in.dims[d + 2] - 1, window.strides[d]);
      if (!reach || *reach > limits::kTensorBytesMax)
        return Fail(ErrorCode::kLimitExceeded, "the strides of MaxUnpool lead beyond any tensor");
      pooled[d + 2] = *reach + window.kernel[d] - window.pads_begin[d] - window.pads_end[d];
    }
    ASSIGN_OR_RETURN(const int64_t pooled_elements, CheckedElements(pooled, in.dtype));
    const Dims strides = ContiguousStrides(out.dims);
    std::fill_n(out.as<U>(), out.elements(), U{});
    const int64_t count = in.elements();
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = call.inputs[1].as<int64_t>()[i];
      bool inside = rest >= 0 && rest < pooled_elements;
      int64_t offset = 0;
      for (int d = pooled.rank() - 1; d >= 0 && inside; --d) {
        const int64_t at = rest % pooled[d];
        rest /= pooled[d];
        inside = at < out.dims[d];
        offset += at * strides[d];
      }
      if (!inside) {
        return Fail(ErrorCode::kOutOfRange, "index " + std::to_string(call.inputs[1].as<int64_t>()[i]) +
                                                " of MaxUnpool is outside the unpooled shape " + pooled.ToString() +
                                                " or the output " + out.dims.ToString());
      }
      out.as<U>()[offset] = in.as<U>()[i];
    }
    return {};
  }
};

Status RunTensorScatter(KernelCall& call) {
  const TensorRef& cache = call.inputs[0];
  const TensorRef& update = call.inputs[1];
  const TensorRef& out = call.outputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", -2), cache.rank()));
  const bool circular = call.attributes->Text("mode", "linear") == "circular";
  const AxisSplit split = SplitAt(cache.dims, axis);
  const int64_t steps = update.dims[axis];
  const int64_t per_batch = cache.dims[0] == 0 ? 0 : split.outer / cache.dims[0];
  const size_t run = static_cast<size_t>(split.inner * DTypeBytes(cache.dtype));
  std::memcpy(out.data, cache.data, static_cast<size_t>(cache.bytes()));
  if (steps > split.size) {
    return Fail(ErrorCode::kShapeMismatch, "the update of TensorScatter has " + std::to_string(steps) +
                                               " entries along axis " + std::to_string(axis) + ", the cache " +
                                               std::to_string(split.size));
  }
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    const int64_t first = call.Has(2) ? call.inputs[2].as<int64_t>()[outer / per_batch] : 0;
    if (steps > 0 && (first < 0 || first >= split.size || (!circular && first > split.size - steps))) {
      return Fail(ErrorCode::kOutOfRange, "write index " + std::to_string(first) + " of batch entry " +
                                              std::to_string(outer / per_batch) + " with " + std::to_string(steps) +
                                              " entries passes the cache's " + std::to_string(split.size));
    }
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t at = (first + s) % split.size;
      std::memcpy(out.as<char>() + static_cast<size_t>(outer * split.size + at) * run,
                  update.as<char>() + static_cast<size_t>(outer * steps + s) * run, run);
    }
  }
  return {};
}

}  // namespace

ReferenceKernel Col2Im(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunCol2Im<T>; }), false};
}
ReferenceKernel MaxUnpool(DType dtype) {
  return {BytesKernel<MaxUnpoolOf>(dtype), false};
}
ReferenceKernel TensorScatter(DType) {
  return {&RunTensorScatter, false};
}

}  // namespace kiln::kernels
