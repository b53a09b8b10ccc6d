#include "common/cache_api/client.h"

#include <algorithm>
#include <future>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/limits.h"

namespace kiln::cache {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

struct CacheClient::Core : std::enable_shared_from_this<CacheClient::Core> {
  // Any other head than the last one counts: a store that lost its data starts again from a smaller one.
  void SeeHead(uint64_t head) {
    if (head != 0 && newest_head.exchange(head) != head && on_new_head) on_new_head(head);
  }

  RpcClient& Blobs() { return blob_rpc ? *blob_rpc : *rpc; }
  int64_t DeadlineNs(int64_t deadline_ms) const { return clock->NowNs() + deadline_ms * kNsPerMs; }
  int64_t LeftMs(int64_t deadline_ns) const { return (deadline_ns - clock->NowNs()) / kNsPerMs; }

  const Clock* clock = &SystemClock();
  std::function<void(uint64_t)> on_new_head;
  std::atomic<uint64_t> newest_head{0};
  std::unique_ptr<RpcClient> rpc;
  std::unique_ptr<RpcClient> blob_rpc;
  std::unique_ptr<HintSubscriber> hints;
};

namespace {

// Asks for the kernels chunk by chunk until every one is whole or known to be missing. Lives in its own callbacks.
struct BlobFetch : std::enable_shared_from_this<BlobFetch> {
  std::weak_ptr<CacheClient::Core> core;
  std::vector<Digest> ids;
  std::vector<Bytes> blobs;
  size_t next = 0;  // first id that is not complete
  int64_t deadline_ns = 0;
  uint64_t trace_id = 0;
  CacheClient::Callback<std::vector<Bytes>> done;

  void Step() {
    if (next == ids.size()) return done(std::move(blobs));
    const auto owner = core.lock();
    if (!owner) return done(Fail(ErrorCode::kCancelled, "the client was closed"));
    const GetBlobsRequest request{
        .ids = {ids.begin() + static_cast<std::ptrdiff_t>(next),
                ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), next + limits::kMessageKeysMax))},
        .offset = blobs[next].size()};
    owner->Blobs().Call(
        static_cast<uint16_t>(Method::kGetBlobs), Encode(request), owner->LeftMs(deadline_ns),
        [self = shared_from_this()](Result<RpcReply> raw) { self->Receive(std::move(raw)); }, trace_id);
  }

  void Receive(Result<RpcReply> raw) {
    if (!raw) return done(std::unexpected(std::move(raw).error()));
    if (const auto owner = core.lock()) owner->SeeHead(raw->log_head);
    GetBlobsReply reply;
    if (Status status = Decode(std::move(raw->message), reply); !status)
      return done(std::unexpected(std::move(status).error()));
    if (Status status = Take(reply); !status) return done(std::unexpected(std::move(status).error()));
    Step();
  }

  Status Take(const GetBlobsReply& reply) {
    const size_t first = next;
    if (reply.chunks.empty()) return Fail(ErrorCode::kMalformed, "the store answered a kernel request with nothing");
    for (const BlobChunk& chunk : reply.chunks) {
      if (next == ids.size() || first + chunk.index != next)
        return Fail(ErrorCode::kMalformed, "kernel chunks came out of order");
      if (!chunk.found) {
        blobs[next++].clear();
        continue;
      }
      Bytes& blob = blobs[next];
      if (chunk.offset != blob.size() || chunk.total > limits::kKernelBlobBytesMax ||
          (chunk.bytes.empty() && chunk.total != 0))
        return Fail(ErrorCode::kMalformed, "a kernel chunk does not continue its kernel");
      blob.insert(blob.end(), chunk.bytes.begin(), chunk.bytes.end());
      if (blob.size() < chunk.total) continue;
      if (KernelIdOf(blob) != ids[next])
        return Fail(ErrorCode::kIntegrityFailure, "the store's bytes are not the kernel " + ids[next].ShortHex());
      ++next;
    }
    return {};
  }
};

// Sends the kernels in requests of about 1 MiB.
struct BlobPublish : std::enable_shared_from_this<BlobPublish> {
  std::weak_ptr<CacheClient::Core> core;
  std::vector<Bytes> blobs;
  std::vector<KernelBinding> index;
  std::vector<Digest> ids;
  size_t next = 0;
  int64_t deadline_ns = 0;
  uint64_t trace_id = 0;
  CacheClient::Callback<std::vector<Digest>> done;

  void Step() {
    if (next == blobs.size()) return done(std::move(ids));
    const auto owner = core.lock();
    if (!owner) return done(Fail(ErrorCode::kCancelled, "the client was closed"));
    PublishBlobsRequest request;
    size_t bytes = 0;
    while (next < blobs.size() && request.blobs.size() < limits::kMessagePartsMax / 2 &&
           (request.blobs.empty() || bytes + blobs[next].size() <= limits::kBlobChunkBytes)) {
      bytes += blobs[next].size();
      request.blobs.push_back(std::move(blobs[next++]));
    }
    std::vector<Digest> expected;
    for (const Bytes& blob : request.blobs) expected.push_back(KernelIdOf(blob));
    for (const KernelBinding& binding : index)
      if (std::find(expected.begin(), expected.end(), binding.id) != expected.end()) request.index.push_back(binding);
    owner->Blobs().Call(
        static_cast<uint16_t>(Method::kPublishBlobs), Encode(request), owner->LeftMs(deadline_ns),
        [self = shared_from_this(), expected = std::move(expected)](Result<RpcReply> raw) {
          self->Receive(std::move(raw), expected);
        },
        trace_id);
  }

  void Receive(Result<RpcReply> raw, const std::vector<Digest>& expected) {
    if (!raw) return done(std::unexpected(std::move(raw).error()));
    PublishBlobsReply reply;
    if (Status status = Decode(std::move(raw->message), reply); !status)
      return done(std::unexpected(std::move(status).error()));
    if (reply.ids != expected)
      return done(Fail(ErrorCode::kIntegrityFailure, "the store hashed our kernels to other ids"));
    ids.insert(ids.end(), reply.ids.begin(), reply.ids.end());
    Step();
  }
};

template <class Value, class Start>
Result<Value> WaitFor(const Start& start) {
  auto promise = std::make_shared<std::promise<Result<Value>>>();
  auto future = promise->get_future();
  start([promise](Result<Value> value) { promise->set_value(std::move(value)); });
  return future.get();
}

}  // namespace

Result<std::unique_ptr<CacheClient>> CacheClient::Connect(Loop& loop, CacheClientOptions options) {
  auto core = std::make_shared<Core>();
  core->clock = options.clock;
  core->on_new_head = std::move(options.on_new_head);
  const auto connect = [&](const std::string& endpoint) {
    RpcClientOptions rpc;
    rpc.endpoint = endpoint;
    rpc.security = options.security;
    rpc.refused_at_once = options.refused_at_once;
    rpc.breaker = options.breaker;
    rpc.clock = options.clock;
    return RpcClient::Connect(loop, std::move(rpc));
  };
  ASSIGN_OR_RETURN(core->rpc, connect(options.endpoint));
  if (!options.blob_endpoint.empty() && options.blob_endpoint != options.endpoint) {
    ASSIGN_OR_RETURN(core->blob_rpc, connect(options.blob_endpoint));
  }
  if (!options.hint_endpoint.empty()) {
    const auto on_hint = [weak = std::weak_ptr(core)](const Bytes& hint) {
      const auto head = DecodeHint(hint);
      const auto self = weak.lock();
      if (self && head.has_value()) self->SeeHead(*head);
    };
    ASSIGN_OR_RETURN(core->hints, HintSubscriber::Connect(loop, options.hint_endpoint, options.security, on_hint));
  }
  return std::unique_ptr<CacheClient>(new CacheClient(std::move(core)));
}

CacheClient::~CacheClient() {
  core_->hints.reset();
  core_->blob_rpc.reset();
  core_->rpc.reset();
}

void CacheClient::CallRaw(Method method, Message request, int64_t deadline_ms, RpcClient::Callback done,
                          uint64_t trace_id) {
  core_->rpc->CallDetailed(
      static_cast<uint16_t>(method), std::move(request), deadline_ms,
      [weak = std::weak_ptr(core_), done = std::move(done)](std::expected<RpcReply, RpcFailure> outcome) {
        if (const auto core = weak.lock()) core->SeeHead(outcome ? outcome->log_head : outcome.error().log_head);
        if (outcome) return done(*std::move(outcome));
        done(std::unexpected(std::move(outcome.error().error)));
      },
      trace_id);
}

Result<RpcReply> CacheClient::CallRawSync(Method method, Message request, int64_t deadline_ms, uint64_t trace_id) {
  return WaitFor<RpcReply>(
      [&](RpcClient::Callback done) { CallRaw(method, std::move(request), deadline_ms, std::move(done), trace_id); });
}

void CacheClient::GetBlobs(std::vector<Digest> ids, int64_t deadline_ms, Callback<std::vector<Bytes>> done,
                           uint64_t trace_id) {
  auto fetch = std::make_shared<BlobFetch>();
  fetch->core = core_;
  fetch->blobs.resize(ids.size());
  fetch->ids = std::move(ids);
  fetch->deadline_ns = core_->DeadlineNs(deadline_ms);
  fetch->trace_id = trace_id;
  fetch->done = std::move(done);
  fetch->Step();
}

Result<std::vector<Bytes>> CacheClient::GetBlobsSync(std::vector<Digest> ids, int64_t deadline_ms) {
  return WaitFor<std::vector<Bytes>>(
      [&](Callback<std::vector<Bytes>> done) { GetBlobs(std::move(ids), deadline_ms, std::move(done)); });
}

void CacheClient::PublishBlobs(std::vector<Bytes> blobs, std::vector<KernelBinding> index, int64_t deadline_ms,
                               Callback<std::vector<Digest>> done, uint64_t trace_id) {
  auto publish = std::make_shared<BlobPublish>();
  publish->core = core_;
  publish->blobs = std::move(blobs);
  publish->index = std::move(index);
  publish->deadline_ns = core_->DeadlineNs(deadline_ms);
  publish->trace_id = trace_id;
  publish->done = std::move(done);
  publish->Step();
}

Result<std::vector<Digest>> CacheClient::PublishBlobsSync(std::vector<Bytes> blobs, int64_t deadline_ms,
                                                          std::vector<KernelBinding> index) {
  return WaitFor<std::vector<Digest>>([&](Callback<std::vector<Digest>> done) {
    PublishBlobs(std::move(blobs), std::move(index), deadline_ms, std::move(done));
  });
}

uint64_t CacheClient::log_head() const {
  return core_->newest_head.load();
}
RpcClientStats CacheClient::Stats() const {
  return core_->rpc->Stats();
}

}  // namespace kiln::cache
