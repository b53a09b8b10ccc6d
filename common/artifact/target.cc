#include "common/artifact/target.h"

#include <algorithm>
#include <cstdlib>

#include "common/base/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kiln {

namespace {

constexpr TargetInfo kTargets[] = {
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) \
  {Target::k##name, text, Architecture::k##architecture, rung, vector_bytes, cpu, features},
#include "common/artifact/targets.def"
#undef KILN_TARGET
};

constexpr int kMinors = 10;  // of a device's compute capability, in its rung

#if defined(__x86_64__)

struct CpuidLeaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

CpuidLeaf Leaf(uint32_t leaf, uint32_t sub_leaf) {
  CpuidLeaf result;
  __get_cpuid_count(leaf, sub_leaf, &result.a, &result.b, &result.c, &result.d);
  return result;
}

// Which register states the operating system saves (XCR0).
uint64_t SavedStates() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

constexpr bool HasBits(uint64_t value, uint64_t bits) {
  return (value & bits) == bits;
}
constexpr uint64_t Bit(int n) {
  return uint64_t{1} << n;
}

// Bit numbers: Intel SDM volume 2A, CPUID; the sets are those of the x86-64 psABI levels.
int HostRung() {
  const CpuidLeaf leaf1 = Leaf(1, 0), leaf7 = Leaf(7, 0), leaf71 = Leaf(7, 1), extended = Leaf(0x80000001, 0);
  const uint64_t v2 =
      Bit(0) | Bit(9) | Bit(13) | Bit(19) | Bit(20) | Bit(23);          // SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT
  if (!HasBits(leaf1.c, v2) || !HasBits(extended.c, Bit(0))) return 1;  // LAHF
  const uint64_t v3 = Bit(12) | Bit(22) | Bit(27) | Bit(28) | Bit(29);  // FMA, MOVBE, OSXSAVE, AVX, F16C
  const uint64_t v3_leaf7 = Bit(3) | Bit(5) | Bit(8);                   // BMI1, AVX2, BMI2
  if (!HasBits(leaf1.c, v3) || !HasBits(leaf7.b, v3_leaf7) || !HasBits(extended.c, Bit(5))) return 2;  // LZCNT
  const uint64_t states = SavedStates();
  if (!HasBits(states, 0x6)) return 2;                                     // XMM, YMM
  const uint64_t v4 = Bit(16) | Bit(17) | Bit(28) | Bit(30) | Bit(31);     // AVX-512 F, DQ, CD, BW, VL
  if (!HasBits(leaf7.b, v4) || !HasBits(states, 0xe6)) return 3;           // opmask, ZMM 0-15, ZMM 16-31
  if (!HasBits(leaf7.c, Bit(11)) || !HasBits(leaf71.a, Bit(5))) return 4;  // VNNI, BF16
  return 5;
}
constexpr Architecture kHostArchitecture = Architecture::kX86;

#elif defined(__aarch64__)
int HostRung() {
  return 1;
}  // NEON is part of the base architecture
constexpr Architecture kHostArchitecture = Architecture::kArm;
#else
int HostRung() {
  return 0;
}
constexpr Architecture kHostArchitecture = Architecture::kX86;
#endif

}  // namespace

const TargetInfo& InfoOf(Target target) {
  for (const TargetInfo& info : kTargets)
    if (info.target == target) return info;
  KILN_CHECK(false && "a Target outside the table");
  __builtin_unreachable();
}

std::optional<Target> TargetFromName(std::string_view name) {
  for (const TargetInfo& info : kTargets)
    if (info.name == name) return info.target;
  return std::nullopt;
}

std::optional<Target> TargetFromNumber(uint32_t number) {
  for (const TargetInfo& info : kTargets)
    if (static_cast<uint32_t>(info.target) == number) return info.target;
  return std::nullopt;
}

std::vector<Target> HostTargets() {
  int rung = HostRung();
  if (const char* text = std::getenv("KILN_MAX_TARGET")) {
    const std::optional<Target> limit = TargetFromName(text);
    if (limit && InfoOf(*limit).architecture == kHostArchitecture) rung = std::min(rung, InfoOf(*limit).rung);
  }
  std::vector<Target> targets;
  for (const TargetInfo& info : kTargets)
    if (info.architecture == kHostArchitecture && info.rung <= rung) targets.push_back(info.target);
  std::sort(targets.begin(), targets.end(), [](Target a, Target b) { return InfoOf(a).rung > InfoOf(b).rung; });
  return targets;
}

std::vector<Target> DeviceTargets(int major, int minor) {
  std::vector<Target> targets;
  for (const TargetInfo& info : kTargets)
    if (info.is_device() && info.rung / kMinors == major && info.rung % kMinors <= minor)
      targets.push_back(info.target);
  std::sort(targets.begin(), targets.end(), [](Target a, Target b) { return InfoOf(a).rung > InfoOf(b).rung; });
  return targets;
}

bool CanRun(Target host, Target code) {
  const TargetInfo& a = InfoOf(host);
  const TargetInfo& b = InfoOf(code);
  if (a.architecture != b.architecture || a.rung < b.rung) return false;
  return !a.is_device() || a.rung / kMinors == b.rung / kMinors;
}

}  // namespace kiln
