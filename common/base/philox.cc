#include "common/base/philox.h"

namespace kiln {
namespace {

// Multipliers and key increments of the paper, section 4.
constexpr uint64_t kMultiply0 = 0xd2511f53, kMultiply1 = 0xcd9e8d57;
constexpr uint32_t kIncrement0 = 0x9e3779b9, kIncrement1 = 0xbb67ae85;
constexpr int kRounds = 10;

constexpr uint32_t Low(uint64_t value) {
  return static_cast<uint32_t>(value);
}
constexpr uint32_t High(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}
constexpr uint64_t Join(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}
double ToUniform(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0], product1 = kMultiply1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1), High(product0) ^ counter[3] ^ key[1],
               Low(product0)};
    key[0] += kIncrement0;
    key[1] += kIncrement1;
  }
  return counter;
}

std::array<uint32_t, 4> RandomDraw::Block(uint64_t index) const {
  return Philox4x32({Low(index), High(index), Low(call), High(call)}, {Low(key), High(key)});
}

std::array<double, 2> RandomDraw::Uniforms(uint64_t index) const {
  const std::array<uint32_t, 4> words = Block(index);
  return {ToUniform(Join(words[0], words[1])), ToUniform(Join(words[2], words[3]))};
}

uint64_t RandomKey(uint64_t seed, uint32_t index) {
  const std::array<uint32_t, 4> words = Philox4x32({index, 0, 0, 0}, {Low(seed), High(seed)});
  return Join(words[0], words[1]);
}

}  // namespace kiln
