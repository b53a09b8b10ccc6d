#include "common/messaging/socket.h"

#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <new>

#include "common/base/caught.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/printable.h"
#include "common/messaging/ipc_path.h"
#include "common/messaging/loop_impl.h"
#include "common/security/address.h"

namespace kiln {
namespace {

// Messages handled in one turn before other sockets and timers of the loop get theirs.
constexpr int kMessagesPerTurn = 64;

// Room for the peer's identity and for the envelope around a payload, error text included.
constexpr size_t kEnvelopeRoomBytes = 4096;
constexpr size_t kFramesBesidesBlobs = 2;

std::unexpected<Error> FailZmq(const std::string& what) {
  return Fail(ErrorCode::kIoError, what + ": " + zmq_strerror(zmq_errno()));
}

// Bytes in ZeroMQ's hands: of one peer, and of all peers of its socket. Freed on ZeroMQ's own threads.
struct Unread {
  explicit Unread(std::shared_ptr<std::atomic<size_t>> sum) : all(std::move(sum)) {}
  void Add(size_t bytes) {
    own += bytes;
    *all += bytes;
  }
  void Take(size_t bytes) {
    own -= bytes;
    *all -= bytes;
  }
  std::atomic<size_t> own{0};
  std::shared_ptr<std::atomic<size_t>> all;
};

struct HeldBytes {
  Bytes bytes;
  std::shared_ptr<Unread> account;  // may be null
  size_t counted;
};

void FreeBytes(void*, void* hint) {
  auto* held = static_cast<HeldBytes*>(hint);
  if (held->account != nullptr) held->account->Take(held->counted);
  delete held;
}

}  // namespace

struct Socket::Impl : std::enable_shared_from_this<Socket::Impl> {
  Impl(Loop& owner, void* handle, const SocketLimits& bounds)
      : loop(owner), socket(handle), descriptor(owner.impl().io), limits(bounds) {}

  int Events() const {
    int events = 0;
    size_t size = sizeof events;
    if (zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) != 0) return 0;
    return events;
  }

  // Of the peer of that identity; peers with nothing unread are forgotten when there are many.
  std::shared_ptr<Unread> AccountOf(const Bytes& identity) {
    if (unread.size() >= limits::kPeerAccountsMax)
      std::erase_if(unread, [](const auto& peer) { return peer.second->own == 0; });
    std::shared_ptr<Unread>& account = unread[identity];
    if (account == nullptr) account = std::make_shared<Unread>(unread_total);
    return account;
  }

  void SchedulePump() {
    if (pump_posted || !started) return;
    loop.Post([weak = weak_from_this()] {
      if (auto self = weak.lock()) {
        self->pump_posted = false;
        self->Pump();
      }
    });
    pump_posted = true;
  }

  void Pump() {
    for (int handled = 0; socket != nullptr; ++handled) {
      const int events = Events();
      if (blocked && (events & ZMQ_POLLOUT) != 0) {
        blocked = false;
        if (on_writable) GiveUpIfItThrows([this] { on_writable(); });
        continue;
      }
      if ((events & ZMQ_POLLIN) == 0) break;
      if (handled >= kMessagesPerTurn) return SchedulePump();
      SocketMessage message;
      if (Receive(message)) GiveUpIfItThrows([&] { on_message(std::move(message)); });
    }
    Wait();
  }

  void Wait() {
    if (waiting || socket == nullptr) return;
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [weak = weak_from_this()](const boost::system::error_code& error) {
                            auto self = weak.lock();
                            if (!self || error) return;
                            self->waiting = false;
                            self->Pump();
                          });
    waiting = true;
  }

  // The socket is read on, whatever becomes of one message.
  template <class Work>
  void GiveUpIfItThrows(const Work& work) {
    const Status done = Caught([&]() -> Status {
      work();
      return {};
    });
    if (!done.has_value())
      std::fprintf(stderr, "a message was given up: %s\n", Printable(done.error().message).c_str());
  }

  // False when there is no memory for the frame. The frames after it are read all the same: they belong to it.
  static bool Keep(SocketMessage& message, const uint8_t* data, size_t size) {
    try {
      message.frames.emplace_back(data, data + size);
      return true;
    } catch (const std::bad_alloc&) {
      message.frames.clear();
      return false;
    }
  }

  // One whole multipart message. False if none was there after all.
  bool Receive(SocketMessage& message) {
    size_t bytes = 0;
    for (;;) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&part);
        return false;
      }
      const auto* data = static_cast<const uint8_t*>(zmq_msg_data(&part));
      const size_t size = zmq_msg_size(&part);
      bytes += size;
      if (message.frames.size() >= limits.parts_max || bytes > limits.message_bytes_max) message.too_large = true;
      if (!message.too_large && !Keep(message, data, size)) message.too_large = true;
      const bool more = zmq_msg_more(&part) != 0;
      if (!more) {
        const char* user_id = zmq_msg_gets(&part, "User-Id");
        if (user_id != nullptr) message.user_id = user_id;
        // Of an ipc peer ZeroMQ says "localhost:USER:GROUP:PROCESS"; of a tcp peer its address in numbers.
        const char* address = zmq_msg_gets(&part, "Peer-Address");
        if (address != nullptr && !std::string_view(address).starts_with("localhost:")) message.address = address;
      }
      zmq_msg_close(&part);
      if (!more) return true;
    }
  }

  Loop& loop;
  void* socket;
  boost::asio::posix::stream_descriptor descriptor;
  SocketLimits limits;
  std::map<Bytes, std::shared_ptr<Unread>> unread;  // by identity
  const std::shared_ptr<std::atomic<size_t>> unread_total = std::make_shared<std::atomic<size_t>>(0);
  std::function<void(SocketMessage)> on_message;
  std::function<void()> on_writable;
  bool started = false, waiting = false, pump_posted = false, blocked = false;
  std::string zap_domain;
  std::vector<std::string> socket_paths;  // of the ipc endpoints it listens on
  bool monitored = false;
};

Socket::Socket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Socket>> Socket::Open(Loop& loop, int type, const SocketLimits& limits) {
  KILN_CHECK(loop.OnLoopThread());
  void* handle = zmq_socket(loop.impl().zmq, type);
  if (handle == nullptr) return FailZmq("cannot open a socket");
  loop.impl().live_sockets.fetch_add(1);
  std::unique_ptr<Socket> socket(new Socket(std::make_unique<Impl>(loop, handle, limits)));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_LINGER, 0));
  RETURN_IF_ERROR(
      socket->SetInt(ZMQ_SNDHWM, limits.send_queue_messages > 0 ? limits.send_queue_messages : limits.queue_messages));
  RETURN_IF_ERROR(socket->SetInt(ZMQ_RCVHWM, limits.queue_messages));
  const int64_t part_bytes_max = static_cast<int64_t>(limits.part_bytes_max);
  if (zmq_setsockopt(handle, ZMQ_MAXMSGSIZE, &part_bytes_max, sizeof part_bytes_max) != 0)
    return FailZmq("cannot bound the message size");
  int fd = -1;
  size_t size = sizeof fd;
  if (zmq_getsockopt(handle, ZMQ_FD, &fd, &size) != 0) return FailZmq("cannot read the socket's descriptor");
  socket->impl_->descriptor.assign(fd);
  return socket;
}

Socket::~Socket() {
  KILN_CHECK(impl_->loop.OnLoopThread());
  if (impl_->descriptor.is_open()) impl_->descriptor.release();  // the descriptor belongs to ZeroMQ
  if (!impl_->zap_domain.empty() && impl_->loop.impl().zap) impl_->loop.impl().zap->Remove(impl_->zap_domain);
  // Events must end before their receiver goes: without one, ZeroMQ's I/O thread blocks on the next event for ever.
  if (impl_->monitored) zmq_socket_monitor(impl_->socket, nullptr, 0);
  for (const std::string& path : impl_->socket_paths) RemoveSocketFile(path);  // ZeroMQ leaves them
  zmq_close(impl_->socket);
  impl_->socket = nullptr;
  impl_->loop.impl().live_sockets.fetch_sub(1);
}

Status Socket::SetInt(int option, int value) {
  if (zmq_setsockopt(impl_->socket, option, &value, sizeof value) != 0)
    return FailZmq("cannot set socket option " + std::to_string(option));
  return {};
}

Status Socket::SetText(int option, const std::string& value) {
  if (zmq_setsockopt(impl_->socket, option, value.data(), value.size()) != 0)
    return FailZmq("cannot set socket option " + std::to_string(option));
  return {};
}

Result<std::string> Socket::Bind(const std::string& endpoint, const ServerSecurity& security) {
  if (security.allow_list != nullptr) {
    if (impl_->zap_domain.empty()) {
      auto& loop = impl_->loop.impl();
      if (!loop.zap) {
        ASSIGN_OR_RETURN(loop.zap, ZapHandler::Start(impl_->loop));
      }
      impl_->zap_domain = loop.zap->Add(security.allow_list);
      RETURN_IF_ERROR(SetText(ZMQ_ZAP_DOMAIN, impl_->zap_domain));
      RETURN_IF_ERROR(SetInt(ZMQ_CURVE_SERVER, 1));
      RETURN_IF_ERROR(SetText(ZMQ_CURVE_SECRETKEY, security.keys.secret_z85));
    }
  } else {
    RETURN_IF_ERROR(CheckPlaintextEndpoint(endpoint, security.insecure));
    RETURN_IF_ERROR(CheckSocketDirectory(endpoint));
  }
  // ZeroMQ replaces the file, be it another listener's, which would lose its callers without a word, or no socket at
  // all.
  RETURN_IF_ERROR(CheckIpcPathIsFree(endpoint));
  if (zmq_bind(impl_->socket, endpoint.c_str()) != 0) return FailZmq("cannot listen on '" + endpoint + "'");
  if (std::string path = IpcPath(endpoint); !path.empty()) impl_->socket_paths.push_back(std::move(path));
  char last[512];
  size_t size = sizeof last;
  if (zmq_getsockopt(impl_->socket, ZMQ_LAST_ENDPOINT, last, &size) != 0 || size == 0) return endpoint;
  return std::string(last, size - 1);
}

Status Socket::Connect(const std::string& endpoint, const ClientSecurity& security) {
  if (!security.server_public_z85.empty()) {
    RETURN_IF_ERROR(CheckCurveKey(security.server_public_z85));
    RETURN_IF_ERROR(SetText(ZMQ_CURVE_SERVERKEY, security.server_public_z85));
    RETURN_IF_ERROR(SetText(ZMQ_CURVE_PUBLICKEY, security.keys.public_z85));
    RETURN_IF_ERROR(SetText(ZMQ_CURVE_SECRETKEY, security.keys.secret_z85));
  } else {
    RETURN_IF_ERROR(CheckPlaintextEndpoint(endpoint, security.insecure));
  }
  RETURN_IF_ERROR(CheckIpcPathLength(endpoint));
  if (zmq_connect(impl_->socket, endpoint.c_str()) != 0) return FailZmq("cannot connect to '" + endpoint + "'");
  return {};
}

void Socket::Start(std::function<void(SocketMessage)> on_message, std::function<void()> on_writable) {
  impl_->on_message = std::move(on_message);
  impl_->on_writable = std::move(on_writable);
  impl_->started = true;
  impl_->SchedulePump();
}

Status Socket::CheckBounds(const Bytes& payload, const std::vector<Bytes>& blobs) const {
  const SocketLimits& limits = impl_->limits;
  size_t largest = payload.size() + kEnvelopeRoomBytes, total = largest;
  for (const Bytes& blob : blobs) {
    largest = std::max(largest, blob.size());
    total += blob.size();
  }
  if (largest > limits.part_bytes_max)
    return Fail(ErrorCode::kLimitExceeded, "a part of " + std::to_string(largest) + " bytes passes the limit of " +
                                               std::to_string(limits.part_bytes_max) + " bytes of a message part");
  if (total > limits.message_bytes_max)
    return Fail(ErrorCode::kLimitExceeded, "a message of " + std::to_string(total) + " bytes passes the limit of " +
                                               std::to_string(limits.message_bytes_max) + " bytes");
  if (blobs.size() + kFramesBesidesBlobs > limits.parts_max)
    return Fail(ErrorCode::kLimitExceeded, "a message of " + std::to_string(blobs.size()) +
                                               " blobs passes the limit of " +
                                               std::to_string(limits.parts_max - kFramesBesidesBlobs) + " blobs");
  return {};
}

size_t Socket::unread_bytes() const {
  return *impl_->unread_total;
}

SendOutcome Socket::Send(std::vector<Bytes>& frames) {
  std::shared_ptr<Unread> account;
  if (impl_->limits.unread_bytes_max > 0) {
    account = impl_->AccountOf(frames[0]);
    if (account->own > impl_->limits.unread_bytes_max) return SendOutcome::kUnread;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    const size_t size = frames[i].size();
    auto* held = new HeldBytes{std::move(frames[i]), account, size};
    if (account != nullptr) account->Add(size);
    zmq_msg_t part;
    zmq_msg_init_data(&part, held->bytes.data(), size, FreeBytes, held);
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    if (zmq_msg_send(&part, impl_->socket, flags) >= 0) continue;
    const int error = zmq_errno();
    if (i == 0)
      frames[0] = std::move(held->bytes);  // the buffer goes back; closing the part frees only its empty holder
    zmq_msg_close(&part);
    impl_->SchedulePump();
    if (i > 0) return SendOutcome::kFailed;  // ZeroMQ drops the rest of a message whose pipe went away
    if (error == EAGAIN) {
      impl_->blocked = true;
      return SendOutcome::kWouldBlock;
    }
    return error == EHOSTUNREACH ? SendOutcome::kNoRoute : SendOutcome::kFailed;
  }
  impl_->SchedulePump();
  return SendOutcome::kSent;
}

Status Socket::ConnectAgain(const std::string& endpoint) {
  (void)zmq_disconnect(impl_->socket, endpoint.c_str());  // an error where it was given up
  if (zmq_connect(impl_->socket, endpoint.c_str()) != 0) return FailZmq("cannot connect to '" + endpoint + "' again");
  return {};
}

Result<std::unique_ptr<Socket>> Socket::OpenMonitor(int events) {
  const std::string endpoint = "inproc://kiln.monitor." + std::to_string(impl_->loop.impl().next_name++);
  if (zmq_socket_monitor(impl_->socket, endpoint.c_str(), events) != 0) return FailZmq("cannot monitor a socket");
  impl_->monitored = true;
  ASSIGN_OR_RETURN(std::unique_ptr<Socket> monitor,
                   Open(impl_->loop, ZMQ_PAIR,
                        {.part_bytes_max = 4096, .message_bytes_max = 8192, .parts_max = 4, .queue_messages = 0}));
  RETURN_IF_ERROR(monitor->Connect(endpoint, {}));
  return monitor;
}

}  // namespace kiln
