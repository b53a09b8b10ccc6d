#include "common/messaging/rpc_client.h"

#include <zmq.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <unordered_map>

#include "common/base/check.h"
#include "common/messaging/socket.h"

namespace kiln {
namespace {

constexpr int kMonitoredEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_CONNECT_RETRIED;

}  // namespace

// All state is the loop thread's, except the counters.
struct RpcClient::Core : std::enable_shared_from_this<RpcClient::Core> {
  struct Pending {
    DetailedCallback done;
    Loop::TimerId timer = 0;
    Loop::TimerId connect_timer = 0;  // 0: none
    bool sent = false;
    std::vector<Bytes> frames;  // until sent
  };

  Core(Loop& owner, RpcClientOptions chosen)
      : loop(owner),
        options(std::move(chosen)),
        breaker(options.breaker, options.random()),
        reports_connections(!options.endpoint.starts_with("inproc://")) {}

  Status Open(const std::shared_ptr<Core>& self);
  void Start(uint16_t method, Message request, int64_t deadline_ms, DetailedCallback done, uint64_t trace_id);
  void TrySend(uint64_t id);
  void FlushWaiting();
  void OnMessage(SocketMessage message);
  void OnMonitor(const SocketMessage& message);
  void OnDeadline(uint64_t id, int64_t deadline_ms);
  void OnConnectWait(uint64_t id);
  void LoseConnection();
  void WatchConnection();
  void OnRefused();
  RpcFailure Refusal() const;
  // Takes the call out and reports. The callback may start new calls.
  void Complete(uint64_t id, std::expected<RpcReply, RpcFailure> outcome);

  Loop& loop;
  RpcClientOptions options;
  CircuitBreaker breaker;
  std::unique_ptr<Socket> monitor;  // outlives the socket
  std::unique_ptr<Socket> socket;
  std::unordered_map<uint64_t, Pending> pending;
  std::deque<uint64_t> waiting;  // not sent yet: no connection
  uint64_t next_id = 1;
  const bool reports_connections;  // the monitor does; not within a process
  std::string last_trouble;        // why the handshake failed, if it did
  bool closed = false;
  bool was_connected = false;
  bool watched = false;  // a connection that ended, or could not be made
  bool refused = false;  // the last attempt to connect
  std::atomic<uint64_t> calls{0}, replies{0}, deadlines{0}, lost_connections{0}, malformed{0}, rejected{0};
  std::atomic<size_t> pending_count{0};
  std::atomic<bool> connected{false};
};

Status RpcClient::Core::Open(const std::shared_ptr<Core>& self) {
  const SocketLimits bounds{.part_bytes_max = options.part_bytes_max,
                            .message_bytes_max = limits::kEnvelopeBytesMax,
                            .parts_max = limits::kMessagePartsMax,
                            .queue_messages = 1000};
  ASSIGN_OR_RETURN(socket, Socket::Open(loop, ZMQ_DEALER, bounds));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_IMMEDIATE, 1));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_RECONNECT_IVL, options.reconnect_min_ms));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_RECONNECT_IVL_MAX, options.reconnect_max_ms));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_CONNECT_TIMEOUT, limits::kHeartbeatTimeoutMs));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_HANDSHAKE_IVL, limits::kHeartbeatTimeoutMs));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_HEARTBEAT_IVL, limits::kHeartbeatIntervalMs));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_HEARTBEAT_TIMEOUT, limits::kHeartbeatTimeoutMs));
  ASSIGN_OR_RETURN(monitor, socket->OpenMonitor(kMonitoredEvents));
  const std::weak_ptr<Core> weak = self;
  monitor->Start(
      [weak](SocketMessage message) {
        if (auto core = weak.lock()) core->OnMonitor(message);
      },
      nullptr);
  RETURN_IF_ERROR(socket->Connect(options.endpoint, options.security));
  socket->Start(
      [weak](SocketMessage message) {
        if (auto core = weak.lock()) core->OnMessage(std::move(message));
      },
      [weak] {
        if (auto core = weak.lock()) core->FlushWaiting();
      });
  return {};
}

void RpcClient::Core::Start(uint16_t method, Message request, int64_t deadline_ms, DetailedCallback done,
                            uint64_t trace_id) {
  calls.fetch_add(1);
  auto reject = [&](ErrorCode code, std::string text, uint32_t retry_after_ms) {
    done(std::unexpected(RpcFailure{{code, std::move(text), std::source_location::current()}, retry_after_ms, 0}));
  };
  if (closed) return reject(ErrorCode::kCancelled, "the client was closed", 0);
  if (deadline_ms <= 0)
    return reject(ErrorCode::kDeadlineExceeded, "no time was left before the call to " + options.endpoint, 0);
  if (pending.size() >= options.pending_max)
    return reject(ErrorCode::kBusy,
                  std::to_string(pending.size()) + " calls to " + options.endpoint + " are pending already", 50);
  if (const Status fits = socket->CheckBounds(request.payload, request.blobs); !fits)
    return reject(ErrorCode::kLimitExceeded, "the request to " + options.endpoint + ": " + fits.error().message, 0);
  if (refused && !was_connected) {
    const RpcFailure refusal = Refusal();
    return reject(refusal.error.code, refusal.error.message, 0);
  }
  const int64_t now = options.clock->NowNs();
  if (!breaker.Allow(now)) {
    rejected.fetch_add(1);
    return reject(ErrorCode::kUnavailable,
                  options.endpoint + " did not answer lately" + (last_trouble.empty() ? "" : " (" + last_trouble + ")"),
                  static_cast<uint32_t>(breaker.RetryAfterMs(now)));
  }
  const uint64_t id = next_id++;
  const Envelope envelope{.kind = EnvelopeKind::kRequest,
                          .request_id = id,
                          .method = method,
                          .deadline_ms = static_cast<uint32_t>(std::min<int64_t>(deadline_ms, UINT32_MAX)),
                          .trace_id = trace_id != 0 ? trace_id : options.random(),
                          .table = options.table,
                          .error = {},
                          .payload = std::move(request.payload)};
  Pending call{.done = std::move(done)};
  call.frames.push_back(EncodeEnvelope(envelope));
  for (Bytes& blob : request.blobs) call.frames.push_back(std::move(blob));
  call.timer = loop.After(deadline_ms, [weak = weak_from_this(), id, deadline_ms] {
    if (auto self = weak.lock()) self->OnDeadline(id, deadline_ms);
  });
  if (options.connect_wait_ms > 0 && options.connect_wait_ms < deadline_ms)
    call.connect_timer = loop.After(options.connect_wait_ms, [weak = weak_from_this(), id] {
      if (auto self = weak.lock()) self->OnConnectWait(id);
    });
  pending.emplace(id, std::move(call));
  pending_count.store(pending.size());
  if (!waiting.empty())
    waiting.push_back(id);  // keeps the order
  else
    TrySend(id);
}

void RpcClient::Core::TrySend(uint64_t id) {
  const auto call = pending.find(id);
  if (call == pending.end()) return;
  // ZeroMQ tells of a lost connection before it lets go of it, and what is sent to it in between is lost without a
  // word.
  if (reports_connections && !connected.load()) return waiting.push_front(id);
  switch (socket->Send(call->second.frames)) {
    case SendOutcome::kSent:
      call->second.sent = true;
      call->second.frames.clear();
      return;
    case SendOutcome::kWouldBlock:
      waiting.push_front(id);
      return;
    case SendOutcome::kUnread:
    case SendOutcome::kNoRoute:
    case SendOutcome::kFailed:
      breaker.OnFailure(options.clock->NowNs());  // this call may have been the probe of a half-open breaker
      Complete(id, std::unexpected(RpcFailure{{ErrorCode::kUnavailable, "cannot send to " + options.endpoint,
                                               std::source_location::current()}}));
      return;
  }
}

void RpcClient::Core::FlushWaiting() {
  std::deque<uint64_t> ids;
  ids.swap(waiting);
  while (!ids.empty()) {
    const uint64_t id = ids.front();
    ids.pop_front();
    TrySend(id);
    if (!waiting.empty()) break;  // blocked again
  }
  waiting.insert(waiting.end(), ids.begin(), ids.end());
}

void RpcClient::Core::OnMessage(SocketMessage message) {
  auto envelope = message.too_large || message.frames.empty()
                      ? Result<Envelope>(Fail(ErrorCode::kMalformed, "reply is too large"))
                      : DecodeEnvelope(message.frames[0]);
  if (!envelope || envelope->kind != EnvelopeKind::kReply) {
    malformed.fetch_add(1);
    return;  // the deadline ends the call
  }
  if (!pending.contains(envelope->request_id)) return;  // late, or made up
  replies.fetch_add(1);
  breaker.OnSuccess();
  last_trouble.clear();
  if (envelope->status != 0)
    return Complete(envelope->request_id,
                    std::unexpected(RpcFailure{{ErrorCodeFromWire(envelope->status), std::move(envelope->error),
                                                std::source_location::current()},
                                               envelope->retry_after_ms,
                                               envelope->log_head}));
  RpcReply reply{.message = {.payload = std::move(envelope->payload), .blobs = {}}, .log_head = envelope->log_head};
  for (size_t i = 1; i < message.frames.size(); ++i) reply.message.blobs.push_back(std::move(message.frames[i]));
  Complete(envelope->request_id, std::move(reply));
}

void RpcClient::Core::OnMonitor(const SocketMessage& message) {
  uint16_t event;
  if (message.frames.empty() || message.frames[0].size() < sizeof event) return;
  std::memcpy(&event, message.frames[0].data(), sizeof event);
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
    connected.store(true);
    was_connected = true;
    last_trouble.clear();
    FlushWaiting();
  } else if (event == ZMQ_EVENT_DISCONNECTED) {
    if (connected.exchange(false)) LoseConnection();
    WatchConnection();
  } else if (event == ZMQ_EVENT_CONNECT_RETRIED) {
    if (options.refused_at_once && !was_connected) OnRefused();
  } else {
    last_trouble = event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH
                       ? "it refuses our key"
                       : "the handshake failed; check that both sides use keys, and the server's public key";
    WatchConnection();
  }
}

// Until there is a connection again: ZeroMQ may have given it up.
void RpcClient::Core::WatchConnection() {
  if (watched || closed) return;
  watched = true;
  loop.After(options.reconnect_max_ms, [weak = weak_from_this()] {
    const std::shared_ptr<Core> self = weak.lock();
    if (!self) return;
    self->watched = false;
    if (self->closed || self->connected) return;
    // What fails here (no descriptors, say) may work the next time.
    if (const Status again = self->socket->ConnectAgain(self->options.endpoint); !again)
      self->last_trouble = again.error().message;
    self->WatchConnection();
  });
}

// Nothing was sent yet: every call still waits for the first connection. Where a handshake failed, somebody listens.
void RpcClient::Core::OnRefused() {
  refused = true;
  std::vector<uint64_t> calls;
  for (const auto& [id, call] : pending) calls.push_back(id);
  for (uint64_t id : calls) Complete(id, std::unexpected(Refusal()));
}

RpcFailure RpcClient::Core::Refusal() const {
  return {{ErrorCode::kUnavailable,
           last_trouble.empty()
               ? "nobody listens at " + options.endpoint + "; start the service there, or name another address"
               : "no connection to " + options.endpoint + " (" + last_trouble + ")",
           std::source_location::current()}};
}

// What was sent over the lost connection will not be answered; what waits goes out over the next one.
void RpcClient::Core::LoseConnection() {
  lost_connections.fetch_add(1);
  std::vector<uint64_t> lost;
  for (const auto& [id, call] : pending)
    if (call.sent) lost.push_back(id);
  if (!lost.empty()) breaker.OnFailure(options.clock->NowNs());
  for (uint64_t id : lost)
    Complete(id,
             std::unexpected(RpcFailure{{ErrorCode::kUnavailable, "the connection to " + options.endpoint + " was lost",
                                         std::source_location::current()}}));
}

void RpcClient::Core::OnDeadline(uint64_t id, int64_t deadline_ms) {
  if (!pending.contains(id)) return;
  deadlines.fetch_add(1);
  breaker.OnFailure(options.clock->NowNs());
  std::string text = options.endpoint + " gave no answer within " + std::to_string(deadline_ms) + " ms";
  if (!last_trouble.empty()) text += " (" + last_trouble + ")";
  Complete(id, std::unexpected(
                   RpcFailure{{ErrorCode::kDeadlineExceeded, std::move(text), std::source_location::current()}}));
}

void RpcClient::Core::OnConnectWait(uint64_t id) {
  const auto call = pending.find(id);
  if (call == pending.end() || call->second.sent) return;
  breaker.OnFailure(options.clock->NowNs());
  std::string text =
      "no connection to " + options.endpoint + " within " + std::to_string(options.connect_wait_ms) + " ms";
  if (!last_trouble.empty()) text += " (" + last_trouble + ")";
  Complete(id,
           std::unexpected(RpcFailure{{ErrorCode::kUnavailable, std::move(text), std::source_location::current()}}));
}

void RpcClient::Core::Complete(uint64_t id, std::expected<RpcReply, RpcFailure> outcome) {
  auto node = pending.extract(id);
  if (node.empty()) return;
  pending_count.store(pending.size());
  loop.Cancel(node.mapped().timer);
  if (node.mapped().connect_timer != 0) loop.Cancel(node.mapped().connect_timer);
  if (!node.mapped().sent) std::erase(waiting, id);
  node.mapped().done(std::move(outcome));
}

namespace {

constexpr int64_t kNameWaitMs = 2'000;

// Whether every attempt to connect goes to the same place.
bool IsOneAddress(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp)) return true;
  const std::string_view host = endpoint.substr(kTcp.size(), endpoint.rfind(':') - kTcp.size());
  return host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

Result<std::unique_ptr<RpcClient>> RpcClient::Connect(Loop& loop, RpcClientOptions options) {
  if (options.refused_at_once && !IsOneAddress(options.endpoint)) {
    options.refused_at_once = false;
    if (options.connect_wait_ms == 0) options.connect_wait_ms = kNameWaitMs;
  }
  auto core = std::make_shared<Core>(loop, std::move(options));
  Status status;
  loop.RunSync([&] {
    status = core->Open(core);
    if (!status) {
      core->socket.reset();
      core->monitor.reset();
    }
  });
  RETURN_IF_ERROR(std::move(status));
  return std::unique_ptr<RpcClient>(new RpcClient(std::move(core)));
}

RpcClient::~RpcClient() {
  core_->loop.RunSync([this] {
    Core& core = *core_;
    core.closed = true;
    core.socket.reset();
    core.monitor.reset();
    core.waiting.clear();
    while (!core.pending.empty())
      core.Complete(core.pending.begin()->first,
                    std::unexpected(
                        RpcFailure{{ErrorCode::kCancelled, "the client was closed", std::source_location::current()}}));
  });
}

void RpcClient::Call(uint16_t method, Message request, int64_t deadline_ms, Callback done, uint64_t trace_id) {
  CallDetailed(
      method, std::move(request), deadline_ms,
      [done = std::move(done)](std::expected<RpcReply, RpcFailure> outcome) {
        if (outcome) return done(*std::move(outcome));
        done(std::unexpected(std::move(outcome.error().error)));
      },
      trace_id);
}

void RpcClient::CallDetailed(uint16_t method, Message request, int64_t deadline_ms, DetailedCallback done,
                             uint64_t trace_id) {
  core_->loop.Post(
      [core = core_, method, request = std::move(request), deadline_ms, done = std::move(done), trace_id]() mutable {
        core->Start(method, std::move(request), deadline_ms, std::move(done), trace_id);
      });
}

Result<RpcReply> RpcClient::CallSync(uint16_t method, Message request, int64_t deadline_ms, uint64_t trace_id) {
  KILN_CHECK(!core_->loop.OnLoopThread());
  auto promise = std::make_shared<std::promise<Result<RpcReply>>>();
  auto future = promise->get_future();
  Call(
      method, std::move(request), deadline_ms,
      [promise](Result<RpcReply> reply) { promise->set_value(std::move(reply)); }, trace_id);
  return future.get();
}

RpcClientStats RpcClient::Stats() const {
  const Core& core = *core_;
  return {.calls = core.calls,
          .replies = core.replies,
          .deadlines = core.deadlines,
          .lost_connections = core.lost_connections,
          .malformed = core.malformed,
          .rejected_by_breaker = core.rejected,
          .pending = core.pending_count,
          .connected = core.connected};
}

}  // namespace kiln
