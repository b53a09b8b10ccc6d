// Bit rot, full disks, half-written stores.
#include "tests/cache-store/records/fixture.h"

namespace kiln::store {
namespace {

struct Entry {
  Space space;
  std::string key;
  Bytes value;
};

std::vector<Entry> AllEntries(const KvStore& kv) {
  std::vector<Entry> entries;
  for (int i = 0; i < kSpaceCount; ++i)
    (void)kv.Scan(static_cast<Space>(i), "", [&](std::string_view key, std::span<const uint8_t> value) {
      entries.push_back({static_cast<Space>(i), std::string(key), Bytes(value.begin(), value.end())});
      return true;
    });
  return entries;
}

void Overwrite(KvStore& kv, const Entry& entry, const Bytes& value) {
  KvBatch batch;
  batch.Put(entry.space, entry.key, value);
  ASSERT_TRUE(kv.Write(batch));
}

// Every byte of every stored value, each in turn, with the store open and after a reopen.
TEST_F(RecordsTest, NoFlippedByteIsEverServedAndPublishingAgainHeals) {
  ASSERT_TRUE(Publish(1, {10, 11}));
  records_->Tick();
  const Bytes good_record = Do(cache::GetPlanRequest{D(1)})->record;
  records_->Tick();
  const std::vector<Entry> entries = AllEntries(*disk_.kv);
  ASSERT_GT(entries.size(), 8u);
  for (const Entry& entry : entries)
    for (size_t i = 0; i < entry.value.size(); ++i)
      for (const bool reopen : {false, true}) {
        SCOPED_TRACE(std::string(SpaceName(entry.space)) + " byte " + std::to_string(i) + (reopen ? " reopened" : ""));
        Bytes bad = entry.value;
        bad[i] ^= 0x10;
        Overwrite(*disk_.kv, entry, bad);
        if (reopen) Open();
        const auto plan = Do(cache::GetPlanRequest{D(1)});
        if (plan) {
          EXPECT_EQ(plan->record, good_record);
        }
        for (uint8_t kernel : {10, 11}) {
          const auto blobs = Do(cache::GetBlobsRequest{{KernelIdOf(Kernel(kernel))}, 0});
          ASSERT_TRUE(blobs);
          if (blobs->chunks[0].found) {
            EXPECT_EQ(blobs->chunks[0].bytes, Kernel(kernel));
          }
        }
        ExpectWhole();
        ASSERT_TRUE(Publish(1, {10, 11}));
        ASSERT_TRUE(HasPlan(1) && HasKernel(10) && HasKernel(11));
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
}

TEST_F(RecordsTest, DamagedRecordIsDroppedCountedAndLogged) {
  ASSERT_TRUE(Publish(1, {10}));
  const uint64_t head = records_->head();
  for (const Entry& entry : AllEntries(*disk_.kv))
    if (entry.space == Space::kPlans) Overwrite(*disk_.kv, entry, Bytes(entry.value.size(), 0));
  EXPECT_FALSE(HasPlan(1));
  EXPECT_EQ(records_->Count(Counter::entries_damaged), 1u);
  EXPECT_EQ(Changes(head), std::vector{cache::ChangeKind::kDamaged});
  EXPECT_TRUE(VariantKeys().empty());
}

// Not bytes that fail a check, but an error of the backend's own checks.
TEST_F(RecordsTest, WhatTheBackendCannotReadIsDroppedCountedOnceAndPublishedAgain) {
  const std::pair<Space, std::string> record{Space::kPlans, DigestKey(D(1))},
      kernel{Space::kBlobs, DigestKey(KernelIdOf(Kernel(10)))};
  for (const auto& entry : {record, kernel})
    for (const bool read_first : {true, false}) {
      SCOPED_TRACE(std::string(SpaceName(entry.first)) + (read_first ? ", read first" : ", published over"));
      ASSERT_TRUE(Publish(1, {10, 11}));
      const uint64_t damaged = records_->Count(Counter::entries_damaged);
      disk_.unreadable = {entry};
      if (read_first) {
        const uint64_t head = records_->head();
        EXPECT_EQ(HasPlan(1), entry == kernel);
        EXPECT_FALSE(HasKernel(10)) << "of a dropped plan, or unreadable";
        EXPECT_TRUE(VariantKeys().empty()) << "listed as healthy";
        EXPECT_EQ(Changes(head), std::vector{cache::ChangeKind::kDamaged});
        EXPECT_EQ(Do(cache::ClaimRequest{.kind = cache::ClaimKind::kPlan, .keys = {D(1)}, .holder = "h"})
                      ->entries.front()
                      .state,
                  cache::ClaimState::kGranted);
        EXPECT_FALSE(HasPlan(1));
      }
      ASSERT_TRUE(Publish(1, {10, 11}));
      EXPECT_TRUE(HasPlan(1) && HasKernel(10) && HasKernel(11));
      EXPECT_EQ(records_->Count(Counter::entries_damaged), damaged + 1);
      EXPECT_EQ(records_->Count(Counter::backend_errors), 0u);
    }
}

TEST_F(RecordsTest, AReportAboutARecordThatCannotBeReadDropsIt) {
  ASSERT_TRUE(Publish(1, {10}));
  Open();
  disk_.unreadable = {{Space::kPlans, DigestKey(D(1))}};
  const auto reply = Do(cache::ReportRequest{
      .plan_key = D(1), .kind = cache::ReportKind::kShadowOk, .runs = 1, .reporter = "w", .contents = D(9)});
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(VariantKeys().empty());
  EXPECT_EQ(records_->Count(Counter::entries_damaged), 1u);
}

TEST_F(RecordsTest, DamagedKernelTakesItsPlansAlong) {
  ASSERT_TRUE(Publish(1, {10, 11}));
  ASSERT_TRUE(Publish(2, {11}));
  ASSERT_TRUE(Publish(3, {12}));
  for (const Entry& entry : AllEntries(*disk_.kv))
    if (entry.space == Space::kBlobs && entry.key == DigestKey(KernelIdOf(Kernel(11))))
      Overwrite(*disk_.kv, entry, {1, 2, 3});
  EXPECT_FALSE(HasKernel(11));
  EXPECT_EQ(VariantKeys(), std::vector<Digest>{D(3)});
  EXPECT_EQ(Do(cache::LookupKernelsRequest{{D(111)}})->kernels[0].id, Digest{});
  ASSERT_TRUE(Publish(2, {11}));
  EXPECT_TRUE(HasKernel(11) && HasPlan(2));
}

TEST_F(RecordsTest, AKernelThatIsPublishedWhileItIsLookedForIsNotTakenForDamaged) {
  ASSERT_TRUE(Publish(1, {10}));
  disk_.hidden_once = DigestKey(KernelIdOf(Kernel(10)));
  EXPECT_TRUE(HasKernel(10)) << "looked for again before it is dropped";
  EXPECT_FALSE(disk_.hidden_once.has_value());
  EXPECT_EQ(records_->Count(Counter::entries_damaged), 0u);
  EXPECT_TRUE(HasPlan(1));
}

// What a later version wrote, sealed and whole: peers of this one could not read a reply that tells of it.
TEST_F(RecordsTest, AKindOfALaterVersionIsDroppedAndNothingElse) {
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Publish(2, {11}));
  const std::string index_key = SegmentIndexKey(D(200), D(1));
  const Bytes sealed = disk_.kv->Get(Space::kSegmentIndex, index_key)->value();
  PlanInfo info = DecodeInfo(*Unseal(Space::kSegmentIndex, index_key, sealed)).value();
  info.evidence.validation = static_cast<ValidationKind>(200);
  KvBatch batch;
  batch.Put(Space::kSegmentIndex, index_key, Seal(Space::kSegmentIndex, index_key, EncodeInfo(info)));
  const std::string change_key = SequenceKey(records_->head());
  const Bytes change = EncodeChange({records_->head(), static_cast<cache::ChangeKind>(200), D(2), D(200), "x86-64-v3"});
  batch.Put(Space::kChangeLog, change_key, Seal(Space::kChangeLog, change_key, change));
  ASSERT_TRUE(disk_.kv->Write(batch));
  Open();
  EXPECT_EQ(records_->Count(Counter::entries_damaged), 2u);
  EXPECT_EQ(VariantKeys(), std::vector{D(2)});
}

TEST_F(RecordsTest, KernelsSwappedOnDiskAreNotServed) {
  ASSERT_TRUE(Publish(1, {10, 11}));
  std::vector<Entry> blobs;
  for (const Entry& entry : AllEntries(*disk_.kv))
    if (entry.space == Space::kBlobs) blobs.push_back(entry);
  ASSERT_EQ(blobs.size(), 2u);
  Overwrite(*disk_.kv, blobs[0], blobs[1].value);
  Overwrite(*disk_.kv, blobs[1], blobs[0].value);
  EXPECT_FALSE(HasKernel(10));
  EXPECT_FALSE(HasKernel(11));
}

// The disk fills up at each write of a publish in turn; the process then dies. What is there is whole.
TEST_F(RecordsTest, FullDiskAtAnyWriteLeavesNoHalfEntry) {
  ASSERT_TRUE(Publish(1, {10}));
  for (int writes = 0; writes < 6; ++writes) {
    disk_.writes_until_full = writes;
    const auto reply = Publish(2, {11, 12});
    if (!reply) {
      EXPECT_EQ(reply.error().code, ErrorCode::kResourceExhausted);
    }
    ExpectWhole();
    EXPECT_TRUE(HasPlan(1));
    EXPECT_EQ(HasPlan(2), reply.has_value());
    disk_.writes_until_full = 0;  // also for what the end of the process would write
    records_.reset();
    disk_.writes_until_full = -1;
    Open();
    ExpectWhole();
    EXPECT_EQ(HasPlan(2), reply.has_value());
    if (reply) break;
  }
  ASSERT_TRUE(Publish(2, {11, 12}));
  EXPECT_TRUE(HasPlan(2));
}

TEST_F(RecordsTest, FailedWriteTakesNoChangeNumber) {
  ASSERT_TRUE(Publish(1, {10}));
  const uint64_t head = records_->head();
  disk_.writes_until_full = 0;
  EXPECT_FALSE(Do(cache::QuarantineRequest{D(1), true}));
  EXPECT_EQ(records_->head(), head);
  EXPECT_EQ(VariantKeys().size(), 1u);
  disk_.writes_until_full = -1;
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), true}));
  EXPECT_EQ(records_->head(), head + 1);
  EXPECT_TRUE(VariantKeys().empty());
}

}  // namespace
}  // namespace kiln::store
