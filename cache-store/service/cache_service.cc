#include "cache-store/service/cache_service.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/cache_api/codec.h"

namespace kiln::store {
namespace {

constexpr std::string_view kCounterNames[] = {
#define KILN_COUNTER(name, doc) #name,
#include "cache-store/records/counters.def"
#undef KILN_COUNTER
};

bool IsBlobMethod(cache::Method method) {
  return method == cache::Method::kGetBlobs || method == cache::Method::kPublishBlobs;
}

// Whether the answer means that the change survives the end of the machine.
template <class Reply>
bool IsDurable(cache::Method method, const Reply& reply) {
  if constexpr (std::is_same_v<Reply, cache::ReportReply>) return reply.quarantined;
  return method == cache::Method::kPublishPlan || method == cache::Method::kPurge || method == cache::Method::kPin ||
         method == cache::Method::kQuarantine;
}

// Decode, handle, encode; what must be durable is answered from the sync loop, so that the disk never holds up lookups.
template <class Request>
void Serve(Records& records, Loop& sync_loop, const RequestContext& context, Message message, const Replier& replier) {
  Request request;
  if (Status status = cache::Decode(std::move(message), request); !status) return replier.Fail(status.error());
  auto reply = records.Handle(request, Caller{context.role, context.machine});
  if (!reply) return replier.Fail(reply.error());
  if (!IsDurable(cache::MethodOf<Request>::kMethod, *reply)) return replier.Ok(cache::Encode(*reply));
  sync_loop.Post([&records, replier, answer = cache::Encode(*reply)] {
    if (Status status = records.Sync(); !status) return replier.Fail(status.error());
    replier.Ok(answer);
  });
}

}  // namespace

void CacheService::Register(RpcServer& server, bool blobs, bool others) {
  const auto add = [&](cache::Method method, RpcHandler handler) {
    if (IsBlobMethod(method) ? blobs : others)
      server.Register(static_cast<uint16_t>(method), cache::MethodRoles(method), std::move(handler),
                      cache::MethodAdmission(method), cache::MethodText(method));
  };
#define KILN_CACHE_METHOD(value, name, roles, admission, doc)                                           \
  add(cache::Method::k##name, [this](const RequestContext& context, Message message, Replier replier) { \
    Serve<cache::name##Request>(*records_, *sync_loop_, context, std::move(message), replier);          \
  });
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
  server.Serve();
}

Result<std::unique_ptr<CacheService>> CacheService::Start(std::unique_ptr<KvStore> kv, CacheServiceOptions options) {
  std::unique_ptr<CacheService> service(new CacheService());
  ASSIGN_OR_RETURN(service->loop_, Loop::Start("cache"));
  ASSIGN_OR_RETURN(service->sync_loop_, Loop::Start("cache-sync"));
  if (!options.hint_endpoint.empty()) {
    ASSIGN_OR_RETURN(service->hints_, HintPublisher::Listen(*service->loop_, options.hint_endpoint, options.security));
    options.records.on_change = [hints = service->hints_.get()](uint64_t head) {
      hints->Publish(cache::EncodeHint(head));
    };
  }
  ASSIGN_OR_RETURN(service->records_, Records::Open(std::move(kv), options.records));
  Records* records = service->records_.get();
  const auto head = [records] { return records->head(); };
  RpcServerOptions main{.endpoints = options.endpoints,
                        .security = options.security,
                        .pending_max = limits::kStorePendingMax,
                        .log_head = head};
  if (!options.blob_endpoint.empty()) {
    ASSIGN_OR_RETURN(service->blob_loop_, Loop::Start("cache-blobs"));
    ASSIGN_OR_RETURN(service->blob_server_,
                     RpcServer::Listen(*service->blob_loop_, {.endpoints = {options.blob_endpoint},
                                                              .security = options.security,
                                                              .pending_max = limits::kStorePendingMax,
                                                              .part_bytes_max = limits::kBlobPartBytesMax,
                                                              .peer_unread_bytes = limits::kBlobPeerUnreadBytesMax,
                                                              .log_head = head}));
  }
  ASSIGN_OR_RETURN(service->server_, RpcServer::Listen(*service->loop_, std::move(main)));
  service->options_ = std::move(options);
  service->Register(*service->server_, service->blob_server_ == nullptr, true);
  if (service->blob_server_) service->Register(*service->blob_server_, true, false);
  service->loop_->RunSync([&] { service->Tick(); });
  return service;
}

void CacheService::Tick() {
  records_->Tick();
  timer_ = loop_->After(options_.tick_ms, [this] { Tick(); });
}

MetricsSnapshot CacheService::Snapshot() {
  MetricsSnapshot snapshot;
  if (auto stats = records_->Handle(cache::StatsRequest{}, Caller{}); stats.has_value())
    for (cache::Stat& stat : stats->stats) {
      // A counter is an event of its kind; everything else has a row of its own.
      const bool is_event = std::ranges::find(kCounterNames, stat.name) != std::end(kCounterNames);
      snapshot.samples.push_back({is_event ? "event" : stat.name, stat.value, is_event ? stat.name : ""});
    }
  snapshot.samples.push_back(ResidentBytes());
  return snapshot;
}

CacheService::~CacheService() {
  if (server_) server_->Drain();
  if (loop_)
    loop_->RunSync([this] {
      if (timer_ != 0) loop_->Cancel(timer_);
    });
  // The servers' handlers post to the sync loop, whose answers post back to the servers' loops.
  blob_server_.reset();
  server_.reset();
  sync_loop_.reset();
  records_.reset();
  hints_.reset();
}

}  // namespace kiln::store
