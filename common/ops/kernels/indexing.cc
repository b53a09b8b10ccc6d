// Gather, scatter, one-hot. Indices from data are checked against their dim before they are used.
#include <algorithm>
#include <cstring>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

int64_t IndexAt(const TensorRef& indices, int64_t at) {
  return indices.dtype == DType::kI64 ? indices.as<int64_t>()[at] : int64_t{indices.as<int32_t>()[at]};
}

// An index counted from the end when negative; OutOfRange names index, axis and dim.
Result<int64_t> CheckedIndex(int64_t index, int64_t size, int axis) {
  if (index < -size || index >= size) {
    return Fail(ErrorCode::kOutOfRange, "index " + std::to_string(index) + " is outside axis " + std::to_string(axis) +
                                            ", which has " + std::to_string(size) + " entries");
  }
  return index < 0 ? index + size : index;
}

Status RunGather(KernelCall& call) {
  const TensorRef& data = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 0), data.rank()));
  const AxisSplit split = SplitAt(data.dims, axis);
  const int64_t count = indices.elements();
  const size_t run = static_cast<size_t>(split.inner * DTypeBytes(data.dtype));
  const char* from = data.as<char>();
  char* to = call.outputs[0].as<char>();
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const int64_t index, CheckedIndex(IndexAt(indices, i), split.size, axis));
      std::memcpy(to, from + static_cast<size_t>(outer * split.size + index) * run, run);
      to += run;
    }
  }
  return {};
}

// Offset of the index tuple `at` of `indices` (row-major) into `data`, with the axis replaced by the index itself.
struct ElementWalk {
  const TensorRef& data;
  const TensorRef& indices;
  int axis;
  Dims data_strides;
  ElementWalk(const TensorRef& data_in, const TensorRef& indices_in, int axis_in)
      : data(data_in), indices(indices_in), axis(axis_in), data_strides(ContiguousStrides(data_in.dims)) {}

  Result<int64_t> Offset(int64_t at) const {
    ASSIGN_OR_RETURN(const int64_t index, CheckedIndex(IndexAt(indices, at), data.dims[axis], axis));
    int64_t offset = index * data_strides[axis];
    int64_t rest = at;
    for (int d = indices.rank() - 1; d >= 0; --d) {
      const int64_t position = rest % indices.dims[d];
      rest /= indices.dims[d];
      if (d == axis) continue;
      if (position >= data.dims[d]) {
        return Fail(ErrorCode::kShapeMismatch, "dim " + std::to_string(d) + " of the indices, " +
                                                   std::to_string(indices.dims[d]) + ", exceeds that of the data, " +
                                                   std::to_string(data.dims[d]));
      }
      offset += position * data_strides[d];
    }
    return offset;
  }
};

struct GatherElementsOf {
  template <class U>
  static Status Run(KernelCall& call) {
    const TensorRef& data = call.inputs[0];
    ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 0), data.rank()));
    const ElementWalk walk(data, call.inputs[1], axis);
    const int64_t count = call.inputs[1].elements();
    for (int64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const int64_t offset, walk.Offset(i));
      call.outputs[0].as<U>()[i] = data.as<U>()[offset];
    }
    return {};
  }
};

// Offset of a tuple of `length` indices over dims [first, first + length) of `dims`.
Result<int64_t> TupleOffset(const TensorRef& indices, int64_t at, int64_t length, const Dims& dims, int first) {
  int64_t offset = 0;
  for (int64_t j = 0; j < length; ++j) {
    const int axis = first + static_cast<int>(j);
    ASSIGN_OR_RETURN(const int64_t index, CheckedIndex(IndexAt(indices, at * length + j), dims[axis], axis));
    offset = offset * dims[axis] + index;
  }
  return offset;
}

// The same without a word about what is wrong: -1 when an index is outside its dim.
template <class I>
int64_t TupleOffsetOrNone(const I* tuple, int64_t length, const int64_t* sizes) {
  int64_t offset = 0;
  for (int64_t j = 0; j < length; ++j) {
    int64_t index = tuple[j];
    if (index < 0) index += sizes[j];
    if (index < 0 || index >= sizes[j]) return -1;
    offset = offset * sizes[j] + index;
  }
  return offset;
}

int64_t ProductOf(const Dims& dims, int first, int last) {
  int64_t product = 1;
  for (int d = first; d < last; ++d) product *= dims[d];
  return product;
}

Status RunGatherND(KernelCall& call) {
  const TensorRef& data = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const int batch_dims = static_cast<int>(call.attributes->Int("batch_dims", 0));
  const int64_t length = indices.dims.back();
  const int tail = batch_dims + static_cast<int>(length);
  const int64_t batches = ProductOf(data.dims, 0, batch_dims);
  const int64_t per_batch = ProductOf(indices.dims, batch_dims, indices.rank() - 1);
  const int64_t spanned = ProductOf(data.dims, batch_dims, tail);
  const size_t run = static_cast<size_t>(ProductOf(data.dims, tail, data.rank()) * DTypeBytes(data.dtype));
  char* to = call.outputs[0].as<char>();
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t i = 0; i < per_batch; ++i) {
      ASSIGN_OR_RETURN(const int64_t offset, TupleOffset(indices, b * per_batch + i, length, data.dims, batch_dims));
      std::memcpy(to, data.as<char>() + static_cast<size_t>(b * spanned + offset) * run, run);
      to += run;
    }
  }
  return {};
}

// --- checks ---
// Whether every `step`-th of `count` indices is one of an axis of `size` entries.
template <class I>
bool AllInside(const I* indices, int64_t count, int64_t step, int64_t size) {
  const auto bound = static_cast<uint64_t>(size);
  bool outside = false;
  for (int64_t i = 0; i < count; ++i)
    outside |= static_cast<uint64_t>(int64_t{indices[i * step]}) + bound >= 2 * bound;  // of [-size, size)
  return !outside;
}

// How many; the error is that of the op which would have read them.
Result<int64_t> CheckAxis(const TensorRef& indices, int64_t first, int64_t step, int64_t size, int axis) {
  const int64_t count = indices.elements() / step;
  const bool inside = indices.dtype == DType::kI64 ? AllInside(indices.as<int64_t>() + first, count, step, size)
                                                   : AllInside(indices.as<int32_t>() + first, count, step, size);
  for (int64_t i = 0; !inside && i < count; ++i)
    RETURN_IF_ERROR(CheckedIndex(IndexAt(indices, first + i * step), size, axis));
  return count;
}

Status RunCheckIndices(KernelCall& call) {
  const TensorRef& indices = call.inputs[0];
  const Dims& data = call.inputs[1].dims;
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 0), data.rank()));
  const bool tuple = call.attributes->Int("tuple", 0) != 0;
  const int64_t length = tuple ? indices.dims.back() : 1;
  if (length > data.rank() - axis)
    return Fail(ErrorCode::kShapeMismatch, "index tuples have " + std::to_string(length) + " entries; the data has " +
                                               std::to_string(data.rank() - axis) + " axes from axis " +
                                               std::to_string(axis) + " on");
  TensorRef row_major = indices;
  List<int64_t> gathered;
  if (!indices.IsContiguous()) {
    gathered = IntsOf(indices);
    row_major = MakeRef(DType::kI64, indices.dims, gathered.data());
  }
  int64_t checked = 0;
  for (int64_t j = 0; j < length; ++j) {
    const int at = axis + static_cast<int>(j);
    ASSIGN_OR_RETURN(const int64_t count, CheckAxis(row_major, j, length, data[at], at));
    checked += count;
  }
  if (!call.outputs.empty() && call.outputs[0].data != nullptr) call.outputs[0].as<int64_t>()[0] = checked;
  return {};
}

// --- scatter ---
enum class Reduction : uint8_t { kNone, kAdd, kMul, kMin, kMax };

Result<Reduction> ReadReduction(const KernelCall& call) {
  const std::string_view text = call.attributes->Text("reduction", "none");
  if (text == "none") return Reduction::kNone;
  if (text == "add") return Reduction::kAdd;
  if (text == "mul") return Reduction::kMul;
  if (text == "min") return Reduction::kMin;
  if (text == "max") return Reduction::kMax;
  return Fail(ErrorCode::kInvalidArgument, "reduction '" + std::string(text) + "' is unknown");
}

template <class T>
T Reduced(Reduction reduction, T old, T update) {
  const auto a = Load(old);
  const auto b = Load(update);
  switch (reduction) {
    case Reduction::kNone:
      return update;
    case Reduction::kAdd:
      if constexpr (kIsInteger<T>) return WrapAdd(a, b);
      if constexpr (kIsBool<T>) return a || b;
      if constexpr (kIsFloat<T>) return Store<T>(a + b);
    case Reduction::kMul:
      if constexpr (kIsInteger<T>) return WrapMul(a, b);
      if constexpr (kIsBool<T>) return a && b;
      if constexpr (kIsFloat<T>) return Store<T>(a * b);
    case Reduction::kMin:
      return Store<T>(NanMin(a, b));
    case Reduction::kMax:
      return Store<T>(NanMax(a, b));
  }
  return update;
}

Status CopyData(KernelCall& call) {
  std::memcpy(call.outputs[0].data, call.inputs[0].data, static_cast<size_t>(call.inputs[0].bytes()));
  return {};
}

template <class T>
Status RunScatterElements(KernelCall& call) {
  const TensorRef& data = call.inputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 0), data.rank()));
  ASSIGN_OR_RETURN(const Reduction reduction, ReadReduction(call));
  RETURN_IF_ERROR(CopyData(call));
  const ElementWalk walk(data, call.inputs[1], axis);
  const int64_t count = call.inputs[1].elements();
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const int64_t offset, walk.Offset(i));
    T& target = call.outputs[0].as<T>()[offset];
    target = Reduced(reduction, target, call.inputs[2].as<T>()[i]);
  }
  return {};
}

template <class T, class I>
Status ScatterTuples(KernelCall& call, Reduction reduction) {
  const TensorRef& data = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const int64_t length = indices.dims.back();
  const int64_t run = ProductOf(data.dims, static_cast<int>(length), data.rank());
  const int64_t count = ProductOf(indices.dims, 0, indices.rank() - 1);
  const T* update = call.inputs[2].as<T>();
  for (int64_t i = 0; i < count; ++i, update += run) {
    const int64_t offset = TupleOffsetOrNone(indices.as<I>() + i * length, length, data.dims.begin());
    if (offset < 0) return std::unexpected(TupleOffset(indices, i, length, data.dims, 0).error());
    T* target = call.outputs[0].as<T>() + offset * run;
    if (reduction == Reduction::kNone) {
      for (int64_t j = 0; j < run; ++j) target[j] = update[j];
    } else {
      for (int64_t j = 0; j < run; ++j) target[j] = Reduced(reduction, target[j], update[j]);
    }
  }
  return {};
}

template <class T>
Status RunScatterND(KernelCall& call) {
  ASSIGN_OR_RETURN(const Reduction reduction, ReadReduction(call));
  RETURN_IF_ERROR(CopyData(call));
  return call.inputs[1].dtype == DType::kI64 ? ScatterTuples<T, int64_t>(call, reduction)
                                             : ScatterTuples<T, int32_t>(call, reduction);
}

struct OneHotOf {
  template <class U>
  static Status Run(KernelCall& call) {
    const TensorRef& indices = call.inputs[0];
    const TensorRef& values = call.inputs[2];
    if (values.elements() != 2) {
      return Fail(ErrorCode::kShapeMismatch,
                  "the values of OneHot are off and on, not " + std::to_string(values.elements()) + " elements");
    }
    const int64_t depth = ReadInt(call.inputs[1]);
    if (depth < 0)
      return Fail(ErrorCode::kInvalidArgument, "the depth of OneHot is negative: " + std::to_string(depth));
    ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", -1), indices.rank() + 1));
    Dims dims;
    for (int d = 0; d < indices.rank(); ++d) {
      if (d == axis) dims.push_back(depth);
      dims.push_back(indices.dims[d]);
    }
    if (axis == indices.rank()) dims.push_back(depth);
    RETURN_IF_ERROR(AllocateOutput(call, 0, values.dtype, dims));
    const U off = values.as<U>()[0];
    const U on = values.as<U>()[1];
    U* out = call.outputs[0].as<U>();
    std::fill_n(out, call.outputs[0].elements(), off);
    int64_t inner = 1;
    for (int d = axis; d < indices.rank(); ++d) inner *= indices.dims[d];
    const List<int64_t> hot = IntsOf(indices);
    for (int64_t i = 0; i < static_cast<int64_t>(hot.size()); ++i) {
      int64_t index = hot[static_cast<size_t>(i)];
      if (index < -depth || index >= depth) continue;  // the format asks for a row without a hot entry
      if (index < 0) index += depth;
      out[(i / inner * depth + index) * inner + i % inner] = on;
    }
    return {};
  }
};

// OneHot's values decide the element type, but a kernel is found by the type of its first input.
Status RunOneHot(KernelCall& call) {
  return BytesKernel<OneHotOf>(call.inputs[2].dtype)(call);
}

}  // namespace

ReferenceKernel Gather(DType) {
  return {&RunGather, false};
}
ReferenceKernel GatherElements(DType dtype) {
  return {BytesKernel<GatherElementsOf>(dtype), false};
}
ReferenceKernel GatherND(DType) {
  return {&RunGatherND, false};
}
ReferenceKernel CheckIndices(DType) {
  return {&RunCheckIndices, true};
}
ReferenceKernel ScatterElements(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunScatterElements<T>; }), false};
}
ReferenceKernel ScatterND(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunScatterND<T>; }), false};
}
ReferenceKernel OneHot(DType) {
  return {&RunOneHot, false};
}

}  // namespace kiln::kernels
