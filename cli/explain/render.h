// An ExplainReply as text for people.
#pragma once

#include <string>

#include "common/worker_api/explain.h"

namespace kiln::cli {

struct RenderOptions {
  bool plans = false;  // steps with their times
  bool all = false;    // every segment in full; else those that matter little become one line
};

std::string Render(const ExplainReply& reply, const RenderOptions& options);

}  // namespace kiln::cli
