// CacheClient: the cache store as its clients see it. Asynchronous, every call ends by its deadline (see RpcClient for
// the error codes).
//
//   client.Call(request, 2'000, [](Result<cache::VariantsReply> reply) { … });   // `done` runs on the loop thread
//   const auto reply = client.CallSync(request, 2'000);                           // not on the loop thread
//
// Kernels use their own connection and are moved in chunks of at most 1 MiB; what comes back is checked against its
// KernelId here.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/cache_api/codec.h"
#include "common/messaging/hints.h"
#include "common/messaging/rpc_client.h"

namespace kiln::cache {

struct CacheClientOptions {
  std::string endpoint;
  std::string blob_endpoint;  // empty: the same as `endpoint`
  std::string hint_endpoint;  // empty: no hints
  ClientSecurity security;
  CircuitBreakerOptions breaker;
  bool refused_at_once = false;  // see RpcClientOptions
  const Clock* clock = &SystemClock();
  // Called on the loop thread when a reply or hint shows another change-log head than the one before. May be empty.
  std::function<void(uint64_t head)> on_new_head;
};

// Thread-safe. Destroy before the loop.
class CacheClient {
 public:
  template <class Reply>
  using Callback = std::function<void(Result<Reply>)>;

  static Result<std::unique_ptr<CacheClient>> Connect(Loop& loop, CacheClientOptions options);
  ~CacheClient();

  // Any request of methods.def but GetBlobsRequest and PublishBlobsRequest, which have the functions below.
  template <class Request>
  void Call(const Request& request, int64_t deadline_ms, Callback<typename MethodOf<Request>::Reply> done,
            uint64_t trace_id = 0) {
    using Reply = typename MethodOf<Request>::Reply;
    CallRaw(
        MethodOf<Request>::kMethod, Encode(request), deadline_ms,
        [done = std::move(done)](Result<RpcReply> raw) {
          if (!raw) return done(std::unexpected(std::move(raw).error()));
          Reply reply;
          if (Status status = Decode(std::move(raw->message), reply); !status)
            return done(std::unexpected(std::move(status).error()));
          done(std::move(reply));
        },
        trace_id);
  }
  template <class Request>
  Result<typename MethodOf<Request>::Reply> CallSync(const Request& request, int64_t deadline_ms,
                                                     uint64_t trace_id = 0) {
    typename MethodOf<Request>::Reply reply;
    ASSIGN_OR_RETURN(RpcReply raw, CallRawSync(MethodOf<Request>::kMethod, Encode(request), deadline_ms, trace_id));
    RETURN_IF_ERROR(Decode(std::move(raw.message), reply));
    return reply;
  }

  // One entry per id, in order; empty where the store has no such kernel. Bytes that are not the kernel asked for are
  // an IntegrityFailure.
  void GetBlobs(std::vector<Digest> ids, int64_t deadline_ms, Callback<std::vector<Bytes>> done, uint64_t trace_id = 0);
  Result<std::vector<Bytes>> GetBlobsSync(std::vector<Digest> ids, int64_t deadline_ms);
  // The ids, in order. `index` goes with the kernels it names.
  void PublishBlobs(std::vector<Bytes> blobs, std::vector<KernelBinding> index, int64_t deadline_ms,
                    Callback<std::vector<Digest>> done, uint64_t trace_id = 0);
  Result<std::vector<Digest>> PublishBlobsSync(std::vector<Bytes> blobs, int64_t deadline_ms,
                                               std::vector<KernelBinding> index = {});

  // The change-log head that the last reply or hint carried; 0 before the first.
  uint64_t log_head() const;
  RpcClientStats Stats() const;  // of the main connection

  struct Core;

 private:
  explicit CacheClient(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  void CallRaw(Method method, Message request, int64_t deadline_ms, RpcClient::Callback done, uint64_t trace_id);
  Result<RpcReply> CallRawSync(Method method, Message request, int64_t deadline_ms, uint64_t trace_id);

  std::shared_ptr<Core> core_;
};

}  // namespace kiln::cache
