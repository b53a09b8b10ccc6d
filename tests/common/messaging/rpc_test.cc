#include <gtest/gtest.h>

#include <atomic>

#include "tests/common/messaging/fixture.h"

namespace kiln {
namespace {

TEST_F(MessagingTest, PayloadAndBlobsComeBackOverEveryTransport) {
  for (const std::string& endpoint : {Ipc("a"), std::string("tcp://127.0.0.1:*")}) {
    auto server = StartServer(endpoint);
    auto client = StartClient(server->endpoints()[0]);
    Message request{ToBytes("hello"), {ToBytes("blob"), {}, Bytes(3 << 20, 7)}};
    const auto reply = client->CallSync(kEcho, request, 5000);
    ASSERT_TRUE(reply) << ToString(reply.error());
    EXPECT_EQ(reply->message.payload, request.payload);
    EXPECT_EQ(reply->message.blobs, request.blobs);
  }
}

TEST_F(MessagingTest, ASocketPathHasOneListenerAndGoesWithIt) {
  auto server = StartServer(Ipc("a"));
  auto client = StartClient(Ipc("a"));
  EXPECT_EQ(Echo(*client, "x"), "x");
  const auto second = RpcServer::Listen(*client_loop_, {.endpoints = {Ipc("a")}, .security = {.insecure = true}});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_NE(second.error().message.find(Ipc("a")), std::string::npos);
  EXPECT_EQ(Echo(*client, "still the first"), "still the first");
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/a"));
  server = StartServer(Ipc("a"));
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "again") == "again"; }));
}

TEST_F(MessagingTest, InprocReachesAPeerOnTheSameLoop) {
  auto server =
      RpcServer::Listen(*server_loop_, {.endpoints = {"inproc://svc"}, .security = {.insecure = true}}).value();
  RegisterTestMethods(*server);
  auto client = RpcClient::Connect(*server_loop_, {.endpoint = "inproc://svc", .security = {.insecure = true}}).value();
  EXPECT_EQ(Echo(*client, "x"), "x");
}

TEST_F(MessagingTest, AnswersMayComeLaterFromAnyThread) {
  std::vector<std::jthread> workers;
  auto server = RpcServer::Listen(*server_loop_, {.endpoints = {Ipc("a")}, .security = {.insecure = true}}).value();
  server->Register(kEcho, kAnyRole, [&](const RequestContext&, Message request, Replier reply) {
    workers.emplace_back([request = std::move(request), reply = std::move(reply)] { reply.Ok(request); });
  });
  server->Serve();
  auto client = StartClient(Ipc("a"));
  std::atomic<int> good{0};
  for (int i = 0; i < 50; ++i)
    client->Call(kEcho, {ToBytes(std::to_string(i)), {}}, 5000, [&good, i](Result<RpcReply> reply) {
      if (reply && ToText(reply->message.payload) == std::to_string(i)) good.fetch_add(1);
    });
  EXPECT_TRUE(Eventually([&] { return good.load() == 50; }));
}

TEST_F(MessagingTest, ManyCallersShareOneClient) {
  auto server = StartServer({.endpoints = {Ipc("a")}, .security = {.insecure = true}, .pending_max = 4096});
  auto client = StartClient(Ipc("a"));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          const std::string text = std::to_string(t) + "/" + std::to_string(i);
          if (Echo(*client, text) != text) wrong.fetch_add(1);
        }
      });
  }
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(server->Stats().requests, 400u);
}

TEST_F(MessagingTest, HungServerCostsTheDeadlineAndThenTheBreakerAnswers) {
  std::vector<Replier> held;
  auto server = StartServer(Ipc("a"), &held);
  auto client = StartClient(Ipc("a"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client->CallSync(kSilent, {}, 30).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(client->CallSync(kSilent, {}, 30).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client->Stats().rejected_by_breaker, 1u);
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "x") == "x"; }));  // half-open probe closes it again
  EXPECT_TRUE(Eventually([&] { return server->Stats().pending == 0; }));
  server_loop_->RunSync([&] { held.clear(); });
}

TEST_F(MessagingTest, AbsentServerEndsByDeadlineAndIsReachedWhenItAppears) {
  auto client = StartClient(Ipc("late"));
  EXPECT_EQ(client->CallSync(kEcho, {}, 50).error().code, ErrorCode::kDeadlineExceeded);
  std::unique_ptr<RpcServer> server;
  // Answered, or refused with Unavailable when it arrives between the server's binding and its Serve(); never left
  // waiting.
  std::atomic<int> code{0};
  client->Call(kEcho, {ToBytes("waited"), {}}, 60'000,
               [&](Result<RpcReply> reply) { code = reply ? -1 : static_cast<int>(reply.error().code); });
  server = StartServer(Ipc("late"));
  EXPECT_TRUE(Eventually([&] { return code.load() != 0; }));
  EXPECT_TRUE(code == -1 || code == static_cast<int>(ErrorCode::kUnavailable)) << code;
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "here", 500) == "here"; }));
}

TEST_F(MessagingTest, ACallThatMayNotWaitLongForAConnectionIsUnavailableBeforeItsDeadline) {
  auto client = RpcClient::Connect(*client_loop_,
                                   {.endpoint = Ipc("late"), .security = {.insecure = true}, .connect_wait_ms = 50});
  ASSERT_TRUE(client);
  EXPECT_EQ((*client)->CallSync(kEcho, {}, 600'000).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ((*client)->CallSync(kEcho, {}, 20).error().code, ErrorCode::kDeadlineExceeded);
  std::vector<Replier> held;
  auto server = StartServer(Ipc("late"), &held);
  EXPECT_TRUE(Eventually([&] { return Echo(**client, "x") == "x"; }));
  EXPECT_EQ((*client)->CallSync(kSilent, {}, 200).error().code,
            ErrorCode::kDeadlineExceeded);  // connected: its deadline counts
  server_loop_->RunSync([&] { held.clear(); });
}

TEST_F(MessagingTest, AToolHearsAtOnceThatNobodyListens) {
  const auto connect = [&](const std::string& endpoint) {
    return RpcClient::Connect(*client_loop_, {.endpoint = endpoint,
                                              .security = {.insecure = true},
                                              .refused_at_once = true,
                                              .reconnect_min_ms = 10,
                                              .reconnect_max_ms = 50})
        .value();
  };
  for (const std::string& endpoint : {Ipc("nobody"), std::string("tcp://127.0.0.1:1")}) {
    const auto client = connect(endpoint);
    for (int call = 0; call < 3; ++call) {
      const auto reply = client->CallSync(kEcho, {}, 600'000);
      ASSERT_FALSE(reply.has_value());
      EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
      EXPECT_EQ(reply.error().message,
                "nobody listens at " + endpoint + "; start the service there, or name another address");
    }
  }
  // A name may have other addresses, or get them: two seconds.
  const std::string waited = connect("tcp://localhost:1")->CallSync(kEcho, {}, 600'000).error().message;
  EXPECT_NE(waited.find("within 2000 ms"), std::string::npos) << waited;
  // A socket that its owner left behind.
  StartServer(Ipc("left")).reset();
  EXPECT_EQ(connect(Ipc("left"))->CallSync(kEcho, {}, 600'000).error().code, ErrorCode::kUnavailable);
  // Once there was a connection, a restart is waited for.
  auto server = StartServer(Ipc("here"));
  const auto client = connect(Ipc("here"));
  EXPECT_EQ(Echo(*client, "x"), "x");
  server.reset();
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(ToString(client->CallSync(kEcho, {}, 100).error()).find("nobody"), std::string::npos);
  server = StartServer(Ipc("here"));
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "again") == "again"; }));
}

TEST_F(MessagingTest, ServerRestartFailsCallsInFlightAtOnceAndServiceResumes) {
  std::vector<Replier> held;
  auto server = StartServer(Ipc("a"), &held);
  auto client = StartClient(Ipc("a"));
  EXPECT_EQ(Echo(*client, "before"), "before");
  std::atomic<int> code{0};
  client->Call(kSilent, {}, 600'000,
               [&](Result<RpcReply> reply) { code = reply ? -1 : static_cast<int>(reply.error().code); });
  EXPECT_TRUE(Eventually([&] { return server->Stats().pending == 1; }));
  server.reset();
  EXPECT_TRUE(Eventually([&] { return code.load() == static_cast<int>(ErrorCode::kUnavailable); }));
  server = StartServer(Ipc("a"));
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "after", 500) == "after"; }));
  held.clear();  // a reply after the server's end goes nowhere
}

// The call that is made as soon as the loss is told goes out over the next connection, never into the lost one: there
// it would end by its deadline.
TEST_F(MessagingTest, ACallMadeRightAfterALossIsNotSentIntoIt) {
  for (int round = 0; round < 30; ++round) {
    std::vector<Replier> held;
    auto server = StartServer(Ipc("a"), &held);
    auto client = RpcClient::Connect(*client_loop_,
                                     {.endpoint = Ipc("a"), .security = {.insecure = true}, .connect_wait_ms = 100});
    ASSERT_TRUE(client);
    ASSERT_EQ(Echo(**client, "before"), "before");
    std::atomic<int> code{0};
    (*client)->Call(kSilent, {}, 600'000, [&](Result<RpcReply>) {
      (*client)->Call(kEcho, {}, 600'000,
                      [&](Result<RpcReply> reply) { code = reply ? -1 : static_cast<int>(reply.error().code); });
    });
    ASSERT_TRUE(Eventually([&] { return server->Stats().pending == 1; }));
    server.reset();
    ASSERT_TRUE(Eventually([&] { return code.load() == static_cast<int>(ErrorCode::kUnavailable); })) << round;
    held.clear();
  }
}

// Two processes of one host are one machine, whatever they say of themselves.
TEST_F(MessagingTest, AMachineIsNamedByItsAddressAndNotByItsConnection) {
  auto server = StartServer({.endpoints = {Ipc("a"), "tcp://127.0.0.1:0"}, .security = {.insecure = true}});
  for (const std::string& endpoint : server->endpoints()) {
    auto first = StartClient(endpoint), second = StartClient(endpoint);
    const std::string expected = endpoint.starts_with("tcp") ? "@127.0.0.1" : "@";
    EXPECT_EQ(Echo(*first, "machine"), expected);
    EXPECT_EQ(Echo(*second, "machine"), expected);
  }
}

TEST_F(MessagingTest, ACallerWithAContradictingTableIsRefusedAndToldWhy) {
  auto server = StartServer({.endpoints = {Ipc("a")},
                             .security = {.insecure = true},
                             .table = {10, 77},
                             .table_compatible = [](TablePrefix peer) { return peer.hash == 77; }});
  const auto call = [&](TablePrefix table) {
    auto client =
        RpcClient::Connect(*client_loop_, {.endpoint = Ipc("a"), .security = {.insecure = true}, .table = table});
    return (*client)->CallSync(kEcho, {ToBytes("x"), {}}, 5'000);
  };
  EXPECT_TRUE(call({}).has_value()) << "a caller without a table";
  EXPECT_TRUE(call({10, 77}).has_value());
  const auto refused = call({12, 78});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("12 rows"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("10 rows"), std::string::npos) << refused.error().message;
}

TEST_F(MessagingTest, FullServerAnswersBusyWithATime) {
  std::vector<Replier> held;
  auto server = StartServer(
      {.endpoints = {Ipc("a")}, .security = {.insecure = true}, .pending_max = 2, .busy_retry_after_ms = 123}, &held);
  auto client = StartClient(Ipc("a"));
  for (int i = 0; i < 2; ++i) client->Call(kSilent, {}, 60'000, [](Result<RpcReply>) {});
  EXPECT_TRUE(Eventually([&] { return server->Stats().pending == 2; }));
  std::atomic<uint32_t> retry{0};
  std::atomic<int> code{0};
  client->CallDetailed(kEcho, {}, 5000, [&](std::expected<RpcReply, RpcFailure> outcome) {
    retry = outcome ? 0 : outcome.error().retry_after_ms;
    code = outcome ? -1 : static_cast<int>(outcome.error().error.code);
  });
  EXPECT_TRUE(Eventually([&] { return code.load() == static_cast<int>(ErrorCode::kBusy); }));
  EXPECT_EQ(retry.load(), 123u);
  const auto at_once = client->CallSync(kAtOnce, {ToBytes("now"), {}}, 5000);
  ASSERT_TRUE(at_once.has_value()) << ToString(at_once.error());
  EXPECT_EQ(ToText(at_once->message.payload), "now");
  EXPECT_FALSE(server->Settle(20)) << "two are not answered";
  server_loop_->RunSync([&] {
    for (const Replier& reply : held) reply.Ok({});
    held.clear();
  });
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "x") == "x"; }));
  EXPECT_TRUE(server->Settle(5000));
}

TEST_F(MessagingTest, EveryBadEndOfAHandlerIsAnError) {
  auto server = StartServer(Ipc("a"));
  auto client = StartClient(Ipc("a"));
  EXPECT_NE(client->CallSync(kThrow, {}, 5000).error().message.find("boom"), std::string::npos);
  EXPECT_EQ(client->CallSync(kForget, {}, 5000).error().code, ErrorCode::kInternal);
  EXPECT_EQ(client->CallSync(999, {}, 5000).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(client->CallSync(kEcho, {}, 0).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(Echo(*client, "alive"), "alive");
}

TEST_F(MessagingTest, DrainingServerRefusesNewWorkAndFinishesTheOld) {
  std::vector<Replier> held;
  auto server = StartServer(Ipc("a"), &held);
  auto client = StartClient(Ipc("a"));
  std::atomic<bool> finished{false};
  client->Call(kSilent, {}, 60'000, [&](Result<RpcReply> reply) { finished = reply.has_value(); });
  EXPECT_TRUE(Eventually([&] { return server->Stats().pending == 1; }));
  server->Drain();
  EXPECT_EQ(client->CallSync(kEcho, {}, 5000).error().code, ErrorCode::kUnavailable);
  server_loop_->RunSync([&] {
    held[0].Ok({});
    held.clear();
  });
  EXPECT_TRUE(Eventually([&] { return finished.load(); }));
}

TEST_F(MessagingTest, OpTablesMustAgreeAndRepliesCarryTheLogHead) {
  auto server = StartServer({.endpoints = {Ipc("a")},
                             .security = {.insecure = true},
                             .table_compatible = [](TablePrefix peer) { return peer.hash == 7; },
                             .log_head = [] { return uint64_t{42}; }});
  auto connect = [&](uint64_t hash) {
    return RpcClient::Connect(*client_loop_, {.endpoint = Ipc("a"), .security = {.insecure = true}, .table = {3, hash}})
        .value();
  };
  EXPECT_EQ(connect(7)->CallSync(kEcho, {}, 5000)->log_head, 42u);
  EXPECT_EQ(connect(8)->CallSync(kEcho, {}, 5000).error().code, ErrorCode::kUnsupported);
}

TEST_F(MessagingTest, ClosingTheClientCancelsItsCalls) {
  auto client = StartClient(Ipc("nobody"));
  std::atomic<int> code{0};
  client->Call(kEcho, {}, 60'000, [&](Result<RpcReply> reply) { code = static_cast<int>(reply.error().code); });
  EXPECT_TRUE(Eventually([&] { return client->Stats().pending == 1; }));
  client.reset();
  EXPECT_EQ(code.load(), static_cast<int>(ErrorCode::kCancelled));
}

TEST_F(MessagingTest, ClientBoundsItsPendingCalls) {
  std::atomic<int> busy{0};  // outlives the client, whose end answers the calls that are left
  auto client =
      RpcClient::Connect(*client_loop_, {.endpoint = Ipc("nobody"), .security = {.insecure = true}, .pending_max = 3})
          .value();
  for (int i = 0; i < 10; ++i)
    client->Call(kEcho, {}, 60'000, [&](Result<RpcReply> reply) { busy += reply.error().code == ErrorCode::kBusy; });
  EXPECT_TRUE(Eventually([&] { return busy.load() == 7; }));
}

TEST_F(MessagingTest, BadAddressesAreRefusedWithAReason) {
  EXPECT_EQ(
      RpcServer::Listen(*server_loop_, {.endpoints = {"tcp://0.0.0.0:*"}, .security = {.insecure = true}}).error().code,
      ErrorCode::kPermissionDenied);
  EXPECT_EQ(RpcServer::Listen(*server_loop_, {.endpoints = {Ipc("a")}}).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(RpcServer::Listen(*server_loop_, {.endpoints = {"ipc:///tmp/kiln-open"}, .security = {.insecure = true}})
                .error()
                .code,
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(
      RpcClient::Connect(*client_loop_, {.endpoint = "tcp://10.1.2.3:1", .security = {.insecure = true}}).error().code,
      ErrorCode::kPermissionDenied);
  EXPECT_EQ(RpcClient::Connect(*client_loop_, {.endpoint = "nonsense", .security = {.insecure = true}}).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
