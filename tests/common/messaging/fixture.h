// Loops, private socket directories and waiting, for the messaging tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "common/messaging/rpc_client.h"
#include "common/messaging/rpc_server.h"
#include "tests/support/temp_directory.h"

namespace kiln {

inline constexpr uint16_t kEcho = 1, kSilent = 2, kThrow = 3, kForget = 4, kAdminMethod = 5, kAtOnce = 6;

inline Bytes ToBytes(std::string_view text) {
  return Bytes(text.begin(), text.end());
}
inline std::string ToText(const Bytes& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

// Polls until `condition` holds; false after ten seconds.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class MessagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_loop_ = Loop::Start("server").value();
    client_loop_ = Loop::Start("client").value();
  }
  void TearDown() override {
    server_loop_.reset();
    client_loop_.reset();
  }

  std::string Ipc(const std::string& name) const { return "ipc://" + directory_ + "/" + name; }

  static void RegisterTestMethods(RpcServer& server, std::vector<Replier>* held = nullptr) {
    server.Register(kEcho, kAnyRole, [](const RequestContext& context, Message request, Replier reply) {
      if (ToText(request.payload) == "who")
        return reply.Ok({ToBytes(std::string(RoleName(context.role)) + " " + context.peer_key), {}});
      if (ToText(request.payload) == "machine") return reply.Ok({ToBytes(context.machine), {}});
      reply.Ok(std::move(request));
    });
    server.Register(kSilent, kAnyRole, [held](const RequestContext&, Message, Replier reply) {
      if (held != nullptr) held->push_back(std::move(reply));
    });
    server.Register(kThrow, kAnyRole,
                    [](const RequestContext&, Message, Replier) { throw std::runtime_error("boom"); });
    server.Register(kForget, kAnyRole, [](const RequestContext&, Message, Replier) {});
    server.Register(
        kAtOnce, kAnyRole, [](const RequestContext&, Message request, Replier reply) { reply.Ok(std::move(request)); },
        Admission::kImmediate);
    server.Register(
        kAdminMethod, kAdminOnly,
        [](const RequestContext&, Message request, Replier reply) { reply.Ok(std::move(request)); }, Admission::kQueued,
        "Sweep (for this test)");
    server.Serve();
  }

  std::unique_ptr<RpcServer> StartServer(RpcServerOptions options, std::vector<Replier>* held = nullptr) {
    auto server = RpcServer::Listen(*server_loop_, std::move(options));
    EXPECT_TRUE(server) << ToString(server.error());
    RegisterTestMethods(**server, held);
    return *std::move(server);
  }
  std::unique_ptr<RpcServer> StartServer(const std::string& endpoint, std::vector<Replier>* held = nullptr) {
    return StartServer({.endpoints = {endpoint}, .security = {.insecure = true}}, held);
  }
  std::unique_ptr<RpcClient> StartClient(const std::string& endpoint) {
    return RpcClient::Connect(*client_loop_,
                              {.endpoint = endpoint,
                               .security = {.insecure = true},
                               .breaker = {.failures_to_open = 3, .backoff_min_ms = 10, .backoff_max_ms = 50},
                               .reconnect_min_ms = 10,
                               .reconnect_max_ms = 50})
        .value();
  }
  static std::string Echo(RpcClient& client, std::string_view text, int64_t deadline_ms = 5000) {
    auto reply = client.CallSync(kEcho, {ToBytes(text), {}}, deadline_ms);
    return reply ? ToText(reply->message.payload) : ToString(reply.error());
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  std::unique_ptr<Loop> server_loop_, client_loop_;
};

}  // namespace kiln
