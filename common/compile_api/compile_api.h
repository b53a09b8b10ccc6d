// The compile service as its clients see it: requests and replies as plain structs, and an asynchronous client.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/base/result.h"
#include "common/messaging/admission.h"
#include "common/messaging/message.h"
#include "common/security/role.h"

namespace kiln {

class RpcClient;

enum class CompileMethod : uint16_t {
#define KILN_COMPILE_METHOD(value, name, roles, admission, doc) k##name = value,
#include "common/compile_api/compile_methods.def"
#undef KILN_COMPILE_METHOD
};
RoleSet MethodRoles(CompileMethod method);
Admission MethodAdmission(CompileMethod method);
std::string_view MethodText(CompileMethod method);  // for people

// "Bake this segment." Self-contained: any replica can answer it without asking back.
struct CompileRequest {
  std::vector<uint8_t> segment;  // EncodeSegment
  std::string target;
  NumericMode numeric_mode = NumericMode::kDefault;
  PlanTier tier = PlanTier::kGeneric;
  uint32_t priority = 0;
  std::vector<SymbolGuard> symbols;  // per symbol of the segment
  std::vector<int64_t> hints;        // per symbol; -1 where known only inside
  // A service of the version before packs them whatever is asked for; the plan that its reply names says so.
  WeightForm weights{};

  // Identity for single flight: everything that can change the plan.
  Digest Key() const;
};

struct CompileReply {
  PlanKey plan_key;
  bool already_there = false;
  uint32_t kernels = 0, kernels_compiled = 0, generated_nodes = 0, reference_nodes = 0;
  uint64_t compile_us = 0;
};

struct CompileStats {
  uint64_t requests = 0, joined = 0, plans = 0, kernels = 0, kernels_reused = 0, failures = 0, child_crashes = 0,
           queued = 0, running = 0, cancelled = 0, kernels_refused = 0, kernels_timed = 0, forms_taken = 0,
           reproductions = 0, reproduced = 0, throttled = 0;
};

Message EncodeCompileRequest(const CompileRequest& request);
Result<CompileRequest> DecodeCompileRequest(const Message& message);
Message EncodeCompileReply(const CompileReply& reply);
Result<CompileReply> DecodeCompileReply(const Message& message);
Message EncodeCompileStats(const CompileStats& stats);
Result<CompileStats> DecodeCompileStats(const Message& message);

// By CompileRequest::Key.
Message EncodeCancelRequest(const Digest& key);
Result<Digest> DecodeCancelRequest(const Message& message);

// `done` runs on the client's loop thread, once. Errors: those of RpcClient::Call, and CompileFailed, Unsupported,
// Malformed.
void RequestCompile(RpcClient& client, const CompileRequest& request, int64_t deadline_ms,
                    std::function<void(Result<CompileReply>)> done);
// The same, blocking; not on the client's loop thread.
Result<CompileReply> RequestCompileSync(RpcClient& client, const CompileRequest& request, int64_t deadline_ms);
Result<CompileStats> CompileStatsSync(RpcClient& client, int64_t deadline_ms);
// Tells the service that nobody here waits for the request of this key any more. `done` of that request comes all the
// same, with Cancelled. One that does not arrive is no harm: the deadline ends the request then.
void CancelCompile(RpcClient& client, const Digest& key);

}  // namespace kiln
