// Programs on disk, in whatever form: ONNX, program text, binary.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln::cli {

// Read, prepared (ONNX only) and verified; errors begin with the path.
Result<Program> ReadProgram(const std::filesystem::path& path);
// Written next to the target and renamed onto it, so that a failure leaves what was there.
Status WriteFile(const std::filesystem::path& path, std::string_view bytes);

}  // namespace kiln::cli
