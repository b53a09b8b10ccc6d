// "This plan was wrong here; see for yourself": what a worker sends after it has quarantined a plan, so that one worker
// is enough to protect a fleet, and no worker's word is.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/artifact/plan.h"
#include "common/base/result.h"
#include "common/compile_api/reproduce_outcome.h"
#include "common/messaging/message.h"

namespace kiln {

class RpcClient;

// Names the case without a value of a tensor: they are drawn from the seed.
struct ReproduceRequest {
  std::vector<uint8_t> segment;  // EncodeSegment
  PlanKey plan_key;
  Digest contents;           // hash of the plan's bytes, of the one that ran
  std::vector<Dims> inputs;  // of the run-time inputs
  std::vector<int64_t> parameters;
  uint64_t seed = 0;

  // Identity for single flight.
  Digest Key() const;
};

struct ReproduceReply {
  ReproduceVerdict verdict;
  bool quarantined = false;  // the fleet does not use the plan now
};

Message EncodeReproduceRequest(const ReproduceRequest& request);
Result<ReproduceRequest> DecodeReproduceRequest(const Message& message);
Message EncodeReproduceReply(const ReproduceReply& reply);
Result<ReproduceReply> DecodeReproduceReply(const Message& message);

// `done` runs on the client's loop thread, once. Errors: those of RpcClient::Call (Unsupported by a service of the
// version before), Busy when the caller asks too often.
void RequestReproduce(RpcClient& client, const ReproduceRequest& request, int64_t deadline_ms,
                      std::function<void(Result<ReproduceReply>)> done);

}  // namespace kiln
