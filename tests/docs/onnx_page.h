// docs/onnx.md from the tables: what the importer reads, and which element types of every op the interpreter runs and
// the compile service makes kernels for. Nothing is claimed that was not tried: support is found by running and
// lowering the cases of tests/common/ops/cases.txt in every element type.
#pragma once

#include <string>

namespace kiln::testing {

std::string OnnxPage(const std::string& case_file);

}  // namespace kiln::testing
