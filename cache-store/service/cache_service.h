// CacheService: Records on the wire.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache-store/records/records.h"
#include "common/messaging/hints.h"
#include "common/messaging/loop.h"
#include "common/messaging/rpc_server.h"
#include "common/telemetry/metrics.h"

namespace kiln::store {

struct CacheServiceOptions {
  std::vector<std::string> endpoints;
  std::string blob_endpoint;  // empty: kernels travel over `endpoints` too
  std::string hint_endpoint;  // empty: no hints
  ServerSecurity security;
  RecordsOptions records;
  int64_t tick_ms = 5000;
};

// Owns its loops. Thread-safe.
class CacheService {
 public:
  // Opens the store and serves until destruction.
  static Result<std::unique_ptr<CacheService>> Start(std::unique_ptr<KvStore> kv, CacheServiceOptions options);
  ~CacheService();

  const std::vector<std::string>& endpoints() const { return server_->endpoints(); }
  std::string blob_endpoint() const { return blob_server_ ? blob_server_->endpoints()[0] : std::string(); }
  std::string hint_endpoint() const { return hints_ ? hints_->endpoint() : std::string(); }
  Records& records() { return *records_; }
  RpcServerStats Stats() const { return server_->Stats(); }
  MetricsSnapshot Snapshot();

 private:
  CacheService() = default;
  void Register(RpcServer& server, bool blobs, bool others);
  void Tick();

  CacheServiceOptions options_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Loop> blob_loop_;
  std::unique_ptr<Loop> sync_loop_;
  std::unique_ptr<HintPublisher> hints_;
  std::unique_ptr<Records> records_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<RpcServer> blob_server_;
  Loop::TimerId timer_ = 0;
};

}  // namespace kiln::store
