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

enum class Architecture : uint8_t { kX86, kArm };

struct TargetInfo {
  Target target;
  std::string_view name;
  Architecture architecture;
  int rung;
  int vector_bytes;
  std::string_view llvm_cpu;
  std::string_view llvm_features;
  int f32_lanes() const { return vector_bytes / 4; }
  bool has_avx512() const { return architecture == Architecture::kX86 && rung >= 4; }
};

const TargetInfo& InfoOf(Target target);
std::optional<Target> TargetFromName(std::string_view name);
// From the number in targets.def, as kernels carry it.
std::optional<Target> TargetFromNumber(uint32_t number);
// The targets this host can run, best first; empty on an architecture outside the table. Asks the processor and the
// operating system (XGETBV), not the environment. KILN_MAX_TARGET in the environment lowers the best one (for tests and
// mixed fleets).
std::vector<Target> HostTargets();
// Whether code for `code` may run on a host whose best target is `host`.
bool CanRun(Target host, Target code);

}  // namespace kiln
