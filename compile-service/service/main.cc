// kiln-compile: the compile service's front process. Parses flags and wires; see service/ and jobs/ for what happens.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>

#include "common/artifact/target_text.h"
#include "common/base/writable_directory.h"
#include "common/compile_api/op_table.h"
#include "common/process/parse_flags.h"
#include "common/process/process.h"
#include "common/security/key_directory.h"
#include "common/telemetry/metrics.h"
#include "compile-service/codegen/cuda/nvrtc_build.h"
#include "compile-service/jobs/codegen_id_of.h"
#include "compile-service/jobs/job_codec.h"
#include "compile-service/service/compile_service.h"

namespace kiln {
namespace {

struct Flags {
  std::vector<std::string> listen = {"tcp://127.0.0.1:7411"};
  std::string store = "tcp://127.0.0.1:7400";
  std::string store_blobs;
  std::string keys = "keys";
  bool insecure = false;
  int compile_children = 2;
  int validate_children = 2;
  int job_threads = 2;
  int64_t job_deadline_ms = 20'000;
  double tune_idle_share = 0.8;
  double client_rate = CompileServiceOptions{}.client_rate.per_s;
  std::string nvrtc;
  std::string replay_directory;
  std::string metrics;
  std::string log_level = "info";
  bool die_with_parent = false;
};

// The helper binaries are installed beside this one.
Result<std::string> BinaryDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(ErrorCode::kIoError, "cannot find out where kiln-compile lies: " + error.message());
  return self.parent_path().string();
}

// Running requests have this long to finish once the process is asked to end, and peers to take their answers. Both,
// and a call of the store that is under way, fit into the grace of the manifests.
constexpr int64_t kStopGraceMs = 5'000, kSettleMs = 1'000;

constexpr double kClientBurstS = 64;  // seconds of the rate that may come at once

struct Children {
  std::unique_ptr<ChildPool> compilers, validators, disassemblers;
};

// Where NVRTC is; empty where there is none and none was named.
Result<std::string> NvrtcOf(const Flags& flags) {
  Result<std::string> path = codegen::cuda::FindNvrtc(flags.nvrtc);
  if (path.has_value()) {
    spdlog::info("plans for GPUs are compiled by {}", *path);
    return path;
  }
  if (!flags.nvrtc.empty()) return path;
  spdlog::info("no plans for GPUs: {}", path.error().message);
  return std::string();
}

Result<Children> StartChildren(const Flags& flags, const std::string& nvrtc) {
  ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  ChildPoolOptions options;
  options.job_deadline_ms = flags.job_deadline_ms;
  options.replay_directory = flags.replay_directory;
  options.binary = directory + "/kiln-compile-child";
  options.children = flags.compile_children;
  if (!nvrtc.empty()) options.arguments = {kNvrtcArgument + nvrtc};
  Children children;
  ASSIGN_OR_RETURN(children.compilers, ChildPool::Start(options));
  options.arguments = {kColdChild};
  options.children = 1;
  options.one_job_each = true;  // it reads code that anybody sent
  ASSIGN_OR_RETURN(children.disassemblers, ChildPool::Start(options));
  options.binary = directory + "/kiln-validate-child";
  options.arguments = {std::to_string(flags.tune_idle_share)};
  options.children = flags.validate_children;
  options.one_job_each = false;
  options.keeps_refused = true;
  ASSIGN_OR_RETURN(children.validators, ChildPool::Start(options));
  return children;
}

MetricsSnapshot Snapshot(const CompileStats& stats) {
  return {{{"requests", stats.requests, ""},
           {"joined", stats.joined, ""},
           {"plans", stats.plans, ""},
           {"kernels", stats.kernels, ""},
           {"kernels_reused", stats.kernels_reused, ""},
           {"kernels_refused", stats.kernels_refused, ""},
           {"failures", stats.failures, ""},
           {"cancelled", stats.cancelled, ""},
           {"kernels_timed", stats.kernels_timed, ""},
           {"forms_taken", stats.forms_taken, ""},
           {"throttled", stats.throttled, ""},
           {"reproductions", stats.reproductions, ""},
           {"reproduced", stats.reproduced, ""},
           {"child_crashes", stats.child_crashes, ""},
           {"queued", stats.queued, ""},
           {"running", stats.running, ""},
           ResidentBytes()},
          {}};
}

Status Serve(const Flags& flags) {
  RETURN_IF_ERROR(InitProcess({"kiln-compile", flags.log_level, flags.die_with_parent}));
  RETURN_IF_ERROR(CheckTargetLimit());
  if (!flags.replay_directory.empty()) RETURN_IF_ERROR(MakeWritable(flags.replay_directory));
  ASSIGN_OR_RETURN(KeyDirectory keys, KeyDirectory::Open(flags.keys));
  ASSIGN_OR_RETURN(SigningKey signing_key, keys.LoadSigning("compile"));
  ASSIGN_OR_RETURN(TrustedSigners trusted_now, keys.LoadTrustedSigners());
  SignerList trusted(std::move(trusted_now));
  ServerSecurity server_security;
  ClientSecurity client_security;
  server_security.insecure = client_security.insecure = flags.insecure;
  if (!flags.insecure) {
    ASSIGN_OR_RETURN(server_security, keys.ServerFor("compile"));
    ASSIGN_OR_RETURN(client_security, keys.ClientFor("compile", "cache"));
  }

  ASSIGN_OR_RETURN(const std::string nvrtc, NvrtcOf(flags));
  ASSIGN_OR_RETURN(const Children children, StartChildren(flags, nvrtc));
  ASSIGN_OR_RETURN(auto loop, Loop::Start("compile-loop"));
  cache::CacheClientOptions store_options;
  store_options.endpoint = flags.store;
  store_options.blob_endpoint = flags.store_blobs;
  store_options.security = client_security;
  ASSIGN_OR_RETURN(auto store, cache::CacheClient::Connect(*loop, std::move(store_options)));

  const std::string holder = "compile-" + std::to_string(getpid()) + "-" + std::to_string(SystemClock().NowNs());
  CompileServiceOptions service_options;
  service_options.job_threads = flags.job_threads;
  service_options.client_rate = {flags.client_rate * kClientBurstS, flags.client_rate};
  CompileWorkshop workshop{*children.compilers, *children.validators, *store, signing_key, trusted, holder};
  workshop.disassemblers = children.disassemblers.get();
  workshop.nvrtc = nvrtc;
  CompileService service(workshop, service_options);
  RpcServerOptions server_options;
  server_options.endpoints = flags.listen;
  server_options.security = server_security;
  server_options.pending_max = limits::kCompileWaitersMax;
  server_options.table = OwnOpTable();
  server_options.table_compatible = IsOpTableCompatible;
  ASSIGN_OR_RETURN(auto server, RpcServer::Listen(*loop, std::move(server_options)));
  service.RegisterOn(*server);
  server->Serve();
  std::unique_ptr<MetricsEndpoint> metrics;
  if (!flags.metrics.empty()) {
    ASSIGN_OR_RETURN(metrics, MetricsEndpoint::Start(MetricService::kCompile, flags.metrics,
                                                     [&service] { return Snapshot(service.Stats()); }));
  }
  AnnounceReady(AddressesText(server->endpoints(), {{"metrics", metrics ? metrics->address() : std::string()}}));
  while (WaitForStop() == StopWait::kReload) LogReload(keys.Reload(server_security, &trusted));
  metrics.reset();
  server->Drain();
  service.Stop(kStopGraceMs);  // while the server can still tell
  server->Settle(kSettleMs);
  return {};
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("kiln-compile: bakes tensor segments into kernels and publishes them in the cache store");
  app.add_option("--listen", flags.listen, "endpoints to answer on (tcp://host:port or ipc://path)")
      ->capture_default_str();
  app.add_option("--store", flags.store, "cache store endpoint")->capture_default_str();
  app.add_option("--store-blobs", flags.store_blobs, "cache store endpoint for kernels (default: the same)");
  app.add_option("--keys", flags.keys, "key directory: curve and signing keys, allow.list, signers.list")
      ->capture_default_str();
  app.add_flag("--insecure", flags.insecure, "no CURVE; only on loopback and ipc");
  app.add_option("--children", flags.compile_children, "compile child processes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--validators", flags.validate_children, "validation child processes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--jobs", flags.job_threads, "requests worked on at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--job-deadline-ms", flags.job_deadline_ms, "a child that takes longer is ended")
      ->check(CLI::Range(100, 600'000))
      ->capture_default_str();
  app.add_option("--client-rate", flags.client_rate,
                 "requests per second that one machine may make; 64 s of it may come at once")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--tune-idle-share", flags.tune_idle_share,
                 "kernels are timed for tuned plans on a core that is idle for this share of the time; 0: on any")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option(
      "--nvrtc", flags.nvrtc,
      "NVRTC of CUDA 13, which compiles plans for GPUs (default: what the loader finds as libnvrtc.so.13, or "
      "/usr/local/cuda/lib64); without it there are none");
  app.add_option("--replay-dir", flags.replay_directory,
                 "where jobs that ended a child, and kernels that failed their trials, are kept, the newest of them");
  app.add_option("--metrics", flags.metrics, "HOST:PORT that answers /metrics for Prometheus (plain HTTP)");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error, off")->capture_default_str();
  app.add_flag("--die-with-parent", flags.die_with_parent, "end when the parent process ends");
  return RunService("kiln-compile", app, argc, argv, [&] { return Serve(flags); });
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return kiln::Main(argc, argv);
}
