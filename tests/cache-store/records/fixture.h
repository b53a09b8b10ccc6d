// A Records over an in-memory backend that can be damaged, made to fail, and outlives its Records like a disk does.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache-store/records/records.h"
#include "cache-store/store/memory_store.h"
#include "common/artifact/record.h"

namespace kiln::store {

class HandClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  int64_t WallMs() const override { return 1'700'000'000'000 + now_ns_ / 1'000'000; }
  void AdvanceMs(int64_t ms) { now_ns_ += ms * 1'000'000; }

 private:
  int64_t now_ns_ = 1'000'000'000;
};

// The "disk": shared by successive stores.
struct Disk {
  std::unique_ptr<KvStore> kv = MakeMemoryStore();
  int writes_until_full = -1;                          // negative: never
  std::optional<std::string> hidden_once;              // the next read of this key finds nothing
  std::set<std::pair<Space, std::string>> unreadable;  // the backend answers corruption until they are written again
};

class DiskStore final : public KvStore {
 public:
  explicit DiskStore(Disk& disk) : disk_(disk) {}
  KvProperties properties() const override { return {.durable = true, .exact_leases = true}; }
  Result<std::optional<Bytes>> Get(Space space, std::string_view key) const override {
    if (disk_.hidden_once == key) {
      disk_.hidden_once.reset();
      return std::optional<Bytes>();
    }
    if (disk_.unreadable.contains({space, std::string(key)}))
      return Fail(ErrorCode::kIntegrityFailure, "block checksum mismatch");
    return disk_.kv->Get(space, key);
  }
  Status Write(const KvBatch& batch) override {
    if (disk_.writes_until_full == 0) return Fail(ErrorCode::kResourceExhausted, "no space left on device");
    if (disk_.writes_until_full > 0) --disk_.writes_until_full;
    for (const KvBatch::Operation& operation : batch.operations())
      disk_.unreadable.erase({operation.space, operation.key});
    return disk_.kv->Write(batch);
  }
  Status Sync() override { return {}; }
  Status Scan(Space space, std::string_view prefix, const Visitor& visit) const override {
    return disk_.kv->Scan(space, prefix, visit);
  }

 private:
  Disk& disk_;
};

inline Digest D(uint8_t fill) {
  Digest digest;
  digest.bytes.fill(fill);
  return digest;
}

class RecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    Open();
  }

  void Open() {
    records_.reset();
    options_.clock = &clock_;
    records_ = Records::Open(std::make_unique<DiskStore>(disk_), options_).value();
  }

  template <class Request>
  auto Do(const Request& request, Role role = Role::kAdmin, const std::string& machine = "") {
    return records_->Handle(request, Caller{role, machine});
  }

  static Bytes Kernel(uint8_t fill, size_t size = 100) { return Bytes(size, fill); }

  // Plan number `number` of segment D(200) for "x86-64-v3", needing kernels filled with the given bytes.
  PlanRecord Plan(uint8_t number, const std::vector<uint8_t>& kernels, size_t kernel_bytes = 100) {
    PlanRecord record{
        .plan_key = D(number),
        .segment = D(200),
        .target = "x86-64-v3",
        .abi = 1,
        .guard = {number},
        .plan = Bytes(50, number),
        .evidence = {ValidationKind::kExecuted, 1},
        .provenance = {.codegen_id = D(77), .compile_us = 1000, .created_wall_ms = clock_.WallMs(), .tier = 1}};
    for (uint8_t kernel : kernels) record.kernels.push_back({KernelIdOf(Kernel(kernel, kernel_bytes)), kernel_bytes});
    return record;
  }
  Result<cache::PublishPlanReply> PublishRecord(const PlanRecord& record, std::vector<KernelBinding> index = {}) {
    return Do(cache::PublishPlanRequest{EncodeAndSign(record, key_), std::move(index)});
  }
  // Kernels and record.
  Result<cache::PublishPlanReply> Publish(uint8_t number, const std::vector<uint8_t>& kernels,
                                          size_t kernel_bytes = 100) {
    cache::PublishBlobsRequest blobs;
    std::vector<KernelBinding> index;
    for (uint8_t kernel : kernels) {
      blobs.blobs.push_back(Kernel(kernel, kernel_bytes));
      index.push_back(BindKernel(D(static_cast<uint8_t>(kernel + 100)), KernelIdOf(blobs.blobs.back()),
                                 ValidationKind::kExecuted, key_));
    }
    RETURN_IF_ERROR(Do(blobs));
    return PublishRecord(Plan(number, kernels, kernel_bytes), index);
  }
  std::vector<Digest> VariantKeys() {
    std::vector<Digest> keys;
    const cache::VariantsReply reply = Do(cache::VariantsRequest{D(200), {}}).value();
    for (const cache::Variant& variant : reply.variants) keys.push_back(variant.plan_key);
    return keys;
  }
  bool HasPlan(uint8_t number) { return Do(cache::GetPlanRequest{D(number)}).has_value(); }
  bool HasKernel(uint8_t fill, size_t size = 100) {
    const auto reply = Do(cache::GetBlobsRequest{{KernelIdOf(Kernel(fill, size))}, 0});
    return reply && reply->chunks.size() == 1 && reply->chunks[0].found && reply->chunks[0].bytes == Kernel(fill, size);
  }
  // Every plan that Variants names can be fetched whole.
  void ExpectWhole() {
    for (const Digest& key : VariantKeys()) {
      const auto plan = Do(cache::GetPlanRequest{key});
      ASSERT_TRUE(plan) << ToString(plan.error());
      const SignedRecord decoded = DecodeUnverified(plan->record).value();
      for (const KernelRef& kernel : decoded.record.kernels) {
        const auto blobs = Do(cache::GetBlobsRequest{{kernel.id}, 0});
        ASSERT_TRUE(blobs && blobs->chunks.size() == 1 && blobs->chunks[0].found);
      }
    }
  }
  size_t Entries(Space space) {
    size_t count = 0;
    (void)disk_.kv->Scan(space, "", [&](std::string_view, std::span<const uint8_t>) { return ++count != 0; });
    return count;
  }
  std::vector<cache::ChangeKind> Changes(uint64_t since) {
    std::vector<cache::ChangeKind> kinds;
    const cache::ChangeLogReply reply = Do(cache::ChangeLogRequest{since, 0}).value();
    for (const cache::ChangeEntry& entry : reply.entries) kinds.push_back(entry.kind);
    return kinds;
  }

  HandClock clock_;
  Disk disk_;
  RecordsOptions options_;
  SigningKey key_ = SigningKey::Generate();
  std::unique_ptr<Records> records_;
};

}  // namespace kiln::store
