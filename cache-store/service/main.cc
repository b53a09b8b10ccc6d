// kiln-cache: the cache store of a fleet.
#include <spdlog/spdlog.h>

#include <optional>

#include "cache-store/service/cache_service.h"
#include "common/process/parse_flags.h"
#include "common/process/process.h"
#include "common/security/key_directory.h"

namespace {

struct Flags {
  std::vector<std::string> listen{"tcp://127.0.0.1:7400"};
  std::string blob_listen;
  std::string hint_listen;
  std::string store;
  std::string keys;
  bool insecure = false;
  uint64_t max_bytes = uint64_t{4} << 30;
  std::string metrics;
  std::string log_level = "info";
  bool die_with_parent = false;
};

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.listen, "endpoints to answer on: tcp://host:port or ipc://path")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--blob-listen", flags.blob_listen, "endpoint for kernels; default: the same as --listen");
  app.add_option("--hint-listen", flags.hint_listen, "endpoint that publishes change hints; default: none");
  app.add_option("--store", flags.store, "rocksdb:PATH, or memory: (gone at the end); required");
  app.add_option("--keys", flags.keys, "key directory: cache.curve.*, allow.list, signers.list");
  app.add_flag("--insecure", flags.insecure,
               "plaintext on ipc and loopback, no signature checks unless --keys is given too");
  app.add_option("--max-bytes", flags.max_bytes, "limit of records and kernels together")
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{1} << 50))
      ->capture_default_str();
  app.add_option("--metrics", flags.metrics, "HOST:PORT that answers /metrics for Prometheus (plain HTTP)");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")->capture_default_str();
  app.add_flag("--die-with-parent", flags.die_with_parent, "stop when the parent process ends");
}

kiln::Status Run(const Flags& flags) {
  RETURN_IF_ERROR(kiln::InitProcess({"kiln-cache", flags.log_level, flags.die_with_parent}));
  kiln::store::CacheServiceOptions options;
  options.endpoints = flags.listen;
  options.blob_endpoint = flags.blob_listen;
  options.hint_endpoint = flags.hint_listen;
  options.records.bytes_max = flags.max_bytes;
  options.security.insecure = flags.insecure;
  std::optional<kiln::KeyDirectory> keys;
  kiln::SignerList trusted = options.records.trusted;  // shares the service's list
  if (!flags.keys.empty()) {
    ASSIGN_OR_RETURN(keys, kiln::KeyDirectory::Open(flags.keys));
    if (!flags.insecure) {
      ASSIGN_OR_RETURN(options.security, keys->ServerFor("cache"));
    }
    ASSIGN_OR_RETURN(kiln::TrustedSigners listed, keys->LoadTrustedSigners());
    trusted.Replace(std::move(listed));
    options.records.verify_signatures = true;
  } else if (!flags.insecure) {
    return kiln::Fail(kiln::ErrorCode::kInvalidArgument,
                      "name a key directory with --keys, or say --insecure for ipc and loopback use");
  }
  if (flags.insecure) spdlog::warn("--insecure: every local peer has the admin role");
  if (flags.store.empty())
    return kiln::Fail(kiln::ErrorCode::kInvalidArgument,
                      "say where the fleet's plans are kept: --store rocksdb:PATH, or memory: to lose them at the end");
  ASSIGN_OR_RETURN(auto kv, kiln::store::OpenKvStore(flags.store));
  if (flags.store == "memory:") spdlog::warn("--store memory: every plan of the fleet is gone when this process ends");
  const kiln::ServerSecurity security = options.security;
  ASSIGN_OR_RETURN(const auto service, kiln::store::CacheService::Start(std::move(kv), std::move(options)));
  std::unique_ptr<kiln::MetricsEndpoint> metrics;
  if (!flags.metrics.empty()) {
    ASSIGN_OR_RETURN(metrics, kiln::MetricsEndpoint::Start(kiln::MetricService::kCache, flags.metrics,
                                                           [&service] { return service->Snapshot(); }));
  }
  const std::string details =
      kiln::AddressesText(service->endpoints(), {{"blobs", service->blob_endpoint()},
                                                 {"hints", service->hint_endpoint()},
                                                 {"metrics", metrics ? metrics->address() : std::string()}});
  spdlog::info("serving {} from {}", details, flags.store);
  kiln::AnnounceReady(details);
  while (kiln::WaitForStop() == kiln::StopWait::kReload)
    kiln::LogReload(keys.has_value() ? keys->Reload(security, &trusted) : kiln::Status());
  metrics.reset();
  spdlog::info("stopping");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Kiln's cache store: signed plans and kernels, compiled once per fleet");
  Flags flags;
  Declare(app, flags);
  return kiln::RunService("kiln-cache", app, argc, argv, [&] { return Run(flags); });
}
