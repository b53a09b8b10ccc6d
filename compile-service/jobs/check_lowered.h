// What a compile child made of a request, held to the request. Children run a compiler over segments of anybody and
// live across jobs, so that one may answer anything: nothing is signed because a child said so.
#pragma once

#include "common/compile_api/compile_api.h"
#include "common/segment/segment.h"
#include "compile-service/jobs/job_codec.h"

namespace kiln {

// CompileFailed names what differs: the plan's segment, target, numeric mode, ABI or guard (of symbols that inputs
// show, it may be narrower than what was asked for, not wider), the code generator, the key of a kernel, which
// follows from its spec, or a buffer in a place that its kernel does not allow.
// `codegen_id`: of the request's target (codegen_id_of.h).
Status CheckLowered(const LowerAnswer& answer, const Plan& plan, const CompileRequest& request, const Segment& segment,
                    const Digest& codegen_id);

}  // namespace kiln
