#include "tests/models/shared_model.h"

namespace kiln::testing {

Result<std::unique_ptr<SharedModel>> SharedModel::Load(const std::filesystem::path& path,
                                                       const onnx_test::RunnerMode& mode) {
  ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnx(path));
  std::unique_ptr<SharedModel> model(new SharedModel);
  model->inputs_ = std::move(imported.inputs);
  model->outputs_ = std::move(imported.outputs);
  ASSIGN_OR_RETURN(model->runner_, mode.load(std::move(imported.program)));
  return model;
}

Result<std::map<std::string, Tensor>> SharedModel::Run(const std::map<std::string, Tensor>& inputs) {
  std::vector<TensorRef> refs;
  for (const ImportedValue& input : inputs_) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) return Fail(ErrorCode::kInvalidArgument, "input " + input.name + " is missing");
    refs.push_back(found->second.ref);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> results, runner_->Run(refs));
  std::map<std::string, Tensor> outputs;
  for (size_t i = 0; i < results.size(); ++i) outputs.emplace(outputs_[i].name, MakeContiguous(results[i].ref));
  return outputs;
}

}  // namespace kiln::testing
