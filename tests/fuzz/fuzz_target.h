// What each fuzz target does with some bytes. A target returns for every input; what it holds to be true it CHECKs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kiln::fuzz {

#define KILN_FUZZ_TARGET(name, function, max_bytes, doc) void function(std::span<const uint8_t> bytes);
#include "tests/fuzz/fuzz_targets.def"
#undef KILN_FUZZ_TARGET

// The first byte of an input for `messages` (`records`) that chooses the row of that name; -1: there is none.
int MessageRowNumber(std::string_view name);
int RecordRowNumber(std::string_view name);

struct FuzzTarget {
  std::string_view name;
  void (*run)(std::span<const uint8_t> bytes);
  size_t max_bytes;
};
inline constexpr FuzzTarget kFuzzTargets[] = {
#define KILN_FUZZ_TARGET(name, function, max_bytes, doc) {#name, function, max_bytes},
#include "tests/fuzz/fuzz_targets.def"
#undef KILN_FUZZ_TARGET
};

}  // namespace kiln::fuzz
