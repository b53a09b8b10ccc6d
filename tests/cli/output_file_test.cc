// What a command writes never takes the place of what it reads, nor of anybody else's file.
#include "tests/cli/kiln_command.h"

namespace kiln {
namespace {

class OutputFile : public KilnCommand {
 protected:
  void SetUp() override {
    KilnCommand::SetUp();
    ASSERT_EQ(Kiln("dis " + Path("model.onnx") + " -o " + Path("model.kiln")).status, 0);
    ASSERT_EQ(Kiln("import " + Path("model.onnx") + " -o " + Path("model.kp")).status, 0);
  }
  // Every spelling of the file's name.
  std::vector<std::string> SpellingsOf(const std::string& name) {
    const fs::path path = directory_ / name;
    fs::remove(directory_ / "link");
    fs::remove(directory_ / "hard");
    fs::remove(directory_ / "folder");
    fs::create_symlink(path, directory_ / "link");
    fs::create_hard_link(path, directory_ / "hard");
    fs::create_directory_symlink(directory_, directory_ / "folder");
    return {path.string(),
            Path("link"),
            Path("hard"),
            (directory_ / "folder" / name).string(),
            (directory_ / "test_data_set_0" / ".." / name).string(),
            directory_.string() + "//./" + name,
            fs::relative(path).string()};
  }
  void ExpectRefused(const std::string& command, const std::string& source) {
    const std::string before = ReadAll(Path(source.c_str()));
    for (const std::string& output : SpellingsOf(source)) {
      const ShellRun run = Kiln(command + output);
      EXPECT_EQ(run.status, 2) << command << output << "\n" << run.output;
      EXPECT_THAT(run.output, HasSubstr("output is the input")) << command << output;
      EXPECT_EQ(ReadAll(Path(source.c_str())), before) << command << output;
    }
  }
};

TEST_F(OutputFile, IsNotTheSource) {
  ExpectRefused("import " + Path("model.onnx") + " -o ", "model.onnx");
  ExpectRefused("import --text " + Path("model.onnx") + " -o ", "model.onnx");
  ExpectRefused("asm " + Path("model.kiln") + " -o ", "model.kiln");
  for (const char* source : {"model.onnx", "model.kiln", "model.kp"}) {
    ExpectRefused("dis " + Path(source) + " -o ", source);
    ExpectRefused("dis --compact " + Path(source) + " -o ", source);
  }
  ExpectRefused("run " + Path("model.onnx") + " --compare --dim x.0=2 --replay ", "model.onnx");
  ExpectRefused(
      "run --compare " + Path("model.onnx") + " --input x=" + Path("test_data_set_0/input_0.pb") + " --replay ",
      "test_data_set_0/input_0.pb");
}

TEST_F(OutputFile, IsNoFileOfTheModelsWeights) {
  const std::vector<float> weights(2048, 2);
  std::ofstream(directory_ / "weights.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(weights.data()), static_cast<std::streamsize>(weights.size() * 4));
  onnx::TestModel model(13);
  onnx::TensorProto external;
  external.set_name("w");
  external.set_data_type(1);
  external.add_dims(2048);
  external.set_data_location(1);
  auto* location = external.add_external_data();
  location->set_key("location");
  location->set_value("weights.bin");
  model.Input(onnx::Tensor32("x", {"2048"})).Initializer(external);
  model.Node("Mul", {"x", "w"}, {"y"}).Output("y");
  std::ofstream(directory_ / "external.onnx", std::ios::binary) << model.Bytes();
  ASSERT_EQ(Kiln("import " + Path("external.onnx") + " -o " + Path("fine.kp")).status, 0);
  ExpectRefused("import " + Path("external.onnx") + " -o ", "weights.bin");
  ExpectRefused("dis " + Path("external.onnx") + " -o ", "weights.bin");
}

TEST_F(OutputFile, LeavesFilesAloneThatAreNamedLikeAnUnfinishedOne) {
  fs::copy_file(Path("model.onnx"), Path("out.kp.partial"));
  const std::string before = ReadAll(Path("out.kp.partial"));
  EXPECT_EQ(Kiln("import " + Path("out.kp.partial") + " -o " + Path("out.kp")).status, 0);
  EXPECT_EQ(ReadAll(Path("out.kp.partial")), before);
  EXPECT_EQ(ReadAll(Path("out.kp")), ReadAll(Path("model.kp")));
}

TEST_F(OutputFile, OverAnotherFileOrThroughALinkToOneIsWritten) {
  std::ofstream(directory_ / "old") << "old";
  fs::create_symlink(directory_ / "old", directory_ / "link");
  ASSERT_EQ(Kiln("import " + Path("model.onnx") + " -o " + Path("link")).status, 0);
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(ReadAll(Path("old")), ReadAll(Path("model.kp")));
}

TEST_F(OutputFile, InAFolderThatIsNotThereIsTheCallersMistake) {
  for (const std::string& output : {Path("none/x.kp"), Path("model.kp/x.kp")}) {
    const ShellRun run = Kiln("import " + Path("model.onnx") + " -o " + output);
    EXPECT_EQ(run.status, 2) << run.output;
    EXPECT_THAT(run.output, HasSubstr("make it first"));
  }
}

}  // namespace
}  // namespace kiln
