// A kernel as stored and mapped: a fixed 64-byte header, then text and constants, position-independent.
//
//   bytes 0..7   magic "KILNKRN1"         8..11  KILN_KERNEL_ABI      12..15 target number (targets.def)
//   bytes 16..19 entry offset from byte 0 20..23 size of everything   24..63 zero
//   bytes 64..   code and constants, relocations resolved
//
// The KernelId is the hash of all of it. There is no relocation, symbol or address left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"

namespace kiln {

inline constexpr size_t kKernelHeaderBytes = 64;

struct KernelBlobView {
  Target target;
  uint32_t abi;
  uint32_t entry_offset;
  std::span<const uint8_t> bytes;  // all, header included
};

std::vector<uint8_t> BuildKernelBlob(Target target, uint32_t entry_offset_in_code, std::span<const uint8_t> code);
// Magic, sizes, ABI, known target, entry inside the code.
Result<KernelBlobView> ParseKernelBlob(std::span<const uint8_t> bytes);

}  // namespace kiln
