#include "common/cache_api/codec.h"

#include <gtest/gtest.h>

#include "common/base/limits.h"

namespace kiln::cache {
namespace {

Digest D(uint8_t fill) {
  Digest digest;
  digest.bytes.fill(fill);
  return digest;
}

KernelBinding SampleBinding(uint8_t fill) {
  KernelBinding binding{D(fill), D(static_cast<uint8_t>(fill + 1)), ValidationKind::kExecuted, {}, {}};
  binding.signer.bytes.fill(7);
  binding.signature.fill(8);
  return binding;
}

// One filled sample per message of the table; a method without one does not compile.
template <class T>
T Sample() {
  return {};
}
template <>
VariantsRequest Sample() {
  return {D(1), {"x86-64-v3", "x86-64-v2"}, {1, 2}};
}
template <>
VariantsReply Sample() {
  return {{{D(1), "x86-64-v3", 2, 1, {1, 2, 3}, {ValidationKind::kExecuted, 4}, D(5), 2, 99, 1}, {}}};
}
template <>
GetPlanRequest Sample() {
  return {D(9)};
}
template <>
GetPlanReply Sample() {
  return {{1, 2, 3}};
}
template <>
GetBlobsRequest Sample() {
  return {{D(1), D(2)}, 77};
}
template <>
GetBlobsReply Sample() {
  return {{{0, 0, 3, true, {1, 2, 3}}, {1, 0, 0, false, {}}, {2, 5, 10, true, {4, 5}}}};
}
template <>
LookupKernelsRequest Sample() {
  return {{D(1), D(2)}};
}
template <>
LookupKernelsReply Sample() {
  return {{SampleBinding(3), {.key = {}, .id = D(0)}}};
}
template <>
ClaimRequest Sample() {
  return {ClaimKind::kPlan, {D(1)}, 5000, "me"};
}
template <>
ClaimReply Sample() {
  return {{{ClaimState::kHeld, D(0), 12, "you"}, {ClaimState::kPresent, D(3), 0, ""}}};
}
template <>
ReleaseRequest Sample() {
  return {ClaimKind::kKernel, {D(1)}, "me"};
}
template <>
PublishBlobsRequest Sample() {
  return {{{1}, {2, 3}}, {SampleBinding(3), SampleBinding(4)}};
}
template <>
PublishBlobsReply Sample() {
  return {{D(1), D(2)}};
}
template <>
PublishPlanRequest Sample() {
  return {{1, 2}, {SampleBinding(5)}};
}
template <>
PublishPlanReply Sample() {
  return {D(1), true};
}
template <>
ReportRequest Sample() {
  return {D(1), ReportKind::kMismatch, 3, "worker-1", "softmax"};
}
template <>
ReportReply Sample() {
  return {true, 3};
}
template <>
ChangeLogRequest Sample() {
  return {5, 10};
}
template <>
ChangeLogReply Sample() {
  return {{{6, ChangeKind::kPurge, D(1), D(2), "x86-64-v2"}}, 6, true};
}
template <>
PurgeRequest Sample() {
  return {PurgeKind::kTarget, D(0), "sm_90a", true};
}
template <>
PurgeReply Sample() {
  return {12};
}
template <>
PinRequest Sample() {
  return {D(1), false};
}
template <>
QuarantineRequest Sample() {
  return {D(1), true};
}
template <>
StatsReply Sample() {
  return {{{"plans", 3}, {"bytes", 1u << 30}}};
}
template <>
ListRequest Sample() {
  return {D(1), 10, D(2)};
}
template <>
ListReply Sample() {
  return {{{D(1), D(2), "x86-64-v4", 1, {ValidationKind::kEmulated, 2}, 3, 4, 5, 6, 7, D(8), true, true}}};
}
template <>
PingReply Sample() {
  return {"0.1.0", 12};
}

template <class T>
void RoundTrip(const char* name) {
  const Message first = Encode(Sample<T>());
  T decoded;
  const Status status = Decode(first, decoded);
  ASSERT_TRUE(status) << name << ": " << ToString(status.error());
  const Message second = Encode(decoded);
  EXPECT_EQ(first.payload, second.payload) << name;
  EXPECT_EQ(first.blobs, second.blobs) << name;
}

// Damaged bytes are refused or decoded to something else; they are never read out of bounds (the sanitizer build sees
// that).
template <class T>
void Damage() {
  const Message good = Encode(Sample<T>());
  for (size_t i = 0; i < good.payload.size(); ++i) {
    for (int value : {0x00, 0x01, 0x7f, 0xff}) {
      Message bad = good;
      bad.payload[i] = static_cast<uint8_t>(value);
      T decoded;
      (void)Decode(std::move(bad), decoded);
    }
    Message cut = good;
    cut.payload.resize(i);
    cut.blobs.clear();
    T decoded;
    (void)Decode(std::move(cut), decoded);
  }
}

TEST(CacheCodec, EveryMessageRoundTrips) {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  RoundTrip<name##Request>(#name " request");                 \
  RoundTrip<name##Reply>(#name " reply");
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
}

TEST(CacheCodec, EveryMessageSurvivesDamage) {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  Damage<name##Request>();                                    \
  Damage<name##Reply>();
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
}

TEST(CacheCodec, UnknownKindsAndMissingPartsAreErrors) {
  ReportRequest report = Sample<ReportRequest>();
  report.kind = static_cast<ReportKind>(200);
  ReportRequest decoded;
  EXPECT_EQ(Decode(Encode(report), decoded).error().code, ErrorCode::kUnsupported);
  GetPlanReply plan;
  EXPECT_EQ(Decode(Message{}, plan).error().code, ErrorCode::kMalformed);
  Message chunks = Encode(Sample<GetBlobsReply>());
  chunks.blobs.pop_back();
  GetBlobsReply blobs;
  EXPECT_EQ(Decode(std::move(chunks), blobs).error().code, ErrorCode::kMalformed);
  LookupKernelsRequest many;
  LookupKernelsRequest out;
  many.keys.resize(limits::kMessageKeysMax + 1);
  EXPECT_EQ(Decode(Encode(many), out).error().code, ErrorCode::kLimitExceeded);
}

TEST(CacheCodec, AHintIsItsEightBytesAndNothingElseIs) {
  for (const uint64_t head : {uint64_t{0}, uint64_t{1}, uint64_t{0x0102030405060708}, UINT64_MAX}) {
    const Bytes hint = EncodeHint(head);
    EXPECT_EQ(DecodeHint(hint).value(), head);
    for (size_t size = 0; size < hint.size(); ++size)
      EXPECT_EQ(DecodeHint(std::span(hint).first(size)).error().code, ErrorCode::kMalformed) << size << " bytes";
    Bytes longer = hint;
    longer.push_back(0);
    EXPECT_EQ(DecodeHint(longer).error().code, ErrorCode::kMalformed);
    for (size_t bit = 0; bit < 64; ++bit) {
      Bytes flipped = hint;
      flipped[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
      EXPECT_EQ(DecodeHint(flipped).value(), head ^ uint64_t{1} << bit) << "another head, which the log is asked about";
    }
  }
  EXPECT_EQ(EncodeHint(0x0102030405060708), (Bytes{8, 7, 6, 5, 4, 3, 2, 1})) << "what peers of other builds send";
}

TEST(CacheCodec, RolesFollowTheTable) {
  EXPECT_EQ(MethodRoles(Method::kVariants) & RoleBit(Role::kWorker), RoleBit(Role::kWorker));
  EXPECT_EQ(MethodRoles(Method::kPublishPlan) & RoleBit(Role::kWorker), 0);
  EXPECT_EQ(MethodRoles(Method::kPublishPlan) & RoleBit(Role::kCompile), RoleBit(Role::kCompile));
  EXPECT_EQ(MethodRoles(Method::kPurge), kAdminOnly);
}

}  // namespace
}  // namespace kiln::cache
