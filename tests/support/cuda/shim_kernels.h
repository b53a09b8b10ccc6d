// Emitted CUDA sources, many in one translation unit, compiled by the host's compiler over cuda_shim.h and run on the
// processor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile-service/codegen/cuda/cuda_source.h"

namespace kiln::testing {

enum class ShimSchedule : int { kForward = 0, kBackward = 1, kRandom = 2 };
inline constexpr ShimSchedule kShimSchedules[] = {ShimSchedule::kForward, ShimSchedule::kBackward,
                                                  ShimSchedule::kRandom};

class ShimKernels {
 public:
  ShimKernels() = default;
  ~ShimKernels();
  ShimKernels(const ShimKernels&) = delete;
  ShimKernels& operator=(const ShimKernels&) = delete;

  size_t Add(codegen::cuda::CudaSource source);
  // Compiles all that were added; once. What went wrong, or nothing.
  std::optional<std::string> Build();
  // Runs [begin, end) as a device would. What the shim found wrong, or nothing.
  std::optional<std::string> Run(size_t kernel, std::span<void* const> pointers, std::span<const int64_t> dims,
                                 int64_t begin, int64_t end, ShimSchedule schedule, uint64_t seed) const;
  const codegen::cuda::CudaSource& source(size_t kernel) const { return sources_[kernel]; }

 private:
  using Launch = int (*)(int kernel, unsigned grid, unsigned block, void** parameters, int schedule, uint64_t seed);
  std::vector<codegen::cuda::CudaSource> sources_;
  void* library_ = nullptr;
  Launch launch_ = nullptr;
  const char* (*error_)() = nullptr;
};

}  // namespace kiln::testing
