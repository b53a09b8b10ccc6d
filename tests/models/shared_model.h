// A model of shared/, loaded for one way to run it, with inputs and outputs by name.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "cli/onnx_test/interpreter_runner.h"
#include "common/tensor/tensor.h"
#include "tests/end_to_end/compiled_services.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {

// Not thread-safe.
class SharedModel {
 public:
  static Result<std::unique_ptr<SharedModel>> Load(const std::filesystem::path& path,
                                                   const onnx_test::RunnerMode& mode);

  // InvalidArgument names an input that is missing.
  Result<std::map<std::string, Tensor>> Run(const std::map<std::string, Tensor>& inputs);
  const std::vector<ImportedValue>& inputs() const { return inputs_; }
  const std::vector<ImportedValue>& outputs() const { return outputs_; }

 private:
  SharedModel() = default;

  std::vector<ImportedValue> inputs_, outputs_;
  std::unique_ptr<onnx_test::ProgramRunner> runner_;
};

// File or name of a model, and whether plans run it: strictly, so that a segment without one is an error.
using ModelAndMode = std::tuple<const char*, bool>;

class SharedModelTest : public CompiledServicesTest, public ::testing::WithParamInterface<ModelAndMode> {
 protected:
  static const char* Name() { return std::get<0>(GetParam()); }
  static onnx_test::RunnerMode Mode() {
    return std::get<1>(GetParam()) ? services_->Mode(cli::StrictTier::kGeneric) : onnx_test::InterpretedMode();
  }
};

inline std::string TestName(const ::testing::TestParamInfo<ModelAndMode>& info) {
  const auto& [name, compiled] = info.param;
  return std::filesystem::path(name).stem().string() + (compiled ? "_compiled" : "_interpreted");
}

}  // namespace kiln::testing
