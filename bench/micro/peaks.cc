#include "bench/micro/peaks.h"

#include <cstdint>
#include <vector>

#include "bench/kernels/fma_peak.h"

namespace kiln::bench {

double MeasureReadBandwidth() {
  static const std::vector<uint64_t> buffer(size_t{8} << 20, 1);  // 64 MB
  const double start = ThreadSeconds();
  uint64_t sums[8] = {};
  for (size_t i = 0; i < buffer.size(); i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += buffer[i + j];
  const double seconds = ThreadSeconds() - start;
  volatile uint64_t sink = 0;
  for (uint64_t sum : sums) sink = sink + sum;
  return static_cast<double>(buffer.size() * sizeof(uint64_t)) / seconds * 1e-9;
}

}  // namespace kiln::bench
