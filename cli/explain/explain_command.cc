// `kiln explain`: why a model runs as it does, on a running worker or after some runs on an embedded fleet.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/explain/render.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/fleet/scratch_directory.h"
#include "cli/run_inputs.h"
#include "cli/say.h"
#include "common/compile_api/disassemble.h"
#include "common/worker_api/explain.h"

namespace kiln::cli {
namespace {

constexpr int64_t kLoadDeadlineMs = 120'000;
constexpr int64_t kExplainDeadlineMs = 10'000;
constexpr int kMeasuredRuns = 16;       // once plans are there
constexpr int kSettleRounds = 400;      // runs and waits until no segment is on its way to a plan
constexpr int64_t kLiveWaitMs = 2'000;  // for traffic of others to be measured

struct ExplainFlags {
  std::string model;
  std::string worker, keys, compile;
  std::optional<std::string> kernel;  // to disassemble; empty: the one that takes the most time
  InputFlags inputs;
  int runs = 30;
  int64_t deadline_ms = 60'000;
  ExplainRequest request;
  RenderOptions render;
};

bool OnItsWay(const ExplainReply& reply) {
  for (const ExplainedSegment& segment : reply.segments)
    if (segment.reason == "compiling" ||
        std::ranges::any_of(segment.plans, [](const ExplainedPlan& plan) { return plan.state != "published"; }))
      return true;
  return false;
}

// Runs with inputs of their own each.
struct Runner {
  RpcClient& worker;
  const std::string& name;
  const LoadReply& model;
  RunInputs inputs;
  int64_t deadline_ms;
  Status Run(int runs) {
    for (int i = 0; i < runs; ++i) {
      RunRequest request{name, {}};
      ASSIGN_OR_RETURN(request.inputs, inputs.Next(model));
      ASSIGN_OR_RETURN([[maybe_unused]] RunReply reply, CallRun(worker, request, deadline_ms));
    }
    return {};
  }
};

// The reply again, with a kernel's code, as text: the compile service knows how to read it.
Result<std::string> Listing(const ExplainFlags& flags, RpcClient& worker, RpcClient& compile, ExplainReply reply) {
  ExplainRequest request = flags.request;
  request.code = flags.kernel->empty() ? HottestKernel(reply) : *flags.kernel;
  if (request.code.empty())
    return Fail(ErrorCode::kNotFound,
                "no step of a plan was measured, so there is no kernel to show; name one (--plan)");
  ASSIGN_OR_RETURN(const ExplainReply with_code, CallExplain(worker, request, kExplainDeadlineMs));
  reply.kernel = with_code.kernel;
  ASSIGN_OR_RETURN(const std::string listing, DisassembleSync(compile, with_code.code, kExplainDeadlineMs));
  return RenderKernel(reply, listing);
}

// A worker of our own answers `runs` requests, and further ones while plans are on their way.
Result<std::string> ExplainEmbedded(ExplainFlags flags, Loop& loop, const std::string& directory) {
  const std::string path = std::filesystem::absolute(flags.model).string();
  flags.request.model = std::filesystem::path(path).stem().string();
  ASSIGN_OR_RETURN(auto fleet, EmbeddedFleet::Start({directory, "memory", 2, {}}));
  WorkerOptions options;
  options.arguments = {"--shadow-share", "1.0"};
  ASSIGN_OR_RETURN(int index, fleet->StartWorker(options));
  ASSIGN_OR_RETURN(auto worker, ConnectTool(loop, fleet->WorkerEndpoint(index), "", "worker"));
  ASSIGN_OR_RETURN(LoadReply model, CallLoad(*worker, {flags.request.model, path}, kLoadDeadlineMs));
  ASSIGN_OR_RETURN(RunInputs inputs, RunInputs::Parse(flags.inputs.dims, flags.inputs.files, flags.inputs.seed));
  Runner runner{*worker, flags.request.model, model, std::move(inputs), flags.deadline_ms};
  RETURN_IF_ERROR(runner.Run(flags.runs));
  ExplainRequest quiet = flags.request;
  quiet.plans = false;
  for (int round = 0; round < kSettleRounds; ++round) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(60));  // the worker's control thread looks at its counters every 50 ms
    ASSIGN_OR_RETURN(const ExplainReply reply, CallExplain(*worker, quiet, kExplainDeadlineMs));
    if (!OnItsWay(reply)) break;
    RETURN_IF_ERROR(runner.Run(1));
  }
  if (flags.request.plans) {
    ASSIGN_OR_RETURN([[maybe_unused]] ExplainReply armed, CallExplain(*worker, flags.request, kExplainDeadlineMs));
  }
  RETURN_IF_ERROR(runner.Run(kMeasuredRuns));
  ASSIGN_OR_RETURN(const ExplainReply reply, CallExplain(*worker, flags.request, kExplainDeadlineMs));
  std::string text = Render(reply, flags.render);
  if (!flags.kernel) return text;
  ASSIGN_OR_RETURN(auto compile, ConnectTool(loop, fleet->CompileEndpoint(), "", "compile"));
  ASSIGN_OR_RETURN(const std::string listing, Listing(flags, *worker, *compile, reply));
  return text + listing;
}

Result<std::string> ExplainWorker(ExplainFlags flags, Loop& loop) {
  flags.request.model = flags.model;
  ASSIGN_OR_RETURN(auto worker, ConnectTool(loop, flags.worker, flags.keys, "worker"));
  ASSIGN_OR_RETURN(ExplainReply reply, CallExplain(*worker, flags.request, kExplainDeadlineMs));
  if (!flags.request.plans) return Render(reply, flags.render);
  std::this_thread::sleep_for(std::chrono::milliseconds(kLiveWaitMs));
  ASSIGN_OR_RETURN(reply, CallExplain(*worker, flags.request, kExplainDeadlineMs));
  std::string text = Render(reply, flags.render);
  if (!flags.kernel) return text;
  ASSIGN_OR_RETURN(auto compile, ConnectTool(loop, flags.compile, flags.keys, "compile"));
  ASSIGN_OR_RETURN(const std::string listing, Listing(flags, *worker, *compile, std::move(reply)));
  return text + listing;
}

Result<int> Explain(const ExplainFlags& flags) {
  std::unique_ptr<ScratchDirectory> scratch;  // before any thread
  if (flags.worker.empty()) {
    RETURN_IF_ERROR(CheckIsFile(flags.model));
    ASSIGN_OR_RETURN(scratch, ScratchDirectory::Make("kiln-explain"));
  }
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-explain"));
  Result<std::string> text = Fail(ErrorCode::kInternal, "not asked");
  if (!flags.worker.empty() && flags.kernel && flags.compile.empty())
    return Fail(ErrorCode::kInvalidArgument, "--asm with --worker needs --compile: the compile service reads the code");
  if (flags.worker.empty()) {
    text = ExplainEmbedded(flags, *loop, scratch->path());
  } else {
    text = ExplainWorker(flags, *loop);
  }
  if (!text.has_value()) return std::unexpected(text.error());
  SayLines(*text);
  return 0;
}

}  // namespace

void AddExplainCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command = app.add_subcommand(
      "explain", "why a model runs as it does: per segment the state, the reason, the cost and what would change it");
  command->add_option("model", flags->model, "ONNX model; with --worker the name of a loaded one")->required();
  command->add_option("--worker", flags->worker,
                      "ask this worker; without it the model runs on an embedded fleet first");
  command->add_option("--keys", flags->keys,
                      "key directory; without one the connection is plaintext (loopback and ipc only)");
  flags->inputs.AddOptions(*command);
  command->add_option("--runs", flags->runs, "on the embedded fleet, before asking")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--deadline-ms", flags->deadline_ms, "per run")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  command->add_option("--segment", flags->request.segment,
                      "only this segment: its index, or the beginning of its id (digits alone: at least four)");
  command->add_option("--node", flags->request.node,
                      "only the segments with this node of the model; of a node of no segment: why");
  command->add_flag("--plan", flags->request.plans, "the steps of plans with the time each took on real calls");
  command
      ->add_option("--asm", flags->kernel,
                   "the code of the kernel whose id begins so (--plan lists them), annotated; alone: of the one that "
                   "takes the most time")
      ->expected(0, 1);
  command->add_option("--compile", flags->compile, "with --worker and --asm: compile service that reads the code");
  command->add_flag("--all", flags->render.all, "segments of little weight, too");
  command->callback([flags, &action] {
    flags->render.plans = flags->request.plans;
    flags->render.node = flags->request.node;
    flags->request.plans |= flags->kernel.has_value();
    flags->render.all |= !flags->request.segment.empty() || !flags->request.node.empty();
    action = [flags] { return Explain(*flags); };
  });
}

}  // namespace kiln::cli
