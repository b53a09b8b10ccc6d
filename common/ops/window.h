// The sliding window of convolutions and pooling: attributes read once for shape rules and kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

enum class AutoPad : uint8_t { kNone, kSameUpper, kSameLower, kValid };

struct Window {
  int rank = 0;  // spatial dims
  Dims kernel;   // 0 where only the weight's shape tells
  Dims strides;
  Dims dilations;
  Dims pads_begin;  // negative pads crop
  Dims pads_end;
  AutoPad auto_pad = AutoPad::kNone;
  bool ceil_mode = false;

  // Elements that the dilated kernel spans.
  int64_t Extent(int d) const { return (kernel[d] - 1) * dilations[d] + 1; }
};

// InvalidArgument for lists of a wrong length, non-positive strides, dilations or kernel sizes, unknown auto_pad.
Result<Window> ReadWindow(const Attributes& attributes, int spatial_rank);

// Padding in front of dim `d` for the given sizes, with SAME_* resolved.
int64_t ResolvedPadBegin(const Window& window, int d, int64_t in, int64_t out);

}  // namespace kiln
