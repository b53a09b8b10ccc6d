#include "common/messaging/rpc_server.h"

#include <zmq.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/messaging/socket.h"
#include "common/security/zap.h"

namespace kiln {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kSettlePollMs = 5;
constexpr int64_t kSweepIntervalMs = 250;
constexpr uint32_t kDrainRetryAfterMs = 1000;
constexpr size_t kFramesBeforeBlobs = 2;  // identity and envelope

std::string HexText(const Bytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::string TextOf(uint16_t number, std::string_view text) {
  return text.empty() ? "method " + std::to_string(number) : std::string(text);
}

}  // namespace

// All state is the loop thread's, except the counters.
struct RpcServer::Core : std::enable_shared_from_this<RpcServer::Core> {
  struct Method {
    RoleSet roles;
    RpcHandler handler;
    Admission admission;
    std::string_view text;
  };
  enum class Phase : uint8_t { kStarting, kServing, kDraining };

  Core(Loop& owner, RpcServerOptions chosen) : loop(owner), options(std::move(chosen)) {}

  void OnMessage(SocketMessage message);
  Result<PeerIdentity> Identify(const SocketMessage& message) const;
  // Why this request may not reach its handler; the method's entry otherwise.
  Result<const Method*> Admit(const Envelope& request, const Result<PeerIdentity>& peer);
  void Dispatch(const Method& method, Bytes identity, Envelope request, PeerIdentity peer, SocketMessage message);
  void Refuse(Bytes identity, const Envelope& request, const Error& error, uint32_t retry_after_ms);
  void SendReply(Bytes identity, Envelope reply, std::vector<Bytes> blobs);
  void Finish(uint64_t ticket, Bytes identity, Envelope reply, std::vector<Bytes> blobs);
  void Sweep();

  Loop& loop;
  RpcServerOptions options;
  std::unique_ptr<Socket> socket;
  std::vector<std::string> endpoints;
  std::unordered_map<uint16_t, Method> methods;
  std::unordered_map<uint64_t, int64_t> pending;  // ticket -> deadline
  uint64_t next_ticket = 1;
  Phase phase = Phase::kStarting;
  Loop::TimerId sweep_timer = 0;
  std::atomic<uint64_t> requests{0}, malformed{0}, refused{0}, busy{0}, expired{0}, replies_dropped{0};
  std::atomic<size_t> pending_count{0};
};

struct Replier::State {
  State(std::weak_ptr<RpcServer::Core> server, Loop& owner, uint64_t number, Bytes peer, const Envelope& request)
      : core(std::move(server)), loop(owner), ticket(number), identity(std::move(peer)) {
    reply.version = request.version;
    reply.kind = EnvelopeKind::kReply;
    reply.request_id = request.request_id;
    reply.method = request.method;
    reply.trace_id = request.trace_id;
  }
  ~State() {
    Send(static_cast<uint8_t>(ErrorCode::kInternal), "the service dropped the request without an answer", 0, {});
  }

  void Send(uint8_t status, std::string error, uint32_t retry_after_ms, Message message) {
    if (answered.exchange(true)) return;
    const auto alive = core.lock();
    if (!alive) return;
    reply.status = status;
    reply.error = std::move(error);
    reply.retry_after_ms = retry_after_ms;
    reply.payload = std::move(message.payload);
    loop.Post([weak = core, number = ticket, peer = std::move(identity), envelope = std::move(reply),
               blobs = std::move(message.blobs)]() mutable {
      if (auto server = weak.lock()) server->Finish(number, std::move(peer), std::move(envelope), std::move(blobs));
    });
  }

  std::weak_ptr<RpcServer::Core> core;
  Loop& loop;
  uint64_t ticket;
  Bytes identity;
  Envelope reply;
  std::atomic<bool> answered{false};
};

void Replier::Ok(Message reply) const {
  state_->Send(0, {}, 0, std::move(reply));
}

void Replier::Fail(const Error& error, uint32_t retry_after_ms) const {
  state_->Send(static_cast<uint8_t>(error.code), error.message, retry_after_ms, {});
}

void Replier::Done(Result<Message> reply) const {
  if (reply) return Ok(*std::move(reply));
  Fail(reply.error());
}

Result<PeerIdentity> RpcServer::Core::Identify(const SocketMessage& message) const {
  if (options.security.allow_list == nullptr) return PeerIdentity{options.security.insecure_role, {}};
  ASSIGN_OR_RETURN(PeerIdentity peer, ParseUserId(message.user_id));
  // The list may have changed since the peer connected.
  ASSIGN_OR_RETURN(peer.role, options.security.allow_list->RoleOf(peer.key));
  return peer;
}

void RpcServer::Core::OnMessage(SocketMessage message) {
  if (message.too_large || message.frames.size() < kFramesBeforeBlobs) {
    malformed.fetch_add(1);
    return;
  }
  auto request = DecodeEnvelope(message.frames[1]);
  if (!request || request->kind != EnvelopeKind::kRequest) {
    malformed.fetch_add(1);
    return;
  }
  requests.fetch_add(1);
  Bytes identity = std::move(message.frames[0]);
  if (request->deadline_ms == 0) {  // nobody waits for the answer
    expired.fetch_add(1);
    return;
  }
  const auto peer = Identify(message);
  const auto method = Admit(*request, peer);
  if (!method) {
    const bool later = method.error().code == ErrorCode::kBusy || method.error().code == ErrorCode::kUnavailable;
    const uint32_t wait = phase == Phase::kDraining ? kDrainRetryAfterMs : options.busy_retry_after_ms;
    (method.error().code == ErrorCode::kBusy ? busy : refused).fetch_add(1);
    return Refuse(std::move(identity), *request, method.error(), later ? wait : 0);
  }
  Dispatch(**method, std::move(identity), *std::move(request), *peer, std::move(message));
}

Result<const RpcServer::Core::Method*> RpcServer::Core::Admit(const Envelope& request,
                                                              const Result<PeerIdentity>& peer) {
  if (!ProtocolAccepted(request.version))
    return kiln::Fail(ErrorCode::kUnsupported, "protocol version " + std::to_string(request.version) +
                                                   " is not accepted; this service speaks " +
                                                   std::to_string(kProtocolVersion) + " and the one before it");
  if (!peer) return std::unexpected(peer.error());
  if (phase != Phase::kServing)
    return kiln::Fail(ErrorCode::kUnavailable,
                      phase == Phase::kStarting ? "the service is starting" : "the service is shutting down");
  const auto method = methods.find(request.method);
  if (method == methods.end())
    return kiln::Fail(ErrorCode::kUnsupported, "method " + std::to_string(request.method) + " is unknown here");
  if ((method->second.roles & RoleBit(peer->role)) == 0)
    return kiln::Fail(ErrorCode::kPermissionDenied, "role " + std::string(RoleName(peer->role)) + " may not call " +
                                                        TextOf(request.method, method->second.text) +
                                                        "; it takes a key of " + RolesText(method->second.roles));
  if (request.table.rows != 0 && options.table_compatible && !options.table_compatible(request.table))
    return kiln::Fail(ErrorCode::kUnsupported, "the caller's op table (" + std::to_string(request.table.rows) +
                                                   " rows) contradicts this service's (" +
                                                   std::to_string(options.table.rows) +
                                                   " rows): one must be a prefix of the other; run builds of one line");
  if (method->second.admission == Admission::kQueued && pending.size() >= options.pending_max)
    return kiln::Fail(ErrorCode::kBusy,
                      "all " + std::to_string(options.pending_max) + " request slots are taken; retry later");
  return &method->second;
}

void RpcServer::Core::Dispatch(const Method& method, Bytes identity, Envelope request, PeerIdentity peer,
                               SocketMessage message) {
  const uint64_t ticket = next_ticket++;
  const int64_t now = options.clock->NowNs();
  RequestContext context{.role = peer.role,
                         .peer_key = peer.key,
                         .machine = peer.key + "@" + message.address,
                         .peer = HexText(identity),
                         .method = request.method,
                         .deadline_ns = now + std::min(request.deadline_ms, limits::kDeadlineMsMax) * kNsPerMs,
                         .trace_id = request.trace_id};
  pending.emplace(ticket, context.deadline_ns);
  pending_count.store(pending.size());
  if (sweep_timer == 0) Sweep();
  Message body{.payload = std::move(request.payload), .blobs = {}};
  for (size_t i = kFramesBeforeBlobs; i < message.frames.size(); ++i)
    body.blobs.push_back(std::move(message.frames[i]));
  Replier reply(std::make_shared<Replier::State>(weak_from_this(), loop, ticket, std::move(identity), request));
  try {
    method.handler(context, std::move(body), reply);
  } catch (const std::bad_alloc&) {
    reply.Fail({ErrorCode::kResourceExhausted, "out of memory while handling the request", {}});
  } catch (const std::exception& exception) {
    reply.Fail({ErrorCode::kInternal, std::string("the handler failed: ") + exception.what(), {}});
  }
}

void RpcServer::Core::Refuse(Bytes identity, const Envelope& request, const Error& error, uint32_t retry_after_ms) {
  SendReply(std::move(identity),
            {.version = request.version,
             .kind = EnvelopeKind::kReply,
             .request_id = request.request_id,
             .method = request.method,
             .trace_id = request.trace_id,
             .status = static_cast<uint8_t>(error.code),
             .error = error.message,
             .retry_after_ms = retry_after_ms},
            {});
}

void RpcServer::Core::SendReply(Bytes identity, Envelope reply, std::vector<Bytes> blobs) {
  if (const Status fits = socket->CheckBounds(reply.payload, blobs); !fits) {
    reply.status = static_cast<uint8_t>(fits.error().code);
    reply.error = "the answer cannot be sent: " + fits.error().message;
    reply.payload.clear();
    blobs.clear();
  }
  reply.table = options.table;
  if (options.log_head) reply.log_head = options.log_head();
  std::vector<Bytes> frames;
  frames.reserve(kFramesBeforeBlobs + blobs.size());
  frames.push_back(std::move(identity));
  frames.push_back(EncodeEnvelope(reply));
  for (Bytes& blob : blobs) frames.push_back(std::move(blob));
  if (socket->Send(frames) != SendOutcome::kSent) replies_dropped.fetch_add(1);
}

void RpcServer::Core::Finish(uint64_t ticket, Bytes identity, Envelope reply, std::vector<Bytes> blobs) {
  if (socket == nullptr || pending.erase(ticket) == 0) return;  // expired; the caller has given up
  pending_count.store(pending.size());
  SendReply(std::move(identity), std::move(reply), std::move(blobs));
}

// Frees the slots of requests whose deadline passed, so that a stuck handler cannot hold the queue full for ever.
void RpcServer::Core::Sweep() {
  const int64_t now = options.clock->NowNs();
  const size_t freed = std::erase_if(pending, [now](const auto& entry) { return entry.second < now; });
  expired.fetch_add(freed);
  pending_count.store(pending.size());
  sweep_timer = 0;
  if (pending.empty()) return;
  sweep_timer = loop.After(kSweepIntervalMs, [weak = weak_from_this()] {
    if (auto self = weak.lock(); self && self->socket != nullptr) self->Sweep();
  });
}

Result<std::unique_ptr<RpcServer>> RpcServer::Listen(Loop& loop, RpcServerOptions options) {
  if (options.endpoints.empty())
    return kiln::Fail(ErrorCode::kInvalidArgument, "a server needs an endpoint to listen on");
  auto core = std::make_shared<Core>(loop, std::move(options));
  Status status;
  loop.RunSync([&] {
    status = [&]() -> Status {
      const SocketLimits bounds{.part_bytes_max = core->options.part_bytes_max,
                                .message_bytes_max = limits::kEnvelopeBytesMax,
                                .parts_max = limits::kMessagePartsMax,
                                .queue_messages = limits::kPeerRequestsQueuedMax,
                                .send_queue_messages = core->options.peer_unread_replies,
                                .unread_bytes_max = core->options.peer_unread_bytes};
      ASSIGN_OR_RETURN(core->socket, Socket::Open(loop, ZMQ_ROUTER, bounds));
      RETURN_IF_ERROR(core->socket->SetInt(ZMQ_ROUTER_MANDATORY, 1));
      RETURN_IF_ERROR(core->socket->SetInt(ZMQ_HEARTBEAT_IVL, limits::kHeartbeatIntervalMs));
      RETURN_IF_ERROR(core->socket->SetInt(ZMQ_HEARTBEAT_TIMEOUT, limits::kHeartbeatTimeoutMs));
      RETURN_IF_ERROR(core->socket->SetInt(ZMQ_HANDSHAKE_IVL, limits::kHeartbeatTimeoutMs));
      for (const std::string& endpoint : core->options.endpoints) {
        ASSIGN_OR_RETURN(std::string bound, core->socket->Bind(endpoint, core->options.security));
        core->endpoints.push_back(std::move(bound));
      }
      core->socket->Start(
          [weak = std::weak_ptr(core)](SocketMessage message) {
            if (auto self = weak.lock()) self->OnMessage(std::move(message));
          },
          nullptr);
      return {};
    }();
    if (!status) core->socket.reset();
  });
  RETURN_IF_ERROR(std::move(status));
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(core)));
}

RpcServer::~RpcServer() {
  core_->loop.RunSync([this] {
    core_->socket.reset();
    core_->loop.Cancel(core_->sweep_timer);
    core_->methods.clear();
  });
}

void RpcServer::Register(uint16_t method, RoleSet roles, RpcHandler handler, Admission admission,
                         std::string_view text) {
  core_->loop.RunSync([&] {
    const bool inserted =
        core_->methods.emplace(method, Core::Method{roles, std::move(handler), admission, text}).second;
    KILN_CHECK(inserted && core_->phase == Core::Phase::kStarting);
  });
}

void RpcServer::Serve() {
  core_->loop.RunSync([this] { core_->phase = Core::Phase::kServing; });
}

void RpcServer::Drain() {
  core_->loop.RunSync([this] { core_->phase = Core::Phase::kDraining; });
}

bool RpcServer::Settle(int64_t ms) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  for (;;) {
    core_->loop.RunSync([] {});  // answers that were posted are sent
    const RpcServerStats stats = Stats();
    if (stats.pending == 0 && stats.unread_bytes == 0) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kSettlePollMs));
  }
}

const std::vector<std::string>& RpcServer::endpoints() const {
  return core_->endpoints;
}

RpcServerStats RpcServer::Stats() const {
  const Core& core = *core_;
  return {.requests = core.requests,
          .malformed = core.malformed,
          .refused = core.refused,
          .busy = core.busy,
          .expired = core.expired,
          .replies_dropped = core.replies_dropped,
          .pending = core.pending_count,
          .unread_bytes = core.socket == nullptr ? 0 : core.socket->unread_bytes()};
}

}  // namespace kiln
