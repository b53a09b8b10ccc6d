// A model as one worker thread runs it when its tiers have settled: the interpreter alone, or the production dispatcher
// over slots that already hold the plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/models/requests.h"
#include "cli/strict/plan_request.h"
#include "vm-worker/dispatch/dispatcher.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::bench {

// Time of one request. CPU time is the process's: on a shared machine it is what the request cost, wall time also what
// others did.
struct Sample {
  int64_t cpu_ns = 0;
  int64_t wall_ns = 0;
  int64_t allocations = 0;  // on the heap
};

// Where a tier's time went, over all requests since the last Renew.
struct Shares {
  double kernels = 0, reference = 0, interpreter = 0;  // of wall time; the interpreter's includes dispatch
};

struct TierPlans {
  uint32_t plans = 0, kernels = 0, kernels_compiled = 0;
  uint32_t generated_nodes = 0, reference_nodes = 0;
  int64_t obtain_ns = 0;  // asking, compiling, fetching and linking, one after another
  std::string failure;    // of the first segment without a plan; it is interpreted
};

// Not thread-safe.
class Tier {
 public:
  static Tier Interpreter(std::shared_ptr<const LoadedProgram> program);
  // Large kernels run on the threads of `pool` too, which outlives the tier; null: on the caller's alone.
  static Tier Planned(std::shared_ptr<const LoadedProgram> program, cli::PlanServices services, cli::StrictTier plans,
                      KernelPool* pool = nullptr);
  Tier(Tier&&) noexcept;
  ~Tier();

  // Runs the request; segments that meet no plan wait for one first.
  Result<std::vector<Tensor>> Prepare(const Request& request);
  // One request as in service, outputs where the worker leaves them.
  Result<Sample> Run(const Request& request);
  // A fresh context and dispatcher over the same plans: no signature has been seen.
  void Renew();

  Shares shares() const;
  const TierPlans& plans() const;

 private:
  struct State;
  explicit Tier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kiln::bench
