// kiln-cache: the cache store of a fleet.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>

#include "cache-store/service/cache_service.h"
#include "common/process/process.h"
#include "common/security/key_directory.h"

namespace {

struct Flags {
  std::vector<std::string> listen{"tcp://127.0.0.1:7400"};
  std::string blob_listen;
  std::string hint_listen;
  std::string store = "memory:";
  std::string keys;
  bool insecure = false;
  uint64_t max_bytes = uint64_t{4} << 30;
  std::string log_level = "info";
  bool die_with_parent = false;
};

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.listen, "endpoints to answer on: tcp://host:port or ipc://path")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--blob-listen", flags.blob_listen, "endpoint for kernels; default: the same as --listen");
  app.add_option("--hint-listen", flags.hint_listen, "endpoint that publishes change hints; default: none");
  app.add_option("--store", flags.store, "rocksdb:PATH or memory:")->capture_default_str();
  app.add_option("--keys", flags.keys, "key directory: cache.curve.*, allow.list, signers.list");
  app.add_flag("--insecure", flags.insecure,
               "plaintext on ipc and loopback, no signature checks unless --keys is given too");
  app.add_option("--max-bytes", flags.max_bytes, "limit of records and kernels together")->capture_default_str();
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
  if (!flags.keys.empty()) {
    ASSIGN_OR_RETURN(const kiln::KeyDirectory keys, kiln::KeyDirectory::Open(flags.keys));
    if (!flags.insecure) {
      ASSIGN_OR_RETURN(options.security, keys.ServerFor("cache"));
    }
    ASSIGN_OR_RETURN(options.records.trusted, keys.LoadTrustedSigners());
    options.records.verify_signatures = true;
  } else if (!flags.insecure) {
    return kiln::Fail(kiln::ErrorCode::kInvalidArgument,
                      "name a key directory with --keys, or say --insecure for ipc and loopback use");
  }
  if (flags.insecure) spdlog::warn("--insecure: every local peer has the admin role");
  ASSIGN_OR_RETURN(auto kv, kiln::store::OpenKvStore(flags.store));
  ASSIGN_OR_RETURN(const auto service, kiln::store::CacheService::Start(std::move(kv), std::move(options)));
  std::string details;
  for (const std::string& endpoint : service->endpoints()) details += (details.empty() ? "listen=" : ",") + endpoint;
  if (!service->blob_endpoint().empty()) details += " blobs=" + service->blob_endpoint();
  if (!service->hint_endpoint().empty()) details += " hints=" + service->hint_endpoint();
  spdlog::info("serving {} from {}", details, flags.store);
  kiln::AnnounceReady(details);
  while (kiln::WaitForStop() == kiln::StopWait::kReload) spdlog::info("the cache has nothing to reload");
  spdlog::info("stopping");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Kiln's cache store: signed plans and kernels, compiled once per fleet");
  Flags flags;
  Declare(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (const kiln::Status status = Run(flags); !status) {
    std::fprintf(stderr, "kiln-cache: %s\n", kiln::ToString(status.error()).c_str());
    return kiln::ErrorExitCode(status.error().code);
  }
  return 0;
}
