// The answering side: one ROUTER socket on a loop, handlers per method, a bounded number of unanswered requests.
//
// Malformed messages are counted and dropped (or refused, where a request id could be read); nothing a peer sends ends
// the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/result.h"
#include "common/messaging/admission.h"
#include "common/messaging/envelope.h"
#include "common/messaging/loop.h"
#include "common/messaging/message.h"
#include "common/security/role.h"
#include "common/security/transport_keys.h"

namespace kiln {

struct RequestContext {
  Role role;
  std::string peer_key;  // z85 public key; empty for a plaintext peer
  std::string machine;   // who it is as far as the transport can tell: key and tcp address, neither of its own choice
  std::string peer;      // connection identity as hex: one per connection, for fairness and logs
  uint16_t method = 0;
  int64_t deadline_ns = 0;  // on the server's clock; work for an expired request is wasted
  uint64_t trace_id = 0;
};

// Answers one request, once; further calls are ignored. Copyable, usable from any thread, also after the server is
// gone. When the last copy goes unanswered, the caller gets an Internal error, so a request can never be forgotten.
class Replier {
 public:
  void Ok(Message reply) const;
  // retry_after_ms: with Busy or Unavailable, when asking again makes sense.
  void Fail(const Error& error, uint32_t retry_after_ms = 0) const;
  // Ok or Fail.
  void Done(Result<Message> reply) const;

  struct State;
  explicit Replier(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// Runs on the loop thread: must not block. Long work goes to a pool, with the Replier.
using RpcHandler = std::function<void(const RequestContext&, Message request, Replier reply)>;

struct RpcServerOptions {
  std::vector<std::string> endpoints;
  ServerSecurity security;
  size_t pending_max = limits::kRequestQueueDefault;
  uint32_t busy_retry_after_ms = 50;
  size_t part_bytes_max = limits::kEnvelopeBytesMax;
  // Bounds of what one peer leaves unread; beyond them it loses replies. A client of ours that asks for all that it may
  // at once and is told to come back later must hear so every time.
  int peer_unread_replies = 2 * static_cast<int>(limits::kPendingRpcMax);
  size_t peer_unread_bytes = limits::kPeerUnreadBytesMax;
  // Op-table agreement; `table_compatible` is asked when a request carries a prefix. Empty: not checked.
  TablePrefix table;
  std::function<bool(TablePrefix peer)> table_compatible;
  // Put into every reply; called on the loop thread. Empty: 0.
  std::function<uint64_t()> log_head;
  const Clock* clock = &SystemClock();
};

struct RpcServerStats {
  uint64_t requests = 0, malformed = 0, refused = 0, busy = 0, expired = 0, replies_dropped = 0;
  size_t pending = 0;
  size_t unread_bytes = 0;  // of replies that peers have not taken yet
};

// Thread-safe. Destroy before the loop.
class RpcServer {
 public:
  // Binds all endpoints; requests are answered with Unavailable until Serve().
  static Result<std::unique_ptr<RpcServer>> Listen(Loop& loop, RpcServerOptions options);
  ~RpcServer();

  // Before Serve(). `roles` is the set of roles that may call the method.
  // `text`: what people are told that it is; static.
  void Register(uint16_t method, RoleSet roles, RpcHandler handler, Admission admission = Admission::kQueued,
                std::string_view text = {});
  void Serve();
  // New requests are answered with Unavailable; those in work still get their replies.
  void Drain();
  // Waits until every request is answered and every peer has taken its answers, at most `ms`. Not on the loop thread.
  bool Settle(int64_t ms) const;

  // Real addresses, wildcard ports resolved.
  const std::vector<std::string>& endpoints() const;
  RpcServerStats Stats() const;

  struct Core;

 private:
  explicit RpcServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace kiln
