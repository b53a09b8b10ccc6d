// MatMul, Gemm, Einsum.
#include <algorithm>
#include <map>

#include "common/ops/einsum_equation.h"
#include "common/ops/kernels/gemm.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// The two inner dims of an operand as a matrix; a vector is one row on the left, one column on the right.
template <class T>
Matrix<const T> InnerMatrix(const TensorRef& ref, bool is_left) {
  const int rank = ref.rank();
  const T* data = ref.as<T>();
  if (rank == 1 && is_left) return {data, 1, ref.dims[0], ref.dims[0], ref.strides[0]};
  if (rank == 1) return {data, ref.dims[0], 1, ref.strides[0], 1};
  return {data, ref.dims[rank - 2], ref.dims[rank - 1], ref.strides[rank - 2], ref.strides[rank - 1]};
}

Dims BatchDims(const TensorRef& ref) {
  return Dims(ref.dims.span().first(static_cast<size_t>(std::max(0, ref.rank() - 2))));
}

// Strides of an operand's batch dims over the output's batch dims.
Dims BatchStrides(const TensorRef& ref, const Dims& batch) {
  TensorRef head = ref;
  head.dims = BatchDims(ref);
  head.strides = Dims(ref.strides.span().first(head.dims.size()));
  return BroadcastRef(head, batch).strides;
}

struct MatMulOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& left = call.inputs[0];
    const TensorRef& right = call.inputs[1];
    const TensorRef& out = call.outputs[0];
    Matrix<const T> a = InnerMatrix<T>(left, true);
    Matrix<const T> b = InnerMatrix<T>(right, false);
    const int out_inner = (left.rank() > 1 ? 1 : 0) + (right.rank() > 1 ? 1 : 0);
    Dims batch(out.dims.span().first(static_cast<size_t>(out.rank() - out_inner)));
    Matrix<T> c{out.as<T>(), a.rows, b.columns, b.columns, 1};
    const Dims left_strides = BatchStrides(left, batch);
    const Dims right_strides = BatchStrides(right, batch);
    // Batches of the left operand that follow each other like rows, against one right operand, are one tall product.
    // They are made to follow each other where they don't: how sums are grouped depends on sizes only.
    const bool tall = right.rank() <= 2 && left.rank() > 2;
    if (tall) {
      if (!left.IsContiguous()) {
        ASSIGN_OR_RETURN(T * copy, Scratch<T>(call, left.elements()));
        CopyElements(left, MakeRef(left.dtype, left.dims, copy));
        a.data = copy;
      }
      a.rows = c.rows = a.columns == 0 ? NumElements(batch) * a.rows : left.elements() / a.columns;
      // Contiguous says nothing about the strides of dims of size 1, which the rows are if there was one per batch.
      a.row_stride = a.columns;
      a.column_stride = 1;
      return Gemm(call, a, b, c, false);
    }
    const int64_t count = NumElements(batch);
    Dims index = Dims::Filled(batch.rank(), 0);
    for (int64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(Gemm(call, a, b, c, false));
      c.data += c.rows * c.columns;
      for (int d = batch.rank() - 1; d >= 0; --d) {
        a.data += left_strides[d];
        b.data += right_strides[d];
        if (++index[d] < batch[d]) break;
        a.data -= left_strides[d] * batch[d];
        b.data -= right_strides[d] * batch[d];
        index[d] = 0;
      }
    }
    return {};
  }
};

template <class T>
void ScaleAndAdd(KernelCall& call, double alpha, double beta) {
  const TensorRef& out = call.outputs[0];
  T* y = out.as<T>();
  const int64_t count = out.elements();
  if (alpha != 1.0) {
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(y[i] * static_cast<T>(alpha));
  }
  if (!call.Has(2) || beta == 0.0) return;
  struct Scale {
    T factor;
  } scale{static_cast<T>(beta)};
  const TensorRef operands[] = {out, call.inputs[2]};
  ForEachRun(
      out.dims, operands,
      [](char* const* p, const int64_t* s, int64_t n, const void* functor) {
        const T factor = static_cast<const Scale*>(functor)->factor;
        for (int64_t i = 0; i < n; ++i) {
          T& sum = *reinterpret_cast<T*>(p[0] + i * s[0]);
          const T x = *reinterpret_cast<const T*>(p[1] + i * s[1]);
          if constexpr (std::is_integral_v<T>) {
            sum = WrapAdd(sum, WrapMul(factor, x));
          } else {
            sum += factor * x;
          }
        }
      },
      &scale);
}

struct GemmOf {
  template <class T>
  static Status Run(KernelCall& call) {
    Matrix<const T> a = InnerMatrix<T>(call.inputs[0], true);
    Matrix<const T> b = InnerMatrix<T>(call.inputs[1], false);
    const auto transpose = [](Matrix<const T>& m) {
      std::swap(m.rows, m.columns);
      std::swap(m.row_stride, m.column_stride);
    };
    if (call.attributes->Int("transA", 0) != 0) transpose(a);
    if (call.attributes->Int("transB", 0) != 0) transpose(b);
    const Matrix<T> c{call.outputs[0].as<T>(), a.rows, b.columns, b.columns, 1};
    RETURN_IF_ERROR(Gemm(call, a, b, c, false));
    ScaleAndAdd<T>(call, call.attributes->Float("alpha", 1.0), call.attributes->Float("beta", 1.0));
    return {};
  }
};

template <class F>
KernelFunction ProductKernel(DType dtype) {
  return DispatchDType(dtype, []<class T>() -> KernelFunction {
    if constexpr (kIsHalf<T>) {
      return &ViaFloat<&F::template Run<float>>;
    } else if constexpr (std::is_floating_point_v<T> || (kIsInteger<T> && sizeof(T) >= 4)) {
      return &F::template Run<T>;
    } else {
      return nullptr;
    }
  });
}

// Einsum as one loop nest over all labels; each operand steps by the sum of its strides of that label.
struct EinsumNest {
  List<int64_t> sizes;          // output labels first, then the summed ones
  size_t kept = 0;              // number of output labels
  List<List<int64_t>> strides;  // per input, per label
};

Result<EinsumNest> PlanEinsum(const KernelCall& call) {
  List<int> ranks;
  for (const TensorRef& in : call.inputs) ranks.push_back(in.rank());
  ASSIGN_OR_RETURN(const EinsumEquation equation, ParseEinsum(call.attributes->Text("equation", ""), ranks));
  List<int> labels = equation.output;
  for (const List<int>& term : equation.inputs) {
    for (const int label : term) {
      if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
    }
  }
  EinsumNest nest;
  nest.kept = equation.output.size();
  nest.sizes.assign(labels.size(), 1);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    nest.strides.emplace_back(labels.size(), 0);
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      const size_t at =
          static_cast<size_t>(std::find(labels.begin(), labels.end(), equation.inputs[i][d]) - labels.begin());
      const int64_t dim = call.inputs[i].dims[static_cast<int>(d)];
      if (dim == 1) continue;
      nest.sizes[at] = dim;
      nest.strides[i][at] += call.inputs[i].strides[static_cast<int>(d)];
    }
  }
  return nest;
}

struct EinsumOf {
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const EinsumNest nest, PlanEinsum(call));
    List<const T*> at;
    for (const TensorRef& in : call.inputs) at.push_back(in.as<T>());
    T* out = call.outputs[0].as<T>();
    Loop(nest, 0, at, out);
    return {};
  }

 private:
  template <class T>
  using SumOf = std::conditional_t<std::is_floating_point_v<T>, double, T>;

  template <class T>
  static void Loop(const EinsumNest& nest, size_t depth, List<const T*>& at, T*& out) {
    if (depth == nest.kept) {
      SumOf<T> sum = 0;
      Sum(nest, depth, at, sum);
      *out++ = static_cast<T>(sum);
      return;
    }
    Walk(nest, depth, at, [&] { Loop(nest, depth + 1, at, out); });
  }

  template <class T>
  static void Sum(const EinsumNest& nest, size_t depth, List<const T*>& at, SumOf<T>& sum) {
    if (depth < nest.sizes.size()) {
      Walk(nest, depth, at, [&] { Sum(nest, depth + 1, at, sum); });
      return;
    }
    SumOf<T> product = 1;
    for (const T* value : at) {
      if constexpr (std::is_integral_v<T>) {
        product = WrapMul<T>(product, *value);
      } else {
        product *= *value;
      }
    }
    if constexpr (std::is_integral_v<T>) {
      sum = WrapAdd<T>(sum, product);
    } else {
      sum += product;
    }
  }

  template <class T, class Body>
  static void Walk(const EinsumNest& nest, size_t depth, List<const T*>& at, Body body) {
    for (int64_t i = 0; i < nest.sizes[depth]; ++i) {
      body();
      for (size_t k = 0; k < at.size(); ++k) at[k] += nest.strides[k][depth];
    }
    for (size_t k = 0; k < at.size(); ++k) at[k] -= nest.strides[k][depth] * nest.sizes[depth];
  }
};

}  // namespace

ReferenceKernel MatMul(DType dtype) {
  return {ProductKernel<MatMulOf>(dtype), true};
}
ReferenceKernel Gemm(DType dtype) {
  return {ProductKernel<GemmOf>(dtype), true};
}
ReferenceKernel Einsum(DType dtype) {
  return {ProductKernel<EinsumOf>(dtype), true};
}

}  // namespace kiln::kernels
