// An ExplainReply as text for people.
#pragma once

#include <string>

#include "common/worker_api/explain.h"

namespace kiln::cli {

struct RenderOptions {
  bool plans = false;  // steps with their times
  std::string node;    // the one asked about; empty: all
  bool all = false;    // every segment in full; else those that matter little become one line
};

std::string Render(const ExplainReply& reply, const RenderOptions& options);

// The kernel that took the most measured time; "" when nothing was measured.
std::string HottestKernel(const ExplainReply& reply);
// What the kernel of reply.code computes and where, then its listing.
std::string RenderKernel(const ExplainReply& reply, const std::string& listing);

}  // namespace kiln::cli
