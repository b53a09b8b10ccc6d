// Random bits for the inputs of `kiln run`: the sequence of std::mt19937_64 (Matsumoto and Nishimura's MT19937-64),
// made a block at a time in loops without branches, which compilers turn into vector code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kiln::cli {

// A uniform random bit generator. Value type; not thread-safe.
class RandomBits {
 public:
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

  explicit RandomBits(uint64_t seed = 5489);
  uint64_t operator()() {
    if (next_ == kWords) Refill();
    return block_[next_++];
  }

 private:
  static constexpr size_t kWords = 312;
  void Refill();

  std::array<uint64_t, kWords> state_, block_;
  size_t next_ = kWords;
};

}  // namespace kiln::cli
