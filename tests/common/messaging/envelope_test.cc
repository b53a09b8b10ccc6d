#include "common/messaging/envelope.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Envelope Sample() {
  return {.version = 1,
          .kind = EnvelopeKind::kReply,
          .request_id = 77,
          .method = 12,
          .deadline_ms = 250,
          .trace_id = 0x1122334455667788,
          .table = {.rows = 40, .hash = 99},
          .status = 8,
          .error = "queue full",
          .retry_after_ms = 30,
          .log_head = 5,
          .payload = {1, 2, 3}};
}

TEST(Envelope, RoundTripsEveryField) {
  const Envelope sample = Sample();
  const Envelope back = DecodeEnvelope(EncodeEnvelope(sample)).value();
  EXPECT_EQ(back.version, sample.version);
  EXPECT_EQ(back.kind, sample.kind);
  EXPECT_EQ(back.request_id, sample.request_id);
  EXPECT_EQ(back.method, sample.method);
  EXPECT_EQ(back.deadline_ms, sample.deadline_ms);
  EXPECT_EQ(back.trace_id, sample.trace_id);
  EXPECT_EQ(back.table.rows, sample.table.rows);
  EXPECT_EQ(back.table.hash, sample.table.hash);
  EXPECT_EQ(back.status, sample.status);
  EXPECT_EQ(back.error, sample.error);
  EXPECT_EQ(back.retry_after_ms, sample.retry_after_ms);
  EXPECT_EQ(back.log_head, sample.log_head);
  EXPECT_EQ(back.payload, sample.payload);
}

TEST(Envelope, EveryTruncationAndByteChangeIsDecodedOrRefusedButNeverRead) {
  const Bytes good = EncodeEnvelope(Sample());
  for (size_t length = 0; length < good.size(); ++length) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
    (void)DecodeEnvelope(cut);
  }
  for (size_t i = 0; i < good.size(); ++i)
    for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      Bytes bad = good;
      bad[i] = static_cast<uint8_t>(value);
      (void)DecodeEnvelope(bad);
    }
  EXPECT_EQ(DecodeEnvelope({}).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(DecodeEnvelope(Bytes(64, 0xff)).error().code, ErrorCode::kMalformed);
}

TEST(Envelope, ThisProtocolAndTheOneBeforeAreAccepted) {
  EXPECT_TRUE(ProtocolAccepted(3, 3));
  EXPECT_TRUE(ProtocolAccepted(2, 3));
  EXPECT_FALSE(ProtocolAccepted(1, 3));
  EXPECT_FALSE(ProtocolAccepted(4, 3));
  EXPECT_FALSE(ProtocolAccepted(0, 1));
}

}  // namespace
}  // namespace kiln
