// One compile request from bytes to a published plan: the conductor of the compile service. The order of the stages is
// the order of the calls in RunCompileJob, and nowhere else.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/cache_api/client.h"
#include "common/compile_api/compile_api.h"
#include "common/security/signer_list.h"
#include "compile-service/jobs/child_pool.h"

namespace kiln {

// What a job may use. Shared by all job threads.
struct CompileWorkshop {
  ChildPool& compilers;
  ChildPool& validators;
  cache::CacheClient& store;
  const SigningKey& signing_key;
  SignerList trusted;  // whose records count as "already there"
  std::string holder;  // of leases: unique per process
  const Clock& clock = SystemClock();
};

struct CompileOutcome {
  CompileReply reply;
  uint32_t kernels_reused = 0;
  // Wall time of the stages, microseconds; 0 for those that were not needed. Trials run beside the compilation of later
  // kernels: validate_us is what they took beyond it.
  uint64_t lower_us = 0, kernels_us = 0, validate_us = 0, publish_us = 0;
};

// Blocks the calling thread; must not run on the store client's loop thread. Errors: those of lowering (Unsupported,
// ShapeMismatch, Malformed…), CompileFailed (a child died or a kernel gave wrong results), Unavailable and
// DeadlineExceeded (the store), Busy (other replicas hold the lease).
Result<CompileOutcome> RunCompileJob(const CompileRequest& request, CompileWorkshop& workshop);

}  // namespace kiln
