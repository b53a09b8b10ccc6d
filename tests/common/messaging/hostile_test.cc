// Peers that speak ZeroMQ but not the protocol, and peers that lie in it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
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

// Takes one connection on 127.0.0.1, sends `bytes` over it, waits a little for the client to end it, and is gone.
class LyingListener {
 public:
  explicit LyingListener(Bytes bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      const int peer = ::accept(socket_, nullptr, nullptr);
      ::close(socket_);
      (void)::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      timeval patience{.tv_sec = 0, .tv_usec = 500000};
      ::setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      for (char unread[256]; ::recv(peer, unread, sizeof unread, 0) > 0;) continue;
      ::close(peer);
    });
  }
  ~LyingListener() { Wait(); }
  void Wait() {
    if (thread_.joinable()) thread_.join();
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  int socket_;
  std::string endpoint_;
  std::thread thread_;
};

// ZMTP 3: greeting without security, then `behind`.
Bytes GreetingAnd(const Bytes& behind) {
  constexpr uint8_t kBegin[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
  Bytes bytes(64 + behind.size(), 0);
  std::ranges::copy(kBegin, bytes.begin());
  std::ranges::copy(behind, bytes.begin() + 64);
  return bytes;
}

TEST_F(MessagingTest, AClientComesBackFromEveryBreachOfTheProtocol) {
  Bytes ready = {4,   29,  5,   'R', 'E', 'A', 'D', 'Y', 11, 'S', 'o', 'c',
                 'k', 'e', 't', '-', 'T', 'y', 'p', 'e', 0,  0,   0,   6};
  for (const char c : std::string_view("ROUTER")) ready.push_back(static_cast<uint8_t>(c));
  ready[1] = static_cast<uint8_t>(ready.size() - 2);
  Bytes huge_frame = ready;
  for (const int byte : {2, 0, 0, 1, 0, 0, 0, 0, 0}) huge_frame.push_back(static_cast<uint8_t>(byte));
  const std::pair<const char*, Bytes> lies[] = {
      {"HTTP", ToBytes("HTTP/1.1 400 Bad Request\r\n\r\n")},
      {"an unknown command", GreetingAnd({4, 6, 5, 'R', 'E', 'A', 'D', 'X'})},
      {"a property that is cut off", GreetingAnd({4, 8, 5, 'R', 'E', 'A', 'D', 'Y', 11, 'S'})},
      {"another kind of socket", GreetingAnd({4,   26,  5,   'R', 'E', 'A', 'D', 'Y', 11, 'S', 'o', 'c', 'k', 'e',
                                              't', '-', 'T', 'y', 'p', 'e', 0,   0,   0,  3,   'P', 'U', 'B'})},
      {"a frame of 2^40 bytes", GreetingAnd(huge_frame)},
  };
  for (const auto& [name, bytes] : lies) {
    SCOPED_TRACE(name);
    LyingListener liar(bytes);
    auto client = StartClient(liar.endpoint());
    EXPECT_FALSE(client->CallSync(kEcho, {}, 300));
    liar.Wait();
    auto server = StartServer(liar.endpoint());
    EXPECT_TRUE(Eventually([&] { return Echo(*client, "back", 500) == "back"; }));
  }
}

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
