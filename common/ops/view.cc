// Views of memory: what each kView op makes of its input's strides.
#include <algorithm>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/slice_range.h"

namespace kiln {
namespace {

using View = std::optional<TensorRef>;

// Strides for `dims` over the same elements in row-major order; nullopt when no strides describe them. Walks both
// shapes from the front in groups of equal size: a group of the input must be one run of memory.
View ReshapedView(const TensorRef& in, const Dims& dims) {
  TensorRef out = in;
  out.dims = dims;
  out.strides = ContiguousStrides(dims);
  if (in.IsContiguous()) return out;
  int64_t in_dims[limits::kRankMax];
  int64_t in_strides[limits::kRankMax];
  int in_rank = 0;
  for (int d = 0; d < in.rank(); ++d) {
    if (in.dims[d] == 1) continue;
    in_dims[in_rank] = in.dims[d];
    in_strides[in_rank++] = in.strides[d];
  }
  int i = 0;
  int o = 0;
  while (i < in_rank) {
    int i_end = i + 1;
    int o_end = o;
    while (o_end < dims.rank() && dims[o_end] == 1) ++o_end;
    if (o_end == dims.rank()) return std::nullopt;
    ++o_end;
    int64_t in_count = in_dims[i];
    int64_t out_count = dims[o_end - 1];
    while (in_count != out_count) {
      if (in_count < out_count) {
        if (i_end == in_rank) return std::nullopt;
        in_count *= in_dims[i_end++];
      } else {
        if (o_end == dims.rank()) return std::nullopt;
        out_count *= dims[o_end++];
      }
    }
    for (int d = i; d + 1 < i_end; ++d) {
      if (in_strides[d] != in_strides[d + 1] * in_dims[d + 1]) return std::nullopt;
    }
    int64_t stride = in_strides[i_end - 1];
    for (int d = o_end - 1; d >= o; --d) {
      out.strides[d] = stride;
      stride *= dims[d];
    }
    i = i_end;
    o = o_end;
  }
  return out;
}

Result<View> TransposedView(const KernelCall& call, const Dims& dims) {
  const TensorRef& in = call.inputs[0];
  const std::span<const int64_t> perm = call.attributes->Ints("perm");
  TensorRef out = in;
  out.dims = dims;
  out.strides = Dims::Filled(in.rank(), 0);
  for (int d = 0; d < in.rank(); ++d) {
    const int64_t from = perm.empty() ? in.rank() - 1 - d : perm[static_cast<size_t>(d)];
    ASSIGN_OR_RETURN(const int axis, kernels::NormalizeAxis(from, in.rank()));
    out.strides[d] = in.strides[axis];
  }
  return View(out);
}

void* Advance(const TensorRef& ref, int64_t elements) {
  return static_cast<char*>(ref.data) + elements * DTypeBytes(ref.dtype);
}

Result<View> SlicedView(const KernelCall& call, const Dims& dims) {
  const TensorRef& in = call.inputs[0];
  const List<int64_t> starts = kernels::IntsOf(call.inputs[1]);
  const List<int64_t> ends = kernels::IntsOf(call.inputs[2]);
  const List<int64_t> axes = call.Has(3) ? kernels::IntsOf(call.inputs[3]) : List<int64_t>();
  const List<int64_t> steps = call.Has(4) ? kernels::IntsOf(call.inputs[4]) : List<int64_t>();
  const size_t count = starts.size();
  if (ends.size() != count || (call.Has(3) && axes.size() != count) || (call.Has(4) && steps.size() != count)) {
    return Fail(ErrorCode::kShapeMismatch, "starts, ends, axes and steps of Slice differ in length");
  }
  TensorRef out = in;
  out.dims = dims;
  int64_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const int axis,
                     kernels::NormalizeAxis(call.Has(3) ? axes[i] : static_cast<int64_t>(i), in.rank()));
    const int64_t step = call.Has(4) ? steps[i] : 1;
    if (step == 0) return Fail(ErrorCode::kInvalidArgument, "step " + std::to_string(i) + " of Slice is 0");
    const SliceRange range = ResolveSlice(starts[i], ends[i], step, in.dims[axis]);
    if (range.length != dims[axis])
      return Fail(ErrorCode::kShapeMismatch, "Slice takes " + std::to_string(range.length) + " elements of dim " +
                                                 std::to_string(axis) + "; its output has " +
                                                 std::to_string(dims[axis]));
    offset += range.start * in.strides[axis];
    // A step beyond the dim takes one element; its stride is never walked and must not overflow.
    out.strides[axis] = range.length > 1 ? in.strides[axis] * step : in.strides[axis];
  }
  if (out.elements() > 0) out.data = Advance(in, offset);
  return View(out);
}

Result<View> SplitView(const KernelCall& call, int output, const Dims& dims) {
  const TensorRef& in = call.inputs[0];
  ASSIGN_OR_RETURN(const int axis, kernels::NormalizeAxis(call.attributes->Int("axis", 0), in.rank()));
  int64_t offset = 0;
  if (call.Has(1)) {
    const List<int64_t> sizes = kernels::IntsOf(call.inputs[1]);
    if (static_cast<size_t>(output) >= sizes.size()) {
      return Fail(ErrorCode::kShapeMismatch, "Split has no size for output " + std::to_string(output));
    }
    for (int i = 0; i < output; ++i) offset += sizes[static_cast<size_t>(i)];
  } else {
    const int64_t parts = call.attributes->Int("num_outputs", static_cast<int64_t>(call.outputs.size()));
    const int64_t chunk = parts > 0 && in.dims[axis] > 0 ? (in.dims[axis] - 1) / parts + 1 : 0;
    offset = std::min(in.dims[axis], chunk * output);
  }
  if (offset < 0 || offset + dims[axis] > in.dims[axis]) {
    return Fail(ErrorCode::kShapeMismatch, "output " + std::to_string(output) + " of Split ends beyond dim " +
                                               std::to_string(axis) + ", which has " + std::to_string(in.dims[axis]) +
                                               " elements");
  }
  TensorRef out = in;
  out.dims = dims;
  if (out.elements() > 0) out.data = Advance(in, offset * in.strides[axis]);
  return View(out);
}

}  // namespace

Result<std::optional<TensorRef>> MakeView(const KernelCall& call, int output, const Dims& dims) {
  using enum TensorOp;
  const TensorRef& in = call.inputs[0];
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, in.dtype));
  if (call.op == kTranspose) return TransposedView(call, dims);
  if (call.op == kSlice) return SlicedView(call, dims);
  if (call.op == kSplit) return SplitView(call, output, dims);
  if (call.op == kExpand) return View(kernels::BroadcastRef(in, dims));
  if (call.op == kIdentity) return View(in);
  if (call.op != kReshape && call.op != kFlatten && call.op != kSqueeze && call.op != kUnsqueeze)
    return Fail(ErrorCode::kInvalidArgument, std::string(OpInfo(call.op).name) + " makes no views");
  if (elements != in.elements()) {
    return Fail(ErrorCode::kShapeMismatch,
                "cannot view " + in.dims.ToString() + " as " + dims.ToString() + ": the numbers of elements differ");
  }
  return ReshapedView(in, dims);
}

}  // namespace kiln
