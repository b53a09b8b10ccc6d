#include "common/base/limits.h"
#include "tests/cache-store/records/fixture.h"

namespace kiln::store {
namespace {

TEST_F(RecordsTest, PublishedPlanIsFoundFetchedAndSurvivesARestart) {
  ASSERT_TRUE(Publish(1, {10, 11})->stored);
  for (int round = 0; round < 2; ++round) {
    const auto variants = Do(cache::VariantsRequest{D(200), {"x86-64-v3"}})->variants;
    ASSERT_EQ(variants.size(), 1u);
    EXPECT_EQ(variants[0].plan_key, D(1));
    EXPECT_EQ(variants[0].guard, Bytes{1});
    EXPECT_EQ(variants[0].evidence, (Evidence{ValidationKind::kExecuted, 1}));
    EXPECT_TRUE(Do(cache::VariantsRequest{D(200), {"sm_90a"}})->variants.empty());
    EXPECT_TRUE(Do(cache::VariantsRequest{D(201), {}})->variants.empty());
    const auto decoded = DecodeAndVerify(Do(cache::GetPlanRequest{D(1)})->record, {key_.public_key()});
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->record, Plan(1, {10, 11}));
    EXPECT_TRUE(HasKernel(10) && HasKernel(11) && !HasKernel(12));
    const auto known = Do(cache::LookupKernelsRequest{{D(110), D(99)}})->kernels;
    ASSERT_EQ(known.size(), 2u);
    EXPECT_EQ(known[0], BindKernel(D(110), KernelIdOf(Kernel(10)), ValidationKind::kExecuted, key_));
    EXPECT_TRUE(known[1].id.IsZero());
    Open();
  }
}

// Whoever does not ask for a form does not know it.
TEST_F(RecordsTest, PlansThatReadWeightsInAnotherFormAreListedForThoseWhoAskForIt) {
  ASSERT_TRUE(Publish(1, {10})->stored);
  PlanRecord given = Plan(2, {10});
  given.weights = 1;
  ASSERT_TRUE(PublishRecord(given)->stored);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(VariantKeys(), std::vector<Digest>{D(1)});
    EXPECT_EQ(Do(cache::VariantsRequest{D(200), {}, {2}})->variants.size(), 1u);
    const auto variants = Do(cache::VariantsRequest{D(200), {}, {1}})->variants;
    ASSERT_EQ(variants.size(), 2u);
    for (const cache::Variant& variant : variants) EXPECT_EQ(variant.weights, variant.plan_key == D(2) ? 1 : 0);
    Open();
  }
}

// What the compile service found in the store it did not weigh: its record says size 0.
TEST_F(RecordsTest, PlanOfKernelsThatWereThereSurvivesARestart) {
  ASSERT_TRUE(Publish(1, {10})->stored);
  PlanRecord record = Plan(2, {10});
  record.kernels[0].size = 0;
  ASSERT_TRUE(PublishRecord(record)->stored);
  Open();
  EXPECT_EQ(VariantKeys(), (std::vector<Digest>{D(1), D(2)}));
  ExpectWhole();
}

TEST_F(RecordsTest, PlanWithoutItsKernelsIsRefusedByName) {
  ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(10)}}));
  const auto reply = PublishRecord(Plan(1, {10, 11}));
  EXPECT_EQ(reply.error().code, ErrorCode::kNotFound);
  EXPECT_NE(reply.error().message.find(KernelIdOf(Kernel(11)).Hex()), std::string::npos);
  EXPECT_TRUE(VariantKeys().empty());
  EXPECT_EQ(Entries(Space::kPlans), 0u);
}

TEST_F(RecordsTest, WrongSizesForeignIndexEntriesAndBadKernelsAreRefused) {
  ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(10)}}));
  PlanRecord record = Plan(1, {10});
  record.kernels[0].size = 99;
  EXPECT_EQ(PublishRecord(record).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(PublishRecord(Plan(1, {10}), {{D(1), D(2)}}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Do(cache::PublishBlobsRequest{{Bytes{}}}).error().code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(Do(cache::PublishBlobsRequest{{Bytes((4 << 20) + 1, 1)}}).error().code, ErrorCode::kLimitExceeded);
  EXPECT_FALSE(Do(cache::PublishPlanRequest{{1, 2, 3}, {}}));
}

TEST_F(RecordsTest, IndexEntriesAreReplacedOnlyByWhatIsWorthMore) {
  const SigningKey other = SigningKey::Generate();
  const Digest first = KernelIdOf(Kernel(10)), second = KernelIdOf(Kernel(11)), key = D(1);
  const auto put = [&](const KernelBinding& binding) {
    ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(10), Kernel(11)}, {binding}}));
  };
  const auto stored = [&] { return Do(cache::LookupKernelsRequest{{key}})->kernels.at(0); };
  const KernelBinding bare{key, first}, weak = BindKernel(key, first, ValidationKind::kNotExecuted, key_),
                                        strong = BindKernel(key, first, ValidationKind::kExecuted, key_),
                                        later = BindKernel(key, second, ValidationKind::kExecuted, other);
  put(bare);
  EXPECT_EQ(stored(), bare);
  put(weak);
  EXPECT_EQ(stored(), weak);
  put(strong);
  EXPECT_EQ(stored(), strong);
  put(weak);
  EXPECT_EQ(stored(), strong) << "checked less";
  put(bare);
  EXPECT_EQ(stored(), strong) << "signed by nobody";
  put(later);
  EXPECT_EQ(stored(), later) << "signed by a key that may be the trusted one now";
  Open();
  EXPECT_EQ(stored(), later);
}

TEST_F(RecordsTest, AnIndexEntryOfTheFirstVersionIsReadAsUnsigned) {
  ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(10)}}));
  KvBatch batch;
  const std::string key = DigestKey(D(1));
  batch.Put(Space::kKernelIndex, key, Seal(Space::kKernelIndex, key, EncodeDigest(KernelIdOf(Kernel(10)))));
  ASSERT_TRUE(disk_.kv->Write(batch));
  Open();
  EXPECT_EQ(Do(cache::LookupKernelsRequest{{D(1)}})->kernels.at(0), (KernelBinding{D(1), KernelIdOf(Kernel(10))}));
  EXPECT_EQ(records_->Count(Counter::entries_damaged), 0u);
}

TEST_F(RecordsTest, AStoreThatVerifiesRefusesForgedIndexEntries) {
  options_.verify_signatures = true;
  options_.trusted = {key_.public_key()};
  Open();
  const Digest id = KernelIdOf(Kernel(10));
  const auto put = [&](const KernelBinding& binding) {
    return Do(cache::PublishBlobsRequest{{Kernel(10)}, {binding}});
  };
  EXPECT_EQ(put(BindKernel(D(1), id, ValidationKind::kExecuted, SigningKey::Generate())).error().code,
            ErrorCode::kIntegrityFailure);
  EXPECT_EQ(records_->Count(Counter::signatures_refused), 1u);
  EXPECT_EQ(put(BindKernel(D(1), D(9), ValidationKind::kExecuted, key_)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(put(BindKernel(D(1), id, ValidationKind::kExecuted, key_)));
}

TEST_F(RecordsTest, OnlyTrustedSignersMayPublish) {
  options_.verify_signatures = true;
  options_.trusted = {key_.public_key()};
  Open();
  ASSERT_TRUE(Publish(1, {10}));
  const Bytes forged = EncodeAndSign(Plan(2, {10}), SigningKey::Generate());
  EXPECT_EQ(Do(cache::PublishPlanRequest{forged, {}}).error().code, ErrorCode::kIntegrityFailure);
  EXPECT_EQ(VariantKeys(), std::vector<Digest>{D(1)});
  EXPECT_EQ(records_->Count(Counter::signatures_refused), 1u);
  // A revoked signer's records are not served any more.
  options_.trusted = {SigningKey::Generate().public_key()};
  Open();
  EXPECT_FALSE(HasPlan(1));
  EXPECT_TRUE(VariantKeys().empty());
}

TEST_F(RecordsTest, FirstRecordStaysUnlessTheOtherIsNewerOrBetterProven) {
  ASSERT_TRUE(Publish(1, {10}));
  EXPECT_FALSE(Publish(1, {10})->stored);
  PlanRecord other = Plan(1, {10});
  other.provenance.codegen_id = D(78);
  other.provenance.created_wall_ms -= 5;
  EXPECT_FALSE(PublishRecord(other)->stored);  // older
  other.provenance.created_wall_ms += 10;
  EXPECT_TRUE(PublishRecord(other)->stored);
  EXPECT_EQ(Do(cache::VariantsRequest{D(200), {}})->variants[0].codegen_id, D(78));
}

TEST_F(RecordsTest, ReplacingAPlanFreesTheKernelsItAloneNeeded) {
  ASSERT_TRUE(Publish(1, {10, 11}));
  ASSERT_TRUE(Publish(2, {11}));
  ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(12)}}));
  clock_.AdvanceMs(1);
  PlanRecord newer = Plan(1, {12});
  newer.provenance.codegen_id = D(78);
  ASSERT_TRUE(PublishRecord(newer)->stored);
  clock_.AdvanceMs(kOrphanGraceMs + 1);
  records_->Tick();
  EXPECT_FALSE(HasKernel(10));
  EXPECT_TRUE(HasKernel(11) && HasKernel(12));
  ExpectWhole();
}

TEST_F(RecordsTest, KernelsWaitForTheirPlanAndThenLeave) {
  ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(10)}}));
  clock_.AdvanceMs(kOrphanGraceMs - 1);
  records_->Tick();
  EXPECT_TRUE(HasKernel(10));
  clock_.AdvanceMs(2);
  records_->Tick();
  EXPECT_FALSE(HasKernel(10));
  EXPECT_EQ(Entries(Space::kBlobs), 0u);
}

TEST_F(RecordsTest, LargeKernelsComeInChunksOfAtMostOneMebibyte) {
  ASSERT_TRUE(Do(cache::PublishBlobsRequest{{Kernel(1, 3 << 20), Kernel(2, 10)}}));
  const std::vector<Digest> ids{KernelIdOf(Kernel(1, 3 << 20)), KernelIdOf(Kernel(2, 10))};
  for (uint64_t offset = 0; offset < (3u << 20); offset += 1 << 20) {
    const auto reply = Do(cache::GetBlobsRequest{ids, offset});
    ASSERT_EQ(reply->chunks.size(), 1u);
    EXPECT_EQ(reply->chunks[0].bytes.size(), size_t{1} << 20);
    EXPECT_EQ(reply->chunks[0].offset, offset);
  }
  EXPECT_EQ(Do(cache::GetBlobsRequest{ids, 3 << 20}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Do(cache::GetBlobsRequest{{ids[1], ids[0]}, 0})->chunks.size(), 2u);
}

TEST_F(RecordsTest, ListPagesThroughAllPlansInKeyOrder) {
  for (uint8_t number = 1; number <= 5; ++number) ASSERT_TRUE(Publish(number, {10}));
  const auto first = Do(cache::ListRequest{.limit = 2})->plans;
  ASSERT_EQ(first.size(), 2u);
  const auto rest = Do(cache::ListRequest{.after = first[1].plan_key})->plans;
  ASSERT_EQ(rest.size(), 3u);
  EXPECT_EQ(rest[2].plan_key, D(5));
  EXPECT_TRUE(Do(cache::ListRequest{.segment = D(3)})->plans.empty());
}

// Plans come one for each width that a worker sees; a segment's list must stay one that a reply can hold.
TEST_F(RecordsTest, ASegmentHasABoundedNumberOfPlansPerTargetAndTheLeastWorthLeave) {
  ASSERT_TRUE(Publish(1, {10}));
  const auto publish = [&](size_t number, const std::string& target) {
    PlanRecord record = Plan(1, {10});
    record.plan_key = FieldHasher("plan").U64(number).Text(target).Finish();
    record.target = target;
    record.provenance.tier = 3;
    return PublishRecord(record).has_value();
  };
  ASSERT_TRUE(Do(cache::PinRequest{D(1), true}));
  for (size_t i = 0; i < limits::kPlansPerSegmentMax + 10; ++i) ASSERT_TRUE(publish(i, "x86-64-v3"));
  ASSERT_TRUE(publish(0, "x86-64-v4"));
  EXPECT_EQ(VariantKeys().size(), limits::kPlansPerSegmentMax + 1);
  EXPECT_TRUE(HasPlan(1)) << "pinned";
  EXPECT_EQ(records_->Count(Counter::plans_evicted), 11u);
}

TEST_F(RecordsTest, WhatEarlierVersionsMergedInProfilesIsEmptied) {
  KvBatch batch;
  batch.Put(Space::kRetiredProfiles, DigestKey(D(1)), Bytes(1000, 1));
  ASSERT_TRUE(disk_.kv->Write(batch));
  Open();
  EXPECT_EQ(Entries(Space::kRetiredProfiles), 0u);
}

}  // namespace
}  // namespace kiln::store
