// Quantised ops. Integers are widened to 32 bits and multiplied exactly; results are rounded half to even and
// saturated.
#include <algorithm>

#include "common/ops/kernels/conv.h"
#include "common/ops/kernels/gemm.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

template <class Q>
Q Saturate(double value) {
  return Convert<Q>(std::nearbyint(value));
}

// Which scale belongs to an element: one for all, one per entry of `axis`, or one per block of it.
struct ScaleIndex {
  int64_t count = 1;   // scales
  int64_t inner = 1;   // elements per step of the axis
  int64_t size = 1;    // the axis of the input
  int64_t blocks = 1;  // the axis of the scale
  int64_t block = 1;   // elements of the axis per scale
  bool blocked = false;

  int64_t operator()(int64_t at) const {
    if (count == 1) return 0;
    const int64_t position = at / inner % size;
    if (!blocked) return position;
    return (at / inner / size * blocks + position / block) * inner + at % inner;
  }
};

Result<ScaleIndex> MakeScaleIndex(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& scale = call.inputs[1];
  ScaleIndex index;
  index.count = scale.elements();
  if (index.count == 1 || x.rank() == 0) {
    index.count = 1;
    return index;
  }
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 1), x.rank()));
  const AxisSplit split = SplitAt(x.dims, axis);
  index.inner = split.inner;
  index.size = split.size;
  index.block = call.attributes->Int("block_size", 0);
  index.blocked = scale.rank() == x.rank() && scale.rank() > 1;
  if (!index.blocked) {
    if (index.count == split.size) return index;
    return Fail(ErrorCode::kShapeMismatch, "the scale has " + std::to_string(index.count) + " entries, axis " +
                                               std::to_string(axis) + " has " + std::to_string(split.size));
  }
  index.blocks = scale.dims[axis];
  if (index.block == 0) index.block = index.blocks == 0 ? 1 : (split.size + index.blocks - 1) / index.blocks;
  const bool covers = index.block > 0 && index.blocks >= (split.size + index.block - 1) / index.block;
  if (!covers || index.count != split.outer * index.blocks * split.inner) {
    return Fail(ErrorCode::kShapeMismatch, "a scale of shape " + scale.dims.ToString() + " in blocks of " +
                                               std::to_string(index.block) + " does not cover " + x.dims.ToString());
  }
  return index;
}

// Parameters as doubles; the zero point defaults to 0.
struct QuantParameters {
  List<double> scale, zero;
};
Result<QuantParameters> ReadParameters(const KernelCall& call, size_t scale, size_t zero) {
  QuantParameters result;
  result.scale = FloatsOf(call.inputs[scale]);
  result.zero = call.Has(zero) ? FloatsOf(call.inputs[zero]) : List<double>(result.scale.size(), 0.0);
  if (result.scale.empty() || result.zero.size() != result.scale.size()) {
    return Fail(ErrorCode::kShapeMismatch, "inputs " + std::to_string(scale) + " and " + std::to_string(zero) +
                                               ", scale and zero point, must have the same shape and not be empty");
  }
  return result;
}

template <class T>
Status RunQuantize(KernelCall& call) {
  ASSIGN_OR_RETURN(const ScaleIndex index, MakeScaleIndex(call));
  ASSIGN_OR_RETURN(const QuantParameters parameters, ReadParameters(call, 1, 2));
  using C = std::conditional_t<std::is_integral_v<T>, float, Compute<T>>;
  const T* x = call.inputs[0].as<T>();
  const int64_t count = call.inputs[0].elements();
  return DispatchDType(call.outputs[0].dtype, [&]<class Q>() -> Status {
    if constexpr (kIsInteger<Q>) {
      for (int64_t i = 0; i < count; ++i) {
        const size_t k = static_cast<size_t>(index(i));
        // The quotient is rounded in the compute type, as the format's own is.
        const C quotient = static_cast<C>(Load(x[i])) / static_cast<C>(parameters.scale[k]);
        const double rounded = std::nearbyint(static_cast<double>(quotient));
        call.outputs[0].as<Q>()[i] =
            std::isnan(rounded) ? Convert<Q>(parameters.zero[k]) : Saturate<Q>(rounded + parameters.zero[k]);
      }
      return {};
    } else {
      return UnsupportedType(call.outputs[0].dtype);
    }
  });
}

template <class Q>
Status RunDequantize(KernelCall& call) {
  ASSIGN_OR_RETURN(const ScaleIndex index, MakeScaleIndex(call));
  ASSIGN_OR_RETURN(const QuantParameters parameters, ReadParameters(call, 1, 2));
  const Q* x = call.inputs[0].as<Q>();
  const int64_t count = call.inputs[0].elements();
  return DispatchDType(call.outputs[0].dtype, [&]<class T>() -> Status {
    if constexpr (kIsFloat<T>) {
      for (int64_t i = 0; i < count; ++i) {
        const size_t k = static_cast<size_t>(index(i));
        const double value = (static_cast<double>(x[i]) - parameters.zero[k]) * parameters.scale[k];
        call.outputs[0].as<T>()[i] = Convert<T>(value);
      }
      return {};
    } else {
      return UnsupportedType(call.outputs[0].dtype);
    }
  });
}

Status RunDynamicQuantize(KernelCall& call) {
  const float* x = call.inputs[0].as<float>();
  const int64_t count = call.inputs[0].elements();
  float low = 0;
  float high = 0;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  float scale = (high - low) / 255.0f;
  if (scale == 0) scale = 1;
  const uint8_t zero = Saturate<uint8_t>(-low / scale);
  if (Wants(call, 1)) *call.outputs[1].as<float>() = scale;
  if (Wants(call, 2)) *call.outputs[2].as<uint8_t>() = zero;
  for (int64_t i = 0; i < count && Wants(call, 0); ++i) {
    call.outputs[0].as<uint8_t>()[i] = Saturate<uint8_t>(std::nearbyint(static_cast<double>(x[i] / scale)) + zero);
  }
  return {};
}

// --- exact integer products ---
// An 8-bit tensor as 32-bit integers less its zero point: one, or one per `inner` elements of `entries`.
Result<int32_t*> Centered(KernelCall& call, size_t input, const List<int64_t>& zero, int64_t entries, int64_t inner) {
  const TensorRef& ref = call.inputs[input];
  const int64_t count = ref.elements();
  ASSIGN_OR_RETURN(int32_t* out, Scratch<int32_t>(call, count));
  const bool one = zero.size() <= 1;
  if (!one && static_cast<int64_t>(zero.size()) != entries) {
    return Fail(ErrorCode::kShapeMismatch, "the zero point of input " + std::to_string(input) + " has " +
                                               std::to_string(zero.size()) + " entries, not 1 or " +
                                               std::to_string(entries));
  }
  const auto center = [&]<class Q>() {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t z = zero.empty() ? 0 : one ? zero[0] : zero[static_cast<size_t>(i / inner % entries)];
      out[i] = static_cast<int32_t>(ref.as<Q>()[i]) - static_cast<int32_t>(z);
    }
  };
  if (ref.dtype == DType::kI8) {
    center.template operator()<int8_t>();
  } else if (ref.dtype == DType::kU8) {
    center.template operator()<uint8_t>();
  } else {
    return Fail(ErrorCode::kUnsupported, "input " + std::to_string(input) + " is " + std::string(DTypeName(ref.dtype)) +
                                             "; quantised products take i8 and u8");
  }
  return out;
}

List<int64_t> ZeroPoint(const KernelCall& call, size_t input) {
  return call.Has(input) ? IntsOf(call.inputs[input]) : List<int64_t>();
}

// Where the operands of a product lie among the inputs.
struct ProductInputs {
  size_t a, a_zero, b, b_zero;
};

// i32 product of two matrices or stacks of them into `out`.
Status IntegerMatMul(KernelCall& call, const ProductInputs& at, const Dims& out_dims, int32_t* out) {
  const TensorRef& left = call.inputs[at.a];
  const TensorRef& right = call.inputs[at.b];
  const int64_t k = left.dims.back();
  const int64_t columns = right.rank() == 1 ? 1 : right.dims.back();
  const int64_t rows = left.rank() == 1 ? 1 : left.dims[left.rank() - 2];
  ASSIGN_OR_RETURN(const int32_t* a, Centered(call, at.a, ZeroPoint(call, at.a_zero), rows, k));
  ASSIGN_OR_RETURN(const int32_t* b, Centered(call, at.b, ZeroPoint(call, at.b_zero), columns, 1));
  const int inner_rank = (left.rank() > 1 ? 1 : 0) + (right.rank() > 1 ? 1 : 0);
  const Dims batch(out_dims.span().first(static_cast<size_t>(out_dims.rank() - inner_rank)));
  const auto batch_ref = [&](const TensorRef& ref, int64_t matrix) {
    const Dims head(ref.dims.span().first(static_cast<size_t>(std::max(0, ref.rank() - 2))));
    TensorRef view = MakeRef(DType::kI32, head, nullptr);
    for (int64_t& stride : view.strides) stride *= matrix;
    return BroadcastRef(view, batch);
  };
  const TensorRef left_batch = batch_ref(left, rows * k);
  const TensorRef right_batch = batch_ref(right, k * columns);
  const int64_t count = NumElements(batch);
  for (int64_t i = 0; i < count; ++i) {
    int64_t left_offset = 0;
    int64_t right_offset = 0;
    int64_t rest = i;
    for (int d = batch.rank() - 1; d >= 0; --d) {
      left_offset += rest % batch[d] * left_batch.strides[d];
      right_offset += rest % batch[d] * right_batch.strides[d];
      rest /= batch[d];
    }
    RETURN_IF_ERROR(Gemm(call, Matrix<const int32_t>{a + left_offset, rows, k, k, 1},
                         Matrix<const int32_t>{b + right_offset, k, columns, columns, 1},
                         Matrix<int32_t>{out + i * rows * columns, rows, columns, columns, 1}, false));
  }
  return {};
}

// i32 convolution into `out`.
Status IntegerConv(KernelCall& call, const ProductInputs& at, const Dims& out_dims, int32_t* out) {
  const TensorRef& x = call.inputs[at.a];
  const TensorRef& w = call.inputs[at.b];
  ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(*call.attributes, x.dims, out_dims, w.dims));
  ASSIGN_OR_RETURN(const int32_t* input, Centered(call, at.a, ZeroPoint(call, at.a_zero), 1, 1));
  const int64_t depth = g.Depth();
  ASSIGN_OR_RETURN(const int32_t* weight,
                   Centered(call, at.b, ZeroPoint(call, at.b_zero), g.out_channels * g.groups, depth));
  ASSIGN_OR_RETURN(int32_t* columns, Scratch<int32_t>(call, g.ColumnElements()));
  for (int64_t image = 0; image < g.batch * g.groups; ++image) {
    Im2Col(g, input + image * g.in_channels * g.InSize(), int32_t{0}, columns);
    RETURN_IF_ERROR(
        Gemm(call,
             Matrix<const int32_t>{weight + image % g.groups * g.out_channels * depth, g.out_channels, depth, depth, 1},
             Matrix<const int32_t>{columns, depth, g.OutSize(), g.OutSize(), 1},
             Matrix<int32_t>{out + image * g.out_channels * g.OutSize(), g.out_channels, g.OutSize(), g.OutSize(), 1},
             false));
  }
  return {};
}

Status RunMatMulInteger(KernelCall& call) {
  return IntegerMatMul(call, {0, 2, 1, 3}, call.outputs[0].dims, call.outputs[0].as<int32_t>());
}
Status RunConvInteger(KernelCall& call) {
  return IntegerConv(call, {0, 2, 1, 3}, call.outputs[0].dims, call.outputs[0].as<int32_t>());
}

// out = saturate(round(sum * a_scale * b_scale / y_scale) + y_zero); b's scale is one, or one per channel.
Status Requantize(KernelCall& call, const int32_t* sums, const int32_t* bias, int64_t channels, int64_t inner) {
  const TensorRef& y = call.outputs[0];
  const double a_scale = ReadFloat(call.inputs[1]);
  const List<double> b_scale = FloatsOf(call.inputs[4]);
  const double y_scale = ReadFloat(call.inputs[6]);
  const double y_zero = ReadFloat(call.inputs[7]);
  if (b_scale.size() != 1 && static_cast<int64_t>(b_scale.size()) != channels) {
    return Fail(ErrorCode::kShapeMismatch, "the scale of input 3 has " + std::to_string(b_scale.size()) +
                                               " entries, not 1 or " + std::to_string(channels));
  }
  const int64_t count = y.elements();
  const auto write = [&]<class Q>() {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t channel = i / inner % channels;
      const double scale = a_scale * b_scale[b_scale.size() == 1 ? 0 : static_cast<size_t>(channel)] / y_scale;
      const double sum = static_cast<double>(sums[i]) + (bias == nullptr ? 0.0 : static_cast<double>(bias[channel]));
      y.as<Q>()[i] = Saturate<Q>(std::nearbyint(sum * scale) + y_zero);
    }
    return Status();
  };
  if (y.dtype == DType::kI8) return write.template operator()<int8_t>();
  if (y.dtype == DType::kU8) return write.template operator()<uint8_t>();
  return UnsupportedType(y.dtype);
}

Status RunQLinearMatMul(KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  ASSIGN_OR_RETURN(int32_t* sums, Scratch<int32_t>(call, y.elements()));
  RETURN_IF_ERROR(IntegerMatMul(call, {0, 2, 3, 5}, y.dims, sums));
  const int64_t columns = y.rank() == 0 || call.inputs[3].rank() == 1 ? 1 : y.dims.back();
  return Requantize(call, sums, nullptr, std::max<int64_t>(columns, 1), 1);
}

Status RunQLinearConv(KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  ASSIGN_OR_RETURN(int32_t* sums, Scratch<int32_t>(call, y.elements()));
  RETURN_IF_ERROR(IntegerConv(call, {0, 2, 3, 5}, y.dims, sums));
  const AxisSplit split = SplitAt(y.dims, 1);
  const int32_t* bias = call.Has(8) ? call.inputs[8].as<int32_t>() : nullptr;
  return Requantize(call, sums, bias, std::max<int64_t>(split.size, 1), std::max<int64_t>(split.inner, 1));
}

bool IsByte(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8;
}

}  // namespace

ReferenceKernel QuantizeLinear(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsFloat<T> || std::is_same_v<T, int32_t>) return &RunQuantize<T>;
                          return nullptr;
                        }),
          false};
}
ReferenceKernel DequantizeLinear(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsInteger<T>) return &RunDequantize<T>;
                          return nullptr;
                        }),
          false};
}
ReferenceKernel DynamicQuantizeLinear(DType dtype) {
  return {dtype == DType::kF32 ? &RunDynamicQuantize : nullptr, false};
}
ReferenceKernel QLinearConv(DType dtype) {
  return {IsByte(dtype) ? &RunQLinearConv : nullptr, false};
}
ReferenceKernel QLinearMatMul(DType dtype) {
  return {IsByte(dtype) ? &RunQLinearMatMul : nullptr, false};
}
ReferenceKernel MatMulInteger(DType dtype) {
  return {IsByte(dtype) ? &RunMatMulInteger : nullptr, false};
}
ReferenceKernel ConvInteger(DType dtype) {
  return {IsByte(dtype) ? &RunConvInteger : nullptr, false};
}

}  // namespace kiln::kernels
