// Node attributes as canonical bytes, over a symbol table: for plans' reference steps and for hashing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

std::vector<uint8_t> EncodeAttributes(const Attributes& attributes, const SymbolTable& symbols);
// Rejects hostile bytes (unknown kinds, unsorted or repeated names, sizes beyond the input) with Malformed.
Result<Attributes> DecodeAttributes(std::span<const uint8_t> bytes, SymbolTable& symbols);

}  // namespace kiln
