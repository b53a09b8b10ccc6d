// A model of shared/, loaded for the interpreter, with inputs and outputs by name.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "common/tensor/tensor.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {

// Not thread-safe.
class SharedModel {
 public:
  static Result<std::unique_ptr<SharedModel>> Load(const std::filesystem::path& path);

  // InvalidArgument names an input that is missing.
  Result<std::map<std::string, Tensor>> Run(const std::map<std::string, Tensor>& inputs);
  const std::vector<ImportedValue>& inputs() const { return inputs_; }
  const std::vector<ImportedValue>& outputs() const { return outputs_; }

 private:
  SharedModel() = default;

  std::vector<ImportedValue> inputs_, outputs_;
  std::shared_ptr<const LoadedProgram> program_;
  VmContext context_;
};

}  // namespace kiln::testing
