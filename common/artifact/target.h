// Targets: what a kernel was generated for, as a closed ladder (targets.def).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kiln {

enum class Target : uint8_t {
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) k##name = value,
#include "common/artifact/targets.def"
#undef KILN_TARGET
};

enum class Architecture : uint8_t { kX86, kArm, kCuda };

struct TargetInfo {
  Target target;
  std::string_view name;
  Architecture architecture;
  int rung;
  int vector_bytes;
  std::string_view llvm_cpu;
  std::string_view llvm_features;
  int f32_lanes() const { return vector_bytes / 4; }
  // A device beside the processor: kernels have a grid of threads and shared memory instead of vector registers.
  bool is_device() const { return architecture == Architecture::kCuda; }
  // Tiles of a product lie in the vector registers of one core: Winograd's form of a convolution, code of its own for
  // few rows and dot products with a transposed factor are made of them, and its weights' columns fill them.
  bool has_register_tiles() const { return !is_device(); }
  bool has_avx512() const { return architecture == Architecture::kX86 && rung >= 4; }
};

const TargetInfo& InfoOf(Target target);
std::optional<Target> TargetFromName(std::string_view name);
// From the number in targets.def, as kernels carry it.
std::optional<Target> TargetFromNumber(uint32_t number);
// The targets this host's processor can run, best first; empty on an architecture outside the table. Asks the processor
// and the operating system (XGETBV), not the environment. KILN_MAX_TARGET in the environment lowers the best one (for
// tests and mixed fleets).
std::vector<Target> HostTargets();
// The targets that a GPU of compute capability `major`.`minor` can run, best first; empty when the table has none of
// its major.
std::vector<Target> DeviceTargets(int major, int minor);
// Whether code for `code` may run on a processor or device whose best target is `host`.
bool CanRun(Target host, Target code);

}  // namespace kiln
