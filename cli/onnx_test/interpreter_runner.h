// The interpreter as a runner of `onnx-test`.
#pragma once

#include "cli/onnx_test/program_runner.h"

namespace kiln::onnx_test {

RunnerMode InterpretedMode();

}  // namespace kiln::onnx_test
