// What micro_bench measures: programs for Kiln, and the same work for its peers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/micro/plan_runner.h"

namespace kiln::bench {

struct PeerRun {
  std::string peer, version;
  std::function<void()> run;
  const float* output = nullptr;  // compared with Kiln's, where its order is the same
};

struct MicroCase {
  std::string group, name, program;
  int64_t size = 1;       // of the program's symbol
  double flops = 0;       // per run; 0: bound by memory
  double bytes = 0;       // read and written at least
  bool isolated = false;  // only the plan's costliest kernel is timed
  // The peers, over the runner's own inputs and weights, which outlive them.
  std::function<std::vector<PeerRun>(const PlanRunner&)> peers;
};

std::vector<MicroCase> AllCases();

}  // namespace kiln::bench
