// Requests and replies of the cache store as plain structs. Value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/artifact/record.h"
#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "common/messaging/admission.h"
#include "common/security/role.h"

namespace kiln::cache {

enum class Method : uint16_t {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) k##name = value,
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
};
RoleSet MethodRoles(Method method);
Admission MethodAdmission(Method method);
std::string_view MethodText(Method method);  // for people

enum class ClaimKind : uint8_t {
#define KILN_CLAIM_KIND(value, name, text) k##name = value,
#include "common/cache_api/kinds.def"
#undef KILN_CLAIM_KIND
};
std::optional<std::string_view> ClaimKindName(ClaimKind value);

enum class ClaimState : uint8_t {
#define KILN_CLAIM_STATE(value, name, text) k##name = value,
#include "common/cache_api/kinds.def"
#undef KILN_CLAIM_STATE
};
std::optional<std::string_view> ClaimStateName(ClaimState value);

enum class ReportKind : uint8_t {
#define KILN_REPORT_KIND(value, name, text) k##name = value,
#include "common/cache_api/kinds.def"
#undef KILN_REPORT_KIND
};
std::optional<std::string_view> ReportKindName(ReportKind value);

enum class ChangeKind : uint8_t {
#define KILN_CHANGE_KIND(value, name, text) k##name = value,
#include "common/cache_api/kinds.def"
#undef KILN_CHANGE_KIND
};
std::optional<std::string_view> ChangeKindName(ChangeKind value);

enum class PurgeKind : uint8_t {
#define KILN_PURGE_KIND(value, name, text) k##name = value,
#include "common/cache_api/kinds.def"
#undef KILN_PURGE_KIND
};
std::optional<std::string_view> PurgeKindName(PurgeKind value);

struct VariantsRequest {
  Digest segment;
  std::vector<std::string> targets;  // empty: every target
  // weight_forms.def: forms beside packed that the asker can use. Whoever does not know of a form is not told of its
  // plans.
  std::vector<uint8_t> weights = {};
};
struct Variant {
  Digest plan_key;
  std::string target;
  uint32_t abi = 0;
  uint8_t numeric_mode = 0;
  Bytes guard;
  Evidence evidence;  // shadow_runs: what the fleet reported, at least the record's own
  Digest codegen_id;
  uint8_t tier = 0;
  int64_t created_wall_ms = 0;
  uint8_t weights = 0;  // weight_forms.def
};
// Quarantined plans are not in it.
struct VariantsReply {
  std::vector<Variant> variants;
};

struct GetPlanRequest {
  Digest plan_key;
};
struct GetPlanReply {
  Bytes record;  // verify with DecodeAndVerify
};

// One round trip of GetBlobs. CacheClient::GetBlobs makes as many as it takes.
struct GetBlobsRequest {
  std::vector<Digest> ids;
  uint64_t offset = 0;  // into the first id
};
struct BlobChunk {
  uint32_t index = 0;  // of the request's ids
  uint64_t offset = 0;
  uint64_t total = 0;
  bool found = false;
  Bytes bytes;
};
struct GetBlobsReply {
  std::vector<BlobChunk> chunks;  // in request order; what did not fit is left out
};

struct LookupKernelsRequest {
  std::vector<Digest> keys;
};
struct LookupKernelsReply {
  std::vector<KernelBinding> kernels;  // one per key, in order; of another signer they are hearsay
};

struct ClaimRequest {
  ClaimKind kind = ClaimKind::kKernel;
  std::vector<Digest> keys;
  uint32_t lease_ms = 0;
  std::string holder;  // unique per process; the same holder may claim again to extend
};
struct ClaimEntry {
  ClaimState state = ClaimState::kHeld;
  Digest kernel_id;           // kPresent, kernels only
  uint32_t remaining_ms = 0;  // kHeld
  std::string holder;         // kHeld
};
struct ClaimReply {
  std::vector<ClaimEntry> entries;  // one per key
};

struct ReleaseRequest {
  ClaimKind kind = ClaimKind::kKernel;
  std::vector<Digest> keys;
  std::string holder;
};
struct ReleaseReply {};

struct PublishBlobsRequest {
  std::vector<Bytes> blobs;
  std::vector<KernelBinding> index;  // entries to make, of any of the blobs
};
struct PublishBlobsReply {
  std::vector<Digest> ids;  // one per blob, as the store hashed it
};

struct PublishPlanRequest {
  Bytes record;
  std::vector<KernelBinding> kernels;  // entries to make in the kernel index, of kernels that the record names
};
struct PublishPlanReply {
  Digest plan_key;
  bool stored = false;  // false: an equally good record was there already
};

struct ReportRequest {
  Digest plan_key;
  ReportKind kind = ReportKind::kShadowOk;
  uint32_t runs = 1;
  std::string reporter;  // for people; the store counts machines, not names
  std::string detail;
  Digest contents = {};  // of the plan that ran (hash of PlanRecord::plan); zero: whichever is stored
};
struct ReportReply {
  bool quarantined = false;
  uint32_t shadow_runs = 0;
};

struct ChangeLogRequest {
  uint64_t since = 0;  // entries with a larger sequence number
  uint32_t limit = 0;  // 0: the store's own
};
struct ChangeEntry {
  uint64_t sequence = 0;
  ChangeKind kind = ChangeKind::kPublish;
  Digest plan_key;
  Digest segment;
  std::string target;
};
struct ChangeLogReply {
  std::vector<ChangeEntry> entries;
  uint64_t head = 0;
  bool gap = false;  // entries after `since` are gone; read every Variants list again
};

struct PurgeRequest {
  PurgeKind kind = PurgeKind::kPlan;
  Digest digest;       // plan key, segment or codegen id
  std::string target;  // kTarget
  bool dry_run = false;
};
struct PurgeReply {
  uint64_t plans = 0;
};

struct PinRequest {
  Digest plan_key;
  bool on = true;
};
struct PinReply {};
struct QuarantineRequest {
  Digest plan_key;
  bool on = true;
};
struct QuarantineReply {};

struct StatsRequest {};
struct Stat {
  std::string name;
  uint64_t value = 0;
};
struct StatsReply {
  std::vector<Stat> stats;
};

struct ListRequest {
  Digest after;        // zero: from the start
  uint32_t limit = 0;  // 0: the store's own
  Digest segment;      // zero: all
};
struct PlanSummary {
  Digest plan_key;
  Digest segment;
  std::string target;
  uint8_t tier = 0;
  Evidence evidence;
  uint32_t kernels = 0;
  uint64_t bytes = 0;
  uint64_t uses = 0;
  uint64_t compile_us = 0;
  int64_t created_wall_ms = 0;
  Digest codegen_id;
  bool pinned = false;
  bool quarantined = false;
};
struct ListReply {
  std::vector<PlanSummary> plans;
};

struct PingRequest {};
struct PingReply {
  std::string version;
  uint64_t uptime_ms = 0;
};

}  // namespace kiln::cache
