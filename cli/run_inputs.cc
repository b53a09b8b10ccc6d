#include "cli/run_inputs.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "vm-worker/onnx/dim_hints.h"
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

// What "f32[n, 3, 2*w]" calls each dim.
std::vector<std::string> DimNames(const ValueInfo& input) {
  std::vector<std::string> names;
  const size_t open = input.text.find('['), close = input.text.rfind(']');
  if (open == std::string::npos || close == std::string::npos) return names;
  int depth = 0;
  std::string name;
  for (const char c : input.text.substr(open + 1, close - open - 1)) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      names.push_back(std::move(name));
      name.clear();
    } else if (c != ' ' || !name.empty()) {
      name += c;
    }
  }
  if (!name.empty()) names.push_back(std::move(name));
  return names;
}

std::string NameOfDim(const ValueInfo& input, size_t axis) {
  return input.name + "." + std::to_string(axis);
}

// A size that no input takes would be ignored without a word.
Status CheckNamesDim(const std::string& name, const LoadReply& model) {
  std::string known;
  for (const ValueInfo& input : model.inputs) {
    const std::vector<std::string> names = DimNames(input);
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      const std::string dim = NameOfDim(input, axis);
      if (dim == name || (axis < names.size() && names[axis] == name)) return {};
      known += (known.empty() ? "" : ", ") + dim;
      if (axis < names.size() && input.dims[axis] < 0) known += " (" + names[axis] + ")";
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

bool Names(const std::vector<ValueInfo>& inputs, const std::string& name) {
  return std::ranges::find(inputs, name, &ValueInfo::name) != inputs.end();
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
  command.add_option(
      "--input", files,
      "NAME=FILE.pb: an input, or an initialiser that the model lets callers override, as ONNX TensorProto; inputs "
      "that are not given are random");
  command.add_option(
      "--dim", dims,
      "SYMBOL or INPUT.AXIS = SIZE, LOW..HIGH or LOW..HIGH:DIVISOR, as for import: size of a varying dim of random "
      "inputs; a range is drawn anew for each run");
  command.add_option("--seed", seed, "of random inputs")->capture_default_str();
}

Result<RunInputs> RunInputs::Parse(const std::vector<std::string>& dims, const std::vector<std::string>& files,
                                   uint64_t seed) {
  RunInputs inputs;
  inputs.random_.seed(seed);
  for (const std::string& text : dims) {
    ASSIGN_OR_RETURN(const DimHint hint, ParseDimHint(text));
    if (hint.range.max >= Interval::kNoBound)
      return Fail(ErrorCode::kInvalidArgument, "--dim " + text + ": a random size needs a largest one, LOW..HIGH");
    const Sizes sizes{(hint.range.min + hint.divisor - 1) / hint.divisor * hint.divisor,
                      hint.range.max / hint.divisor * hint.divisor, hint.divisor};
    if (!inputs.sizes_.emplace(hint.name, sizes).second)
      return Fail(ErrorCode::kInvalidArgument, "--dim " + hint.name + " is given twice");
  }
  for (const std::string& text : files) {
    ASSIGN_OR_RETURN(auto pair, Assignment(text, "--input"));
    ASSIGN_OR_RETURN(onnx::NamedTensor read, onnx::ReadTensorFile(pair.second));
    inputs.read_.insert_or_assign(pair.first, MakeContiguous(read.tensor.ref));
  }
  return inputs;
}

int64_t RunInputs::Draw(const Sizes& sizes) {
  return std::uniform_int_distribution<int64_t>(sizes.low / sizes.divisor, sizes.high / sizes.divisor)(random_) *
         sizes.divisor;
}

Result<Dims> RunInputs::DimsFor(const ValueInfo& input, std::map<std::string, int64_t>& drawn) {
  if (!input.has_rank)
    return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" has no declared rank; give it with --input");
  const std::vector<std::string> names = DimNames(input);
  Dims dims;
  for (size_t axis = 0; axis < input.dims.size(); ++axis) {
    const std::string dim = NameOfDim(input, axis);
    if (const auto it = sizes_.find(dim); it != sizes_.end()) {
      dims.push_back(Draw(it->second));
    } else if (input.dims[axis] >= 0) {
      dims.push_back(input.dims[axis]);
    } else if (const auto symbol = axis < names.size() ? sizes_.find(names[axis]) : sizes_.end();
               symbol != sizes_.end()) {
      const auto [value, fresh] = drawn.emplace(symbol->first, 0);
      if (fresh) value->second = Draw(symbol->second);
      dims.push_back(value->second);
    } else {
      return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" is " + input.text + ": give dim " +
                                                   std::to_string(axis) + " with --dim " + dim + "=SIZE");
    }
  }
  return dims;
}

Result<std::vector<NamedTensor>> RunInputs::Next(const LoadReply& model) {
  for (const auto& [name, tensor] : read_)
    if (!Names(model.inputs, name) && !Names(model.optional_inputs, name))
      return Fail(ErrorCode::kInvalidArgument, "the model has no input \"" + name + "\"");
  for (const auto& [name, sizes] : sizes_) RETURN_IF_ERROR(CheckNamesDim(name, model));
  std::map<std::string, int64_t> drawn;
  std::vector<NamedTensor> inputs;
  for (const ValueInfo& input : model.inputs) {
    if (const auto read = read_.find(input.name); read != read_.end()) {
      inputs.push_back({input.name, MakeContiguous(read->second.ref)});
      continue;
    }
    ASSIGN_OR_RETURN(Dims dims, DimsFor(input, drawn));
    if (const auto elements = CheckedElements(dims, input.dtype); !elements.has_value())
      return FailIn("input \"" + input.name + "\"", elements.error());
    RETURN_IF_ERROR(CheckFits(input, dims));
    inputs.push_back({input.name, RandomTensor(input.dtype, dims, random_)});
  }
  for (const auto& [name, tensor] : read_)
    if (Names(model.optional_inputs, name)) inputs.push_back({name, MakeContiguous(tensor.ref)});
  return inputs;
}

}  // namespace kiln::cli
