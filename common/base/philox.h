// Random numbers by counter: any block of a sequence from its position, with no state to carry along. The generator is
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). For
// sampling, not for secrets.
#pragma once

#include <array>
#include <cstdint>

namespace kiln {

// Four words of 32 bits: a bijection of the counter for each key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The random numbers of one call of one node: blocks of four words, in any order, each the same whenever it is asked
// for. Draws that differ in key or in call are unrelated.
struct RandomDraw {
  uint64_t key = 0;
  uint64_t call = 0;

  std::array<uint32_t, 4> Block(uint64_t index) const;
  // Two numbers of 53 random bits, in [0, 1).
  std::array<double, 2> Uniforms(uint64_t index) const;
};

// The key of stream `index` of those that one seed gives: unrelated for other seeds and for other streams.
uint64_t RandomKey(uint64_t seed, uint32_t index);

}  // namespace kiln
