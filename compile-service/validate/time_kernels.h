// Times several forms of one kernel against each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln {

struct KernelForm {
  ir::KernelSpec spec;
  std::span<const uint8_t> code;  // kernel_blob.h
};
struct FormCall {
  std::vector<int64_t> dims;
  int64_t uses = 1;  // weight of its time
};

// Per form the time of the calls, each `uses` times, in nanoseconds of this thread: for each call the least of several
// rounds in which the forms take turns. About budget_ms in all, whatever the kernels cost. Generated code runs here:
// call it in a process that may die. Unsupported when the host is not `target` itself (what is fastest elsewhere says
// nothing) or when the forms do not work on the same memory; LimitExceeded when a call needs more than 512 MiB;
// ResourceExhausted when there is no memory.
Result<std::vector<int64_t>> TimeKernels(std::span<const KernelForm> forms, Target target,
                                         std::span<const FormCall> calls, int64_t budget_ms);

}  // namespace kiln
