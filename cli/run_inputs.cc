#include "cli/run_inputs.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <random>

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

std::unexpected<Error> Contradiction(const ValueInfo& input, size_t axis, const std::string& one,
                                     const std::string& other) {
  return Fail(ErrorCode::kInvalidArgument, "dim " + std::to_string(axis) + " of input \"" + input.name +
                                               "\" cannot have both sizes: " + one + "; " + other);
}

bool Names(const std::vector<ValueInfo>& inputs, const std::string& name) {
  return std::ranges::find(inputs, name, &ValueInfo::name) != inputs.end();
}

}  // namespace

Status CheckIsFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(path, error);
  if (found.type() == std::filesystem::file_type::not_found)
    return Fail(ErrorCode::kNotFound, "there is no file " + path + "; name an ONNX model");
  if (error) return Fail(ErrorCode::kInvalidArgument, "cannot look at " + path + ": " + error.message());
  if (found.type() != std::filesystem::file_type::regular)
    return Fail(ErrorCode::kInvalidArgument, path + " is not a regular file; name an ONNX model");
  return {};
}

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
  command
      .add_option(
          "--input", files,
          "NAME=FILE.pb: an input, or an initialiser that the model lets callers override, as ONNX TensorProto; inputs "
          "that are not given are random")
      ->allow_extra_args(false);
  command
      .add_option(
          "--dim", dims,
          "SYMBOL or INPUT.AXIS = SIZE, LOW..HIGH or LOW..HIGH:DIVISOR, as for import: size of a varying dim of random "
          "inputs; a range is drawn anew for each run")
      ->allow_extra_args(false);
  command.add_option("--seed", seed, "of random inputs")->capture_default_str();
}

Result<RunInputs> RunInputs::Parse(const std::vector<std::string>& dims, const std::vector<std::string>& files,
                                   uint64_t seed) {
  RunInputs inputs;
  inputs.random_.seed(seed);
  auto hints = ParseDimHints(dims);
  if (!hints) return FailIn("--dim", hints.error());
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::string& text = dims[i];
    const DimHint& hint = (*hints)[i];
    if (hint.range.max >= Interval::kNoBound)
      return Fail(ErrorCode::kInvalidArgument, "--dim " + text + ": a random size needs a largest one, LOW..HIGH");
    inputs.sizes_.emplace(hint.name, Sizes{hint, text});
  }
  std::map<std::string, std::string> given;
  for (const std::string& text : files) {
    ASSIGN_OR_RETURN(auto pair, Assignment(text, "--input"));
    if (const auto [first, fresh] = given.emplace(pair.first, pair.second); !fresh)
      return Fail(ErrorCode::kInvalidArgument, "--input " + pair.first + " is given twice, as " + first->second +
                                                   " and as " + pair.second + "; give one of them");
    ASSIGN_OR_RETURN(onnx::NamedTensor read, onnx::ReadTensorFile(pair.second));
    inputs.read_.emplace(pair.first, MakeContiguous(read.tensor.ref));
  }
  return inputs;
}

int64_t RunInputs::Draw(const DimHint& hint) {
  return std::uniform_int_distribution<int64_t>(hint.range.min / hint.divisor, hint.range.max / hint.divisor)(random_) *
         hint.divisor;
}

// A dim has one size: what a flag says of it by its place, by its symbol or through a file must not contradict another.
// Sizes that files give to symbols go into `drawn`.
Status RunInputs::CheckAgree(const LoadReply& model, std::map<std::string, int64_t>& drawn) const {
  struct Said {
    DimHint hint;
    std::string where;
  };
  std::map<std::string, Said> by_symbol;
  for (const auto& [name, sizes] : sizes_) by_symbol.emplace(name, Said{sizes.hint, "--dim " + sizes.text});
  for (const ValueInfo& input : model.inputs) {
    const std::vector<std::string> names = DimNames(input);
    const auto read = read_.find(input.name);
    const bool given = read != read_.end() && read->second.dims().rank() == static_cast<int>(input.dims.size());
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      std::vector<Said> said;
      if (const auto it = sizes_.find(NameOfDim(input, axis)); it != sizes_.end())
        said.push_back({it->second.hint, "--dim " + it->second.text});
      if (given) {
        const int64_t size = read->second.dims()[static_cast<int>(axis)];
        said.push_back({{.name = NameOfDim(input, axis), .range = {size, size}},
                        "--input " + input.name + ", whose file has " + std::to_string(size) + " there"});
      }
      const bool named = input.dims[axis] < 0 && axis < names.size();
      for (const Said& one : said) {
        for (const Said& other : said)
          if (!Agree(one.hint, other.hint)) return Contradiction(input, axis, one.where, other.where);
        if (!named) continue;
        const auto [first, fresh] = by_symbol.emplace(names[axis], one);
        if (!fresh && !Agree(first->second.hint, one.hint))
          return Contradiction(input, axis, first->second.where, one.where);
      }
      if (named && given) drawn.emplace(names[axis], read->second.dims()[static_cast<int>(axis)]);
    }
  }
  return {};
}

Result<Dims> RunInputs::DimsFor(const ValueInfo& input, std::map<std::string, int64_t>& drawn) {
  if (!input.has_rank)
    return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" has no declared rank; give it with --input");
  const std::vector<std::string> names = DimNames(input);
  Dims dims;
  for (size_t axis = 0; axis < input.dims.size(); ++axis) {
    const std::string dim = NameOfDim(input, axis);
    const bool named = input.dims[axis] < 0 && axis < names.size();
    auto sizes = sizes_.find(dim);
    if (sizes == sizes_.end() && input.dims[axis] >= 0) {
      dims.push_back(input.dims[axis]);
      continue;
    }
    if (const auto known = named ? drawn.find(names[axis]) : drawn.end(); known != drawn.end()) {
      dims.push_back(known->second);
      continue;
    }
    if (sizes == sizes_.end() && named) sizes = sizes_.find(names[axis]);
    if (sizes == sizes_.end())
      return Fail(ErrorCode::kInvalidArgument, "input \"" + input.name + "\" is " + input.text + ": give dim " +
                                                   std::to_string(axis) + " with --dim " + dim + "=SIZE");
    dims.push_back(Draw(sizes->second.hint));
    if (named) drawn.emplace(names[axis], dims[static_cast<int>(axis)]);
  }
  return dims;
}

Result<std::vector<NamedTensor>> RunInputs::Next(const LoadReply& model) {
  for (const auto& [name, tensor] : read_)
    if (!Names(model.inputs, name) && !Names(model.optional_inputs, name))
      return Fail(ErrorCode::kInvalidArgument, "the model has no input \"" + name + "\"");
  for (const auto& [name, sizes] : sizes_) RETURN_IF_ERROR(CheckNamesDim(name, model));
  std::map<std::string, int64_t> drawn;
  RETURN_IF_ERROR(CheckAgree(model, drawn));
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
