// Targets for people: what a host's processor can run, in words, and the limit that somebody set by name.
#pragma once

#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"

namespace kiln {

// The best of `targets` and what the next rung above it would need: "x86-64-v3; not x86-64-v4: this host lacks AVX-512
// F, BW, CD, DQ, VL". With no target: what the lowest rung needs.
std::string TargetsText(const std::vector<Target>& targets);

// InvalidArgument when KILN_MAX_TARGET (see HostTargets) names no processor's target: a limit that was meant must not
// be overlooked. For every main whose process asks for HostTargets.
Status CheckTargetLimit();

}  // namespace kiln
