// One ZeroMQ socket on a loop, for this folder only. All calls on the loop thread, except construction and destruction
// through RunSync.
//
// ZMQ_FD is edge-triggered: after every wake, receive and send the socket's events are read again until nothing is
// pending, and only then is the descriptor waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/messaging/loop.h"
#include "common/messaging/message.h"
#include "common/security/transport_keys.h"

namespace kiln {

struct SocketMessage {
  std::vector<Bytes> frames;
  std::string user_id;     // set by ZAP; empty for a plaintext peer
  std::string address;     // of a tcp peer, without its port; empty for others
  bool too_large = false;  // more parts or bytes than allowed; frames hold only the first ones
};

// kUnread: the peer has too much to read already.
enum class SendOutcome : uint8_t { kSent, kWouldBlock, kNoRoute, kFailed, kUnread };

struct SocketLimits {
  size_t part_bytes_max;
  size_t message_bytes_max;
  size_t parts_max;
  int queue_messages;           // per peer and direction, inside ZeroMQ
  int send_queue_messages = 0;  // the same for what is sent; 0: queue_messages
  // Of sockets that send to peers by identity (ROUTER): bytes that one peer may leave unread before more is refused. 0:
  // none.
  size_t unread_bytes_max = 0;
};

class Socket {
 public:
  static Result<std::unique_ptr<Socket>> Open(Loop& loop, int type, const SocketLimits& limits);
  ~Socket();

  Status SetInt(int option, int value);
  Status SetText(int option, const std::string& value);
  // Keys or the plaintext rule, then the bind. Returns the real address (wildcard ports resolved).
  Result<std::string> Bind(const std::string& endpoint, const ServerSecurity& security);
  Status Connect(const std::string& endpoint, const ClientSecurity& security);
  // A fresh connection to an endpoint connected before. ZeroMQ comes back by itself from a connection that was lost,
  // but gives one up for good where the peer broke the protocol or refused the key.
  Status ConnectAgain(const std::string& endpoint);

  // Starts delivery. `on_writable` may be empty; it is called after a kWouldBlock once sending may work again.
  void Start(std::function<void(SocketMessage)> on_message, std::function<void()> on_writable);
  // Whether the peer, with the same limits, takes this message: LimitExceeded names sizes and limit. A larger one would
  // cost the connection, and with it every other call.
  Status CheckBounds(const Bytes& payload, const std::vector<Bytes>& blobs) const;
  // All frames or none. Consumes the frames unless the outcome is kWouldBlock or kUnread.
  SendOutcome Send(std::vector<Bytes>& frames);

  // Bytes sent and not yet handed to the operating system, of all peers; counted where unread_bytes_max is set. Any
  // thread.
  size_t unread_bytes() const;

  // A socket that delivers the connection events of this one (two frames each: event and address). Must outlive this
  // one.
  Result<std::unique_ptr<Socket>> OpenMonitor(int events);

 private:
  struct Impl;
  explicit Socket(std::unique_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kiln
