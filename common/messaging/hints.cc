#include "common/messaging/hints.h"

#include <zmq.h>

#include "common/base/limits.h"
#include "common/messaging/socket.h"

namespace kiln {
namespace {

constexpr SocketLimits kHintLimits{.part_bytes_max = limits::kHintBytesMax,
                                   .message_bytes_max = limits::kHintBytesMax,
                                   .parts_max = 1,
                                   .queue_messages = 100};

Status SetHeartbeats(Socket& socket) {
  RETURN_IF_ERROR(socket.SetInt(ZMQ_HEARTBEAT_IVL, limits::kHeartbeatIntervalMs));
  RETURN_IF_ERROR(socket.SetInt(ZMQ_HEARTBEAT_TIMEOUT, limits::kHeartbeatTimeoutMs));
  return socket.SetInt(ZMQ_HANDSHAKE_IVL, limits::kHeartbeatTimeoutMs);
}

}  // namespace

struct HintPublisher::Core {
  explicit Core(Loop& owner) : loop(owner) {}
  Loop& loop;
  std::unique_ptr<Socket> socket;
};

HintPublisher::HintPublisher(std::shared_ptr<Core> core, std::string endpoint)
    : core_(std::move(core)), endpoint_(std::move(endpoint)) {}

Result<std::unique_ptr<HintPublisher>> HintPublisher::Listen(Loop& loop, const std::string& endpoint,
                                                             const ServerSecurity& security) {
  auto core = std::make_shared<Core>(loop);
  std::string bound;
  Status status;
  loop.RunSync([&] {
    status = [&]() -> Status {
      ASSIGN_OR_RETURN(core->socket, Socket::Open(loop, ZMQ_PUB, kHintLimits));
      RETURN_IF_ERROR(SetHeartbeats(*core->socket));
      ASSIGN_OR_RETURN(bound, core->socket->Bind(endpoint, security));
      core->socket->Start([](SocketMessage) {}, nullptr);
      return {};
    }();
    if (!status) core->socket.reset();
  });
  RETURN_IF_ERROR(std::move(status));
  return std::unique_ptr<HintPublisher>(new HintPublisher(std::move(core), std::move(bound)));
}

HintPublisher::~HintPublisher() {
  core_->loop.RunSync([this] { core_->socket.reset(); });
}

void HintPublisher::Publish(Bytes hint) {
  if (hint.size() > limits::kHintBytesMax) return;
  core_->loop.Post([core = core_, hint = std::move(hint)]() mutable {
    if (core->socket == nullptr) return;
    std::vector<Bytes> frames;
    frames.push_back(std::move(hint));
    core->socket->Send(frames);
  });
}

struct HintSubscriber::Core {
  explicit Core(Loop& owner) : loop(owner) {}
  Loop& loop;
  std::unique_ptr<Socket> socket;
};

HintSubscriber::HintSubscriber(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Result<std::unique_ptr<HintSubscriber>> HintSubscriber::Connect(Loop& loop, const std::string& endpoint,
                                                                const ClientSecurity& security,
                                                                std::function<void(Bytes)> on_hint) {
  auto core = std::make_shared<Core>(loop);
  Status status;
  loop.RunSync([&] {
    status = [&]() -> Status {
      ASSIGN_OR_RETURN(core->socket, Socket::Open(loop, ZMQ_SUB, kHintLimits));
      RETURN_IF_ERROR(SetHeartbeats(*core->socket));
      RETURN_IF_ERROR(core->socket->SetText(ZMQ_SUBSCRIBE, ""));
      RETURN_IF_ERROR(core->socket->Connect(endpoint, security));
      core->socket->Start(
          [on_hint = std::move(on_hint)](SocketMessage message) {
            if (!message.too_large && message.frames.size() == 1) on_hint(std::move(message.frames[0]));
          },
          nullptr);
      return {};
    }();
    if (!status) core->socket.reset();
  });
  RETURN_IF_ERROR(std::move(status));
  return std::unique_ptr<HintSubscriber>(new HintSubscriber(std::move(core)));
}

HintSubscriber::~HintSubscriber() {
  core_->loop.RunSync([this] { core_->socket.reset(); });
}

}  // namespace kiln
