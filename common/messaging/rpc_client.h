// The asking side: one DEALER socket on a loop. Every call ends by its deadline, whatever the peer does: absent, hung,
// refusing, lying. Nothing that it does is held against it for good: the client connects again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/random_bits.h"
#include "common/base/result.h"
#include "common/messaging/circuit_breaker.h"
#include "common/messaging/envelope.h"
#include "common/messaging/loop.h"
#include "common/messaging/message.h"
#include "common/security/transport_keys.h"

namespace kiln {

struct RpcClientOptions {
  std::string endpoint;
  ClientSecurity security;
  size_t pending_max = limits::kPendingRpcMax;
  size_t part_bytes_max = limits::kEnvelopeBytesMax;
  CircuitBreakerOptions breaker;
  // A call that found no connection for this long ends with Unavailable; 0: it waits for one until its deadline.
  int64_t connect_wait_ms = 0;
  // Before the first connection a call ends with Unavailable as soon as an attempt to connect fails: nobody listens
  // there. For tools, whose user would else wait for a service that is not there. A host name may stand for several
  // addresses, or for none just now: then it is connect_wait_ms, 2 s where that is 0.
  bool refused_at_once = false;
  int reconnect_min_ms = 50;
  int reconnect_max_ms = 5000;
  TablePrefix table;
  const Clock* clock = &SystemClock();
  RandomBits random = SystemRandomBits;  // of trace ids and of what breakers wait
};

struct RpcReply {
  Message message;
  uint64_t log_head = 0;
};

// Why a call failed, beyond the Error: when a retry makes sense, and the peer's log head if it answered at all.
struct RpcFailure {
  Error error;
  uint32_t retry_after_ms = 0;
  uint64_t log_head = 0;
};

struct RpcClientStats {
  uint64_t calls = 0, replies = 0, deadlines = 0, lost_connections = 0, malformed = 0, rejected_by_breaker = 0;
  size_t pending = 0;
  bool connected = false;
};

// Thread-safe. Destroy before the loop; pending calls then end with Cancelled.
class RpcClient {
 public:
  // Called once, on the loop thread. Error codes: the peer's own; DeadlineExceeded (no answer in time); Unavailable
  // (breaker open, connection lost, peer shutting down); Busy (too many pending calls here or there); Cancelled.
  using Callback = std::function<void(Result<RpcReply>)>;
  using DetailedCallback = std::function<void(std::expected<RpcReply, RpcFailure>)>;

  // Fails only on a bad address or key; an absent peer is no error.
  static Result<std::unique_ptr<RpcClient>> Connect(Loop& loop, RpcClientOptions options);
  ~RpcClient();

  // deadline_ms > 0. trace_id 0 makes a fresh one.
  void Call(uint16_t method, Message request, int64_t deadline_ms, Callback done, uint64_t trace_id = 0);
  void CallDetailed(uint16_t method, Message request, int64_t deadline_ms, DetailedCallback done,
                    uint64_t trace_id = 0);
  // Blocks the calling thread, which must not be the loop thread.
  Result<RpcReply> CallSync(uint16_t method, Message request, int64_t deadline_ms, uint64_t trace_id = 0);

  RpcClientStats Stats() const;

  struct Core;

 private:
  explicit RpcClient(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace kiln
