// The host's compiler over cuda_shim.h.
#pragma once

#include <optional>
#include <string>

namespace kiln::testing {

// Makes a shared library of the file `source`. What the compiler says where it fails, or nothing.
std::optional<std::string> CompileForShim(const std::string& source, const std::string& library);

}  // namespace kiln::testing
