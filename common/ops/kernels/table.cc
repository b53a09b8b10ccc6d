#include "common/ops/kernels/table.h"

#include <string>

namespace kiln {
namespace {

using KernelChooser = ReferenceKernel (*)(DType);

KernelChooser ChooserOf(TensorOp op) {
  switch (op) {
#define KILN_KERNEL_ROW_0(name) \
  case TensorOp::k##name:       \
    return nullptr;
#define KILN_KERNEL_ROW_1(name) \
  case TensorOp::k##name:       \
    return &kernels::name;
#define KILN_KERNEL_ROW_INNER(has, name) KILN_KERNEL_ROW_##has(name)
#define KILN_KERNEL_ROW(has, name) KILN_KERNEL_ROW_INNER(has, name)
#define KILN_TENSOR_OP(value, name, min_in, max_in, min_out, max_out, dtype_rule, effects, family, doc) \
  KILN_KERNEL_ROW(KILN_HAS_KERNEL_##family, name)
#include "common/ops/tensor_ops.def"
#undef KILN_TENSOR_OP
  }
  return nullptr;
}

}  // namespace

Result<ReferenceKernel> FindReferenceKernel(TensorOp op, DType dtype) {
  const KernelChooser chooser = ChooserOf(op);
  const ReferenceKernel kernel = chooser == nullptr ? ReferenceKernel{} : chooser(dtype);
  if (kernel.run == nullptr) {
    return Fail(ErrorCode::kUnsupported, "op " + std::string(OpInfo(op).name) + " has no reference kernel for dtype " +
                                             std::string(DTypeName(dtype)));
  }
  return kernel;
}

}  // namespace kiln
