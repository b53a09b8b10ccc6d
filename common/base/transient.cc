#include "common/base/transient.h"

namespace kiln {

bool IsTransient(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBusy:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
    case ErrorCode::kResourceExhausted:
      return true;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kMalformed:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kLimitExceeded:
    case ErrorCode::kShapeMismatch:
    case ErrorCode::kOutOfRange:
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kIntegrityFailure:
    case ErrorCode::kTargetMismatch:
    case ErrorCode::kQuarantined:
    case ErrorCode::kIoError:
    case ErrorCode::kCompileFailed:
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kInternal:
    case ErrorCode::kStateLost:
      return false;
  }
  return false;
}

}  // namespace kiln
