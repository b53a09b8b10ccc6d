// `kiln ping`: whether a service answers; for health checks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/fleet/fleet_keys.h"
#include "cli/say.h"
#include "common/base/clock.h"
#include "common/cache_api/client.h"
#include "common/compile_api/compile_api.h"
#include "common/security/key_directory.h"
#include "common/worker_api/worker_api.h"

namespace kiln::cli {
namespace {

struct PingFlags {
  std::string service;
  std::string endpoint;
  std::string keys;
  int64_t deadline_ms = 3'000;
};

struct PingTarget {
  std::string_view service;
  const char* endpoint;  // of its default
  uint16_t method;
};
constexpr PingTarget kTargets[] = {
    {"cache", "tcp://127.0.0.1:7400", static_cast<uint16_t>(cache::Method::kPing)},
    {"compile", "tcp://127.0.0.1:7411", static_cast<uint16_t>(CompileMethod::kPing)},
    {"worker", "tcp://127.0.0.1:7421", static_cast<uint16_t>(WorkerMethod::kPing)},
};

Result<int> Ping(const PingFlags& flags) {
  const auto& target = *std::find_if(std::begin(kTargets), std::end(kTargets),
                                     [&](const PingTarget& t) { return t.service == flags.service; });
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-ping"));
  RpcClientOptions options;
  options.endpoint = flags.endpoint.empty() ? target.endpoint : flags.endpoint;
  options.refused_at_once = true;
  options.security.insecure = flags.keys.empty();
  if (!flags.keys.empty()) {
    ASSIGN_OR_RETURN(options.security, SecurityOfHolder(flags.keys, flags.service));
  }
  const std::string endpoint = options.endpoint;
  ASSIGN_OR_RETURN(auto client, RpcClient::Connect(*loop, std::move(options)));
  const int64_t start = SystemClock().NowNs();
  const Result<RpcReply> reply = client->CallSync(target.method, {}, flags.deadline_ms);
  if (!reply.has_value()) return FailIn(flags.service, reply.error());
  Say("{} {} answers in {:.1f} ms\n", flags.service, endpoint,
      static_cast<double>(SystemClock().NowNs() - start) / 1e6);
  return 0;
}

}  // namespace

void AddPingCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<PingFlags>();
  CLI::App* command = app.add_subcommand("ping", "whether a service answers; exit status 0 when it does");
  command->add_option("service", flags->service, "cache, compile or worker")
      ->required()
      ->check(CLI::IsMember({"cache", "compile", "worker"}));
  command->add_option("endpoint", flags->endpoint, "default: the service's default on this machine");
  command->add_option("--keys", flags->keys,
                      "key directory; without one the connection is plaintext (loopback and ipc only)");
  command->add_option("--deadline-ms", flags->deadline_ms, "for the answer")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return Ping(*flags); }; });
}

}  // namespace kiln::cli
