#include "cli/random_bits.h"

namespace kiln::cli {
namespace {

// Parameters of MT19937-64.
constexpr size_t kShift = 156;
constexpr uint64_t kLowBits = 0x7fffffff, kMatrix = 0xb5026f5aa96619e9, kSeeding = 6364136223846793005;

uint64_t Twist(uint64_t high, uint64_t low) {
  const uint64_t both = (high & ~kLowBits) | (low & kLowBits);
  return both >> 1 ^ (kMatrix & -(both & 1));
}

uint64_t Temper(uint64_t word) {
  word ^= word >> 29 & 0x5555555555555555;
  word ^= word << 17 & 0x71d67fffeda60000;
  word ^= word << 37 & 0xfff7eee000000000;
  return word ^ word >> 43;
}

}  // namespace

RandomBits::RandomBits(uint64_t seed) {
  state_[0] = seed;
  for (size_t i = 1; i < kWords; ++i) state_[i] = kSeeding * (state_[i - 1] ^ state_[i - 1] >> 62) + i;
}

void RandomBits::Refill() {
  for (size_t i = 0; i < kWords - kShift; ++i) state_[i] = state_[i + kShift] ^ Twist(state_[i], state_[i + 1]);
  for (size_t i = kWords - kShift; i < kWords - 1; ++i)
    state_[i] = state_[i + kShift - kWords] ^ Twist(state_[i], state_[i + 1]);
  state_[kWords - 1] = state_[kShift - 1] ^ Twist(state_[kWords - 1], state_[0]);
  for (size_t i = 0; i < kWords; ++i) block_[i] = Temper(state_[i]);
  next_ = 0;
}

}  // namespace kiln::cli
