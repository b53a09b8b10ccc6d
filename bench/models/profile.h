// Time per step of a model's plans.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/models/requests.h"
#include "cli/strict/plan_request.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln::bench {

// Runs the request `repeats` times; per step the least time seen: {segment, step, label, kind, dims, us}, longest
// first.
Result<nlohmann::json> ProfileSteps(std::shared_ptr<const LoadedProgram> program, const Request& request,
                                    cli::PlanServices services, cli::StrictTier tier, int repeats);

}  // namespace kiln::bench
