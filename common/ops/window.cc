#include "common/ops/window.h"

#include <algorithm>

namespace kiln {
namespace {

// A list attribute with one entry per spatial dim, or a default.
Result<Dims> ReadList(const Attributes& attributes, const char* name, int rank, int64_t fallback, int64_t low) {
  const std::span<const int64_t> given = attributes.Ints(name);
  if (given.empty()) return Dims::Filled(rank, fallback);
  if (static_cast<int>(given.size()) != rank) {
    return Fail(ErrorCode::kShapeMismatch, "attribute `" + std::string(name) + "` has " + std::to_string(given.size()) +
                                               " entries for " + std::to_string(rank) + " spatial dims");
  }
  for (const int64_t value : given) {
    if (value < low || value > (int64_t{1} << 31)) {
      return Fail(ErrorCode::kInvalidArgument, "attribute `" + std::string(name) + "` holds " + std::to_string(value) +
                                                   "; it must be at least " + std::to_string(low));
    }
  }
  return Dims(given);
}

Result<AutoPad> ReadAutoPad(std::string_view text) {
  if (text == "NOTSET" || text.empty()) return AutoPad::kNone;
  if (text == "SAME_UPPER") return AutoPad::kSameUpper;
  if (text == "SAME_LOWER") return AutoPad::kSameLower;
  if (text == "VALID") return AutoPad::kValid;
  return Fail(ErrorCode::kInvalidArgument, "auto_pad '" + std::string(text) + "' is unknown");
}

}  // namespace

Result<Window> ReadWindow(const Attributes& attributes, int spatial_rank) {
  Window window;
  window.rank = spatial_rank;
  ASSIGN_OR_RETURN(window.kernel, ReadList(attributes, "kernel_shape", spatial_rank, 0, 1));
  ASSIGN_OR_RETURN(window.strides, ReadList(attributes, "strides", spatial_rank, 1, 1));
  ASSIGN_OR_RETURN(window.dilations, ReadList(attributes, "dilations", spatial_rank, 1, 1));
  ASSIGN_OR_RETURN(window.auto_pad, ReadAutoPad(attributes.Text("auto_pad", "NOTSET")));
  window.ceil_mode = attributes.Int("ceil_mode", 0) != 0;
  window.pads_begin = Dims::Filled(spatial_rank, 0);
  window.pads_end = Dims::Filled(spatial_rank, 0);
  const std::span<const int64_t> pads = attributes.Ints("pads");
  if (pads.empty() || window.auto_pad != AutoPad::kNone) return window;
  if (static_cast<int>(pads.size()) != 2 * spatial_rank) {
    return Fail(ErrorCode::kShapeMismatch, "attribute `pads` has " + std::to_string(pads.size()) + " entries for " +
                                               std::to_string(spatial_rank) + " spatial dims; it takes two per dim");
  }
  for (int d = 0; d < spatial_rank; ++d) {
    window.pads_begin[d] = pads[static_cast<size_t>(d)];
    window.pads_end[d] = pads[static_cast<size_t>(d + spatial_rank)];
    constexpr int64_t kFar = int64_t{1} << 31;
    if (std::min(window.pads_begin[d], window.pads_end[d]) < -kFar ||
        std::max(window.pads_begin[d], window.pads_end[d]) > kFar) {
      return Fail(ErrorCode::kInvalidArgument, "attribute `pads` holds a pad beyond 2^31");
    }
  }
  return window;
}

int64_t ResolvedPadBegin(const Window& window, int d, int64_t in, int64_t out) {
  if (window.auto_pad != AutoPad::kSameUpper && window.auto_pad != AutoPad::kSameLower) return window.pads_begin[d];
  // Dims of an empty tensor are not bounded by what memory holds, so this is wider than they are.
  const __int128 reach = static_cast<__int128>(out - 1) * window.strides[d] + window.Extent(d) - in;
  const int64_t total = static_cast<int64_t>(std::clamp<__int128>(reach, 0, INT64_MAX / 2));
  return window.auto_pad == AutoPad::kSameUpper ? total / 2 : (total + 1) / 2;
}

}  // namespace kiln
