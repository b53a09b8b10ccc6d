// Names of a plan's kernels for the tools of people: perf, gdb.
#pragma once

#include <string>

#include "common/artifact/plan.h"

namespace kiln {

// "kiln MODEL: LABEL [kernel id]" with the label of the first step that uses the kernel; no control characters.
std::string KernelName(const std::string& model, const Plan& plan, size_t kernel);

}  // namespace kiln
