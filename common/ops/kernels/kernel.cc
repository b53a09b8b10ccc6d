#include "common/ops/kernels/kernel.h"

#include <algorithm>

#include "common/ops/kernels/operands.h"

namespace kiln::kernels {
namespace {

// The loop nest shared by all operands, with neighbouring dims merged where every operand allows it.
struct Nest {
  int rank = 0;
  int64_t dims[limits::kRankMax];
  int64_t strides[kOperandsMax][limits::kRankMax];  // bytes
};

bool CanMerge(const Nest& nest, size_t operands, int outer, const int64_t* inner_strides, int64_t inner_dim) {
  for (size_t i = 0; i < operands; ++i) {
    if (nest.strides[i][outer] != inner_strides[i] * inner_dim) return false;
  }
  return true;
}

Nest MakeNest(const Dims& dims, std::span<const TensorRef> refs) {
  Nest nest;
  for (int d = 0; d < dims.rank(); ++d) {
    if (dims[d] == 1) continue;
    int64_t strides[kOperandsMax];
    for (size_t i = 0; i < refs.size(); ++i) {
      const int own = d - (dims.rank() - refs[i].rank());
      const bool stretched = own < 0 || refs[i].dims[own] == 1;
      strides[i] = stretched ? 0 : refs[i].strides[own] * DTypeBytes(refs[i].dtype);
    }
    int at = nest.rank;
    if (at > 0 && CanMerge(nest, refs.size(), at - 1, strides, dims[d])) {
      --at;
      nest.dims[at] *= dims[d];
    } else {
      nest.dims[at] = dims[d];
      ++nest.rank;
    }
    for (size_t i = 0; i < refs.size(); ++i) nest.strides[i][at] = strides[i];
  }
  return nest;
}

template <class T, class Values>
Values ReadAll(const TensorRef& ref) {
  Values values(static_cast<size_t>(ref.elements()));
  DispatchDType(ref.dtype, [&]<class From>() {
    struct Cursor {
      T* next;
    } cursor{values.data()};
    const TensorRef operands[] = {ref};
    ForEachRun(
        ref.dims, operands,
        [](char* const* p, const int64_t* s, int64_t n, const void* functor) {
          Cursor& out = *const_cast<Cursor*>(static_cast<const Cursor*>(functor));
          for (int64_t i = 0; i < n; ++i) *out.next++ = Convert<T>(*reinterpret_cast<const From*>(p[0] + i * s[0]));
        },
        &cursor);
  });
  return values;
}

}  // namespace

void ForEachRun(const Dims& dims, std::span<const TensorRef> refs, InnerLoop loop, const void* functor) {
  for (const int64_t dim : dims) {
    if (dim == 0) return;
  }
  const Nest nest = MakeNest(dims, refs);
  char* pointers[kOperandsMax];
  for (size_t i = 0; i < refs.size(); ++i) pointers[i] = static_cast<char*>(refs[i].data);
  int64_t inner_strides[kOperandsMax] = {};
  if (nest.rank == 0) {
    loop(pointers, inner_strides, 1, functor);
    return;
  }
  const int last = nest.rank - 1;
  for (size_t i = 0; i < refs.size(); ++i) inner_strides[i] = nest.strides[i][last];
  int64_t index[limits::kRankMax] = {};
  while (true) {
    loop(pointers, inner_strides, nest.dims[last], functor);
    int d = last - 1;
    for (; d >= 0; --d) {
      for (size_t i = 0; i < refs.size(); ++i) pointers[i] += nest.strides[i][d];
      if (++index[d] < nest.dims[d]) break;
      for (size_t i = 0; i < refs.size(); ++i) pointers[i] -= nest.strides[i][d] * nest.dims[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

TensorRef BroadcastRef(const TensorRef& ref, const Dims& dims) {
  TensorRef result = ref;
  result.dims = dims;
  result.strides = Dims::Filled(dims.rank(), 0);
  const int lead = dims.rank() - ref.rank();
  for (int d = lead; d < dims.rank(); ++d) {
    if (ref.dims[d - lead] != 1) result.strides[d] = ref.strides[d - lead];
  }
  return result;
}

Status AllocateOutput(KernelCall& call, size_t output, DType dtype, const Dims& dims) {
  if (output >= call.outputs.size()) return {};
  TensorRef& ref = call.outputs[output];
  if (ref.data != nullptr) return {};
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
  void* memory = call.memory->AllocateOutput(static_cast<size_t>(elements * DTypeBytes(dtype)));
  if (memory == nullptr) {
    return Fail(ErrorCode::kResourceExhausted,
                "no memory for an output of shape " + dims.ToString() + "; raise the memory budget");
  }
  ref = MakeRef(dtype, dims, memory);
  return {};
}

std::vector<int64_t> ReadInts(const TensorRef& ref) {
  return ReadAll<int64_t, std::vector<int64_t>>(ref);
}
std::vector<double> ReadFloats(const TensorRef& ref) {
  return ReadAll<double, std::vector<double>>(ref);
}

List<int64_t> IntsOf(const TensorRef& ref) {
  return ReadAll<int64_t, List<int64_t>>(ref);
}
List<double> FloatsOf(const TensorRef& ref) {
  return ReadAll<double, List<double>>(ref);
}

int64_t ReadInt(const TensorRef& ref) {
  return DispatchDType(ref.dtype, [&]<class T>() { return Convert<int64_t>(*ref.as<T>()); });
}
double ReadFloat(const TensorRef& ref) {
  return DispatchDType(ref.dtype, [&]<class T>() { return Convert<double>(*ref.as<T>()); });
}

Result<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return Fail(ErrorCode::kInvalidArgument, "axis " + std::to_string(axis) + " is outside [" + std::to_string(-rank) +
                                                 ", " + std::to_string(rank - 1) + "] of a tensor of rank " +
                                                 std::to_string(rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

AxisSplit SplitAt(const Dims& dims, int axis) {
  AxisSplit split{1, 1, 1};
  for (int d = 0; d < dims.rank(); ++d) {
    int64_t& part = d < axis ? split.outer : d == axis ? split.size : split.inner;
    part *= dims[d];
  }
  return split;
}

namespace {

bool IsHalfType(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

template <class To, class From>
void ConvertLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<To*>(p[0] + i * s[0]) = Convert<To>(*reinterpret_cast<const From*>(p[1] + i * s[1]));
  }
}

void ConvertTensor(const TensorRef& from, const TensorRef& to) {
  const TensorRef operands[] = {to, from};
  InnerLoop loop = nullptr;
  if (from.dtype == DType::kF16) loop = &ConvertLoop<float, Float16>;
  if (from.dtype == DType::kBF16) loop = &ConvertLoop<float, BFloat16>;
  if (to.dtype == DType::kF16) loop = &ConvertLoop<Float16, float>;
  if (to.dtype == DType::kBF16) loop = &ConvertLoop<BFloat16, float>;
  ForEachRun(to.dims, operands, loop, nullptr);
}

}  // namespace

Status RunInFloat(KernelCall& call, KernelFunction kernel) {
  constexpr size_t kInputsMax = 16;
  constexpr size_t kOutputsMax = 4;
  TensorRef inputs[kInputsMax];
  TensorRef outputs[kOutputsMax];
  if (call.inputs.size() > kInputsMax || call.outputs.size() > kOutputsMax) {
    return Fail(ErrorCode::kLimitExceeded, "an op in half precision takes at most 16 inputs and 4 outputs");
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs[i] = call.inputs[i];
    if (!call.Has(i) || !IsHalfType(inputs[i].dtype)) continue;
    ASSIGN_OR_RETURN(float* data, Scratch<float>(call, inputs[i].elements()));
    inputs[i] = MakeRef(DType::kF32, call.inputs[i].dims, data);
    ConvertTensor(call.inputs[i], inputs[i]);
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    outputs[i] = call.outputs[i];
    if (!Wants(call, i) || !IsHalfType(outputs[i].dtype)) continue;
    ASSIGN_OR_RETURN(float* data, Scratch<float>(call, outputs[i].elements()));
    outputs[i] = MakeRef(DType::kF32, call.outputs[i].dims, data);
  }
  KernelCall wide = call;
  wide.inputs = {inputs, call.inputs.size()};
  wide.outputs = {outputs, call.outputs.size()};
  RETURN_IF_ERROR(kernel(wide));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (Wants(call, i) && IsHalfType(call.outputs[i].dtype)) ConvertTensor(outputs[i], call.outputs[i]);
  }
  return {};
}

}  // namespace kiln::kernels
