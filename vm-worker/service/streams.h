// What the execute API makes of a model and its state: which tensors a stream begins with, which inputs and outputs of
// its runs are the stream's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "vm-worker/service/model_registry.h"
#include "vm-worker/service/stream_store.h"

namespace kiln {

// The optional inputs that the request gives, sorted: which variant of the model it runs.
std::vector<std::string> Overrides(const ServedModel& served, const RunRequest& request);

// The request's tensors in the order of the model's inputs, and the stream's state (per link) where it goes. Errors
// name the input and what the model declares.
Result<std::vector<TensorRef>> BindInputs(const ServedModel& served, const RunRequest& request,
                                          std::span<const StreamLink> links, std::span<const Tensor> state);

// Links as indices. Fails where a name is not the model's, an input is linked twice, or an output cannot be its input.
Result<std::vector<StreamLink>> ResolveLinks(const ServedModel& served, std::span<const StateLink> links);

// Per link, the tensor of the first run: the given one, else zeros where the declared shape is constant.
Result<std::vector<Tensor>> FirstState(const ServedModel& served, std::span<const StreamLink> links,
                                       std::span<const NamedTensor> given);

}  // namespace kiln
