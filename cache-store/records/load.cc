// Opening a store: every index entry is checked, what is damaged or dangling is dropped, and the drop is logged as a
// change.
#include <spdlog/spdlog.h>

#include "cache-store/records/records.h"

namespace kiln::store {
namespace {

// Numbers of a store that starts anew begin above those of any store before it in this place, so that a reader of the
// old one sees a gap.
constexpr uint64_t kEpochStepsPerMs = 16;
// More than the changes that can be under way at a crash.
constexpr uint64_t kCrashJump = 100'000;

}  // namespace

class Loader {
 public:
  explicit Loader(Records& records) : records_(records), kv_(*records.kv_) {}

  Status Load() {
    RETURN_IF_ERROR(LoadKernels());
    RETURN_IF_ERROR(LoadStates());
    RETURN_IF_ERROR(LoadKernelIndex());
    RETURN_IF_ERROR(LoadPlans());
    RETURN_IF_ERROR(LoadChangeLog());
    RETURN_IF_ERROR(LoadLeases());
    RETURN_IF_ERROR(EmptyRetired());
    for (const auto& [plan_key, info] : lost_plans_)
      records_.log_.Prepare(cache::ChangeKind::kDamaged, plan_key, info, cleanup_);
    RETURN_IF_ERROR(records_.Commit(cleanup_));
    RETURN_IF_ERROR(records_.kv_->Sync());  // the clean mark is gone before anything changes
    records_.head_.store(records_.log_.head());
    records_.opened_ = true;
    return {};
  }

 private:
  // Calls `entry` with each intact value under the prefix; damaged ones are counted and deleted.
  Status ForEach(Space space, std::string_view prefix,
                 const std::function<bool(std::string_view, std::span<const uint8_t>)>& entry) {
    return kv_.Scan(space, prefix, [&](std::string_view key, std::span<const uint8_t> sealed) {
      const auto value = Unseal(space, key, sealed);
      if (!value || !entry(key, *value)) {
        records_.Add(Counter::entries_damaged);
        spdlog::warn("dropped a damaged entry of {}", SpaceName(space));
        cleanup_.Delete(space, key);
      }
      return true;
    });
  }

  Status LoadKernels() {
    return ForEach(Space::kMeta, kKernelPrefix, [&](std::string_view key, std::span<const uint8_t> value) {
      const auto id = DigestAfter(key, kKernelPrefix);
      const auto size = DecodeU64(value);
      if (!id || !size) return false;
      records_.catalog_.PutKernel(*id, *size, records_.NowNs());
      return true;
    });
  }

  Status LoadStates() {
    RETURN_IF_ERROR(ForEach(Space::kMeta, kStatePrefix, [&](std::string_view key, std::span<const uint8_t> value) {
      const auto plan_key = DigestAfter(key, kStatePrefix);
      const auto state = DecodeState(value);
      if (plan_key && state) states_[*plan_key] = *state;
      return plan_key && state;
    }));
    RETURN_IF_ERROR(ForEach(Space::kMeta, kWitnessPrefix, [&](std::string_view key, std::span<const uint8_t> value) {
      const auto plan_key = DigestAfter(key, kWitnessPrefix);
      auto witnesses = DecodeWitnesses(value);
      if (plan_key && witnesses) witnesses_[*plan_key] = *std::move(witnesses);
      return plan_key && witnesses;
    }));
    return ForEach(Space::kMeta, kQuarantinePrefix, [&](std::string_view key, std::span<const uint8_t> value) {
      const auto plan_key = DigestAfter(key, kQuarantinePrefix);
      const auto codegen_id = DecodeDigest(value);
      if (plan_key && codegen_id) records_.quarantine_[*plan_key] = *codegen_id;
      return plan_key && codegen_id;
    });
  }

  Status LoadKernelIndex() {
    return ForEach(Space::kKernelIndex, "", [&](std::string_view key, std::span<const uint8_t> value) {
      const auto kernel_key = DigestAfter(key, "");
      if (!kernel_key) return false;
      const auto binding = DecodeBinding(*kernel_key, value);
      if (!binding || records_.catalog_.FindKernel(binding->id) == nullptr) return false;
      records_.catalog_.PutIndex(*binding);
      return true;
    });
  }

  Status LoadPlans() {
    return kv_.Scan(Space::kSegmentIndex, "", [&](std::string_view key, std::span<const uint8_t> sealed) {
      LoadPlan(key, sealed);
      return true;
    });
  }

  void LoadPlan(std::string_view key, std::span<const uint8_t> sealed) {
    if (key.size() != 2 * kDigestBytes) return cleanup_.Delete(Space::kSegmentIndex, key);
    const Digest segment = *DigestAfter(key.substr(0, kDigestBytes), ""),
                 plan_key = *DigestAfter(key.substr(kDigestBytes), "");
    PlanInfo info;
    bool good = false;
    if (const auto value = Unseal(Space::kSegmentIndex, key, sealed)) {
      if (auto decoded = DecodeInfo(*value)) {
        info = *std::move(decoded);
        good = true;
        for (KernelRef& kernel : info.kernels) {
          const CatalogKernel* stored = records_.catalog_.FindKernel(kernel.id);
          // A record leaves the size of a kernel that it found in the store at 0.
          good = good && stored != nullptr && (kernel.size == 0 || stored->size == kernel.size);
          if (good) kernel.size = stored->size;
        }
      }
    }
    if (good) {
      const auto state = states_.find(plan_key);
      records_.catalog_.PutPlan(plan_key, std::move(info), state == states_.end() ? PlanState{} : state->second,
                                records_.NowNs());
      if (const auto witnesses = witnesses_.find(plan_key); witnesses != witnesses_.end())
        records_.catalog_.FindPlan(plan_key)->witnesses = std::move(witnesses->second);
      return;
    }
    records_.Add(Counter::entries_damaged);
    spdlog::warn("dropped plan {}: its index entry is damaged or a kernel is missing", plan_key.ShortHex());
    cleanup_.Delete(Space::kSegmentIndex, key);
    cleanup_.Delete(Space::kPlans, DigestKey(plan_key));
    cleanup_.Delete(Space::kMeta, StateKey(plan_key));
    cleanup_.Delete(Space::kMeta, WitnessKey(plan_key));
    info.segment = segment;
    lost_plans_.emplace_back(plan_key, std::move(info));
  }

  // Damaged is absent.
  Result<std::optional<Bytes>> GetReadable(std::string_view key) {
    auto stored = kv_.Get(Space::kMeta, key);
    if (!stored && stored.error().code == ErrorCode::kIntegrityFailure) return std::optional<Bytes>();
    return stored;
  }

  Status LoadChangeLog() {
    ASSIGN_OR_RETURN(const auto stored, GetReadable(kEpochKey));
    uint64_t epoch = 0;
    if (stored) {
      if (const auto value = Unseal(Space::kMeta, kEpochKey, *stored)) epoch = DecodeU64(*value).value_or(0);
    }
    if (epoch == 0) {
      epoch = static_cast<uint64_t>(records_.options_.clock->WallMs()) * kEpochStepsPerMs;
      cleanup_.Put(Space::kMeta, kEpochKey, Seal(Space::kMeta, kEpochKey, EncodeU64(epoch)));
    }
    records_.log_.Reset(epoch);
    RETURN_IF_ERROR(ForEach(Space::kChangeLog, "", [&](std::string_view key, std::span<const uint8_t> value) {
      auto entry = DecodeChange(value);
      if (!entry || SequenceKey(entry->sequence) != key || entry->sequence <= records_.log_.head()) return false;
      records_.log_.Load(*std::move(entry));
      return true;
    }));
    return CheckCleanMark();
  }

  // After a crash of the machine the newest changes may be lost, although readers saw their numbers. A jump ahead makes
  // every reader see a gap instead of taking a later change for one it knows.
  Status CheckCleanMark() {
    ASSIGN_OR_RETURN(const auto stored, GetReadable(kCleanKey));
    const auto value = stored ? Unseal(Space::kMeta, kCleanKey, *stored) : Result<Bytes>(Bytes());
    const bool clean = stored && value && DecodeU64(*value).value_or(0) == records_.log_.head();
    cleanup_.Delete(Space::kMeta, kCleanKey);
    if (clean) return {};
    const uint64_t epoch = records_.log_.head() + kCrashJump;
    records_.log_.Reset(epoch);
    cleanup_.Put(Space::kMeta, kEpochKey, Seal(Space::kMeta, kEpochKey, EncodeU64(epoch)));
    RETURN_IF_ERROR(kv_.Scan(Space::kChangeLog, "", [&](std::string_view key, std::span<const uint8_t>) {
      cleanup_.Delete(Space::kChangeLog, key);
      return true;
    }));
    return {};
  }

  Status LoadLeases() {
    return ForEach(Space::kLeases, "", [&](std::string_view key, std::span<const uint8_t> value) {
      const auto lease = DecodeLease(value);
      if (lease) records_.leases_.Load(std::string(key), *lease);
      return lease.has_value();
    });
  }

  // What earlier versions merged there and nobody read.
  Status EmptyRetired() {
    return kv_.Scan(Space::kRetiredProfiles, "", [&](std::string_view key, std::span<const uint8_t>) {
      cleanup_.Delete(Space::kRetiredProfiles, key);
      return true;
    });
  }

  Records& records_;
  const KvStore& kv_;
  KvBatch cleanup_;
  std::unordered_map<Digest, PlanState, DigestHash> states_;
  std::unordered_map<Digest, Witnesses, DigestHash> witnesses_;
  std::vector<std::pair<Digest, PlanInfo>> lost_plans_;
};

Result<std::unique_ptr<Records>> Records::Open(std::unique_ptr<KvStore> kv, RecordsOptions options) {
  std::unique_ptr<Records> records(new Records(std::move(kv), std::move(options)));
  const std::lock_guard lock(records->mutex_);
  RETURN_IF_ERROR(Loader(*records).Load());
  return records;
}

}  // namespace kiln::store
