#include "common/base/random_bits.h"

#include <random>

namespace kiln {

uint64_t SystemRandomBits() {
  static thread_local std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace kiln
