// kiln-worker: serves models. Parses flags and wires; the conductor of a request is service/worker_service.cc.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "common/artifact/target_text.h"
#include "common/base/writable_directory.h"
#include "common/compile_api/op_table.h"
#include "common/native/fault_handler.h"
#include "common/process/parse_flags.h"
#include "common/process/process.h"
#include "common/security/key_directory.h"
#include "vm-worker/plugin/load_plugin.h"
#include "vm-worker/service/open_device.h"
#include "vm-worker/service/worker_service.h"
#include "vm-worker/tiering/fleet_services.h"

namespace kiln {
namespace {

struct Flags {
  std::vector<std::string> listen = {"tcp://127.0.0.1:7421"};
  std::vector<std::string> models;  // name=path
  std::vector<std::string> plugins;
  std::string store;  // empty: no cache, no plans
  std::string store_blobs;
  std::string store_hints;
  std::string compile;  // empty: plans only from the cache
  std::string keys = "keys";
  bool insecure = false;
  int threads = 1;
  int kernel_threads = 1;
  size_t queue = limits::kRequestQueueDefault;
  int64_t memory_bytes = MachineMemoryBytes() / 4 * 3;
  int64_t run_memory_bytes = 0;  // 0: memory_bytes
  size_t streams = StreamOptions{}.streams_max;
  int64_t stream_bytes = StreamOptions{}.bytes_max;
  int64_t stream_idle_s = StreamOptions{}.idle_ns / 1'000'000'000;
  std::vector<std::string> states;  // model:input=output
  std::string device = "cpu";
  int64_t device_memory = 0;  // 0: as CudaDevice::Options
  std::string disk_cache;
  int64_t disk_cache_bytes = int64_t{1} << 30;
  int64_t warm_wait_ms = 2'000;
  int shadow_runs = 3;
  double shadow_share = 0.05;
  uint64_t hot_runs = TierPolicy{}.hot_runs;
  uint64_t hot_ms = TierPolicy{}.hot_ns / 1'000'000;
  size_t plans_max = TierPolicy{}.plans_max;
  double compile_rate = RequestRates{}.worker.per_s;
  bool tuned = TierPolicy{}.tuned;
  bool range_plans = TierPolicy{}.range;
  int64_t horizon_s = TierPolicy{}.horizon_ns / 1'000'000'000;
  std::string metrics;
  std::string log_level = "info";
  bool die_with_parent = false;
  bool perf_map = false;
  bool gdb_symbols = false;
};

// Who is told that the store's change log moved. The loop that tells may outlive the controller.
struct HintReceiver {
  std::mutex mutex;  // held while the controller is told, so that it cannot end meanwhile
  TierController* tiers = nullptr;
};
class HintsAsLongAs {
 public:
  HintsAsLongAs(HintReceiver& receiver, TierController& tiers) : receiver_(receiver) { Set(&tiers); }
  ~HintsAsLongAs() { Set(nullptr); }
  HintsAsLongAs(const HintsAsLongAs&) = delete;
  HintsAsLongAs& operator=(const HintsAsLongAs&) = delete;

 private:
  void Set(TierController* tiers) {
    std::lock_guard lock(receiver_.mutex);
    receiver_.tiers = tiers;
  }
  HintReceiver& receiver_;
};

constexpr double kCompileBurstS = 128;  // seconds of the rate that may come at once

TierOptions TierOptionsFrom(const Flags& flags) {
  TierOptions options;
  options.policy.hot_runs = flags.hot_runs;
  options.policy.hot_ns = flags.hot_ms * 1'000'000;
  options.policy.plans_max = flags.plans_max;
  options.policy.tuned = flags.tuned;
  options.policy.range = flags.range_plans;
  options.policy.horizon_ns = flags.horizon_s * 1'000'000'000;
  options.rates.worker = {flags.compile_rate * kCompileBurstS, flags.compile_rate};
  options.rates.model = {std::max(1.0, options.rates.worker.burst / 4), flags.compile_rate / 4};
  options.targets = HostTargets();
  options.shadow_runs = flags.shadow_runs;
  options.gdb_symbols = flags.gdb_symbols;
  options.shadow.core_share_max = flags.shadow_share;
  options.reporter = "worker-" + std::to_string(getpid()) + "-" + std::to_string(SystemClock().NowNs());
  return options;
}

Result<WorkerServiceOptions> ServiceOptionsFrom(const Flags& flags) {
  WorkerServiceOptions options;
  options.threads = flags.threads;
  options.kernel_threads = flags.kernel_threads;
  options.queue_max = flags.queue;
  options.run_memory_bytes = static_cast<size_t>(
      flags.run_memory_bytes == 0 ? flags.memory_bytes : std::min(flags.run_memory_bytes, flags.memory_bytes));
  options.streams.streams_max = flags.streams;
  options.streams.bytes_max = flags.stream_bytes;
  options.streams.idle_ns = flags.stream_idle_s * 1'000'000'000;
  for (const std::string& state : flags.states) {
    const size_t colon = state.find(':');
    if (colon == std::string::npos)
      return Fail(ErrorCode::kInvalidArgument, "--state takes MODEL:INPUT=OUTPUT, not \"" + state + "\"");
    ASSIGN_OR_RETURN(StateLink link, ParseStateLink(std::string_view(state).substr(colon + 1)));
    options.states.emplace_back(state.substr(0, colon), std::move(link));
  }
  return options;
}

// How this worker proves itself, and whom it believes.
struct Security {
  std::optional<KeyDirectory> keys;  // a plaintext worker without plans needs none
  ServerSecurity server;
  ClientSecurity store, compile;
};

Result<Security> SecurityFrom(const Flags& flags, bool plans) {
  Security security;
  if (plans || !flags.insecure) {
    ASSIGN_OR_RETURN(security.keys, KeyDirectory::Open(flags.keys));
  }
  security.server.insecure = security.store.insecure = security.compile.insecure = flags.insecure;
  if (flags.insecure) return security;
  ASSIGN_OR_RETURN(security.server, security.keys->ServerFor("worker"));
  if (!flags.store.empty()) {
    ASSIGN_OR_RETURN(security.store, security.keys->ClientFor("worker", "cache"));
  }
  if (!flags.compile.empty()) {
    ASSIGN_OR_RETURN(security.compile, security.keys->ClientFor("worker", "compile"));
  }
  return security;
}

// Where plans come from. Later members use earlier ones.
struct Fleet {
  SignerList trusted;
  // Hints before the controller exists are caught up by its first look at the change log.
  std::shared_ptr<HintReceiver> hints = std::make_shared<HintReceiver>();
  std::unique_ptr<DiskTier> disk;  // null: plans are fetched anew after each start
  std::unique_ptr<cache::CacheClient> store;
  std::unique_ptr<PlanSource> source;
  std::unique_ptr<RpcClient> compile;  // null: plans only from the store
  std::unique_ptr<FleetServices> services;
};

Result<std::unique_ptr<Fleet>> ConnectFleet(const Flags& flags, const Security& security, const TierOptions& tiers,
                                            Loop& loop) {
  auto fleet = std::make_unique<Fleet>();
  ASSIGN_OR_RETURN(TrustedSigners trusted, security.keys->LoadTrustedSigners());
  fleet->trusted.Replace(std::move(trusted));
  if (!flags.disk_cache.empty()) {
    ASSIGN_OR_RETURN(fleet->disk, DiskTier::Open(flags.disk_cache, flags.disk_cache_bytes));
  }
  cache::CacheClientOptions store_options;
  store_options.endpoint = flags.store;
  store_options.blob_endpoint = flags.store_blobs;
  store_options.hint_endpoint = flags.store_hints;
  store_options.security = security.store;
  store_options.on_new_head = [hints = fleet->hints](uint64_t) {
    std::lock_guard lock(hints->mutex);
    if (hints->tiers != nullptr) hints->tiers->OnNewHead();
  };
  ASSIGN_OR_RETURN(fleet->store, cache::CacheClient::Connect(loop, std::move(store_options)));
  std::optional<Target> device;
  if (tiers.device != nullptr) device = tiers.device->facts().targets.front();
  fleet->source =
      std::make_unique<PlanSource>(*fleet->store, fleet->disk.get(), fleet->trusted, tiers.targets.front(), device);
  if (!flags.compile.empty()) {
    RpcClientOptions compile_options;
    compile_options.endpoint = flags.compile;
    compile_options.security = security.compile;
    compile_options.table = OwnOpTable();
    ASSIGN_OR_RETURN(fleet->compile, RpcClient::Connect(loop, std::move(compile_options)));
  }
  fleet->services =
      std::make_unique<FleetServices>(*fleet->store, *fleet->source, fleet->disk.get(), fleet->compile.get());
  return fleet;
}

Status LoadModels(const Flags& flags, ModelRegistry& registry) {
  for (const std::string& model : flags.models) {
    const size_t equals = model.find('=');
    if (equals == std::string::npos)
      return Fail(ErrorCode::kInvalidArgument, "--model takes NAME=PATH, not \"" + model + "\"");
    ASSIGN_OR_RETURN([[maybe_unused]] LoadReply reply,
                     registry.Load({model.substr(0, equals), model.substr(equals + 1)}));
  }
  return {};
}

Result<std::unique_ptr<RpcServer>> Listen(const Flags& flags, const ServerSecurity& security, WorkerService& service,
                                          Loop& loop) {
  RpcServerOptions options;
  options.endpoints = flags.listen;
  options.security = security;
  options.pending_max = flags.queue + static_cast<size_t>(flags.threads) + 128;  // loads, questions
  ASSIGN_OR_RETURN(auto server, RpcServer::Listen(loop, std::move(options)));
  service.RegisterOn(*server);
  server->Serve();
  return server;
}

Status Serve(const Flags& flags) {
  RETURN_IF_ERROR(InitProcess({"kiln-worker", flags.log_level, flags.die_with_parent}));
  RETURN_IF_ERROR(CheckTargetLimit());
  if (!flags.disk_cache.empty()) RETURN_IF_ERROR(MakeWritable(flags.disk_cache));
  for (const std::string& plugin : flags.plugins) RETURN_IF_ERROR(LoadPlugin(plugin));
  TierOptions tier_options = TierOptionsFrom(flags);
  ASSIGN_OR_RETURN(const OpenedDevice device, OpenDevice(flags.device, flags.device_memory));  // outlives what follows
  tier_options.device = device.device.get();
  const bool plans = !flags.store.empty() && !tier_options.targets.empty();
  ASSIGN_OR_RETURN(Security security, SecurityFrom(flags, plans));
  ASSIGN_OR_RETURN(auto loop, Loop::Start("worker-loop"));
  std::unique_ptr<Fleet> fleet;
  if (plans) {
    ASSIGN_OR_RETURN(fleet, ConnectFleet(flags, security, tier_options, *loop));
  }
  std::unique_ptr<PerfMap> perf_map;
  if (flags.perf_map) {
    ASSIGN_OR_RETURN(perf_map, PerfMap::Open(PerfMap::DefaultPath()));
    tier_options.perf_map = perf_map.get();
  }
  RETURN_IF_ERROR(InstallFaultHandler(plans ? flags.disk_cache : ""));
  MemoryBudget budget(flags.memory_bytes);
  tier_options.budget = &budget;
  EpochDomain epochs;
  TierController tiers(epochs, plans ? fleet->services.get() : nullptr, InterpretRecipe, tier_options);
  std::optional<HintsAsLongAs> hints;
  if (plans) hints.emplace(*fleet->hints, tiers);
  ModelRegistry registry(epochs, tiers);
  RETURN_IF_ERROR(LoadModels(flags, registry));
  if (plans && !flags.models.empty() && !tiers.WaitWarm(flags.warm_wait_ms))
    spdlog::warn("the cache store did not answer within {} ms; starting cold", flags.warm_wait_ms);
  ASSIGN_OR_RETURN(WorkerServiceOptions service_options, ServiceOptionsFrom(flags));
  service_options.budget = &budget;
  service_options.device = device.device.get();
  service_options.device_state = device.state;
  auto service = std::make_unique<WorkerService>(registry, tiers, epochs, std::move(service_options));
  ASSIGN_OR_RETURN(auto server, Listen(flags, security.server, *service, *loop));
  std::unique_ptr<MetricsEndpoint> metrics;
  if (!flags.metrics.empty()) {
    ASSIGN_OR_RETURN(metrics, MetricsEndpoint::Start(MetricService::kWorker, flags.metrics,
                                                     [service = service.get()] { return service->Snapshot(); }));
  }
  AnnounceReady(AddressesText(server->endpoints(), {{"metrics", metrics ? metrics->address() : std::string()}}));
  while (WaitForStop() == StopWait::kReload) {
    LogReload(security.keys ? security.keys->Reload(security.server, plans ? &fleet->trusted : nullptr) : Status());
    tiers.OnSignersChanged();
  }
  metrics.reset();
  server->Drain();
  service.reset();
  return {};
}

// What is served, where, and whom it is connected to.
void AddPlaceFlags(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.listen, "endpoints to answer on (tcp://host:port or ipc://path)")
      ->capture_default_str();
  app.add_option("--model", flags.models, "NAME=PATH of a model to load at the start; may be repeated");
  app.add_option("--plugin", flags.plugins, "library with operators of your own (kiln_plugin.h); may be repeated");
  app.add_option("--store", flags.store, "cache store endpoint; without one the worker only interprets");
  app.add_option("--store-blobs", flags.store_blobs, "cache store endpoint for kernels (default: the same)");
  app.add_option("--store-hints", flags.store_hints, "cache store endpoint for change hints");
  app.add_option("--compile", flags.compile, "compile service endpoint; without one, plans come from the cache only");
  app.add_option("--keys", flags.keys, "key directory: curve keys, allow.list, signers.list")->capture_default_str();
  app.add_flag("--insecure", flags.insecure, "no CURVE; only on loopback and ipc");
}

// Requests: how many at a time, what they may hold, and what streams keep between them.
void AddRequestFlags(CLI::App& app, Flags& flags) {
  app.add_option("--threads", flags.threads, "request threads")
      ->check(CLI::Range(1, limits::kThreadsMax))
      ->capture_default_str();
  app.add_option("--kernel-threads", flags.kernel_threads,
                 "threads that large kernels run on at a time, over all requests; 1 keeps each on its request's thread")
      ->check(CLI::Range(1, limits::kThreadsMax))
      ->capture_default_str();
  app.add_option("--queue", flags.queue, "requests that may wait")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--memory-bytes", flags.memory_bytes,
                 "what the worker may hold: temporary memory, packed weights, plans, profiles, samples")
      ->check(CLI::Range(int64_t{16} << 20, int64_t{1} << 46))
      ->capture_default_str();
  app.add_option(
         "--run-memory-bytes", flags.run_memory_bytes,
         "of that, temporary memory of runs; each request thread may use its share, a run that needs more is an "
         "error (default: all of it)")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 46));
  app.add_option("--state", flags.states,
                 "MODEL:INPUT=OUTPUT: in streams of the model, the output of a run is the input of the next; may be "
                 "repeated");
  app.add_option("--streams", flags.streams, "streams whose state is kept")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--stream-bytes", flags.stream_bytes, "their state together")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  app.add_option("--stream-idle-s", flags.stream_idle_s, "a stream without a run for so long is forgotten")
      ->check(CLI::Range(1, 7 * 86'400))
      ->capture_default_str();
}

// When plans are asked for, checked and kept.
void AddPlanFlags(CLI::App& app, Flags& flags) {
  app.add_option("--disk-cache", flags.disk_cache, "directory for fetched plans and kernels");
  app.add_option("--disk-cache-bytes", flags.disk_cache_bytes, "its size limit")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->capture_default_str();
  app.add_option("--warm-wait-ms", flags.warm_wait_ms, "before ready: how long to wait for the plans of --model models")
      ->check(CLI::Range(0, 3'600'000))
      ->capture_default_str();
  app.add_option("--shadow-runs", flags.shadow_runs, "clean background runs before a plan may answer")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--shadow-share", flags.shadow_share, "share of one core for shadow runs")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  app.add_option("--hot-runs", flags.hot_runs, "runs before a segment is hot")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--hot-ms", flags.hot_ms, "interpreter time before a segment is hot")
      ->check(CLI::Range(0, 3'600'000))
      ->capture_default_str();
  app.add_flag("--tuned", flags.tuned, "ask for plans whose tiles are measured, where much time is spent");
  app.add_flag("--range-plans", flags.range_plans,
               "ask for plans within bounds and divisors, where many shapes have them in common");
  app.add_option("--horizon-s", flags.horizon_s,
                 "seconds of calls at their present rate that a better plan is made for")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--compile-rate", flags.compile_rate,
                 "plans asked for per second, for all models; bursts of 128 s of it, a quarter of both for one model")
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  app.add_option(
         "--device", flags.device,
         "where plans run: cpu; cuda:N, and the worker does not start without that device; auto, the first device "
         "if there is one")
      ->capture_default_str();
  app.add_option("--device-memory", flags.device_memory,
                 "bytes of the device's memory that the worker may hold (default: four fifths of what is free when it "
                 "starts)")
      ->check(CLI::Range(int64_t{16} << 20, int64_t{1} << 46));
  app.add_option("--plans", flags.plans_max, "plans per segment")
      ->check(CLI::Range(size_t{1}, limits::kSlotPlansMax))
      ->capture_default_str();
}

// How the process is watched.
void AddProcessFlags(CLI::App& app, Flags& flags) {
  app.add_flag("--gdb-symbols", flags.gdb_symbols, "name generated kernels for gdb, through its JIT interface");
  app.add_flag("--perf-map", flags.perf_map, "name generated kernels for perf in /tmp/perf-PID.map");
  app.add_option("--metrics", flags.metrics, "HOST:PORT that answers /metrics for Prometheus (plain HTTP)");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error, off")->capture_default_str();
  app.add_flag("--die-with-parent", flags.die_with_parent, "end when the parent process ends");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("kiln-worker: runs dynamic-shape models; interprets at once, hot-swaps compiled plans");
  AddPlaceFlags(app, flags);
  AddRequestFlags(app, flags);
  AddPlanFlags(app, flags);
  AddProcessFlags(app, flags);
  return RunService("kiln-worker", app, argc, argv, [&] { return Serve(flags); });
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return kiln::Main(argc, argv);
}
