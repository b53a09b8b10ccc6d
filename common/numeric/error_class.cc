#include "common/numeric/error_bounds.h"

namespace kiln {
namespace {

ErrorClass FamilyClass(OpFamily family) {
  switch (family) {
    case OpFamily::kView:
    case OpFamily::kConstant:
    case OpFamily::kShape:
    case OpFamily::kControl:
    case OpFamily::kIndexing:
    case OpFamily::kMovement:
    case OpFamily::kSelection:
      return ErrorClass::kMove;
    case OpFamily::kElementwise:
      return ErrorClass::kFunction;
    case OpFamily::kReduction:
    case OpFamily::kPooling:
      return ErrorClass::kReduction;
    case OpFamily::kContraction:
    case OpFamily::kConvolution:
      return ErrorClass::kContraction;
    case OpFamily::kNormalization:
    case OpFamily::kOther:
      return ErrorClass::kNormalization;
    case OpFamily::kRecurrent:
      return ErrorClass::kRecurrent;
    case OpFamily::kQuantization:
      return ErrorClass::kAddition;
  }
  return ErrorClass::kNormalization;
}

struct Exception {
  TensorOp op;
  ErrorClass error_class;
};
constexpr Exception kExceptions[] = {
#define KILN_ERROR_CLASS_OF(op, name) {TensorOp::k##op, ErrorClass::k##name},
#include "common/numeric/error_class_ops.def"
#undef KILN_ERROR_CLASS_OF
};

}  // namespace

ErrorClass ErrorClassOf(const TensorOpInfo& op) {
  for (const Exception& exception : kExceptions)
    if (exception.op == op.op) return exception.error_class;
  return FamilyClass(op.family);
}

}  // namespace kiln
