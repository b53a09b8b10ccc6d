// `kiln cache`: what a cache store holds, and what an administrator does about it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/fleet/fleet_keys.h"
#include "cli/say.h"
#include "common/artifact/target.h"
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

// Of purge, pin, unpin and quarantine.
struct AdminFlags {
  std::vector<std::string> plans;
  std::string segment, target, codegen;  // purge only
  bool dry_run = false;
  bool lift = false;  // quarantine only
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
  options.refused_at_once = true;
  options.security.insecure = flags.keys.empty();
  if (!flags.keys.empty()) {
    ASSIGN_OR_RETURN(options.security, SecurityOfHolder(flags.keys, "cache"));
  }
  ASSIGN_OR_RETURN(connection.client, cache::CacheClient::Connect(*connection.loop, std::move(options)));
  return connection;
}

std::string_view ValidationText(const cache::PlanSummary& plan) {
  return ValidationKindName(plan.evidence.validation).value_or("unknown");
}

std::string Marks(const cache::PlanSummary& plan) {
  std::string marks;
  if (plan.pinned) marks += " pinned";
  if (plan.quarantined) marks += " quarantined";
  return marks;
}

// A plan's key or a segment's id (`noun`) from its 64 hexadecimal digits, or from as many of the first as name one of
// the store.
Result<Digest> Resolve(cache::CacheClient& client, const std::string& noun, Digest cache::PlanSummary::* digest,
                       const std::string& text) {
  constexpr size_t kPrefixMin = 6;
  if (text.size() == 2 * Digest{}.bytes.size()) {
    auto key = DigestFromHex(text);
    return key.has_value() ? key : FailIn(noun + " \"" + text + "\"", key.error());
  }
  if (text.size() < kPrefixMin || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Fail(ErrorCode::kInvalidArgument, noun + " \"" + text + "\" is not the first " + std::to_string(kPrefixMin) +
                                                 " to 64 hexadecimal digits of one; `kiln cache ls` has them");
  std::optional<Digest> found;
  cache::ListRequest request;
  request.limit = kPageSize;
  for (;;) {
    ASSIGN_OR_RETURN(const cache::ListReply reply, client.CallSync(request, kDeadlineMs));
    for (const cache::PlanSummary& plan : reply.plans) {
      request.after = plan.plan_key;
      if (!(plan.*digest).Hex().starts_with(text) || found == plan.*digest) continue;
      if (found.has_value())
        return Fail(ErrorCode::kInvalidArgument, noun + " \"" + text + "\" is the beginning of several, " +
                                                     found->Hex() + " and " + (plan.*digest).Hex() + " among them");
      found = plan.*digest;
    }
    if (reply.plans.size() < kPageSize) break;
  }
  if (!found.has_value())
    return Fail(ErrorCode::kNotFound,
                "the store has no " + noun + " that begins with " + text + "; `kiln cache ls` lists them");
  return *found;
}
Result<Digest> ResolvePlan(cache::CacheClient& client, const std::string& text) {
  return Resolve(client, "plan", &cache::PlanSummary::plan_key, text);
}
Result<Digest> ResolveSegment(cache::CacheClient& client, const std::string& text) {
  return Resolve(client, "segment", &cache::PlanSummary::segment, text);
}

Result<int> List(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(Connection connection, Connect(flags));
  cache::ListRequest request;
  request.limit = kPageSize;
  if (!flags.segment.empty()) {
    ASSIGN_OR_RETURN(request.segment, ResolveSegment(*connection.client, flags.segment));
  }
  nlohmann::json rows = nlohmann::json::array();
  bool titled = flags.json;
  for (;;) {
    ASSIGN_OR_RETURN(cache::ListReply reply, connection.client->CallSync(request, kDeadlineMs));
    if (!titled)
      Say("{:<14}{:<14}{:<22}{:<9}{:>8}{:>11}{:>8}{:>12}  {}\n", "plan", "segment", "target", "tier", "kernels",
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
                        {"validation", ValidationText(plan)},
                        {"shadow_runs", plan.evidence.shadow_runs},
                        {"pinned", plan.pinned},
                        {"quarantined", plan.quarantined}});
        continue;
      }
      Say("{:<14}{:<14}{:<22}{:<9}{:>8}{:>11}{:>8}{:>12.1f}  {}, {} shadow runs{}\n", plan.plan_key.ShortHex(),
          plan.segment.ShortHex(), plan.target, tier, plan.kernels, plan.bytes, plan.uses,
          static_cast<double>(plan.compile_us) / 1000, ValidationText(plan), plan.evidence.shadow_runs, Marks(plan));
    }
    if (reply.plans.size() < kPageSize) break;
  }
  if (flags.json) SayLines(rows.dump(2, ' ', true) + "\n");
  return 0;
}

Result<int> Stats(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(Connection connection, Connect(flags));
  ASSIGN_OR_RETURN(cache::StatsReply reply, connection.client->CallSync(cache::StatsRequest{}, kDeadlineMs));
  nlohmann::json object;
  for (const cache::Stat& stat : reply.stats) {
    object[stat.name] = stat.value;
    if (!flags.json) Say("{:<32}{:>16}\n", stat.name, stat.value);
  }
  if (flags.json) SayLines(object.dump(2, ' ', true) + "\n");
  return 0;
}

// The names of targets.def; another would purge nothing, silently.
Status CheckTarget(const std::string& name) {
  if (TargetFromName(name)) return {};
  std::string known;
#define KILN_TARGET(value, Name, name, architecture, rung, vector_bytes, cpu, features, doc) \
  known += (known.empty() ? "" : ", ") + std::string(name);
#include "common/artifact/targets.def"
#undef KILN_TARGET
  return Fail(ErrorCode::kInvalidArgument, "there is no target \"" + name + "\"; there are " + known);
}

Result<cache::PurgeRequest> PurgeOf(cache::CacheClient& client, cache::PurgeKind kind, const std::string& text,
                                    bool dry_run) {
  cache::PurgeRequest request{.kind = kind, .dry_run = dry_run};
  if (kind == cache::PurgeKind::kTarget) {
    request.target = text;
  } else if (kind == cache::PurgeKind::kSegment) {
    ASSIGN_OR_RETURN(request.digest, ResolveSegment(client, text));
  } else {
    auto digest = DigestFromHex(text);
    if (!digest.has_value())
      return FailIn(std::string(cache::PurgeKindName(kind).value_or("")) + " \"" + text + "\"", digest.error());
    request.digest = *digest;
  }
  return request;
}

Result<int> Purge(const CacheFlags& flags, const AdminFlags& admin) {
  if (!admin.target.empty()) RETURN_IF_ERROR(CheckTarget(admin.target));
  if (admin.segment.empty() && admin.target.empty() && admin.codegen.empty() && admin.plans.empty())
    return Fail(ErrorCode::kInvalidArgument, "say what to purge: plan keys, --segment, --target or --codegen");
  ASSIGN_OR_RETURN(Connection connection, Connect(flags));
  std::vector<cache::PurgeRequest> requests;
  const auto add = [&](cache::PurgeKind kind, const std::string& text) -> Status {
    if (text.empty()) return {};
    ASSIGN_OR_RETURN(cache::PurgeRequest request, PurgeOf(*connection.client, kind, text, admin.dry_run));
    requests.push_back(std::move(request));
    return {};
  };
  RETURN_IF_ERROR(add(cache::PurgeKind::kSegment, admin.segment));
  RETURN_IF_ERROR(add(cache::PurgeKind::kTarget, admin.target));
  RETURN_IF_ERROR(add(cache::PurgeKind::kCodegen, admin.codegen));
  for (const std::string& plan : admin.plans) {
    ASSIGN_OR_RETURN(const Digest key, ResolvePlan(*connection.client, plan));
    requests.push_back({.kind = cache::PurgeKind::kPlan, .digest = key, .dry_run = admin.dry_run});
  }
  uint64_t plans = 0;
  for (const cache::PurgeRequest& request : requests) {
    ASSIGN_OR_RETURN(const cache::PurgeReply reply, connection.client->CallSync(request, kDeadlineMs));
    plans += reply.plans;
  }
  if (flags.json)
    Say("{}\n", nlohmann::json{{"plans", plans}, {"dry_run", admin.dry_run}}.dump());
  else
    Say("{} plans {}\n", plans, admin.dry_run ? "would be purged" : "purged");
  return 0;
}

// Pin and quarantine: one mark on each named plan.
template <class Request>
Result<int> Mark(const CacheFlags& flags, const AdminFlags& admin, bool on, std::string_view done) {
  ASSIGN_OR_RETURN(Connection connection, Connect(flags));
  std::vector<Digest> keys;
  for (const std::string& text : admin.plans) {
    ASSIGN_OR_RETURN(const Digest key, ResolvePlan(*connection.client, text));
    keys.push_back(key);
  }
  for (const Digest& key : keys) {
    const auto reply = connection.client->CallSync(Request{key, on}, kDeadlineMs);
    if (!reply.has_value()) return FailIn("plan " + key.ShortHex(), reply.error());
    if (!flags.json) Say("{} {}\n", key.ShortHex(), done);
  }
  if (flags.json) Say("{}\n", nlohmann::json{{"plans", keys.size()}}.dump());
  return 0;
}

void AddAdminCommands(CLI::App& command, const std::shared_ptr<CacheFlags>& flags, Action& action) {
  auto admin = std::make_shared<AdminFlags>();
  const auto keys = [&admin](CLI::App& sub) {
    return sub.add_option("plan", admin->plans, "plan keys, or enough of their first digits (ls has twelve)");
  };
  CLI::App* purge =
      command.add_subcommand("purge", "remove plans from the fleet, within seconds from live workers too");
  keys(*purge);
  purge->add_option("--segment", admin->segment,
                    "all plans of this segment: its id, or enough of its first digits (ls has twelve)");
  purge->add_option("--target", admin->target, "all plans of this target");
  purge->add_option("--codegen", admin->codegen, "all plans made by this code generator");
  purge->add_flag("--dry-run", admin->dry_run, "only count them");
  purge->callback([flags, admin, &action] { action = [flags, admin] { return Purge(*flags, *admin); }; });
  CLI::App* pin = command.add_subcommand("pin", "keep plans from eviction");
  keys(*pin)->required();
  pin->callback([flags, admin, &action] {
    action = [flags, admin] { return Mark<cache::PinRequest>(*flags, *admin, true, "pinned"); };
  });
  CLI::App* unpin = command.add_subcommand("unpin", "let plans be evicted again");
  keys(*unpin)->required();
  unpin->callback([flags, admin, &action] {
    action = [flags, admin] { return Mark<cache::PinRequest>(*flags, *admin, false, "unpinned"); };
  });
  CLI::App* quarantine = command.add_subcommand("quarantine", "hide plans from the fleet");
  keys(*quarantine)->required();
  quarantine->add_flag("--lift", admin->lift, "show them again");
  quarantine->callback([flags, admin, &action] {
    action = [flags, admin] {
      return Mark<cache::QuarantineRequest>(*flags, *admin, !admin->lift,
                                            admin->lift ? "no longer quarantined" : "quarantined");
    };
  });
}

}  // namespace

void AddCacheCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* command = app.add_subcommand("cache", "what a cache store holds");
  command->require_subcommand(1);
  command->fallthrough();
  command->add_option("--store", flags->store, "cache store endpoint")->capture_default_str();
  command->add_option("--keys", flags->keys,
                      "key directory; without one the connection is plaintext (loopback and ipc only)");
  command->add_flag("--json", flags->json, "machine-readable output");
  CLI::App* list = command->add_subcommand("ls", "plans with target, tier, size, use and evidence");
  list->add_option("--segment", flags->segment, "only plans of this segment: its id, or enough of its first digits");
  list->callback([flags, &action] { action = [flags] { return List(*flags); }; });
  command->add_subcommand("stats", "counters and sizes")->callback([flags, &action] {
    action = [flags] { return Stats(*flags); };
  });
  AddAdminCommands(*command, flags, action);
}

}  // namespace kiln::cli
