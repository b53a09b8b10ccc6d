#include "vm-worker/service/streams.h"

#include <algorithm>

#include "common/tensor/try_tensor.h"
#include "vm-worker/load/bind_inputs.h"

namespace kiln {
namespace {

std::string Names(const std::vector<ValueInfo>& values) {
  std::string names;
  for (const ValueInfo& info : values) names += (names.empty() ? "" : ", ") + info.name;
  return names;
}

std::optional<size_t> IndexOf(const std::vector<ValueInfo>& values, const std::string& name) {
  const auto it = std::find_if(values.begin(), values.end(), [&](const ValueInfo& info) { return info.name == name; });
  if (it == values.end()) return std::nullopt;
  return static_cast<size_t>(it - values.begin());
}

// Whether a value of one desc may be a value of the other, as far as the declarations tell.
bool Compatible(const ValueInfo& from, const ValueInfo& to) {
  if (from.dtype != to.dtype) return false;
  if (!from.has_rank || !to.has_rank) return true;
  if (from.dims.size() != to.dims.size()) return false;
  for (size_t d = 0; d < to.dims.size(); ++d)
    if (from.dims[d] >= 0 && to.dims[d] >= 0 && from.dims[d] != to.dims[d]) return false;
  return true;
}

}  // namespace

std::vector<std::string> Overrides(const ServedModel& served, const RunRequest& request) {
  std::vector<std::string> names;
  if (served.optional_inputs.empty()) return names;
  for (const NamedTensor& tensor : request.inputs)
    if (IndexOf(served.optional_inputs, tensor.name)) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<std::vector<TensorRef>> BindInputs(const ServedModel& served, const RunRequest& request,
                                          std::span<const StreamLink> links, std::span<const Tensor> state) {
  std::vector<TensorRef> inputs(served.inputs.size());
  std::vector<bool> given(served.inputs.size());
  for (size_t i = 0; i < links.size(); ++i) {
    inputs[links[i].input] = state[i].ref;
    given[links[i].input] = true;
  }
  for (const NamedTensor& tensor : request.inputs) {
    const std::optional<size_t> index = IndexOf(served.inputs, tensor.name);
    if (!index)
      return Fail(ErrorCode::kInvalidArgument,
                  "the model has no input \"" + tensor.name + "\"; its inputs: " + Names(served.inputs));
    if (given[*index]) {
      const bool kept = std::any_of(links.begin(), links.end(), [&](const StreamLink& l) { return l.input == *index; });
      return Fail(ErrorCode::kInvalidArgument,
                  "input \"" + tensor.name + (kept ? "\" is the stream's state; leave it out" : "\" is given twice"));
    }
    given[*index] = true;
    const ValueInfo& info = served.inputs[*index];
    inputs[*index] = AsDeclared(tensor.tensor.ref, info.has_rank && info.dims.empty());
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (!given[i])
      return Fail(ErrorCode::kInvalidArgument,
                  "input \"" + served.inputs[i].name + "\" (" + served.inputs[i].text + ") is missing");
  return inputs;
}

Result<std::vector<StreamLink>> ResolveLinks(const ServedModel& served, std::span<const StateLink> links) {
  if (links.empty())
    return Fail(ErrorCode::kInvalidArgument,
                "the stream has no state: name links, or start the worker with --state MODEL:INPUT=OUTPUT");
  std::vector<StreamLink> resolved;
  for (const StateLink& link : links) {
    const std::optional<size_t> input = IndexOf(served.inputs, link.input),
                                output = IndexOf(served.outputs, link.output);
    if (!input)
      return Fail(ErrorCode::kInvalidArgument,
                  "state \"" + link.input + "\" is no input of the model; its inputs: " + Names(served.inputs));
    if (!output)
      return Fail(ErrorCode::kInvalidArgument,
                  "state \"" + link.output + "\" is no output of the model; its outputs: " + Names(served.outputs));
    if (std::any_of(resolved.begin(), resolved.end(), [&](const StreamLink& other) { return other.input == *input; }))
      return Fail(ErrorCode::kInvalidArgument, "state \"" + link.input + "\" is linked twice");
    if (!Compatible(served.outputs[*output], served.inputs[*input]))
      return Fail(ErrorCode::kShapeMismatch, "output \"" + link.output + "\" (" + served.outputs[*output].text +
                                                 ") cannot be input \"" + link.input + "\" (" +
                                                 served.inputs[*input].text + ")");
    resolved.push_back({*input, *output});
  }
  return resolved;
}

Result<std::vector<Tensor>> FirstState(const ServedModel& served, std::span<const StreamLink> links,
                                       std::span<const NamedTensor> given) {
  std::vector<Tensor> state;
  size_t used = 0;
  for (const StreamLink& link : links) {
    const ValueInfo& info = served.inputs[link.input];
    const auto it = std::find_if(given.begin(), given.end(), [&](const NamedTensor& t) { return t.name == info.name; });
    if (it != given.end()) {
      ++used;
      const TensorRef& ref = it->tensor.ref;
      const ValueInfo actual{info.name, ref.dtype, true, {ref.dims.begin(), ref.dims.end()}, ""};
      if (!Compatible(actual, info))
        return Fail(ErrorCode::kShapeMismatch, "state \"" + info.name + "\" is " + std::string(DTypeName(ref.dtype)) +
                                                   ref.dims.ToString() + "; the model declares " + info.text);
      state.push_back(it->tensor);
      continue;
    }
    if (!info.has_rank || std::any_of(info.dims.begin(), info.dims.end(), [](int64_t dim) { return dim < 0; }))
      return Fail(ErrorCode::kInvalidArgument, "state \"" + info.name + "\" (" + info.text +
                                                   ") has no fixed shape: send the tensor of its first run");
    const Dims dims(info.dims);
    const Result<int64_t> elements = CheckedElements(dims, info.dtype);
    if (!elements.has_value()) return FailIn("state \"" + info.name + "\"", elements.error());
    ASSIGN_OR_RETURN(Tensor zeros, TryZeros(info.dtype, dims));
    state.push_back(std::move(zeros));
  }
  if (used != given.size())
    return Fail(ErrorCode::kInvalidArgument, "a tensor is given for an input that is no state of the stream");
  return state;
}

}  // namespace kiln
