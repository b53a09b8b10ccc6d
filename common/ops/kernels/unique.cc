// Unique: of all elements, or of the slices along an axis.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"
#include "common/ops/list.h"

namespace kiln::kernels {
namespace {

// Slice i of the axis compared element by element, NaNs last.
template <class T>
struct SliceOrder {
  const T* data;
  AxisSplit split;

  int Compare(int64_t a, int64_t b) const {
    for (int64_t outer = 0; outer < split.outer; ++outer) {
      for (int64_t inner = 0; inner < split.inner; ++inner) {
        const auto x = Load(data[(outer * split.size + a) * split.inner + inner]);
        const auto y = Load(data[(outer * split.size + b) * split.inner + inner]);
        if (x < y) return -1;
        if (y < x) return 1;
        const bool x_nan = x != x;
        const bool y_nan = y != y;
        if (x_nan != y_nan) return x_nan ? 1 : -1;
      }
    }
    return 0;
  }
};

template <class T>
Status RunUnique(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const bool flat = !call.attributes->Has("axis");
  int axis = 0;
  if (!flat) {
    ASSIGN_OR_RETURN(axis, NormalizeAxis(call.attributes->Int("axis", 0), in.rank()));
  }
  SliceOrder<T> order{in.as<T>(), flat ? AxisSplit{1, in.elements(), 1} : SplitAt(in.dims, axis)};
  if (in.elements() == 0) order.split.outer = 0;  // all slices are equal, however many empty pieces they have
  const int64_t size = order.split.size;
  ASSIGN_OR_RETURN(int64_t* sorted, Scratch<int64_t>(call, size));
  ASSIGN_OR_RETURN(int64_t* group_of, Scratch<int64_t>(call, size));  // per slice: its group in sorted order
  std::iota(sorted, sorted + size, int64_t{0});
  // The first of equal slices first.
  std::sort(sorted, sorted + size, [&](int64_t a, int64_t b) {
    const int compared = order.Compare(a, b);
    return compared != 0 ? compared < 0 : a < b;
  });
  List<int64_t> first, counts;  // per group
  for (int64_t i = 0; i < size; ++i) {
    if (i == 0 || order.Compare(sorted[i - 1], sorted[i]) != 0) {
      first.push_back(sorted[i]);
      counts.push_back(0);
    }
    ++counts.back();
    group_of[sorted[i]] = static_cast<int64_t>(first.size()) - 1;
  }
  const int64_t groups = static_cast<int64_t>(first.size());
  List<int64_t> listed(first.size());  // groups in the order of the output
  std::iota(listed.begin(), listed.end(), int64_t{0});
  if (call.attributes->Int("sorted", 1) == 0) {
    std::sort(listed.begin(), listed.end(),
              [&](int64_t a, int64_t b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });
  }
  List<int64_t> place(first.size());
  for (int64_t i = 0; i < groups; ++i) place[static_cast<size_t>(listed[static_cast<size_t>(i)])] = i;

  Dims dims = flat ? Dims{groups} : in.dims;
  if (!flat) dims[axis] = groups;
  RETURN_IF_ERROR(AllocateOutput(call, 0, in.dtype, dims));
  RETURN_IF_ERROR(AllocateOutput(call, 1, DType::kI64, Dims{groups}));
  RETURN_IF_ERROR(AllocateOutput(call, 2, DType::kI64, Dims{size}));
  RETURN_IF_ERROR(AllocateOutput(call, 3, DType::kI64, Dims{groups}));
  for (int64_t i = 0; i < groups; ++i) {
    const size_t group = static_cast<size_t>(listed[static_cast<size_t>(i)]);
    for (int64_t outer = 0; outer < order.split.outer; ++outer) {
      std::memcpy(call.outputs[0].as<T>() + (outer * groups + i) * order.split.inner,
                  in.as<T>() + (outer * size + first[group]) * order.split.inner,
                  static_cast<size_t>(order.split.inner) * sizeof(T));
    }
    if (call.outputs.size() > 1) call.outputs[1].as<int64_t>()[i] = first[group];
    if (call.outputs.size() > 3) call.outputs[3].as<int64_t>()[i] = counts[group];
  }
  for (int64_t i = 0; i < size && call.outputs.size() > 2; ++i) {
    call.outputs[2].as<int64_t>()[i] = place[static_cast<size_t>(group_of[i])];
  }
  return {};
}

}  // namespace

ReferenceKernel Unique(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunUnique<T>; }), false};
}

}  // namespace kiln::kernels
