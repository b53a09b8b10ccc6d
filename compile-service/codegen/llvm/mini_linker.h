// LinkFlat: a relocatable ELF object to flat, position-independent code.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"

namespace kiln::codegen {

struct FlatCode {
  std::vector<uint8_t> bytes;  // to be placed at a 64-byte aligned address
  uint32_t entry_offset = 0;
};

// Lays out .text*, .rodata* one after the other and resolves PC-relative references between them. Anything else is an
// error: an undefined symbol (CompileFailed, naming it), an absolute or unknown relocation, writable data. Bounds are
// checked throughout.
Result<FlatCode> LinkFlat(std::span<const uint8_t> object, Architecture architecture, std::string_view entry);

}  // namespace kiln::codegen
