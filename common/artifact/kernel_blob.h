// A kernel as stored: a fixed 64-byte header, then code. For processors that is text and constants,
// position-independent, mapped as they are:
//
//   bytes 0..7   magic "KILNKRN1"         8..11  KILN_KERNEL_ABI      12..15 target number (targets.def)
//   bytes 16..19 entry offset from byte 0 20..23 size of everything   24..63 zero
//   bytes 64..   code and constants, relocations resolved
//
// The KernelId is the hash of all of it. There is no relocation, symbol or address left.
//
// For devices (TargetInfo::is_device) the code is an image that the device's driver loads and nobody else looks into,
// and the header says how it is launched (kernel_abi.h):
//
//   bytes 16..19 offset of the image from byte 0: 64    20..23 size of everything
//   bytes 24..27 threads per block                      28..31 items of the range per block
//   bytes 32..35 dynamic shared memory in bytes         36..39 pointers   40..43 dims
//   bytes 44..47 least version of the driver, as cuDriverGetVersion gives it   48..63 zero
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"

namespace kiln {

inline constexpr size_t kKernelHeaderBytes = 64;

// How a device's kernel is launched.
struct DeviceLaunch {
  uint32_t threads = 0;          // per block: whole warps
  uint32_t items_per_block = 0;  // of the kernel's range
  uint32_t shared_bytes = 0;     // dynamic shared memory
  uint32_t pointers = 0, dims = 0;
  uint32_t driver_version = 0;  // 13000: CUDA 13.0
  bool operator==(const DeviceLaunch&) const = default;
};
inline constexpr uint32_t kWarpThreads = 32, kBlockThreadsMax = 1024;
inline constexpr uint32_t kDeviceSharedBytesMax = 227 << 10;  // that any device gives a block
// What the parameters of a launch may take: a pointer or number each, and the range.
inline constexpr uint32_t kDeviceParameterBytesMax = 4096;
constexpr uint32_t DeviceParameterBytes(uint32_t pointers, uint32_t dims) {
  const auto at_least_one = [](uint32_t count) { return count == 0 ? 1 : count; };
  return 8 * (at_least_one(pointers) + at_least_one(dims) + 2);
}

struct KernelBlobView {
  Target target;
  uint32_t abi;
  uint32_t entry_offset;               // of a device's kernel: where its image begins
  std::span<const uint8_t> bytes;      // all, header included
  std::optional<DeviceLaunch> launch;  // of a device's kernel
};

std::vector<uint8_t> BuildKernelBlob(Target target, uint32_t entry_offset_in_code, std::span<const uint8_t> code);
std::vector<uint8_t> BuildDeviceBlob(Target target, const DeviceLaunch& launch, std::span<const uint8_t> image);
// Magic, sizes, ABI, known target; entry inside the code, or a launch within a device's limits.
Result<KernelBlobView> ParseKernelBlob(std::span<const uint8_t> bytes);

}  // namespace kiln
