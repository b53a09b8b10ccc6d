// Ops that move elements without reading them: Concat, Tile, Pad, blocks, Trilu, ReverseSequence.
#include <algorithm>
#include <cstring>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// The part of a tensor that begins at `offset` along `axis` and has the given dims.
TensorRef Part(const TensorRef& whole, int axis, int64_t offset, const Dims& dims) {
  TensorRef part = whole;
  part.dims = dims;
  part.data = whole.as<char>() + offset * whole.strides[axis] * DTypeBytes(whole.dtype);
  return part;
}

// Each input is copied into its part of the output.
Status RunConcat(KernelCall& call) {
  const TensorRef& out = call.outputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", 0), out.rank()));
  int64_t offset = 0;
  for (const TensorRef& in : call.inputs) {
    if (in.elements() > 0) CopyElements(in, Part(out, axis, offset, in.dims));
    offset += in.dims[axis];
  }
  return {};
}

// Every repeat is one copy of the input into its place.
Status RunTile(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const TensorRef& out = call.outputs[0];
  if (out.elements() == 0 || in.elements() == 0) return {};
  // As a broadcast: each dim becomes [repeat, dim], the repeats with stride 0 on the input.
  if (in.rank() * 2 <= limits::kRankMax) {
    TensorRef from = in;
    TensorRef to = out;
    from.dims = from.strides = to.dims = to.strides = Dims();
    for (int d = 0; d < in.rank(); ++d) {
      from.dims.push_back(out.dims[d] / in.dims[d]);
      from.dims.push_back(in.dims[d]);
      from.strides.push_back(0);
      from.strides.push_back(in.strides[d]);
      to.strides.push_back(out.strides[d] * in.dims[d]);
      to.strides.push_back(out.strides[d]);
    }
    to.dims = from.dims;
    CopyElements(from, to);
    return {};
  }
  Dims index = Dims::Filled(in.rank(), 0);
  while (true) {
    TensorRef to = out;
    to.dims = in.dims;
    int64_t offset = 0;
    for (int d = 0; d < in.rank(); ++d) offset += index[d] * in.dims[d] * out.strides[d];
    to.data = out.as<char>() + offset * DTypeBytes(out.dtype);
    CopyElements(in, to);
    int d = in.rank() - 1;
    for (; d >= 0; --d) {
      if (++index[d] < out.dims[d] / in.dims[d]) break;
      index[d] = 0;
    }
    if (d < 0) return {};
  }
}

// --- Pad ---
enum class PadMode : uint8_t { kConstant, kReflect, kEdge, kWrap };

Result<PadMode> ReadPadMode(std::string_view text) {
  if (text == "constant") return PadMode::kConstant;
  if (text == "reflect") return PadMode::kReflect;
  if (text == "edge") return PadMode::kEdge;
  if (text == "wrap") return PadMode::kWrap;
  return Fail(ErrorCode::kInvalidArgument, "mode '" + std::string(text) + "' of Pad is unknown");
}

// Offset of an output position that shows the constant.
constexpr int64_t kPadConstant = INT64_MIN;

// The index of the input element that an output position reads, or -1 for the constant.
int64_t PadSource(PadMode mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case PadMode::kConstant:
      return -1;
    case PadMode::kReflect: {
      if (size == 1) return 0;
      const int64_t period = 2 * (size - 1);
      const int64_t phase = FloorMod(at, period);
      return phase < size ? phase : period - phase;
    }
    case PadMode::kEdge:
      return at < 0 ? 0 : size - 1;
    case PadMode::kWrap:
      return FloorMod(at, size);
  }
  return -1;
}

struct PadOf {
  template <class U>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const TensorRef& out = call.outputs[0];
    const int rank = in.rank();
    ASSIGN_OR_RETURN(const PadMode mode, ReadPadMode(call.attributes->Text("mode", "constant")));
    const List<int64_t> pads = IntsOf(call.inputs[1]);
    Dims before = Dims::Filled(rank, 0);
    if (call.Has(3)) {
      const List<int64_t> axes = IntsOf(call.inputs[3]);
      for (size_t i = 0; i < axes.size(); ++i) {
        ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], rank));
        before[axis] = pads[i];
      }
    } else {
      for (int d = 0; d < rank; ++d) before[d] = pads[static_cast<size_t>(d)];
    }
    const U value = call.Has(2) ? *call.inputs[2].as<U>() : U(0);
    if (out.elements() == 0) return {};
    if (rank == 0) {
      *out.as<U>() = *in.as<U>();
      return {};
    }
    // Source offsets per dim and position; those of a row's middle, which is copied, are left out.
    const Interval middle = Middle(out.dims[rank - 1], before[rank - 1], in.dims[rank - 1]);
    int64_t total = 0;
    for (const int64_t dim : out.dims) total += dim;
    ASSIGN_OR_RETURN(int64_t* table, Scratch<int64_t>(call, total));
    int64_t* sources[limits::kRankMax];
    for (int d = 0; d < rank; ++d) {
      sources[d] = table;
      table += out.dims[d];
      for (int64_t i = 0; i < out.dims[d]; ++i) {
        if (d == rank - 1 && i == middle.begin) i = middle.end;
        if (i == out.dims[d]) break;
        const int64_t from = in.dims[d] == 0 ? -1 : PadSource(mode, i - before[d], in.dims[d]);
        sources[d][i] = from < 0 ? kPadConstant : from * in.strides[d];
      }
    }
    Fill<U>(in, out, sources, middle, before[rank - 1], value);
    return {};
  }

  struct Interval {
    int64_t begin = 0, end = 0;
  };
  // Positions of a padded row that show the input's row itself.
  static Interval Middle(int64_t row, int64_t before, int64_t size) {
    const int64_t begin = std::clamp<int64_t>(before, 0, row);
    return {begin, std::clamp<int64_t>(before + size, begin, row)};
  }

  template <class U>
  static void Fill(const TensorRef& in, const TensorRef& out, int64_t* const* sources, Interval middle, int64_t before,
                   U value) {
    const int last = out.rank() - 1;
    U* to = out.as<U>();
    const int64_t row = out.dims[last], stride = in.strides[last];
    Dims index = Dims::Filled(out.rank(), 0);
    while (true) {
      int64_t base = 0;
      bool is_constant = false;
      for (int d = 0; d < last; ++d) {
        const int64_t source = sources[d][index[d]];
        is_constant = is_constant || source == kPadConstant;
        if (!is_constant) base += source;
      }
      if (is_constant) {
        std::fill_n(to, row, value);
      } else {
        const U* from = in.as<U>() + base;
        const int64_t* offsets = sources[last];
        const auto edge = [&](int64_t i) { to[i] = offsets[i] == kPadConstant ? value : from[offsets[i]]; };
        for (int64_t i = 0; i < middle.begin; ++i) edge(i);
        if (stride == 1 && middle.begin < middle.end) {
          std::copy_n(from + middle.begin - before, middle.end - middle.begin, to + middle.begin);
        } else {
          for (int64_t i = middle.begin; i < middle.end; ++i) to[i] = from[(i - before) * stride];
        }
        for (int64_t i = middle.end; i < row; ++i) edge(i);
      }
      to += row;
      int d = last - 1;
      for (; d >= 0; --d) {
        if (++index[d] < out.dims[d]) break;
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }
};

// --- blocks: a reshape, a transpose, a reshape ---
Status CopyPermuted(const TensorRef& in, const TensorRef& out, const Dims& split, std::initializer_list<int> order) {
  const Dims strides = ContiguousStrides(split);
  TensorRef from = in;
  from.dims = from.strides = Dims();
  for (const int d : order) {
    from.dims.push_back(split[d]);
    from.strides.push_back(strides[d]);
  }
  CopyElements(from, MakeRef(out.dtype, from.dims, out.data));
  return {};
}

Status RunDepthToSpace(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const int64_t block = call.attributes->Int("blocksize", 1);
  const int64_t depth = in.dims[1] / (block * block);
  if (call.attributes->Text("mode", "DCR") == "DCR") {
    return CopyPermuted(in, call.outputs[0], {in.dims[0], block, block, depth, in.dims[2], in.dims[3]},
                        {0, 3, 4, 1, 5, 2});
  }
  return CopyPermuted(in, call.outputs[0], {in.dims[0], depth, block, block, in.dims[2], in.dims[3]},
                      {0, 1, 4, 2, 5, 3});
}

Status RunSpaceToDepth(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const int64_t block = call.attributes->Int("blocksize", 1);
  return CopyPermuted(in, call.outputs[0],
                      {in.dims[0], in.dims[1], in.dims[2] / block, block, in.dims[3] / block, block},
                      {0, 3, 5, 1, 2, 4});
}

struct TriluOf {
  template <class U>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const int64_t columns = in.dims.back();
    const int64_t rows = in.dims[in.rank() - 2];
    const bool upper = call.attributes->Int("upper", 1) != 0;
    const int64_t limit = rows + columns + 1;
    const int64_t k = call.Has(1) ? std::clamp(ReadInt(call.inputs[1]), -limit, limit) : 0;
    const int64_t count = in.elements();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t column = i % columns;
      const int64_t row = i / columns % rows;
      const bool keeps = upper ? column >= row + k : column <= row + k;
      call.outputs[0].as<U>()[i] = keeps ? in.as<U>()[i] : U(0);
    }
    return {};
  }
};

Status RunReverseSequence(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const int batch_axis = call.attributes->Int("batch_axis", 1) == 0 ? 0 : 1;
  const int time_axis = 1 - batch_axis;
  const AxisSplit split = SplitAt(in.dims, 1);
  const size_t run = static_cast<size_t>(split.inner * DTypeBytes(in.dtype));
  for (int64_t b = 0; b < in.dims[batch_axis]; ++b) {
    TensorRef length_at = call.inputs[1];
    length_at.data = length_at.as<char>() + b * length_at.strides[0] * DTypeBytes(length_at.dtype);
    const int64_t length = ReadInt(length_at);
    if (length < 0 || length > in.dims[time_axis]) {
      return Fail(ErrorCode::kOutOfRange,
                  "sequence length " + std::to_string(length) + " of batch entry " + std::to_string(b) +
                      " is outside 0 to " + std::to_string(in.dims[time_axis]) + ", dim " + std::to_string(time_axis));
    }
    for (int64_t t = 0; t < in.dims[time_axis]; ++t) {
      const int64_t source = t < length ? length - 1 - t : t;
      const int64_t to = batch_axis == 0 ? b * in.dims[1] + t : t * in.dims[1] + b;
      const int64_t from = batch_axis == 0 ? b * in.dims[1] + source : source * in.dims[1] + b;
      std::memcpy(call.outputs[0].as<char>() + static_cast<size_t>(to) * run,
                  in.as<char>() + static_cast<size_t>(from) * run, run);
    }
  }
  return {};
}

struct SumOf {
  static constexpr int kStart = 0;
  template <class T>
  static Compute<T> Join(Compute<T> a, Compute<T> b) {
    if constexpr (kIsFloat<T>) return a + b;
    if constexpr (!kIsFloat<T>) return WrapAdd(a, b);
  }
};
struct ProductOf {
  static constexpr int kStart = 1;
  template <class T>
  static Compute<T> Join(Compute<T> a, Compute<T> b) {
    if constexpr (kIsFloat<T>) return a * b;
    if constexpr (!kIsFloat<T>) return WrapMul(a, b);
  }
};

// Running sums or products along the axis in input 1.
template <class T, class Operation>
Status RunCumulative(KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(ReadInt(call.inputs[1]), in.rank()));
  const AxisSplit split = SplitAt(in.dims, axis);
  const bool exclusive = call.attributes->Int("exclusive", 0) != 0;
  const bool reverse = call.attributes->Int("reverse", 0) != 0;
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t inner = 0; inner < split.inner; ++inner) {
      Compute<T> total = Operation::kStart;
      for (int64_t step = 0; step < split.size; ++step) {
        const int64_t i = reverse ? split.size - 1 - step : step;
        const int64_t at = (outer * split.size + i) * split.inner + inner;
        const Compute<T> before = total;
        total = Operation::template Join<T>(total, Load(in.as<T>()[at]));
        call.outputs[0].as<T>()[at] = Store<T>(exclusive ? before : total);
      }
    }
  }
  return {};
}

template <class Operation>
ReferenceKernel Cumulative(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsNumeric<T>) return &RunCumulative<T, Operation>;
                          return nullptr;
                        }),
          false};
}

}  // namespace

ReferenceKernel Concat(DType) {
  return {&RunConcat, true};
}
ReferenceKernel Tile(DType) {
  return {&RunTile, true};
}
ReferenceKernel Pad(DType dtype) {
  return {BytesKernel<PadOf>(dtype), true};
}
ReferenceKernel DepthToSpace(DType) {
  return {&RunDepthToSpace, false};
}
ReferenceKernel SpaceToDepth(DType) {
  return {&RunSpaceToDepth, false};
}
ReferenceKernel Trilu(DType dtype) {
  return {BytesKernel<TriluOf>(dtype), false};
}
ReferenceKernel ReverseSequence(DType) {
  return {&RunReverseSequence, false};
}
ReferenceKernel CumSum(DType dtype) {
  return Cumulative<SumOf>(dtype);
}
ReferenceKernel CumProd(DType dtype) {
  return Cumulative<ProductOf>(dtype);
}

}  // namespace kiln::kernels
