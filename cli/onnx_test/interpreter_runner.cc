#include "cli/onnx_test/interpreter_runner.h"

#include "vm-worker/interp/interpreter.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln::onnx_test {
namespace {

class InterpreterRunner final : public ProgramRunner {
 public:
  explicit InterpreterRunner(std::shared_ptr<const LoadedProgram> program) : program_(std::move(program)) {}
  Result<std::vector<Tensor>> Run(std::span<const TensorRef> inputs) override {
    return context_.Run(*program_, inputs);
  }

 private:
  std::shared_ptr<const LoadedProgram> program_;
  VmContext context_;
};

}  // namespace

RunnerMode InterpretedMode() {
  return RunnerMode{"interpreted", [](Program program) -> Result<std::unique_ptr<ProgramRunner>> {
                      ASSIGN_OR_RETURN(auto loaded, LoadedProgram::Load(std::move(program)));
                      return std::make_unique<InterpreterRunner>(std::move(loaded));
                    }};
}

}  // namespace kiln::onnx_test
