// Replay files: one call of one segment by one plan, complete enough to run alone. Shapes and a seed; tensor values
// only when asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/compare/segment_case.h"

namespace kiln::cli {

struct ReplayText {
  std::string model;  // where it came from, for people
  int segment_index = 0;
  std::string difference;  // what was found
  uint64_t seed = 1;       // of the values that stand in for inputs and weights
  bool keep_tensors = false;
};

// JSON with the segment, the plan and its kernels. The caller decides whether values may leave with it.
Status WriteReplay(const std::string& path, const ReplayText& text, const SegmentCase& call);

// A replay ready to run; holds what its plan refers to.
struct Replay {
  ReplayText text;
  std::unique_ptr<Segment> segment;
  std::vector<Tensor> weights;
  SegmentCase call;
};
// Everything in the file is checked as if it came from the network: ids of segment, plan and kernels are recomputed.
// Running it runs the kernels it holds: read files of people you trust only.
Result<std::unique_ptr<Replay>> ReadReplay(const std::string& path);

}  // namespace kiln::cli
