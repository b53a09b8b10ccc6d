// One compile request from bytes to a published plan: the conductor of the compile service. The order of the stages is
// the order of the calls in CompileJob::Advance, and nowhere else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/artifact/plan.h"
#include "common/base/clock.h"
#include "common/base/random_bits.h"
#include "common/base/result.h"
#include "common/cache_api/client.h"
#include "common/compile_api/compile_api.h"
#include "common/security/signer_list.h"
#include "compile-service/jobs/child_pool.h"
#include "compile-service/jobs/job_codec.h"
#include "compile-service/jobs/job_control.h"
#include "compile-service/jobs/keys_in_work.h"

namespace kiln {

// What a held job waits for, after Advance gave nothing.
struct CompileWait {
  Digest key;               // of a plan or kernel that another job of this process makes; zero: of another replica
  uint32_t remaining_ms{};  // of that replica's lease
  bool ready = false;       // for nothing: others may have their turn in between
};

// The best of HostTargets, if there is one.
std::optional<Target> HostTarget();

// The tuned tier waits for everything else, whatever its requests say; others are above it.
inline constexpr uint32_t kTunedPriority = 0;
uint32_t PriorityOf(const CompileRequest& request);

// What a job may use. Shared by all job threads.
struct CompileWorkshop {
  ChildPool& compilers;
  ChildPool& validators;
  cache::CacheClient& store;
  const SigningKey& signing_key;
  SignerList trusted;  // whose records and kernels count as "already there"
  std::string holder;  // of leases: unique per process
  const Clock& clock = SystemClock();
  std::shared_ptr<KeysInWork> in_work = std::make_shared<KeysInWork>();
  // What this host runs best: only plans for it are tuned here. Nothing: no kernel can run.
  std::optional<Target> host = HostTarget();
  // Times the forms of a kernel; tests put their own here. Empty: a validation child does.
  std::function<Result<TimeAnswer>(const TimeJob&)> time_kernel = {};
  ChildPool* disassemblers = nullptr;  // children of one job each; null: no listings
  RandomBits random = SystemRandomBits;
  std::string nvrtc = {};  // the library's path, as the compile children have it; empty: no plans for GPUs
};

struct CompileOutcome {
  CompileReply reply;
  uint32_t kernels_reused = 0;
  // Wall time of the stages, microseconds; 0 for those that were not needed. Trials run beside the compilation of later
  // kernels: validate_us is what they took beyond it.
  uint64_t lower_us = 0, tune_us = 0, kernels_us = 0, validate_us = 0, publish_us = 0;
  uint32_t kernels_timed = 0, forms_taken = 0;  // of the tuned tier: others than the cost model's
};

// The mark of quarantine that a request failed for: on the plan that it asks for, of the code generator that would make
// it again.
struct StandingMark {
  PlanKey plan_key;
  Digest codegen_id;
};
// Whether the store still has the mark. Blocking, not on the store client's loop thread; Unavailable: the store.
Result<bool> StillStands(const StandingMark& mark, const CompileWorkshop& workshop, const JobControl& control);

// A request in work. Holds leases in the store on the plan and on the kernels that it compiles, extends them while it
// works, and gives them back when it is destroyed. Used from one thread at a time, which must not be the store client's
// loop thread.
class CompileJob {
 public:
  CompileJob(CompileRequest request, CompileWorkshop& workshop, std::shared_ptr<const JobControl> control);
  ~CompileJob();

  // Does all that can be done now, blocking. Nothing: others compile the plan or some of its kernels, or the forms of
  // one kernel were timed and those of others come next; call again a little later, or when waits_for() ends; the
  // thread is free until then. Errors: those of lowering (Unsupported, ShapeMismatch, Malformed…), CompileFailed (a
  // child died or lied, or a kernel gave wrong results), Quarantined, Unavailable (whatever the store said), and what
  // `control` says once the request has ended; of the tuned tier also TargetMismatch (this host is another target),
  // Unsupported (nothing to choose) and Busy (no core is idle).
  Result<std::optional<CompileOutcome>> Advance();
  const CompileWait& waits_for() const;
  const CompileRequest& request() const;
  // What a failure of the kind Quarantined is about; nothing before it is known which plan would be made.
  std::optional<StandingMark> mark() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kiln
