#include "common/messaging/zap_handler.h"

#include <zmq.h>

#include "common/messaging/socket.h"
#include "common/security/zap.h"

namespace kiln {
namespace {

constexpr SocketLimits kZapLimits{
    .part_bytes_max = 4096, .message_bytes_max = 16384, .parts_max = 16, .queue_messages = 1000};
constexpr size_t kRoutingFrames = 2;  // identity and empty delimiter

}  // namespace

ZapHandler::ZapHandler() = default;
ZapHandler::~ZapHandler() = default;

Result<std::unique_ptr<ZapHandler>> ZapHandler::Start(Loop& loop) {
  std::unique_ptr<ZapHandler> handler(new ZapHandler());
  ASSIGN_OR_RETURN(handler->socket_, Socket::Open(loop, ZMQ_ROUTER, kZapLimits));
  ASSIGN_OR_RETURN(const std::string endpoint, handler->socket_->Bind("inproc://zeromq.zap.01", {.insecure = true}));
  handler->socket_->Start(
      [self = handler.get()](SocketMessage message) {
        if (message.too_large || message.frames.size() < kRoutingFrames) return;
        std::vector<std::string> request;
        for (size_t i = kRoutingFrames; i < message.frames.size(); ++i)
          request.emplace_back(message.frames[i].begin(), message.frames[i].end());
        const auto domain = request.size() > 2 ? self->domains_.find(request[2]) : self->domains_.end();
        const ZapDecision decision =
            DecideZap(request, domain == self->domains_.end() ? nullptr : domain->second.get());
        if (!decision.well_formed) return;
        std::vector<Bytes> reply{message.frames[0], message.frames[1]};
        for (const std::string& frame : decision.reply) reply.emplace_back(frame.begin(), frame.end());
        self->socket_->Send(reply);
      },
      nullptr);
  return handler;
}

std::string ZapHandler::Add(std::shared_ptr<const AllowList> allow_list) {
  std::string domain = "kiln." + std::to_string(next_++);
  domains_.emplace(domain, std::move(allow_list));
  return domain;
}

}  // namespace kiln
