// Builds the answer to an ExplainRequest.
#pragma once

#include "common/worker_api/explain.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {

// NotFound when no segment or node is called so. With request.plans, the next calls of the chosen segments measure
// their steps. Any thread.
Result<ExplainReply> ExplainModel(const Model& model, const TierController& tiers, const ExplainRequest& request);

}  // namespace kiln
