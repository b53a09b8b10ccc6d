#include "bench/models/requests.h"

#include <filesystem>

#include "cli/onnx_test/vector_case.h"
#include "vm-worker/load/bind_inputs.h"

namespace kiln::bench {

Result<std::vector<Request>> ReadRequests(const Program& program, const std::vector<std::string>& directories) {
  std::vector<Request> requests;
  for (const std::string& directory : directories) {
    const std::filesystem::path path(directory);
    ASSIGN_OR_RETURN(onnx_test::DataSet set, onnx_test::ReadDataSet(path));
    Request request{.name = path.filename().string()};
    std::vector<NamedInput> named;
    for (const onnx::NamedTensor& input : set.inputs) {
      request.tensors.push_back(MakeContiguous(input.tensor.ref));
      named.push_back({input.name, request.tensors.back().ref});
    }
    auto inputs = BindInputs(program, named);
    if (!inputs.has_value()) return FailIn(directory, inputs.error());
    request.inputs = *std::move(inputs);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace kiln::bench
