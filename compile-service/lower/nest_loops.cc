#include "compile-service/lower/nest_loops.h"

#include <algorithm>

namespace kiln::lower {

namespace {

constexpr Dim kOne = Dim::Const(1);
// Inner extents up to this are part of the code: it then needs no masks or remainder loops.
constexpr int64_t kInnerConstantMax = 64;
// Elements of a short row, without and with elementary functions: measured, softmax of 128 columns gains a tenth and of
// 32 a third, of 1000 it loses a twentieth; a layer normalisation of 768 gains a sixth.
constexpr int64_t kShortRow = 1024, kShortFunctionRow = 512;

}  // namespace

bool PaysInPairs(PlanBuilder& builder, const NestLoops& loops, const ir::ScalarProgram& body) {
  if (!loops.reduce_inner || !InfoOf(builder.target()).has_avx512()) return false;
  int64_t rows = 1, length = builder.RawHint(loops.inner.extent);
  for (const LoopDim& dim : loops.outer) rows *= builder.RawHint(dim.extent);
  for (const LoopDim& dim : loops.reduce) length *= builder.RawHint(dim.extent);
  const bool functions = std::ranges::any_of(body, ir::IsFunction, &ir::ScalarNode::op);
  return rows > 1 && length <= (functions ? kShortFunctionRow : kShortRow);
}

void FillNest(const NestLoops& loops, GroupBody& body, KernelArguments& arguments, ir::LoopNestSpec& spec) {
  for (const LoopDim& dim : loops.outer) spec.outer.push_back(arguments.Argument(dim.extent));
  for (const LoopDim& dim : loops.reduce) spec.reduce.push_back(arguments.UpTo(dim.extent, 1));
  spec.inner = arguments.UpTo(loops.inner.extent, kInnerConstantMax);
  spec.reduce_inner = loops.reduce_inner;
  for (size_t a = 0; a < body.operands().size(); ++a) {
    ir::Access access{body.Pointer(body.operands()[a]), body.operands()[a].dtype, {}};
    for (const LoopDim& dim : loops.outer) access.strides.push_back(arguments.Stride(dim.strides[a]));
    for (const LoopDim& dim : loops.reduce) access.strides.push_back(arguments.Stride(dim.strides[a]));
    access.strides.push_back(arguments.Stride(loops.inner.strides[a]));
    spec.accesses.push_back(std::move(access));
  }
}

Dim RangeOfNest(PlanBuilder& builder, const NestLoops& loops) {
  if (loops.outer.empty() && loops.reduce.empty() && !loops.reduce_inner) return loops.inner.extent;
  Dim range = kOne;
  for (const LoopDim& dim : loops.outer) range = builder.symbols().Mul(range, dim.extent);
  return range;
}

BitsType BitsOf(DType dtype) {
  switch (DTypeBytes(dtype)) {
    case 1:
      return {DType::kI8, DType::kI32};
    case 2:
      return {DType::kI16, DType::kI32};
    case 4:
      return {DType::kI32, DType::kI32};
    default:
      return {DType::kI64, DType::kI64};
  }
}

}  // namespace kiln::lower
