// The measuring stage of a job of the tuned tier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/artifact/plan.h"
#include "compile-service/jobs/compile_job.h"

namespace kiln {

// A form must be faster than the cost model's by this share to be taken: below it, timings differ by chance.
inline constexpr double kTunedGainMin = 0.03;
// Time to measure one kernel in, whatever it costs.
inline constexpr int64_t kTuneBudgetMs = 120;

// The fastest, or 0 when none gains kTunedGainMin over the first. Unmeasured times count as slow.
uint32_t FastestForm(const std::vector<int64_t>& ns);

// Chooses forms for the tunable kernels of a lowered plan, one kernel at a time, so that other work comes between. Used
// from one thread at a time; `lowered` outlives it.
class KernelTuner {
 public:
  // Waits for a child's answer, or ends with the request.
  using Await = std::function<Result<Frame>(ChildAnswer&)>;

  KernelTuner(const LowerAnswer& lowered, Target target, CompileWorkshop& workshop,
              std::shared_ptr<const JobControl> control)
      : lowered_(lowered), target_(target), workshop_(workshop), control_(std::move(control)) {}

  bool done() const { return chosen_.size() == lowered_.tunable.size(); }
  // Compiles every form of the next kernel and times them. Errors: those of children; Busy when no core is idle.
  Status Next(const Await& await);
  // A form for each kernel so far.
  const std::vector<uint32_t>& chosen() const { return chosen_; }
  // What was measured, by the key of the chosen form; KernelTuning::kernel is not known yet.
  const std::vector<std::pair<KernelKey, KernelTuning>>& measured() const { return measured_; }

 private:
  Result<TimeAnswer> Time(const TimeJob& job, const Await& await);

  const LowerAnswer& lowered_;
  const Target target_;
  CompileWorkshop& workshop_;
  const std::shared_ptr<const JobControl> control_;
  std::vector<uint32_t> chosen_;
  std::vector<std::pair<KernelKey, KernelTuning>> measured_;
};

}  // namespace kiln
