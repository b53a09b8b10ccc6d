// Every program of tests/programs, in static and in variant form, from contiguous and from strided inputs.
#include "tests/support/program_file.h"
#include "tests/vm-worker/interp/run_text.h"
#include "tests/vm-worker/interp/strided.h"

namespace kiln {
namespace {

void CheckRun(const testing::ProgramRun& run, const Result<std::vector<Tensor>>& outputs) {
  if (run.error) {
    ASSERT_FALSE(outputs.has_value());
    EXPECT_EQ(ErrorCodeName(outputs.error().code), run.error->code) << outputs.error().message;
    EXPECT_NE(outputs.error().message.find(run.error->part), std::string::npos) << outputs.error().message;
    return;
  }
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  ASSERT_EQ(outputs->size(), run.outputs.size());
  for (size_t i = 0; i < outputs->size(); ++i)
    EXPECT_EQ(testing::DifferenceOf(run.outputs[i].tensor.ref, (*outputs)[i].ref, run.outputs[i].tolerance), "")
        << "output " << i;
}

TEST(TextPrograms, GiveTheirExpectedValues) {
  VmContext context;
  for (const std::string& path : testing::ProgramFilesIn(KILN_SOURCE_DIR "/tests/programs")) {
    SCOPED_TRACE(path);
    auto file = testing::ReadProgramFile(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto program = LoadedProgram::Load(std::move(file->program), {.verify_code = true});
    ASSERT_TRUE(program.has_value()) << ToString(program.error());
    for (const testing::ProgramRun& run : file->runs) {
      SCOPED_TRACE(run.name);
      std::vector<TensorRef> inputs, spread;
      std::vector<Tensor> memory(run.inputs.size());
      for (size_t i = 0; i < run.inputs.size(); ++i) {
        inputs.push_back(run.inputs[i].ref);
        spread.push_back(Spread(run.inputs[i].ref, &memory[i]));
      }
      CheckRun(run, RunEveryWay(context, **program, inputs));
      CheckRun(run, RunEveryWay(context, **program, spread));
    }
  }
}

}  // namespace
}  // namespace kiln
