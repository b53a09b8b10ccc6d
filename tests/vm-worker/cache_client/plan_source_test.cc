// A store that lies: what it hands out as a plan is taken only when every word of it is the one that was asked for and
// signed.
#include "vm-worker/cache_client/plan_source.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "common/base/transient.h"
#include "common/messaging/rpc_server.h"
#include "tests/support/error_codes.h"
#include "tests/support/temp_directory.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

constexpr int64_t kWaitMs = 5'000;

class PlanSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store_loop_ = Loop::Start("store").value();
    loop_ = Loop::Start("worker").value();
    const std::string endpoint = "ipc://" + directory_ + "/store";
    server_ = RpcServer::Listen(*store_loop_, {.endpoints = {endpoint}, .security = {.insecure = true}}).value();
    server_->Register(static_cast<uint16_t>(cache::Method::kGetPlan), kAnyRole,
                      [this](const RequestContext&, Message, Replier reply) {
                        const std::lock_guard lock(served_mutex_);
                        reply.Ok(cache::Encode(cache::GetPlanReply{served_record_}));
                      });
    server_->Register(
        static_cast<uint16_t>(cache::Method::kGetBlobs), kAnyRole,
        [this](const RequestContext&, Message, Replier reply) {
          const std::lock_guard lock(served_mutex_);
          if (blobs_fail_) return reply.Fail({*blobs_fail_, "not now", {}});
          const Bytes& code = served_code_;
          cache::GetBlobsReply answer;
          answer.chunks.push_back({.index = 0, .offset = 0, .total = code.size(), .found = true, .bytes = code});
          reply.Ok(cache::Encode(answer));
        });
    server_->Serve();
    store_ = cache::CacheClient::Connect(*loop_, {.endpoint = endpoint, .security = {.insecure = true}}).value();
    Serve(plan_, key_);
  }
  void TearDown() override {
    store_.reset();
    server_.reset();
    loop_.reset();
    store_loop_.reset();
  }

  static PlanRecord RecordOf(const Plan& plan) {
    return {.plan_key = ComputePlanKey(plan),
            .segment = plan.segment,
            .target = plan.target,
            .abi = plan.abi,
            .guard = EncodeGuard(plan.guard, plan.symbols),
            .plan = EncodePlan(plan)};
  }
  void Serve(const Plan& plan, const SigningKey& signer) { record_ = EncodeAndSign(RecordOf(plan), signer); }
  ErrorCode Fetched(DiskTier* disk = nullptr) {
    {
      const std::lock_guard lock(served_mutex_);
      served_record_ = record_;
      served_code_ = code_;
    }
    PlanSource source(*store_, disk, {key_.public_key()}, HostTargets().front());
    const auto fetched = source.Fetch(ComputePlanKey(plan_), plan_.segment, kWaitMs);
    return fetched.has_value() ? ErrorCode{} : fetched.error().code;
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  std::unique_ptr<Loop> store_loop_, loop_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<cache::CacheClient> store_;
  const SigningKey key_ = SigningKey::Generate(), other_key_ = SigningKey::Generate();
  const Plan plan_ = testing::ReluPlan(1, 64);
  Bytes record_, code_;
  std::mutex served_mutex_;  // what the store's thread answers with
  Bytes served_record_, served_code_;
  std::optional<ErrorCode> blobs_fail_;
};

TEST_F(PlanSourceTest, TakesThePlanThatWasAskedFor) {
  EXPECT_EQ(Fetched(), ErrorCode{});
}

TEST_F(PlanSourceTest, ASignerThatIsNotTrustedIsRefused) {
  Serve(plan_, other_key_);
  EXPECT_EQ(Fetched(), ErrorCode::kIntegrityFailure);
}

TEST_F(PlanSourceTest, AnotherPlanUnderTheKeyIsRefusedThoughItIsSigned) {
  Serve(testing::ReluPlan(1, 65), key_);
  EXPECT_EQ(Fetched(), ErrorCode::kIntegrityFailure);
  // A record that names the key, around a plan that is another one.
  PlanRecord record = RecordOf(plan_);
  record.plan = EncodePlan(testing::ReluPlan(0, 4000));
  record_ = EncodeAndSign(record, key_);
  EXPECT_EQ(Fetched(), ErrorCode::kIntegrityFailure);
  record = RecordOf(plan_);
  record.segment = HashBytes(Bytes{1});
  record_ = EncodeAndSign(record, key_);
  EXPECT_EQ(Fetched(), ErrorCode::kIntegrityFailure);
}

TEST_F(PlanSourceTest, ATargetOrAbiThatTheRecordAndThePlanDisagreeAboutIsRefused) {
  PlanRecord record = RecordOf(plan_);
  record.target = "x86-64-v2";
  record_ = EncodeAndSign(record, key_);
  EXPECT_EQ(Fetched(), ErrorCode::kIntegrityFailure);
  record = RecordOf(plan_);
  ++record.abi;
  record_ = EncodeAndSign(record, key_);
  EXPECT_EQ(Fetched(), ErrorCode::kIntegrityFailure);
}

TEST_F(PlanSourceTest, NoBytesAndGarbageAreRefused) {
  record_.clear();
  EXPECT_NE(Fetched(), ErrorCode{});
  record_ = Bytes(5000, 0x5a);
  EXPECT_NE(Fetched(), ErrorCode{});
}

TEST_F(PlanSourceTest, KernelsOfOtherBytesAreNeverMapped) {
  Plan plan = plan_;
  const Bytes code = BuildKernelBlob(HostTargets().front(), 0, Bytes(64, 0x90));
  plan.kernels = {KernelIdOf(code)};
  Serve(plan, key_);
  code_ = code;
  EXPECT_EQ(Fetched(), ErrorCode{});
  code_[70] ^= 1;
  EXPECT_NE(Fetched(), ErrorCode{});
  code_.clear();
  EXPECT_NE(Fetched(), ErrorCode{});
  code_ = Bytes(40, 1);
  EXPECT_NE(Fetched(), ErrorCode{});
}

TEST_F(PlanSourceTest, APlanThatFaultedHereIsNotMappedAgainAnotherUnderItsKeyIs) {
  auto disk = DiskTier::Open(directory_ + "/disk", 1 << 20).value();
  EXPECT_EQ(Fetched(disk.get()), ErrorCode{});
  disk->PutMark({ComputePlanKey(plan_), HashBytes(EncodePlan(plan_))});
  EXPECT_EQ(Fetched(disk.get()), ErrorCode::kQuarantined);
  disk->PutMark({ComputePlanKey(plan_), HashBytes(Bytes{1})});
  EXPECT_EQ(Fetched(disk.get()), ErrorCode{});
}

TEST_F(PlanSourceTest, AGoodRecordOnTheDiskOutlivesErrorsThatSayNothingAboutIt) {
  auto disk = DiskTier::Open(directory_ + "/disk", 1 << 20).value();
  Plan with_kernel = plan_;
  with_kernel.kernels = {HashBytes(Bytes{1})};
  const PlanKey key = ComputePlanKey(plan_);
  for (const ErrorCode code : testing::kErrorCodes) {
    if (!IsTransient(code)) continue;
    disk->PutRecord(key, EncodeAndSign(RecordOf(with_kernel), key_));
    {
      const std::lock_guard lock(served_mutex_);
      blobs_fail_ = code;
    }
    EXPECT_EQ(Fetched(disk.get()), code);
    EXPECT_TRUE(disk->Record(key).has_value()) << ErrorCodeName(code);
  }
}

TEST_F(PlanSourceTest, APoisonedDiskIsDroppedAndHealsFromTheStore) {
  auto disk = DiskTier::Open(directory_ + "/disk", 1 << 20).value();
  disk->PutRecord(ComputePlanKey(plan_), EncodeAndSign(RecordOf(plan_), other_key_));
  EXPECT_EQ(Fetched(disk.get()), ErrorCode{});
  record_.clear();
  EXPECT_EQ(Fetched(disk.get()), ErrorCode{}) << "the disk has a good copy now";
}

// Kernels of a device are verified as code is, and kept as images: nothing of them is mapped.
TEST_F(PlanSourceTest, ADevicesPlanIsTakenByWhoHasTheDeviceAndOnlyWithItsOwnKernels) {
  const DeviceLaunch launch{.threads = 32, .items_per_block = 1, .pointers = 2, .dims = 1, .driver_version = 12000};
  const Bytes blob = BuildDeviceBlob(Target::kSm90, launch, Bytes(100, 7));
  Plan plan = testing::ReluPlan(1, 64);
  plan.target = "sm_90";
  plan.kernels = {HashBytes(blob)};
  const auto fetch = [&](std::optional<Target> device, const Bytes& code) {
    {
      const std::lock_guard lock(served_mutex_);
      PlanRecord record = RecordOf(plan);
      record.kernels = {{plan.kernels[0], blob.size()}};
      served_record_ = EncodeAndSign(record, key_);
      served_code_ = code;
    }
    PlanSource source(*store_, nullptr, {key_.public_key()}, HostTargets().front(), device);
    return source.Fetch(ComputePlanKey(plan), plan.segment, kWaitMs);
  };
  const auto fetched = fetch(Target::kSm90, blob);
  ASSERT_TRUE(fetched.has_value()) << ToString(fetched.error());
  EXPECT_EQ(fetched->code, nullptr);
  ASSERT_NE(fetched->images, nullptr);
  EXPECT_EQ(fetched->images->blobs.at(0), blob);
  EXPECT_EQ(fetch(std::nullopt, blob).error().code, ErrorCode::kTargetMismatch);
  EXPECT_EQ(fetch(Target::kSm80, blob).error().code, ErrorCode::kTargetMismatch);
  Bytes damaged = blob;
  damaged.back() ^= 1;
  EXPECT_FALSE(fetch(Target::kSm90, damaged).has_value());
}

}  // namespace
}  // namespace kiln
