// Recordings as samples in [-1, 1).
#pragma once

#include <filesystem>
#include <vector>

#include "common/base/result.h"

namespace kiln::testing {

// A RIFF file of 16-bit mono PCM; Malformed for anything else.
Result<std::vector<float>> ReadWave(const std::filesystem::path& path);

}  // namespace kiln::testing
