// The stored form of everything but records and kernels: canonical bytes, sealed with a checksum over space, key and
// value, so that a damaged or misplaced entry is never read as a good one. And the keys.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "cache-store/store/kv_store.h"
#include "common/artifact/record.h"
#include "common/base/byte_io.h"
#include "common/cache_api/types.h"

namespace kiln::store {

Bytes Seal(Space space, std::string_view key, Bytes value);
// The value; IntegrityFailure if the seal does not match.
Result<Bytes> Unseal(Space space, std::string_view key, std::span<const uint8_t> sealed);

// --- keys ---

std::string DigestKey(const Digest& digest);                                 // 32 raw bytes
std::string SegmentIndexKey(const Digest& segment, const Digest& plan_key);  // 64 raw bytes
std::string SequenceKey(uint64_t sequence);                                  // big-endian
std::string LeaseKey(cache::ClaimKind kind, const Digest& key);
std::string StateKey(const Digest& plan_key);
std::string KernelSizeKey(const Digest& kernel_id);
std::string QuarantineKey(const Digest& plan_key);
std::string WitnessKey(const Digest& plan_key);
inline constexpr std::string_view kStatePrefix = "s", kKernelPrefix = "k", kQuarantinePrefix = "q",
                                  kWitnessPrefix = "w", kEpochKey = "epoch", kCleanKey = "clean";

// The digest that follows `prefix` in a key; nothing if the key has another form.
std::optional<Digest> DigestAfter(std::string_view key, std::string_view prefix);

// --- values ---

// What Variants and List answer about a plan, without its record.
struct PlanInfo {
  Digest segment;
  std::string target;
  uint32_t abi = 0;
  uint8_t numeric_mode = 0;
  uint8_t weights = 0;  // weight_forms.def
  Bytes guard;
  Evidence evidence;
  Provenance provenance;
  std::vector<KernelRef> kernels;
  uint64_t record_bytes = 0;
};
// Record and kernels; kernels that other plans share are counted in full.
uint64_t BytesOf(const PlanInfo& info);
PlanInfo InfoOf(const PlanRecord& record, uint64_t record_bytes);

// What changes about a plan while it is stored.
struct PlanState {
  double use = 0;  // decayed count of fetches, as of use_wall_ms
  int64_t use_wall_ms = 0;
  uint32_t shadow_runs = 0;
  bool pinned = false;
};

// Which machines reported what about the plan's record.
struct Witnesses {
  std::set<std::string> reporters;             // of a mismatch or fault
  std::map<std::string, uint32_t> clean_runs;  // as counted
};

struct Lease {
  std::string holder;
  int64_t expires_wall_ms = 0;
};

Bytes EncodeInfo(const PlanInfo& info);
Result<PlanInfo> DecodeInfo(std::span<const uint8_t> bytes);
Bytes EncodeState(const PlanState& state);
Result<PlanState> DecodeState(std::span<const uint8_t> bytes);
Bytes EncodeLease(const Lease& lease);
Result<Lease> DecodeLease(std::span<const uint8_t> bytes);
Bytes EncodeChange(const cache::ChangeEntry& entry);
Result<cache::ChangeEntry> DecodeChange(std::span<const uint8_t> bytes);
Bytes EncodeWitnesses(const Witnesses& witnesses);
Result<Witnesses> DecodeWitnesses(std::span<const uint8_t> bytes);
// Of the kernel index; the key is the entry's own. An entry of the first version, an id alone, is read as unsigned.
Bytes EncodeBinding(const KernelBinding& binding);
Result<KernelBinding> DecodeBinding(const Digest& key, std::span<const uint8_t> bytes);
Bytes EncodeDigest(const Digest& digest);
Result<Digest> DecodeDigest(std::span<const uint8_t> bytes);
Bytes EncodeU64(uint64_t value);
Result<uint64_t> DecodeU64(std::span<const uint8_t> bytes);

}  // namespace kiln::store
