// `kiln run`: one model, given or random inputs, on running workers or on an embedded fleet.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/compare/compare_run.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/fleet/scratch_directory.h"
#include "cli/fleet/worker_pool.h"
#include "cli/run_inputs.h"
#include "cli/say.h"
#include "common/base/clock.h"
#include "common/numeric/difference.h"
#include "common/worker_api/worker_api.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/load/bind_inputs.h"
#include "vm-worker/onnx/model_source.h"
#include "vm-worker/plugin/load_plugin.h"

namespace kiln::cli {
namespace {

constexpr int64_t kLoadDeadlineMs = 120'000;

struct RunFlags {
  std::string model;
  InputFlags inputs;
  std::vector<std::string> workers;  // endpoints
  std::vector<std::string> plugins;
  std::string keys;
  std::string name;
  int repeat = 1;
  int seconds = 0;                  // > 0: repeats until then
  std::vector<std::string> stream;  // INPUT=OUTPUT of each state; empty: no stream
  bool check = false;
  bool json = false;
  int64_t deadline_ms = 60'000;
  bool compare = false;
  CompareFlags comparing;
};

// What a series of runs came to. A run that failed or answered wrongly does not end the series.
struct Series {
  uint64_t runs = 0, failed = 0, wrong = 0, by_plan = 0;
  std::vector<double> latencies_ms;
  std::string first_trouble;
  std::optional<Error> first_failure;
  std::optional<RunReply> last;
};

// The interpreter in this process, which has no plans: what every answer should be.
class Oracle {
 public:
  // `given` names inputs, among them initialisers that the runs override.
  static Result<Oracle> Load(const std::string& path, const std::vector<std::string>& given) {
    ASSIGN_OR_RETURN(ImportedModel imported, ReadModel(path));
    ImportOptions options;
    for (const OverridableInput& input : imported.overridable)
      if (std::ranges::find(given, input.name) != given.end()) options.overrides.push_back(input.name);
    if (!options.overrides.empty()) {
      ASSIGN_OR_RETURN(imported, ReadModel(path, options));
    }
    if (Status status = RequireRepeatable(imported.program); !status) {
      return Fail(status.error().code, "--check: " + status.error().message +
                                           "; --compare holds the plan of each segment to the interpreter instead");
    }
    Oracle oracle;
    ASSIGN_OR_RETURN(oracle.program_, LoadedProgram::Load(std::move(imported.program)));
    oracle.bounds_ = OutputErrorBounds(oracle.program_->program(), {}, NumericMode::kDefault);
    return oracle;
  }
  Result<std::vector<Tensor>> Run(const std::vector<NamedTensor>& inputs) {
    std::vector<NamedInput> named;
    for (const NamedTensor& input : inputs) named.push_back({input.name, input.tensor.ref});
    ASSIGN_OR_RETURN(const std::vector<TensorRef> refs, BindInputs(program_->program(), named));
    return context_->Run(*program_, refs);
  }
  // "" when the answer is the interpreter's, but for outputs that the worker kept, within the bounds of the default
  // mode.
  std::string Difference(const LoadReply& model, const std::vector<Tensor>& expected, const RunReply& reply) {
    size_t answered = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto it = std::ranges::find(reply.outputs, model.outputs.at(i).name, &NamedTensor::name);
      if (it == reply.outputs.end()) continue;
      ++answered;
      if (const auto difference = FirstDifference(expected[i].ref, it->tensor.ref, bounds_[i]))
        return "output " + it->name + " " + *difference;
    }
    return answered == reply.outputs.size() ? "" : "an output that the model does not have";
  }

 private:
  std::shared_ptr<const LoadedProgram> program_;
  std::vector<ErrorBound> bounds_;  // per output
  std::unique_ptr<VmContext> context_ = std::make_unique<VmContext>();
};

void Print(const RunReply& reply) {
  for (const NamedTensor& output : reply.outputs) {
    const TensorRef& ref = output.tensor.ref;
    std::string values;
    DispatchDType(ref.dtype, [&]<class T>() {
      const int64_t shown = std::min<int64_t>(ref.elements(), 8);
      for (int64_t i = 0; i < shown; ++i) {
        if constexpr (std::is_integral_v<T>) {
          values += fmt::format(" {}", static_cast<int64_t>(ref.as<T>()[i]));
        } else {
          values += fmt::format(" {:.6g}", static_cast<float>(ref.as<T>()[i]));
        }
      }
      if (ref.elements() > shown) values += " …";
    });
    Say("{} : {}{} ={}\n", output.name, DTypeName(ref.dtype), ref.dims.ToString(), values);
  }
  const RunTiming& t = reply.timing;
  Say("{:.3f} ms ({:.3f} in kernels, {:.3f} in reference steps), waited {:.3f} ms; segments: {} by plan, {} "
      "interpreted\n",
      static_cast<double>(t.run_us) / 1000, static_cast<double>(t.kernel_us) / 1000,
      static_cast<double>(t.reference_us) / 1000, static_cast<double>(t.queue_us) / 1000, t.plan_segments,
      t.interpreted_segments);
}

// Which inputs are the stream's, and what they begin with.
class Stream {
 public:
  static Result<Stream> Parse(const std::vector<std::string>& flags) {
    Stream stream;
    for (const std::string& flag : flags) {
      ASSIGN_OR_RETURN(StateLink link, ParseStateLink(flag));
      stream.links_.push_back(std::move(link));
    }
    return stream;
  }

  // Opens the stream where there are links. The first inputs say the sizes of the state; what --input did not read
  // begins as zeros.
  Status Open(WorkerPool& pool, const RunFlags& flags, const std::string& name,
              const std::vector<NamedTensor>& inputs) {
    if (links_.empty() || id_ != 0) return {};
    for (const StateLink& link : links_) {
      const auto it = std::ranges::find(inputs, link.input, &NamedTensor::name);
      if (it == inputs.end())
        return Fail(ErrorCode::kInvalidArgument, "--stream " + link.input + ": the model has no such input");
      const bool read = std::ranges::any_of(
          flags.inputs.files, [&](const std::string& file) { return file.starts_with(link.input + "="); });
      state_.push_back({link.input, read ? it->tensor : Tensor::Zeros(it->tensor.dtype(), it->tensor.dims())});
    }
    ASSIGN_OR_RETURN(const OpenStreamReply reply, pool.OpenStream({name, links_, state_}, flags.deadline_ms));
    id_ = reply.stream;
    return {};
  }

  uint64_t id() const { return id_; }
  bool IsState(const std::string& input) const { return std::ranges::count(links_, input, &StateLink::input) > 0; }
  bool IsKept(const std::string& output) const { return std::ranges::count(links_, output, &StateLink::output) > 0; }

  // The inputs of one run of the interpreter: as the model has them, with its own state.
  std::vector<NamedTensor> WithState(std::vector<NamedTensor> inputs) const {
    for (NamedTensor& input : inputs)
      if (const auto it = std::ranges::find(state_, input.name, &NamedTensor::name); it != state_.end())
        input.tensor = it->tensor;
    return inputs;
  }
  // Its outputs, whose state is for its next run.
  void Advance(const LoadReply& model, const std::vector<Tensor>& outputs) {
    for (size_t i = 0; i < links_.size(); ++i)
      for (size_t o = 0; o < outputs.size() && o < model.outputs.size(); ++o)
        if (model.outputs[o].name == links_[i].output) state_[i].tensor = MakeContiguous(outputs[o].ref);
  }

 private:
  std::vector<StateLink> links_;
  std::vector<NamedTensor> state_;  // per link, the interpreter's
  uint64_t id_ = 0;
};

Result<Series> RunSeries(const RunFlags& flags, WorkerPool& pool, const std::string& name, const LoadReply& model,
                         Oracle* oracle) {
  ASSIGN_OR_RETURN(RunInputs source, RunInputs::Parse(flags.inputs.dims, flags.inputs.files, flags.inputs.seed));
  ASSIGN_OR_RETURN(Stream stream, Stream::Parse(flags.stream));
  Series series;
  const auto trouble = [&series](const std::string& text) {
    if (series.first_trouble.empty()) series.first_trouble = text;
  };
  const int64_t end_ns = SystemClock().NowNs() + int64_t{flags.seconds} * 1'000'000'000;
  while (flags.seconds > 0 ? SystemClock().NowNs() < end_ns : series.runs < static_cast<uint64_t>(flags.repeat)) {
    ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, source.Next(model));
    RETURN_IF_ERROR(stream.Open(pool, flags, name, inputs));
    RunRequest request{name, {}, stream.id()};
    for (const NamedTensor& input : inputs)
      if (!stream.IsState(input.name)) request.inputs.push_back(input);
    const int64_t start = SystemClock().NowNs();
    Result<RunReply> reply = pool.Run(request, flags.deadline_ms);
    series.latencies_ms.push_back(static_cast<double>(SystemClock().NowNs() - start) / 1e6);
    ++series.runs;
    if (!reply.has_value()) {
      ++series.failed;
      trouble(ToString(reply.error()));
      if (!series.first_failure.has_value()) series.first_failure = reply.error();
      if (stream.id() != 0) break;  // its next runs would answer another question
      continue;
    }
    if (reply->timing.plan_segments > 0 && reply->timing.interpreted_segments == 0) ++series.by_plan;
    if (oracle != nullptr) {
      ASSIGN_OR_RETURN(const std::vector<Tensor> expected, oracle->Run(stream.WithState(inputs)));
      std::string difference = oracle->Difference(model, expected, *reply);
      stream.Advance(model, expected);
      for (const ValueInfo& output : model.outputs)
        if (!stream.IsKept(output.name) &&
            std::ranges::find(reply->outputs, output.name, &NamedTensor::name) == reply->outputs.end())
          difference = "output " + output.name + " is missing";
      if (stream.id() != 0 && reply->stream_runs != series.runs)
        difference = "the stream has had " + std::to_string(reply->stream_runs) + " runs";
      if (!difference.empty()) {
        ++series.wrong;
        trouble(difference);
      }
    }
    series.last = std::move(*reply);
  }
  if (stream.id() != 0 && series.failed == 0) RETURN_IF_ERROR(pool.CloseStream(stream.id(), flags.deadline_ms));
  std::sort(series.latencies_ms.begin(), series.latencies_ms.end());
  return series;
}

void Print(const RunFlags& flags, const Series& series, const WorkerPool& pool) {
  const auto& sorted = series.latencies_ms;
  const double p50 = sorted.empty() ? 0 : sorted[sorted.size() / 2],
               p99 = sorted.empty() ? 0 : sorted[sorted.size() * 99 / 100];
  if (flags.json) {
    const nlohmann::json root{
        {"workers", pool.size()},    {"runs", series.runs},       {"failed", series.failed}, {"wrong", series.wrong},
        {"retried", pool.retried()}, {"by_plan", series.by_plan}, {"p50_ms", p50},           {"p99_ms", p99}};
    Say("{}\n", root.dump());
    return;
  }
  if (series.last.has_value()) Print(*series.last);
  if (series.runs > 1)
    Say("{} runs on {} workers: {} failed, {} retried, {} wrong{}, {} by plans alone; p50 {:.3f} ms, p99 {:.3f} ms\n",
        series.runs, pool.size(), series.failed, pool.retried(), series.wrong, flags.check ? "" : " (not checked)",
        series.by_plan, p50, p99);
}

Result<int> Run(const RunFlags& flags) {
  const std::string path = std::filesystem::absolute(flags.model).string();
  if (flags.workers.empty() || flags.check) RETURN_IF_ERROR(CheckIsFile(path));  // a worker's files may be elsewhere
  for (const std::string& plugin : flags.plugins) RETURN_IF_ERROR(LoadPlugin(plugin));
  if (flags.compare) {
    CompareFlags comparing = flags.comparing;
    comparing.model = path;
    comparing.inputs = flags.inputs;
    return RunCompare(comparing);
  }
  const std::string name = flags.name.empty() ? std::filesystem::path(path).stem().string() : flags.name;
  // First, so that it goes last: after the services that write into it.
  std::unique_ptr<ScratchDirectory> scratch;
  if (flags.workers.empty()) {
    ASSIGN_OR_RETURN(scratch, ScratchDirectory::Make("kiln-run"));
  }
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-run"));
  std::optional<Oracle> oracle;
  if (flags.check) {
    std::vector<std::string> given;
    for (const std::string& file : flags.inputs.files) given.push_back(file.substr(0, file.find('=')));
    ASSIGN_OR_RETURN(oracle, Oracle::Load(path, given));
  }
  std::unique_ptr<EmbeddedFleet> fleet;
  std::vector<std::string> endpoints = flags.workers;
  if (endpoints.empty()) {
    ASSIGN_OR_RETURN(fleet, EmbeddedFleet::Start({scratch->path(), "memory", 2, {}}));
    WorkerOptions options;
    for (const std::string& plugin : flags.plugins) {
      options.arguments.push_back("--plugin");
      options.arguments.push_back(std::filesystem::absolute(plugin).string());
    }
    ASSIGN_OR_RETURN(int worker, fleet->StartWorker(options));
    endpoints.push_back(fleet->WorkerEndpoint(worker));
  }
  ASSIGN_OR_RETURN(auto pool, WorkerPool::Connect(*loop, endpoints, flags.keys));
  ASSIGN_OR_RETURN(LoadReply model, pool->LoadEverywhere({name, path}, kLoadDeadlineMs));
  for (const std::string& endpoint : pool->unreachable())
    SayTo(stderr, "kiln: {} does not answer; the other workers get its share\n", endpoint);
  ASSIGN_OR_RETURN(Series series, RunSeries(flags, *pool, name, model, oracle.has_value() ? &*oracle : nullptr));
  Print(flags, series, *pool);
  if (series.failed + series.wrong == 0) return 0;
  if (series.runs == 1 && series.failed == 1) return std::unexpected(*series.first_failure);
  // A wrong answer is a defect of ours; a refused one has its own reason.
  return Fail(series.wrong > 0 ? ErrorCode::kInternal : series.first_failure->code,
              fmt::format("{} of {} runs failed, {} answered wrongly; the first: {}", series.failed, series.runs,
                          series.wrong, series.first_trouble));
}

}  // namespace

void AddRunCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "run a model once or often; without --worker on an embedded fleet");
  command->add_option("model", flags->model, "ONNX model")->required();
  flags->inputs.AddOptions(*command);
  command
      ->add_option(
          "--worker", flags->workers,
          "worker endpoint, or tcp://NAME:PORT whose name resolves to several; may be repeated: requests take turns")
      ->allow_extra_args(false);
  command
      ->add_option("--keys", flags->keys,
                   "key directory, with --worker; without one the connection is plaintext (loopback and ipc only)")
      ->needs("--worker");
  command
      ->add_option(
          "--plugin", flags->plugins,
          "library with operators of your own, for the embedded worker, --check and --compare; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--name", flags->name, "name of the model on the workers (default: the file's)");
  command->add_option("--repeat", flags->repeat, "runs; the last answer is printed")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "repeat for so long instead")
      ->check(CLI::Range(1, 86'400))
      ->excludes("--repeat");
  command
      ->add_option("--stream", flags->stream,
                   "INPUT=OUTPUT, per state of the model: the runs are one stream, whose worker keeps the output for "
                   "the next run's input; the first begins with --input, or zeros of --dim's sizes")
      ->allow_extra_args(false);
  command->add_flag(
      "--check", flags->check,
      "compare every answer with the interpreter of this process; not of models that draw random numbers");
  command->add_flag("--json", flags->json, "print one line of JSON instead");
  command->add_option("--deadline-ms", flags->deadline_ms, "per run")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  command
      ->add_flag("--compare", flags->compare,
                 "run every segment by plan and by interpreter side by side and name the first step that differs; on "
                 "an embedded fleet")
      ->excludes("--worker")
      ->excludes("--check")
      ->excludes("--stream")
      ->excludes("--repeat")
      ->excludes("--seconds")
      ->excludes("--json")
      ->excludes("--name")
      ->excludes("--deadline-ms");
  command->add_option("--replay", flags->comparing.replay, "with --compare: where a call that differs is written")
      ->needs("--compare")
      ->capture_default_str();
  command
      ->add_flag("--keep-tensors", flags->comparing.keep_tensors,
                 "with --compare: put the values of inputs and weights into the replay file")
      ->needs("--compare");
  command->callback([flags, &action] { action = [flags] { return Run(*flags); }; });
}

void AddReplayCommand(CLI::App& app, Action& action) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("replay", "run the call of a replay file again; it runs the kernels in the file");
  command->add_option("file", *path, "replay file of `run --compare`")->required();
  command->callback([path, &action] { action = [path] { return RunReplay(*path); }; });
}

}  // namespace kiln::cli
