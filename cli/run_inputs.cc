#include "cli/run_inputs.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::cli {
namespace {

// "a=b" in two parts.
Result<std::pair<std::string, std::string>> Assignment(const std::string& text, const char* flag) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return Fail(ErrorCode::kInvalidArgument, std::string(flag) + " takes NAME=VALUE, not \"" + text + "\"");
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

bool ParseSize(std::string_view text, int64_t& size) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  return error == std::errc() && end == text.data() + text.size() && size >= 0;
}

// A size that no input takes would be ignored without a word.
Status CheckNamesDim(const std::string& name, const LoadReply& model) {
  std::string known;
  for (const ValueInfo& input : model.inputs) {
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      const std::string dim = input.name + "." + std::to_string(axis);
      if (dim == name) return {};
      known += (known.empty() ? "" : ", ") + dim;
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--dim " + name + ": no input has this dim; there are " + (known.empty() ? "none" : known));
}

// A tensor beyond this machine's memory would end the process instead of the command.
Status CheckFits(const ValueInfo& input, const Dims& dims) {
  const int64_t bytes = NumElements(dims) * DTypeBytes(input.dtype);
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (bytes <= memory / 2) return {};
  return Fail(ErrorCode::kLimitExceeded, "input \"" + input.name + "\" of " + dims.ToString() + " has " +
                                             std::to_string(bytes) + " bytes; at most half of this machine's " +
                                             std::to_string(memory) + " bytes are filled: choose smaller sizes");
}

}  // namespace

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

void InputFlags::AddOptions(CLI::App& command) {
  command.add_option("--input", files,
                     "NAME=FILE.pb: an input as ONNX TensorProto; inputs that are not given are random");
  command.add_option(
      "--dim", dims,
      "NAME.AXIS=SIZE or LOW..HIGH: size of a varying dim of a random input; a range is drawn anew for each run");
  command.add_option("--seed", seed, "of random inputs")->capture_default_str();
}

Result<RunInputs> RunInputs::Parse(const std::vector<std::string>& dims, const std::vector<std::string>& files,
                                   uint64_t seed) {
  RunInputs inputs;
  inputs.random_.seed(seed);
  for (const std::string& text : dims) {
    ASSIGN_OR_RETURN(auto pair, Assignment(text, "--dim"));
    const std::string_view value = pair.second;
    const size_t dots = value.find("..");
    Sizes sizes;
    const bool parsed = dots == std::string_view::npos ? ParseSize(value, sizes.low) && ParseSize(value, sizes.high)
                                                       : ParseSize(value.substr(0, dots), sizes.low) &&
                                                             ParseSize(value.substr(dots + 2), sizes.high);
    if (!parsed || sizes.high < sizes.low)
      return Fail(ErrorCode::kInvalidArgument,
                  "--dim " + text + ": the size must be a non-negative integer or LOW..HIGH");
    if (!inputs.sizes_.emplace(pair.first, sizes).second)
      return Fail(ErrorCode::kInvalidArgument, "--dim " + pair.first + " is given twice");
  }
  for (const std::string& text : files) {
    ASSIGN_OR_RETURN(auto pair, Assignment(text, "--input"));
    ASSIGN_OR_RETURN(onnx::NamedTensor read, onnx::ReadTensorFile(pair.second));
    inputs.read_.insert_or_assign(pair.first, MakeContiguous(read.tensor.ref));
  }
  return inputs;
}

Result<Dims> RunInputs::DimsFor(const ValueInfo& input) {
  if (!input.has_rank)
    return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" has no declared rank; give it with --input");
  Dims dims;
  for (size_t axis = 0; axis < input.dims.size(); ++axis) {
    const auto it = sizes_.find(input.name + "." + std::to_string(axis));
    if (it != sizes_.end()) {
      dims.push_back(std::uniform_int_distribution<int64_t>(it->second.low, it->second.high)(random_));
    } else if (input.dims[axis] >= 0) {
      dims.push_back(input.dims[axis]);
    } else {
      return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" is " + input.text + ": give dim " +
                                                   std::to_string(axis) + " with --dim " + input.name + "." +
                                                   std::to_string(axis) + "=SIZE");
    }
  }
  return dims;
}

Result<std::vector<NamedTensor>> RunInputs::Next(const LoadReply& model) {
  for (const auto& [name, tensor] : read_)
    if (std::none_of(model.inputs.begin(), model.inputs.end(),
                     [&](const ValueInfo& input) { return input.name == name; }))
      return Fail(ErrorCode::kInvalidArgument, "the model has no input \"" + name + "\"");
  for (const auto& [name, sizes] : sizes_) RETURN_IF_ERROR(CheckNamesDim(name, model));
  std::vector<NamedTensor> inputs;
  for (const ValueInfo& input : model.inputs) {
    if (const auto read = read_.find(input.name); read != read_.end()) {
      inputs.push_back({input.name, MakeContiguous(read->second.ref)});
      continue;
    }
    ASSIGN_OR_RETURN(Dims dims, DimsFor(input));
    if (const auto elements = CheckedElements(dims, input.dtype); !elements.has_value())
      return FailIn("input \"" + input.name + "\"", elements.error());
    RETURN_IF_ERROR(CheckFits(input, dims));
    inputs.push_back({input.name, RandomTensor(input.dtype, dims, random_)});
  }
  return inputs;
}

}  // namespace kiln::cli
