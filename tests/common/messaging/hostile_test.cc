// Peers that speak ZeroMQ but not the protocol, and peers that lie in it.
#include <gtest/gtest.h>
#include <zmq.h>

#include <atomic>
#include <random>
#include <thread>

#include "common/messaging/envelope.h"
#include "tests/common/messaging/fixture.h"

namespace kiln {
namespace {

// A blocking raw socket outside of any loop.
class RawSocket {
 public:
  explicit RawSocket(int type) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int linger = 0, wait_ms = 2000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    zmq_setsockopt(socket_, ZMQ_SNDTIMEO, &wait_ms, sizeof wait_ms);
  }
  ~RawSocket() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void KeepReceived(int messages) { zmq_setsockopt(socket_, ZMQ_RCVHWM, &messages, sizeof messages); }
  void Connect(const std::string& endpoint) { ASSERT_EQ(zmq_connect(socket_, endpoint.c_str()), 0); }
  void Bind(const std::string& endpoint) { ASSERT_EQ(zmq_bind(socket_, endpoint.c_str()), 0); }
  void Send(const std::vector<Bytes>& frames) {
    for (size_t i = 0; i < frames.size(); ++i)
      zmq_send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }
  std::vector<Bytes> Receive() {
    std::vector<Bytes> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      if (zmq_msg_recv(&part, socket_, 0) < 0) return {};
      const auto* data = static_cast<const uint8_t*>(zmq_msg_data(&part));
      frames.emplace_back(data, data + zmq_msg_size(&part));
      more = zmq_msg_more(&part);
      zmq_msg_close(&part);
    }
    return frames;
  }

 private:
  void* context_;
  void* socket_;
};

TEST_F(MessagingTest, GarbageIsCountedAndTheServerLivesOn) {
  auto server = StartServer(Ipc("a"));
  RawSocket raw(ZMQ_DEALER);
  raw.Connect(Ipc("a"));
  std::mt19937 random(20261129);
  for (int i = 0; i < 200; ++i) {
    Bytes noise(random() % 300);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    raw.Send({noise});
  }
  Bytes envelope = EncodeEnvelope({.request_id = 1, .method = kEcho, .deadline_ms = 1000});
  for (size_t i = 0; i < envelope.size(); ++i) {
    Bytes bad = envelope;
    bad[i] ^= 0xff;
    raw.Send({bad, ToBytes("blob")});
  }
  raw.Send({EncodeEnvelope({.kind = EnvelopeKind::kReply, .request_id = 1})});
  auto client = StartClient(Ipc("a"));
  EXPECT_EQ(Echo(*client, "alive"), "alive");
  EXPECT_TRUE(Eventually([&] { return server->Stats().malformed > 200; }));
}

// A peer that asks and never reads costs a bounded amount of memory, and nobody else anything.
TEST_F(MessagingTest, APeerThatDoesNotReadLosesRepliesAndHoldsUpNobody) {
  constexpr size_t kReplyBytes = size_t{2} << 20, kLimit = size_t{16} << 20;
  RpcServerOptions options{.endpoints = {Ipc("slow")}, .security = {.insecure = true}};
  options.peer_unread_bytes = kLimit;
  auto server = RpcServer::Listen(*server_loop_, std::move(options)).value();
  server->Register(9, kAnyRole, [](const RequestContext&, Message, Replier reply) {
    reply.Ok({Bytes(16, 1), {Bytes(kReplyBytes, 7)}});
  });
  server->Serve();
  RawSocket slow(ZMQ_DEALER);
  slow.KeepReceived(1);
  slow.Connect(Ipc("slow"));
  for (uint64_t id = 1; id <= 100; ++id)
    slow.Send({EncodeEnvelope({.kind = EnvelopeKind::kRequest, .request_id = id, .method = 9, .deadline_ms = 60'000})});
  ASSERT_TRUE(Eventually([&] { return server->Stats().requests == 100; }));
  EXPECT_GT(server->Stats().replies_dropped, 50u);
  EXPECT_LE(server->Stats().unread_bytes, kLimit + kReplyBytes + 4096);
  auto other = RpcClient::Connect(*client_loop_, {.endpoint = Ipc("slow"), .security = {.insecure = true}}).value();
  for (int i = 0; i < 20; ++i) {
    const auto reply = other->CallSync(9, {}, 10'000);
    ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
    EXPECT_EQ(reply->message.blobs.at(0).size(), kReplyBytes);
  }
  EXPECT_FALSE(slow.Receive().empty()) << "what was kept for it is still there to read";
}

// As many refusals as a client can have coming arrive, though it reads none before it has asked for all.
TEST_F(MessagingTest, EveryRefusalReachesAClientThatAsksForAllAtOnce) {
  RpcServerOptions options{.endpoints = {Ipc("busy")}, .security = {.insecure = true}, .pending_max = 1};
  std::vector<Replier> held;
  auto server = StartServer(std::move(options), &held);
  auto client = StartClient(Ipc("busy"));
  std::atomic<int> busy{0}, other{0};
  for (int i = 0; i < 3000; ++i)
    client->Call(kSilent, {}, 60'000, [&](Result<RpcReply> reply) {
      ++(!reply.has_value() && reply.error().code == ErrorCode::kBusy ? busy : other);
    });
  EXPECT_TRUE(Eventually([&] { return busy == 2999; })) << busy << " were told, " << other << " heard something else";
  EXPECT_EQ(server->Stats().replies_dropped, 0u);
  client.reset();
}

TEST_F(MessagingTest, TooManyPartsAndTooLargePartsAreDropped) {
  auto server = StartServer({.endpoints = {Ipc("a")}, .security = {.insecure = true}, .part_bytes_max = 1 << 16});
  RawSocket many(ZMQ_DEALER);
  many.Connect(Ipc("a"));
  std::vector<Bytes> parts(limits::kMessagePartsMax + 10, ToBytes("x"));
  parts[0] = EncodeEnvelope({.request_id = 1, .method = kEcho, .deadline_ms = 1000});
  many.Send(parts);
  EXPECT_TRUE(Eventually([&] { return server->Stats().malformed == 1; }));
  auto client = StartClient(Ipc("a"));
  EXPECT_FALSE(client->CallSync(kEcho, {Bytes(1 << 17, 1), {}}, 300));
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "alive", 500) == "alive"; }));
}

// Neither side sends what the other must drop: both ends of a call that is too large hear so at once, and the
// connection and the other calls on it live on.
TEST_F(MessagingTest, CallsAndAnswersBeyondTheLimitsFailAtOnceAndNameThem) {
  auto server = RpcServer::Listen(*server_loop_, {.endpoints = {Ipc("a")}, .security = {.insecure = true}}).value();
  server->Register(kEcho, kAnyRole, [](const RequestContext&, Message request, Replier reply) {
    const size_t parts = request.payload.size() == 1 ? 1 : 5, bytes = request.payload.size() == 1 ? 80 : 16;
    if (request.payload.size() <= 2)
      return reply.Ok({{},
                       std::vector<Bytes>(request.payload.empty() ? 2000 : parts,
                                          Bytes(request.payload.empty() ? 1 : bytes << 20))});
    reply.Ok(std::move(request));
  });
  server->Serve();
  auto client = StartClient(Ipc("a"));
  for (size_t kind = 0; kind <= 2; ++kind) {
    const auto reply = client->CallSync(kEcho, {Bytes(kind), {}}, 60'000);
    ASSERT_FALSE(reply.has_value()) << kind;
    EXPECT_EQ(reply.error().code, ErrorCode::kLimitExceeded) << ToString(reply.error());
    EXPECT_NE(reply.error().message.find("limit of"), std::string::npos) << reply.error().message;
  }
  for (const Message& request :
       {Message{Bytes(80 << 20), {}}, Message{{}, {Bytes(80 << 20)}},
        Message{{}, std::vector<Bytes>(5, Bytes(16 << 20))}, Message{{}, std::vector<Bytes>(2000, Bytes(1))}}) {
    const auto reply = client->CallSync(kEcho, request, 60'000);
    ASSERT_FALSE(reply.has_value());
    EXPECT_EQ(reply.error().code, ErrorCode::kLimitExceeded) << ToString(reply.error());
  }
  EXPECT_EQ(Echo(*client, "still here"), "still here");
  EXPECT_EQ(client->Stats().lost_connections, 0u);
  EXPECT_EQ(server->Stats().malformed, 0u);
}

TEST_F(MessagingTest, ExpiredRequestsAreDroppedAndOtherVersionsRefused) {
  auto server = StartServer(Ipc("a"));
  RawSocket raw(ZMQ_DEALER);
  raw.Connect(Ipc("a"));
  raw.Send({EncodeEnvelope({.request_id = 1, .method = kEcho, .deadline_ms = 0})});
  raw.Send({EncodeEnvelope({.version = kProtocolVersion + 1, .request_id = 2, .method = kEcho, .deadline_ms = 1000})});
  const auto frames = raw.Receive();
  ASSERT_EQ(frames.size(), 1u);
  const Envelope reply = DecodeEnvelope(frames[0]).value();
  EXPECT_EQ(reply.request_id, 2u);
  EXPECT_EQ(reply.status, static_cast<uint8_t>(ErrorCode::kUnsupported));
  EXPECT_EQ(server->Stats().expired, 1u);
}

TEST_F(MessagingTest, LyingServerCannotCompleteAnotherCallOrHoldOne) {
  RawSocket liar(ZMQ_ROUTER);
  liar.Bind(Ipc("liar"));
  auto client = StartClient(Ipc("liar"));
  std::atomic<int> code{0};
  client->Call(kEcho, {ToBytes("q"), {}}, 400,
               [&](Result<RpcReply> reply) { code = reply ? -1 : static_cast<int>(reply.error().code); });
  const auto request = liar.Receive();
  ASSERT_EQ(request.size(), 2u);
  liar.Send({request[0], ToBytes("garbage")});
  liar.Send({request[0], EncodeEnvelope({.kind = EnvelopeKind::kReply, .request_id = 999'999})});
  liar.Send({request[0], request[1]});  // our own request as the reply
  EXPECT_TRUE(Eventually([&] { return code.load() == static_cast<int>(ErrorCode::kDeadlineExceeded); }));
  EXPECT_EQ(client->Stats().malformed, 2u);
}

}  // namespace
}  // namespace kiln
