// What the families of shape rules share. Private to common/ops.
#pragma once

#include <string>

#include "common/ops/infer.h"

namespace kiln::rules {

// One rule per row of the op table that has no regions. A missing definition fails to link.
#define KILN_TENSOR_OP(value, name, min_in, max_in, min_out, max_out, dtype_rule, effects, family, doc) \
  Status name(InferContext& context);
#include "common/ops/tensor_ops.def"
#undef KILN_TENSOR_OP

using DimList = std::vector<Dim>;

// --- inputs ---
inline bool Has(const InferContext& context, size_t i) {
  return i < context.inputs.size() && context.inputs[i] != nullptr;
}
inline const TensorDesc& In(const InferContext& context, size_t i) {
  return *context.inputs[i];
}
inline bool Ranked(const InferContext& context, size_t i) {
  return Has(context, i) && In(context, i).has_rank();
}
// Dims of an input of known rank.
inline const DimList& InDims(const InferContext& context, size_t i) {
  return *In(context, i).dims;
}

// Contents of input i, when it is present and they are known.
std::optional<KnownValues> Known(InferContext& context, size_t i);
// The same, when all are constants.
std::optional<std::vector<int64_t>> KnownInts(InferContext& context, size_t i);
std::optional<std::vector<double>> KnownFloats(InferContext& context, size_t i);
// Number of elements of a 1-D input, when it is a constant; a scalar counts as one.
std::optional<int64_t> KnownLength(const InferContext& context, size_t i);

// --- outputs ---
inline void SetDims(InferContext& context, DimList dims, size_t output = 0) {
  if (output < context.outputs.size()) context.outputs[output].dims = std::move(dims);
}
inline void SetType(InferContext& context, DType dtype, size_t output = 0) {
  if (output < context.outputs.size()) context.outputs[output].dtype = dtype;
}
// Whether the contents of output 0, of these dims, are worth following.
bool FollowKnown(const InferContext& context, const DimList& dims);
inline void SetKnown(InferContext& context, KnownValues values, size_t output = 0) {
  if (output < context.known_outputs.size()) context.known_outputs[output] = std::move(values);
}
// Output 0 gets the sizes that input i holds, a vector: dims of their own while nobody knows its contents.
Status SetDimsFromContents(InferContext& context, size_t i);
// A dim that follows from contents nobody knows yet.
Dim DataDependentDim(InferContext& context, Interval range = {});

// --- checks ---
Result<int> Axis(int64_t axis, int rank);
// Axes normalised; InvalidArgument for one outside the rank or given twice.
Result<std::vector<int>> AxisList(std::span<const int64_t> axes, int rank);
// ShapeMismatch unless input i has `rank` dims; unknown rank passes.
Status RequireRank(const InferContext& context, size_t i, int min_rank, int max_rank);
// ShapeMismatch unless inputs i and j, where present, have one dtype.
Status RequireSameType(const InferContext& context, size_t i, size_t j);
Status RequireType(const InferContext& context, size_t i, DType dtype);
Status RequireFloat(const InferContext& context, size_t i);
Status RequireInteger(const InferContext& context, size_t i);
// ShapeMismatch unless input i, where present, holds one element (or its shape is not known yet).
Status RequireOneElement(const InferContext& context, size_t i);
// ShapeMismatch when a and b are proven (or, under kAssume, taken) to differ; else that they are equal is required.
// `what` names the two.
Status RequireEqual(InferContext& context, Dim a, Dim b, const std::string& what);
// ShapeMismatch when `from`, a dim that broadcasts to `to` and never the other way, is neither 1 nor `to`. Under
// kAssume the hints decide which of the two it is, as they do for InferContext::Broadcast.
Status RequireBroadcastTo(InferContext& context, Dim to, Dim from, const std::string& what);
// The same for every dim of a tensor of no higher rank; `which` names the tensor.
Status RequireBroadcastTo(InferContext& context, const DimList& to, const DimList& from, const std::string& which);
// The better known of two equal dims.
inline Dim MoreKnown(Dim a, Dim b) {
  return a.is_const() || !b.is_const() ? a : b;
}

// Shape of a NumPy matrix product of inputs `a` and `b` into output 0.
Status MatMulShape(InferContext& context, size_t a, size_t b);
// Shape of a convolution of inputs `x` and `w` into output 0.
Status ConvShape(InferContext& context, size_t x, size_t w);

// --- arithmetic ---
Dim Product(SymbolTable& symbols, std::span<const Dim> dims);
// Broadcast of two shapes.
Result<DimList> BroadcastDims(InferContext& context, const DimList& a, const DimList& b);
// Dim of x clamped below at `low`, without a max where the bounds prove it.
Dim AtLeast(InferContext& context, Dim x, int64_t low);
// Of a shape operand's contents that ONNX takes as they are: fails where one is a negative constant, and notes for
// whoever asks (InferContext::required) that the others are not negative.
Status RequireSizes(InferContext& context, const DimList& dims);
// Notes that a positive divisor divides `dim`, where that is not proven.
void RequireMultiple(const InferContext& context, Dim dim, int64_t divisor);
// Notes that `dim` is at least `low`, where that is not proven.
void RequireAtLeast(const InferContext& context, Dim dim, int64_t low);
// Product of constants, when all dims are.
std::optional<int64_t> ConstantProduct(std::span<const Dim> dims);
std::string DimsText(const InferContext& context, const DimList& dims);

}  // namespace kiln::rules
