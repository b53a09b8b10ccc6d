// The main job's phases and figures.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/job/text_lines.h"
#include "common/worker_api/worker_api.h"

namespace kiln {
class RpcClient;
}

namespace kiln::cli {

// Figures of one phase; times in microseconds, shares of the time on the request threads.
struct PhaseFigures {
  std::string name;
  uint64_t requests = 0;
  uint64_t p50_us = 0, p99_us = 0;
  double share_kernels = 0, share_reference = 0, share_interpreter = 0;
  uint64_t compiles = 0, fetched = 0, rejected = 0;
  double unseen_shape_share = 0;                         // of its different widths, those no earlier phase had
  std::vector<std::pair<std::string, uint64_t>> misses;  // interpreted segment calls by reason
};

struct Answer {
  const TextLine* line;
  Tensor output;
};

// One phase against one or more workers, which take turns. Not thread-safe.
class PhaseRunner {
 public:
  // At least one worker; they outlive the runner.
  PhaseRunner(std::vector<RpcClient*> workers, std::string model, std::string input)
      : workers_(std::move(workers)), model_(std::move(model)), input_(std::move(input)) {}

  // Reads the workers' counters as they are now, so that Finish tells this phase's part.
  // `with_start`: what the workers did since they started counts too (plans that a new one fetched before it was
  // ready).
  Status Begin(std::string name, bool with_start = false);
  Status Send(const TextLine& line);
  // `seen` is the widths of earlier phases; this phase's are added.
  Result<PhaseFigures> Finish(std::set<int64_t>& seen);
  const std::vector<Answer>& answers() const { return answers_; }
  const std::vector<RunTiming>& timings() const { return timings_; }

 private:
  Result<std::map<std::string, uint64_t>> Counters() const;
  std::vector<RpcClient*> workers_;
  std::string model_, input_;
  PhaseFigures figures_;
  std::map<std::string, uint64_t> before_;  // counters, summed over the workers
  std::vector<RunTiming> timings_;
  std::vector<uint64_t> latencies_us_;
  std::vector<Answer> answers_;
};

std::string PhaseTable(const std::vector<PhaseFigures>& phases);
std::string PhasesAsJson(const std::string& model, uint64_t mismatches, const std::vector<PhaseFigures>& phases);

}  // namespace kiln::cli
