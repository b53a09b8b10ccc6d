// From a worker's accusation of a plan to a verdict, and to the fleet's quarantine where the plan is wrong here as
// well.
#pragma once

#include <memory>

#include "common/compile_api/reproduce.h"
#include "compile-service/jobs/compile_job.h"

namespace kiln {

// Takes record and kernels from the store, has a validation child run them beside the ops (validate/try_plan.h), and
// reports what is wrong to the store, with the evidence; the case is then kept as a replay file. Blocking; not on the
// store client's loop thread. Runs no generated code. A verdict is no error. Errors: Malformed, InvalidArgument (the
// case is none of the segment), IntegrityFailure (a record that nobody would use), Unavailable (the store; then nothing
// was decided, also where the plan was wrong), what the child pool says, what `control` says once the request has
// ended.
Result<ReproduceReply> ReproducePlan(const ReproduceRequest& request, const CompileWorkshop& workshop,
                                     const std::shared_ptr<const JobControl>& control);

}  // namespace kiln
