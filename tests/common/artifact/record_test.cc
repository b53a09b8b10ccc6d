#include "common/artifact/record.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Digest D(uint8_t fill) {
  Digest digest;
  digest.bytes.fill(fill);
  return digest;
}

PlanRecord Sample() {
  return {.plan_key = D(1),
          .segment = D(2),
          .target = "x86-64-v4",
          .abi = 3,
          .numeric_mode = 1,
          .weights = 1,
          .guard = {1, 2, 3},
          .plan = Bytes(100, 9),
          .kernels = {{D(4), 4096}, {D(5), 12}},
          .evidence = {ValidationKind::kExecuted, 3},
          .provenance = {D(6), 1234, 1'700'000'000'000, 2}};
}

TEST(PlanRecord, RoundTripsThroughASignature) {
  const SigningKey key = SigningKey::Generate();
  const Bytes bytes = EncodeAndSign(Sample(), key);
  const SignedRecord decoded = DecodeAndVerify(bytes, {SigningKey::Generate().public_key(), key.public_key()}).value();
  EXPECT_EQ(decoded.record, Sample());
  EXPECT_EQ(decoded.signer, key.public_key());
}

TEST(PlanRecord, EveryFlippedByteAndEveryTruncationIsDetected) {
  const SigningKey key = SigningKey::Generate();
  const Bytes good = EncodeAndSign(Sample(), key);
  for (size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= 0x40;
    EXPECT_FALSE(DecodeAndVerify(bad, {key.public_key()})) << "byte " << i;
    EXPECT_FALSE(DecodeUnverified(bad)) << "byte " << i;
    EXPECT_FALSE(DecodeUnverified(std::span(good).first(i))) << "length " << i;
  }
}

// An attacker repairs the checksum; only the signature stands in the way.
TEST(PlanRecord, EveryFlippedByteWithARepairedChecksumIsRefusedBySignature) {
  const SigningKey key = SigningKey::Generate();
  const Bytes good = EncodeAndSign(Sample(), key);
  for (size_t i = 0; i + kDigestBytes < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= 0x01;
    const Digest checksum = HashBytes(std::span(bad).first(bad.size() - kDigestBytes));
    std::copy(checksum.bytes.begin(), checksum.bytes.end(), bad.end() - kDigestBytes);
    EXPECT_FALSE(DecodeAndVerify(bad, {key.public_key()})) << "byte " << i;
  }
}

TEST(PlanRecord, UnknownAndRevokedSignersAreRefused) {
  const SigningKey key = SigningKey::Generate();
  const Bytes bytes = EncodeAndSign(Sample(), key);
  EXPECT_EQ(DecodeAndVerify(bytes, {}).error().code, ErrorCode::kIntegrityFailure);
  EXPECT_EQ(DecodeAndVerify(bytes, {SigningKey::Generate().public_key()}).error().code, ErrorCode::kIntegrityFailure);
  EXPECT_TRUE(DecodeUnverified(bytes));
}

TEST(PlanRecord, MoreKernelsThanAPlanMayHaveAreRefused) {
  PlanRecord record = Sample();
  record.kernels.assign(129, {D(4), 1});
  EXPECT_EQ(DecodeUnverified(EncodeAndSign(record, SigningKey::Generate())).error().code, ErrorCode::kLimitExceeded);
}

TEST(KernelBlob, EveryFlippedByteIsDetectedAndAnotherKernelIsNoSubstitute) {
  const Bytes payload{10, 20, 30, 40, 50};
  const Digest id = KernelIdOf(payload);
  const Bytes frame = FrameKernelBlob(payload);
  EXPECT_EQ(UnframeKernelBlob(frame, id).value(), payload);
  for (size_t i = 0; i < frame.size(); ++i) {
    Bytes bad = frame;
    bad[i] ^= 1;
    EXPECT_FALSE(UnframeKernelBlob(bad, id)) << i;
  }
  EXPECT_EQ(UnframeKernelBlob(FrameKernelBlob(Bytes{1}), id).error().code, ErrorCode::kIntegrityFailure);
}

}  // namespace
}  // namespace kiln
