// What a host's processor can run, in words.
#pragma once

#include <string>
#include <vector>

#include "common/artifact/target.h"

namespace kiln {

// The best of `targets` and what the next rung above it would need: "x86-64-v3; not x86-64-v4: this host lacks AVX-512
// F, BW, CD, DQ, VL". With no target: what the lowest rung needs.
std::string TargetsText(const std::vector<Target>& targets);

}  // namespace kiln
