// `kiln run`: one model, given or random inputs, on running workers or on an embedded fleet.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include "cli/commands.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/fleet/worker_pool.h"
#include "common/base/clock.h"
#include "common/worker_api/worker_api.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::cli {
namespace {

constexpr int64_t kLoadDeadlineMs = 120'000;

struct RunFlags {
  std::string model;
  std::vector<std::string> inputs;     // NAME=FILE.pb
  std::vector<std::string> dims;       // NAME.AXIS=SIZE
  std::vector<std::string> workers;    // endpoints
  std::string keys;
  std::string name;
  uint64_t seed = 1;
  int repeat = 1;
  int64_t deadline_ms = 60'000;
};

// "a=b" in two parts.
Result<std::pair<std::string, std::string>> Assignment(const std::string& text, const char* flag) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return Fail(ErrorCode::kInvalidArgument, std::string(flag) + " takes NAME=VALUE, not \"" + text + "\"");
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

Result<Dims> DimsFor(const ValueInfo& input, const std::map<std::string, int64_t>& sizes) {
  if (!input.has_rank) return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" has no declared rank; give it with --input");
  Dims dims;
  for (size_t axis = 0; axis < input.dims.size(); ++axis) {
    const auto it = sizes.find(input.name + "." + std::to_string(axis));
    if (it != sizes.end()) {
      dims.push_back(it->second);
    } else if (input.dims[axis] >= 0) {
      dims.push_back(input.dims[axis]);
    } else {
      return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" is " + input.text + ": give dim " + std::to_string(axis) + " with --dim " +
                                                   input.name + "." + std::to_string(axis) + "=SIZE");
    }
  }
  return dims;
}

// Uniform in [-1, 1) for floats, small non-negative integers, random bools.
Tensor RandomTensor(DType dtype, const Dims& dims, std::mt19937_64& random) {
  Tensor tensor = Tensor::Allocate(dtype, dims);
  DispatchDType(dtype, [&]<class T>() {
    for (T& value : tensor.values<T>()) {
      if constexpr (std::is_same_v<T, bool>) {
        value = random() % 2 == 0;
      } else if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(random() % 8);
      } else {
        value = static_cast<T>(std::uniform_real_distribution<float>(-1, 1)(random));
      }
    }
  });
  return tensor;
}

Result<std::vector<NamedTensor>> MakeInputs(const RunFlags& flags, const LoadReply& model) {
  std::map<std::string, int64_t> sizes;
  for (const std::string& text : flags.dims) {
    ASSIGN_OR_RETURN(auto pair, Assignment(text, "--dim"));
    char* end = nullptr;
    const int64_t size = std::strtoll(pair.second.c_str(), &end, 10);
    if (*end != 0 || size < 0) return Fail(ErrorCode::kInvalidArgument, "--dim " + text + ": the size must be a non-negative integer");
    sizes[pair.first] = size;
  }
  std::map<std::string, std::string> files;
  for (const std::string& text : flags.inputs) {
    ASSIGN_OR_RETURN(auto pair, Assignment(text, "--input"));
    files.insert(pair);
  }
  std::mt19937_64 random(flags.seed);
  std::vector<NamedTensor> inputs;
  for (const ValueInfo& input : model.inputs) {
    const auto file = files.find(input.name);
    if (file != files.end()) {
      ASSIGN_OR_RETURN(onnx::NamedTensor read, onnx::ReadTensorFile(file->second));
      inputs.push_back({input.name, MakeContiguous(read.tensor.ref)});
      files.erase(file);
      continue;
    }
    ASSIGN_OR_RETURN(Dims dims, DimsFor(input, sizes));
    if (const auto elements = CheckedElements(dims, input.dtype); !elements.has_value())
      return FailIn("input \"" + input.name + "\"", elements.error());
    inputs.push_back({input.name, RandomTensor(input.dtype, dims, random)});
  }
  if (!files.empty()) return Fail(ErrorCode::kInvalidArgument, "the model has no input \"" + files.begin()->first + "\"");
  return inputs;
}

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
    fmt::print("{} : {}{} ={}\n", output.name, DTypeName(ref.dtype), ref.dims.ToString(), values);
  }
  const RunTiming& t = reply.timing;
  fmt::print("{:.3f} ms ({:.3f} in kernels, {:.3f} in reference steps), waited {:.3f} ms; segments: {} by plan, {} interpreted\n",
             static_cast<double>(t.run_us) / 1000, static_cast<double>(t.kernel_us) / 1000, static_cast<double>(t.reference_us) / 1000,
             static_cast<double>(t.queue_us) / 1000, t.plan_segments, t.interpreted_segments);
}

Result<int> Run(const RunFlags& flags) {
  const std::string path = std::filesystem::absolute(flags.model).string();
  const std::string name = flags.name.empty() ? std::filesystem::path(path).stem().string() : flags.name;
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-run"));
  std::unique_ptr<EmbeddedFleet> fleet;
  std::vector<std::string> endpoints = flags.workers;
  if (endpoints.empty()) {
    const std::string directory = (std::filesystem::temp_directory_path() / ("kiln-run-" + std::to_string(getpid()))).string();
    ASSIGN_OR_RETURN(fleet, EmbeddedFleet::Start({directory, "memory", 2, {}}));
    ASSIGN_OR_RETURN(int worker, fleet->StartWorker({}));
    endpoints.push_back(fleet->WorkerEndpoint(worker));
  }
  ASSIGN_OR_RETURN(auto pool, WorkerPool::Connect(*loop, endpoints, flags.keys));
  ASSIGN_OR_RETURN(LoadReply model, pool->LoadEverywhere({name, path}, kLoadDeadlineMs));
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, MakeInputs(flags, model));
  RunReply reply;
  for (int i = 0; i < flags.repeat; ++i) {
    ASSIGN_OR_RETURN(reply, pool->Run({name, inputs}, flags.deadline_ms));
  }
  Print(reply);
  if (fleet != nullptr) {
    const std::string directory = fleet->directory();
    pool.reset();
    fleet.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  return 0;
}

}  // namespace

void AddRunCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "run a model once or often; without --worker on an embedded fleet");
  command->add_option("model", flags->model, "ONNX model")->required();
  command->add_option("--input", flags->inputs, "NAME=FILE.pb: an input as ONNX TensorProto; inputs that are not given are random");
  command->add_option("--dim", flags->dims, "NAME.AXIS=SIZE: size of a varying dim of a random input");
  command->add_option("--worker", flags->workers, "worker endpoints, or tcp://NAME:PORT whose name resolves to several; requests take turns");
  command->add_option("--keys", flags->keys, "key directory; without one the connection is plaintext (loopback and ipc only)");
  command->add_option("--name", flags->name, "name of the model on the workers (default: the file's)");
  command->add_option("--seed", flags->seed, "of random inputs")->capture_default_str();
  command->add_option("--repeat", flags->repeat, "runs; the last one is printed")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command->add_option("--deadline-ms", flags->deadline_ms, "per run")->check(CLI::Range(1, 3'600'000))->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return Run(*flags); }; });
}

}  // namespace kiln::cli
