// `kiln job`: the main job. A fleet reads text lines of ever-changing width; workers that join are warm. The fleet is
// one of this machine, which the job starts, or workers that run already; then each half of the job can be asked for
// alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/commands.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/fleet/worker_pool.h"
#include "cli/job/phases.h"
#include "cli/job/text_lines.h"
#include "cli/output_file.h"
#include "cli/say.h"
#include "common/base/clock.h"
#include "common/numeric/difference.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::cli {
namespace {

constexpr const char* kModelName = "recogniser";
constexpr int64_t kLoadDeadlineMs = 120'000, kConnectWaitMs = 2'000;
constexpr double kJoinedKernelShareMin = 0.95;
constexpr double kUnseenShareMin = 0.30;
constexpr size_t kShownTexts = 4;

struct JobFlags {
  std::string model, characters, first_lines, second_lines;
  std::vector<std::string> workers;  // endpoints; empty: a fleet of this machine
  std::string keys;
  std::string json = "build/run.json";
  std::string directory;
  int requests = 120;  // per phase
  int cold_requests_max = 600;
  int threads = 1;
  bool quiet = false;
};

class Job {
 public:
  explicit Job(const JobFlags& flags) : flags_(flags) {}
  Result<int> Run();

 private:
  // The workers of a phase.
  struct Workers {
    std::vector<std::unique_ptr<RpcClient>> clients;
    std::vector<RpcClient*> all() const {
      std::vector<RpcClient*> pointers;
      for (const auto& client : clients) pointers.push_back(client.get());
      return pointers;
    }
  };
  Status Prepare();
  Status Arrive();
  Status JoinWarm();
  Status Compare();
  Status PrintTexts() const;
  Result<int> Report();
  Result<Workers> NextWorkers();
  Result<std::unique_ptr<RpcClient>> Load(const std::string& endpoint, const std::string& name);
  void Progress(const PhaseRunner& runner, const char* what) const;
  bool Settled(RpcClient& worker) const;
  void Keep(const PhaseRunner& runner) {
    answers_.insert(answers_.end(), runner.answers().begin(), runner.answers().end());
  }

  const JobFlags& flags_;
  std::vector<TextLine> first_, second_;
  std::vector<std::string> characters_;
  std::string input_;
  std::shared_ptr<const LoadedProgram> program_;  // what answers are compared with
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<EmbeddedFleet> fleet_;
  std::set<int64_t> seen_;
  std::vector<PhaseFigures> phases_;
  std::vector<Answer> answers_;
  uint64_t mismatches_ = 0;
  std::string first_mismatch_;
};

Status Job::Prepare() {
  if (flags_.workers.empty() && (flags_.directory.empty() || flags_.first_lines.empty() || flags_.second_lines.empty()))
    return Fail(ErrorCode::kInvalidArgument,
                "without --worker the job needs --directory, --lines and --lines-joined for the fleet that it starts");
  if (flags_.first_lines.empty() && flags_.second_lines.empty())
    return Fail(ErrorCode::kInvalidArgument, "the job needs --lines, --lines-joined, or both");
  RETURN_IF_ERROR(CheckIsNoSource(flags_.json, {flags_.model, flags_.characters}));
  ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnx(flags_.model));
  if (Status status = RequireRepeatable(imported.program); !status) return FailIn(flags_.model, status.error());
  ASSIGN_OR_RETURN(program_, LoadedProgram::Load(std::move(imported.program)));
  if (!flags_.first_lines.empty()) {
    ASSIGN_OR_RETURN(first_, ReadTextLines(flags_.first_lines));
  }
  if (!flags_.second_lines.empty()) {
    ASSIGN_OR_RETURN(second_, ReadTextLines(flags_.second_lines));
  }
  if (!flags_.characters.empty()) {
    ASSIGN_OR_RETURN(characters_, ReadKeys(flags_.characters));
  }
  Say("model {}\n{} text lines while plans arrive, {} others for workers that join\n", flags_.model, first_.size(),
      second_.size());
  ASSIGN_OR_RETURN(loop_, Loop::Start("kiln-job"));
  if (flags_.workers.empty()) {
    ASSIGN_OR_RETURN(fleet_, EmbeddedFleet::Start({flags_.directory, "rocksdb", 2, {}}));
  }
  return {};
}

// Connects to a worker and loads the model where it is not loaded yet.
Result<std::unique_ptr<RpcClient>> Job::Load(const std::string& endpoint, const std::string& name) {
  const std::string path = std::filesystem::absolute(flags_.model).string();
  const int64_t start = SystemClock().NowNs();
  ASSIGN_OR_RETURN(auto client, ConnectTool(*loop_, endpoint, flags_.keys, "worker", kConnectWaitMs));
  ASSIGN_OR_RETURN(LoadReply loaded, CallLoad(*client, {kModelName, path}, kLoadDeadlineMs));
  if (loaded.inputs.size() != 1)
    return Fail(ErrorCode::kInvalidArgument,
                "the job needs a model with one input, this one has " + std::to_string(loaded.inputs.size()));
  input_ = loaded.inputs[0].name;
  Say("worker {} answers after {:.0f} ms (model loaded in {:.0f} ms: {} nodes, {} segments)\n", name,
      static_cast<double>(SystemClock().NowNs() - start) / 1e6, static_cast<double>(loaded.load_us) / 1000,
      loaded.nodes, loaded.segments);
  return client;
}

// A worker that is started now, or the workers that were named.
Result<Job::Workers> Job::NextWorkers() {
  Workers workers;
  if (fleet_ != nullptr) {
    const std::string model = std::string(kModelName) + "=" + std::filesystem::absolute(flags_.model).string();
    ASSIGN_OR_RETURN(int worker, fleet_->StartWorker({flags_.threads, {"--model", model}, true}));
    ASSIGN_OR_RETURN(auto client, Load(fleet_->WorkerEndpoint(worker), std::to_string(worker)));
    workers.clients.push_back(std::move(client));
    return workers;
  }
  for (const std::string& endpoint : flags_.workers) {
    ASSIGN_OR_RETURN(std::vector<std::string> resolved, ResolveEndpoints(endpoint));
    for (const std::string& address : resolved) {
      ASSIGN_OR_RETURN(auto client, Load(address, address));
      workers.clients.push_back(std::move(client));
    }
  }
  return workers;
}

void Job::Progress(const PhaseRunner& runner, const char* what) const {
  if (flags_.quiet) return;
  const auto& timings = runner.timings();
  const size_t window = std::min<size_t>(timings.size(), 20);
  uint64_t run = 0, kernel = 0;
  for (size_t i = timings.size() - window; i < timings.size(); ++i) {
    run += timings[i].run_us;
    kernel += timings[i].kernel_us;
  }
  Say("  {} {:>4} requests: last {} at {:.2f} ms mean, {:.0f} % in kernels\n", what, timings.size(), window,
      static_cast<double>(run) / 1000 / static_cast<double>(window),
      run == 0 ? 0.0 : 100 * static_cast<double>(kernel) / static_cast<double>(run));
  std::fflush(stdout);
}

// Whether every segment that is called answers with a plan by now.
bool Job::Settled(RpcClient& worker) const {
  const auto stats = CallStats(worker, {kModelName}, 5'000);
  const auto all = CallStats(worker, {}, 5'000);
  return stats.has_value() && all.has_value() && stats->Value("segments_with_plan") > 0 &&
         all->Value("compile_requests") == all->Value("compiled") + all->Value("compile_failures") &&
         all->Value("published") + all->Value("rejected") >= all->Value("fetched");
}

Status Job::Arrive() {
  if (first_.empty()) return {};
  ASSIGN_OR_RETURN(const Workers workers, NextWorkers());
  PhaseRunner cold(workers.all(), kModelName, input_);
  RETURN_IF_ERROR(cold.Begin("cold"));
  Say("cold: answers are interpreted, hot segments are sent to the compile service\n");
  for (int i = 0; i < flags_.cold_requests_max; ++i) {
    RETURN_IF_ERROR(cold.Send(first_[static_cast<size_t>(i) % first_.size()]));
    if ((i + 1) % 20 != 0) continue;
    Progress(cold, "cold");
    const auto& timings = cold.timings();
    const bool compiled =
        std::all_of(timings.end() - 10, timings.end(), [](const RunTiming& t) { return 2 * t.kernel_us > t.run_us; });
    if (i + 1 >= flags_.requests / 2 && compiled &&
        std::all_of(workers.clients.begin(), workers.clients.end(), [this](const auto& w) { return Settled(*w); }))
      break;
  }
  ASSIGN_OR_RETURN(PhaseFigures figures, cold.Finish(seen_));
  phases_.push_back(figures);
  Keep(cold);
  PhaseRunner steady(workers.all(), kModelName, input_);
  RETURN_IF_ERROR(steady.Begin("steady"));
  Say("steady: plans answer\n");
  for (int i = 0; i < flags_.requests; ++i) {
    RETURN_IF_ERROR(steady.Send(first_[static_cast<size_t>(i) % first_.size()]));
    if ((i + 1) % 40 == 0) Progress(steady, "steady");
  }
  ASSIGN_OR_RETURN(figures, steady.Finish(seen_));
  phases_.push_back(figures);
  Keep(steady);
  return {};
}

Status Job::JoinWarm() {
  if (second_.empty()) return {};
  if (fleet_ != nullptr) {
    Say("the compile service is stopped; a second worker joins on the warm cache\n");
    fleet_->StopCompile();
  }
  ASSIGN_OR_RETURN(const Workers workers, NextWorkers());
  PhaseRunner joined(workers.all(), kModelName, input_);
  RETURN_IF_ERROR(joined.Begin("joined", fleet_ != nullptr));
  for (int i = 0; i < flags_.requests; ++i) {
    RETURN_IF_ERROR(joined.Send(second_[static_cast<size_t>(i) % second_.size()]));
    if ((i + 1) % 40 == 0) Progress(joined, "joined");
  }
  ASSIGN_OR_RETURN(PhaseFigures figures, joined.Finish(seen_));
  phases_.push_back(figures);
  Keep(joined);
  return {};
}

// Every answer against the interpreter in this process, which has no plans.
Status Job::Compare() {
  const std::vector<ErrorBound> bounds = OutputErrorBounds(program_->program(), {}, NumericMode::kDefault);
  VmContext context;
  std::map<const TextLine*, Tensor> expected;
  for (const Answer& answer : answers_) {
    auto it = expected.find(answer.line);
    if (it == expected.end()) {
      const TensorRef input = answer.line->input.ref;
      ASSIGN_OR_RETURN(std::vector<Tensor> outputs, context.Run(*program_, {&input, 1}));
      it = expected.emplace(answer.line, MakeContiguous(outputs[0].ref)).first;
    }
    if (const auto difference = FirstDifference(it->second.ref, answer.output.ref, bounds.at(0))) {
      if (mismatches_++ == 0) first_mismatch_ = answer.line->name + " " + *difference;
    }
  }
  return {};
}

// What the last phase's answers say.
Status Job::PrintTexts() const {
  if (characters_.empty()) return {};
  Say("\nwhat the model read ({}):\n", phases_.back().name);
  const size_t count = phases_.back().requests;
  for (size_t i = 0; i < std::min(kShownTexts, count); ++i) {
    const Answer& answer = answers_[answers_.size() - count + i];
    ASSIGN_OR_RETURN(DecodedText text, DecodeText(answer.output.ref, characters_));
    Say("  {:>5} px  {:<44} ({:.0f} %)\n", answer.line->width, "\"" + text.text + "\"", 100 * text.confidence);
  }
  return {};
}

Result<int> Job::Report() {
  RETURN_IF_ERROR(PrintTexts());
  Say("\n");
  SayLines(PhaseTable(phases_));
  Say("{} answers compared with the interpreter: {} differ\n", answers_.size(), mismatches_);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(flags_.json).parent_path(), ignored);
  std::ofstream file(flags_.json);
  file << PhasesAsJson(std::filesystem::path(flags_.model).filename().string(), mismatches_, phases_);
  if (!file.flush()) return Fail(ErrorCode::kIoError, "cannot write " + flags_.json);
  int status = 0;
  if (mismatches_ > 0) {
    Say("FAILED: {}\n", first_mismatch_);
    status = 1;
  }
  if (second_.empty()) return status;
  const PhaseFigures& joined = phases_.back();
  if (joined.share_kernels < kJoinedKernelShareMin) {
    Say("FAILED: workers that joined spent {:.1f} % of their time in kernels; {:.0f} % are needed\n",
        100 * joined.share_kernels, 100 * kJoinedKernelShareMin);
    status = 1;
  }
  if (!first_.empty() && joined.unseen_shape_share < kUnseenShareMin) {
    Say("FAILED: only {:.0f} % of the joined phase's widths were new; {:.0f} % are needed\n",
        100 * joined.unseen_shape_share, 100 * kUnseenShareMin);
    status = 1;
  }
  return status;
}

Result<int> Job::Run() {
  RETURN_IF_ERROR(Prepare());
  RETURN_IF_ERROR(Arrive());
  RETURN_IF_ERROR(JoinWarm());
  RETURN_IF_ERROR(Compare());
  return Report();
}

}  // namespace

void AddJobCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<JobFlags>();
  CLI::App* command = app.add_subcommand("job",
                                         "the main job: text lines of changing width through a fleet of this machine, "
                                         "a second worker joins warm; or through "
                                         "running workers");
  command
      ->add_option("--model", flags->model,
                   "ONNX recogniser: one input [n, 3, height, width], output [n, steps, classes]")
      ->required();
  command->add_option("--characters", flags->characters, "characters of the classes, one a line");
  command->add_option("--lines", flags->first_lines,
                      "directory of .pgm text lines: plans arrive while they are read, then they are read by plans");
  command->add_option("--lines-joined", flags->second_lines,
                      "directory of .pgm text lines for a worker that joins, or for workers that must be warm");
  command
      ->add_option("--worker", flags->workers,
                   "endpoint of a running worker, or tcp://NAME:PORT whose name resolves to several; may be repeated: "
                   "they take turns")
      ->allow_extra_args(false);
  command->add_option("--keys", flags->keys,
                      "with --worker: key directory; without one the connection is plaintext (loopback and ipc only)");
  command->add_option("--requests", flags->requests, "requests of the steady and the joined phase")
      ->check(CLI::Range(20, 100'000))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "request threads per worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--directory", flags->directory,
                      "without --worker: sockets, keys, logs and the store; made for this user alone, or one that no "
                      "other can enter; must not hold an older run's store");
  command->add_option("--json", flags->json, "where the figures go")->capture_default_str();
  command->add_flag("--quiet", flags->quiet, "no progress lines");
  command->callback([flags, &action] { action = [flags] { return Job(*flags).Run(); }; });
}

}  // namespace kiln::cli
