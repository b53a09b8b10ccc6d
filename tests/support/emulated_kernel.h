// A kernel of any target, run by a user-mode emulator (qemu-user) with exactly the target's instructions: what the host
// has beyond them, or does not have, makes no difference.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/artifact/target.h"

namespace kiln::testing {

// Targets that the emulator knows: it has no AVX-512. Its masked AVX2 loads (7.2) touch lanes that are masked off, so
// that buffers of x86-64-v3 kernels are followed by a page that may be read; hosts that have the rung guard it.
std::vector<Target> EmulatedTargets();
// Why kernels of `target` cannot be emulated here; nullopt when they can.
std::optional<std::string> WhyNotEmulated(Target target);

// Memory behind one pointer of a kernel; the pointer is `origin` bytes into it.
struct EmulatedBuffer {
  std::span<uint8_t> bytes;
  int64_t origin = 0;
};

// Runs the parts [begin, end) of the kernel `blob` in order and leaves the results in `buffers` (one per pointer of the
// kernel; each ends at a guard page while the kernel runs, where the emulator honours masks). Returns what went wrong,
// or nothing.
std::optional<std::string> RunEmulated(Target target, std::span<const uint8_t> blob,
                                       std::span<const EmulatedBuffer> buffers, std::span<const int64_t> dims,
                                       std::span<const std::pair<int64_t, int64_t>> parts);

}  // namespace kiln::testing
