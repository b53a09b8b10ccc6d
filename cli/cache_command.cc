// `kiln cache ls|stats`: what a cache store holds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "common/cache_api/client.h"
#include "common/compile_api/compile_api.h"
#include "common/security/key_directory.h"

namespace kiln::cli {
namespace {

constexpr int64_t kDeadlineMs = 10'000;
constexpr uint32_t kPageSize = 500;

struct CacheFlags {
  std::string store = "tcp://127.0.0.1:7400";
  std::string keys;  // empty: plaintext
  std::string segment;
  bool json = false;
};

struct Connection {
  std::unique_ptr<Loop> loop;
  std::unique_ptr<cache::CacheClient> client;
};

Result<Connection> Connect(const CacheFlags& flags) {
  Connection connection;
  ASSIGN_OR_RETURN(connection.loop, Loop::Start("kiln-cache-cli"));
  cache::CacheClientOptions options;
  options.endpoint = flags.store;
  options.security.insecure = flags.keys.empty();
  if (!flags.keys.empty()) {
    ASSIGN_OR_RETURN(KeyDirectory keys, KeyDirectory::Open(flags.keys));
    ASSIGN_OR_RETURN(options.security, keys.ClientFor("admin", "cache"));
  }
  ASSIGN_OR_RETURN(connection.client, cache::CacheClient::Connect(*connection.loop, std::move(options)));
  return connection;
}

std::string Marks(const cache::PlanSummary& plan) {
  std::string marks;
  if (plan.pinned) marks += " pinned";
  if (plan.quarantined) marks += " quarantined";
  return marks;
}

Result<int> List(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(Connection connection, Connect(flags));
  cache::ListRequest request;
  request.limit = kPageSize;
  if (!flags.segment.empty()) {
    ASSIGN_OR_RETURN(request.segment, DigestFromHex(flags.segment));
  }
  nlohmann::json rows = nlohmann::json::array();
  bool titled = flags.json;
  for (;;) {
    ASSIGN_OR_RETURN(cache::ListReply reply, connection.client->CallSync(request, kDeadlineMs));
    if (!titled)
      fmt::print("{:<14}{:<14}{:<22}{:<9}{:>8}{:>11}{:>8}{:>12}  {}\n", "plan", "segment", "target", "tier", "kernels",
                 "bytes", "uses", "compile ms", "evidence");
    titled = true;
    for (const cache::PlanSummary& plan : reply.plans) {
      request.after = plan.plan_key;
      const std::string_view tier = PlanTierName(static_cast<PlanTier>(plan.tier));
      if (flags.json) {
        rows.push_back({{"plan", plan.plan_key.Hex()},
                        {"segment", plan.segment.Hex()},
                        {"target", plan.target},
                        {"tier", tier},
                        {"kernels", plan.kernels},
                        {"bytes", plan.bytes},
                        {"uses", plan.uses},
                        {"compile_us", plan.compile_us},
                        {"shadow_runs", plan.evidence.shadow_runs},
                        {"pinned", plan.pinned},
                        {"quarantined", plan.quarantined}});
        continue;
      }
      fmt::print("{:<14}{:<14}{:<22}{:<9}{:>8}{:>11}{:>8}{:>12.1f}  {} shadow runs{}\n", plan.plan_key.ShortHex(),
                 plan.segment.ShortHex(), plan.target, tier, plan.kernels, plan.bytes, plan.uses,
                 static_cast<double>(plan.compile_us) / 1000, plan.evidence.shadow_runs, Marks(plan));
    }
    if (reply.plans.size() < kPageSize) break;
  }
  if (flags.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

Result<int> Stats(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(Connection connection, Connect(flags));
  ASSIGN_OR_RETURN(cache::StatsReply reply, connection.client->CallSync(cache::StatsRequest{}, kDeadlineMs));
  nlohmann::json object;
  for (const cache::Stat& stat : reply.stats) {
    object[stat.name] = stat.value;
    if (!flags.json) fmt::print("{:<32}{:>16}\n", stat.name, stat.value);
  }
  if (flags.json) fmt::print("{}\n", object.dump(2));
  return 0;
}

}  // namespace

void AddCacheCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* command = app.add_subcommand("cache", "what a cache store holds");
  command->require_subcommand(1);
  command->add_option("--store", flags->store, "cache store endpoint")->capture_default_str();
  command->add_option("--keys", flags->keys,
                      "key directory; without one the connection is plaintext (loopback and ipc only)");
  command->add_flag("--json", flags->json, "machine-readable output");
  CLI::App* list = command->add_subcommand("ls", "plans with target, tier, size, use and evidence");
  list->add_option("--segment", flags->segment, "only plans of this segment id (64 hex digits)");
  list->callback([flags, &action] { action = [flags] { return List(*flags); }; });
  command->add_subcommand("stats", "counters and sizes")->callback([flags, &action] {
    action = [flags] { return Stats(*flags); };
  });
}

}  // namespace kiln::cli
