// The binary itself: forms convert into each other, and bad input gives exit status 2 and a message that names the
// file.
#include <sys/stat.h>

#include "tests/cli/kiln_command.h"

namespace kiln {
namespace {

TEST_F(KilnCommand, FormsOfAProgramConvertWithoutLoss) {
  ASSERT_EQ(Kiln("import " + Path("model.onnx") + " -o " + Path("a.kp")).status, 0);
  ASSERT_EQ(Kiln("dis " + Path("a.kp") + " -o " + Path("a.txt")).status, 0);
  ASSERT_EQ(Kiln("asm " + Path("a.txt") + " -o " + Path("b.kp")).status, 0);
  EXPECT_EQ(ReadAll(Path("a.kp")), ReadAll(Path("b.kp")));
  EXPECT_THAT(ReadAll(Path("a.txt")), HasSubstr("Mul("));
  for (const char* form : {"model.onnx", "a.kp", "a.txt"}) {
    const ShellRun run = Kiln("verify " + Path(form));
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("valid"));
  }
  EXPECT_EQ(Kiln("dis --compact " + Path("a.kp")).status, 0);
}

TEST_F(KilnCommand, DamagedFilesGiveStatusTwoAndTheirName) {
  ASSERT_EQ(Kiln("import " + Path("model.onnx") + " -o " + Path("a.kp")).status, 0);
  for (const char* form : {"model.onnx", "a.kp"}) {
    const std::string bytes = ReadAll(Path(form));
    std::ofstream(directory_ / "damaged", std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    const ShellRun run = Kiln("verify " + Path("damaged"));
    EXPECT_EQ(run.status, 2) << run.output;
    EXPECT_THAT(run.output, HasSubstr("damaged"));
  }
  EXPECT_EQ(Kiln("verify " + Path("absent.onnx")).status, 2);
  for (const char* unknown : {"frobnicate", "frobnicate --help me", "Run x"}) {
    const ShellRun run = Kiln(unknown);
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(run.output,
                HasSubstr("no command \"" + std::string(unknown).substr(0, std::string(unknown).find(' '))));
  }
}

TEST_F(KilnCommand, ProgramsThatNoSizesSatisfyAreRefusedWithTheirConstraint) {
  const auto verdict = [&](const std::string& declarations, int status) {
    std::ofstream(Path("p.kiln")) << "program \"p\" {\n symbol n in [9, 15] divisor 4\n symbol m in [2, 3]\n"
                                  << declarations
                                  << "\n func main(%x: f32[n, m]) -> (%y) { %y : f32[n, m] = Neg(%x) } }";
    const ShellRun verify = Kiln("verify " + Path("p.kiln"));
    EXPECT_EQ(verify.status, status) << verify.output;
    return verify.output;
  };
  EXPECT_THAT(verdict("constraint n == 4*m", 0), HasSubstr("valid"));
  EXPECT_THAT(verdict("symbol k in [9, 15] divisor 8", 2),
              HasSubstr("symbol \"k\": its range [9, 15] holds no multiple of 8"));
  EXPECT_THAT(verdict("constraint 2*n == 17", 2),
              HasSubstr("constraint 2*n == 17 cannot hold: left lies in [18, 30], right in [17, 17]"));
  EXPECT_THAT(verdict("constraint n*m == 28", 2),
              HasSubstr("constraint n*m == 28 cannot hold for n in [9, 15] in steps of 4, m in [2, 3]"));
}

TEST_F(KilnCommand, ThingsThatAreNoFilesAreRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  std::ofstream(directory_ / "nothing").flush();
  for (const char* thing : {"pipe", ".", "nothing", "absent"}) {
    for (const std::string& command : {std::string("verify "), std::string("dis "), "asm -o " + Path("out") + " ",
                                       "import -o " + Path("out") + " "}) {
      const ShellRun run = Kiln(command + Path(thing));
      EXPECT_EQ(run.status, 2) << command << run.output;
      EXPECT_THAT(run.output, HasSubstr(Path(thing)));
    }
    EXPECT_FALSE(fs::exists(Path("out")));
  }
}

TEST_F(KilnCommand, OutputThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  ASSERT_EQ(Kiln("import " + Path("model.onnx") + " -o " + Path("a.kp")).status, 0);
  fs::create_symlink("/dev/full", Path("full"));
  for (const std::string& target : {Path("full"), Path("absent/out"), directory_.string(), std::string("\"\"")}) {
    for (const std::string& command : {"import " + Path("model.onnx"), "dis " + Path("a.kp")}) {
      if (command.starts_with("dis") && target == "\"\"") continue;  // standard output
      const ShellRun run = Kiln(command + " -o " + target);
      EXPECT_THAT(run.status, ::testing::AnyOf(2, 3)) << target;
      EXPECT_THAT(run.output, HasSubstr(target == "\"\"" ? "empty name" : target));
    }
  }
  EXPECT_TRUE(fs::is_symlink(Path("full")));  // written through, not replaced
  for (const auto& entry : fs::directory_iterator(directory_)) EXPECT_NE(entry.path().extension(), ".partial");
  EXPECT_EQ(Kiln("dis " + Path("a.kp") + " 2>/dev/null >/dev/full; exit $?; true").status, 3);
}

TEST_F(KilnCommand, TolerancesAreNumbersFromZero) {
  for (const char* flag : {"--rtol=nan", "--atol=nan", "--rtol=-1", "--atol=-inf"})
    EXPECT_EQ(Kiln("onnx-test --mode interpreted " + std::string(flag) + " " + directory_.string()).status, 2) << flag;
}

// Without an expected output there is nothing to compare, which is not the same as passing.
TEST_F(KilnCommand, OnnxTestWantsEveryExpectedOutputAndEveryListedCase) {
  const std::string test = "onnx-test --mode interpreted " + directory_.string();
  ASSERT_EQ(Kiln(test).status, 0);
  fs::remove(directory_ / "test_data_set_0" / "output_0.pb");
  const ShellRun missing = Kiln(test);
  EXPECT_NE(missing.status, 0);
  EXPECT_THAT(missing.output, HasSubstr("0 expected outputs"));
  for (const std::string& list : {std::string("/dev/zero"), directory_.string(), Path("absent")}) {
    const ShellRun run = Kiln(test + " --list " + list);
    EXPECT_EQ(run.status, 2) << list;
    EXPECT_THAT(run.output, HasSubstr(list));
  }
  std::ofstream(directory_ / "list") << directory_.filename().string() << "\nnode/test_nothing\n";
  const ShellRun unknown = Kiln(test + " --list " + Path("list"));
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("node/test_nothing"));
}

TEST_F(KilnCommand, FlagsThatContradictOneAnotherAreRefused) {
  const std::string run = "run " + Path("model.onnx") + " ";
  for (const char* flags : {"--repeat 2 --seconds 1", "--compare --worker ipc:///nowhere", "--compare --check",
                            "--compare --repeat 2", "--compare --seconds 1", "--compare --json", "--compare --name x",
                            "--keys keys", "--replay x.json", "--keep-tensors", "--dim x.0=2 --dim x.0=3"}) {
    const ShellRun refused = Kiln(run + flags);
    EXPECT_EQ(refused.status, 2) << flags << "\n" << refused.output;
  }
}

// All services speak of a wrong flag alike.
TEST_F(KilnCommand, ServicesRefuseWrongFlagsWithStatusTwo) {
  struct Case {
    const char* arguments;
    const char* says;
  };
  ASSERT_EQ(Kiln("keys " + Path("keys")).status, 0);
  for (const std::string service : {"kiln-worker", "kiln-cache", "kiln-compile"})
    for (const Case& test :
         {Case{"--bogus", "--bogus"}, Case{"word", "word"}, Case{"--listen tcp://127.0.0.1:99999", "99999"},
          Case{"--listen tcp://127.0.0.1:-1", "-1"}, Case{"--keys /nonexistent/keys", "/nonexistent/keys"}}) {
      const std::string arguments = test.arguments;
      std::string all = arguments;
      if (arguments.starts_with("--listen")) all += " --insecure --keys " + Path("keys/compile");
      if (service == "kiln-cache") all += " --store memory:";
      const ShellRun run = Start(service, all);
      EXPECT_EQ(run.status, 2) << service << " " << test.arguments << "\n" << run.output;
      EXPECT_THAT(run.output, HasSubstr(test.says)) << service;
    }
  fs::permissions(directory_, fs::perms::owner_all);
  const std::string long_path = Path(std::string(120, 'a').c_str());
  for (const std::string service : {"kiln-worker", "kiln-cache", "kiln-compile"})
    for (const std::string& path : {Path("model.onnx"), long_path}) {
      const std::string before = ReadAll(Path("model.onnx"));
      const ShellRun run = Start(
          service, "--insecure --listen ipc://" + path +
                       (service == "kiln-cache"     ? " --store memory:"
                        : service == "kiln-compile" ? " --keys " + Path("keys/compile") + " --store ipc:///nowhere"
                                                    : ""));
      EXPECT_EQ(run.status, 2) << service << " " << path << "\n" << run.output;
      EXPECT_THAT(run.output, HasSubstr(path)) << service;
      EXPECT_EQ(ReadAll(Path("model.onnx")), before) << service;
    }
  for (const std::string& start : {"kiln-compile --insecure --store ipc:///nowhere --keys " + Path("keys/compile") +
                                       " --listen ipc://" + Path("c") + " --replay-dir /proc/x",
                                   "kiln-worker --insecure --listen ipc://" + Path("w") + " --disk-cache /proc/x"}) {
    const ShellRun run = RunShell("timeout 20 " KILN_BIN_DIR "/" + start + " 2>&1");
    EXPECT_EQ(run.status, 2) << start << "\n" << run.output;
    EXPECT_THAT(run.output, HasSubstr("cannot write to directory \"/proc/x\""));
  }
  EXPECT_EQ(Start("kiln-worker", "--hot-runs -1 --insecure").status, 2);
  EXPECT_EQ(Start("kiln-cache", "--max-bytes -5 --insecure --store memory:").status, 2);
}

// Bad models, sizes, inputs and surroundings of `kiln run`: a message that names the thing, and no directory stays.
TEST_F(KilnCommand, RunNamesWhatIsWrongAndLeavesNothingBehind) {
  fs::create_directories(Path("tmp"));
  const std::string temporary = Path("tmp");
  struct Case {
    std::string arguments;
    int status;
    const char* text;
  };
  const std::string model = Path("model.onnx");
  for (const Case& c :
       std::initializer_list<Case>{{"--dim x.0=3", 0, "y : f32[3]"},
                                   {"--dim x.0=0", 0, "y : f32[0]"},
                                   {"", 2, "--dim x.0=SIZE"},
                                   {"--dim x.0=-1", 2, "no integer of at least 0"},
                                   {"--dim x.0=99999999999999999999", 2, "no integer of at least 0"},
                                   {"--dim x.0=9223372036854775807", 2, "needs a largest one"},
                                   {"--dim x.0=3 --dim y.7=2", 2, "y.7"},
                                   {"--dim x.0=40000000", 2, "limit"},
                                   {"--input x=absent.pb", 2, "absent.pb"},
                                   {"--dim x.0=1 --input q=" + Path("test_data_set_0/input_0.pb"), 2, "\"q\""}}) {
    setenv("TMPDIR", temporary.c_str(), 1);
    const ShellRun run = Kiln("run " + model + " " + c.arguments);
    unsetenv("TMPDIR");
    EXPECT_EQ(run.status, c.status) << c.arguments << ": " << run.output;
    EXPECT_THAT(run.output, HasSubstr(c.text)) << c.arguments;
    EXPECT_TRUE(fs::is_empty(temporary)) << c.arguments;
  }
  setenv("TMPDIR", Path("absent").c_str(), 1);
  const ShellRun run = Kiln("run " + model + " --dim x.0=3");
  unsetenv("TMPDIR");
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.output, HasSubstr("TMPDIR"));
}

// What ends by itself is started again, a worker too.
TEST_F(KilnCommand, UpStartsAgainWhatEnds) {
  for (const std::string service : {"kiln-cache", "kiln-compile", "kiln-worker"}) {
    fs::remove(Path("out"));
    const ShellRun run = Kiln("up --store memory --directory " + Path("fleet") + " >" + Path("out") + " 2>" +
                              Path("errors") + " & pid=$!; until grep -qs Ctrl-C " + Path("out") +
                              "; do kill -0 $pid || exit 99; sleep 0.1; done; kill -KILL $(pgrep -P $pid -f " +
                              service + "' '); until grep -q 'it runs again' " + Path("errors") +
                              " || ! kill -0 $pid; do sleep 0.1; done; kill -TERM $pid; wait $pid; exit $?; true");
    EXPECT_EQ(run.status, 0) << run.output << ReadAll(Path("errors"));
    EXPECT_THAT(ReadAll(Path("errors")), AllOf(HasSubstr(service + " "), HasSubstr("ended by itself (signal 9)"),
                                               HasSubstr("restart 1 of 5"), HasSubstr("it runs again")));
    fs::remove_all(Path("fleet"));
  }
}

// Without its workers a fleet is none: one that cannot be started any more ends it.
TEST_F(KilnCommand, UpEndsWhenAWorkerCannotBeStartedAgain) {
  const ShellRun run = Kiln("up --store memory --directory " + Path("fleet") + " --model m=" + Path("model.onnx") +
                            " >" + Path("out") + " 2>" + Path("errors") + " & pid=$!; until grep -qs Ctrl-C " +
                            Path("out") + "; do kill -0 $pid || exit 99; sleep 0.1; done; rm " + Path("model.onnx") +
                            "; kill -KILL $(pgrep -P $pid -f kiln-worker' '); wait $pid; exit $?; true");
  EXPECT_EQ(run.status, 3) << run.output;
  EXPECT_THAT(ReadAll(Path("errors")), AllOf(HasSubstr("could not be started again"), HasSubstr("restart 5 of 5"),
                                             HasSubstr("after 5 restarts in a row"), HasSubstr("model.onnx")));
}

// A service that never gets ready does not hold up the end of the others.
TEST_F(KilnCommand, UpIsStoppedWhileAServiceIsStarting) {
  const fs::path binaries = Path("bin");
  fs::create_directories(binaries);
  for (const std::string service : {"kiln-cache", "kiln-compile", "kiln-worker"}) {
    SCOPED_TRACE(service);
    for (const char* name :
         {"kiln", "kiln-cache", "kiln-compile", "kiln-compile-child", "kiln-validate-child", "kiln-worker"}) {
      fs::remove(binaries / name);
      fs::copy_file(fs::path(KILN_BIN_DIR) / name, binaries / name);
    }
    fs::remove(binaries / service);
    std::ofstream(binaries / service) << "#!/bin/sh\ntrap '' TERM\ntouch " << Path("hangs")
                                      << "\nwhile :; do sleep 1; done\n";
    fs::permissions(binaries / service, fs::perms::owner_all);
    const ShellRun run = RunShell((binaries / "kiln").string() + " up --store memory --directory " + Path("fleet") +
                                  " >" + Path("out") + " 2>&1 & pid=$!; until [ -e " + Path("hangs") +
                                  " ]; do kill -0 $pid || exit 99; sleep 0.1; done; kill -TERM $pid; wait $pid");
    EXPECT_EQ(run.status, 0) << run.output << ReadAll(Path("out"));
    EXPECT_THAT(ReadAll(Path("out")), HasSubstr(service + " was stopped before it was ready"));
    fs::remove(Path("hangs"));
    fs::remove_all(Path("fleet"));
  }
}

mode_t ModeOf(const std::string& path) {
  struct stat found{};
  EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 07777;
}

// Where others can enter the sockets' directory it is refused, never changed.
TEST_F(KilnCommand, UpLeavesADirectoryThatExistsAsItIs) {
  for (const mode_t mode : {01777, 0775, 0755}) {
    fs::create_directories(Path("open"));
    ASSERT_EQ(chmod(Path("open").c_str(), mode), 0);
    for (const char* end : {"", "/"}) {
      const ShellRun run = Kiln("up --store memory --directory " + Path("open") + end);
      EXPECT_EQ(run.status, 2) << run.output;
      EXPECT_THAT(run.output,
                  AllOf(HasSubstr(Path("open") + " is another user's, or open to others"), HasSubstr("chmod 700")));
      EXPECT_EQ(ModeOf(Path("open")), mode);
      EXPECT_TRUE(fs::is_empty(Path("open")));
    }
  }
}

TEST_F(KilnCommand, UpRefusesWrongFlagsWithStatusTwo) {
  struct Case {
    std::string arguments, says;
  };
  const std::string directory = " --store memory --directory " + Path("fleet");
  std::ofstream(Path("garbage.onnx")) << "no model";
  for (const Case& c : std::initializer_list<Case>{
           {"--model foo" + directory, "--model takes NAME=PATH, not \"foo\""},
           {"--model m=" + Path("absent") + directory, "there is no file " + Path("absent")},
           {"--model m=" + Path("garbage.onnx") + directory, "garbage.onnx"},
           {"--model m=" + Path("model.onnx") + " --model m=" + Path("model.onnx") + directory, "given twice"},
           {"--store memory --directory " + Path("model.onnx") + "/below", Path("model.onnx")},
           {"--metrics 127.0.0.1:1" + directory, "--metrics"},
           {"--workers 0" + directory, "--workers"}}) {
    const ShellRun run = Kiln("up " + c.arguments);
    EXPECT_EQ(run.status, 2) << c.arguments << "\n" << run.output;
    EXPECT_THAT(run.output, HasSubstr(c.says)) << c.arguments;
  }
  setenv("KILN_MAX_TARGET", "pdp-11", 1);
  const ShellRun run = Kiln("up" + directory);
  unsetenv("KILN_MAX_TARGET");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_THAT(run.output, HasSubstr("pdp-11"));
}

TEST_F(KilnCommand, WhatIsNoModelOrNoReplayFileIsNamedBeforeAnythingStarts) {
  fs::create_directories(Path("directory"));
  std::ofstream(Path("list.json")) << "[1, 2";
  std::ofstream(Path("other.json")) << "{\"format\": \"another\"}";
  struct Case {
    std::string command, says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"run " + Path("absent"), "there is no file " + Path("absent")},
           {"run --compare " + Path("absent"), "there is no file " + Path("absent")},
           {"run " + Path("directory"), Path("directory") + " is not a regular file"},
           {"explain " + Path("absent"), "there is no file " + Path("absent")},
           {"replay " + Path("absent"), "cannot read replay file " + Path("absent")},
           {"replay " + Path("directory"), Path("directory")},
           {"replay " + Path("model.onnx"), Path("model.onnx") + " is no replay file of `kiln run --compare`"},
           {"replay " + Path("list.json"), Path("list.json") + " is no replay file"},
           {"replay " + Path("other.json"), "replay file " + Path("other.json") + ": its format is not"}}) {
    const ShellRun run = Kiln(c.command);
    EXPECT_EQ(run.status, 2) << c.command;
    EXPECT_THAT(run.output, AllOf(HasSubstr(c.says), Not(HasSubstr(".sock")))) << c.command;
  }
}

TEST_F(KilnCommand, ToolsSayAtOnceThatNobodyListens) {
  const std::string nobody = "ipc://" + Path("nobody");
  for (const std::string& command :
       {"cache --store " + nobody + " ls", "models --worker " + nobody + " ls",
        "compile --compile " + nobody + " stats", "explain x --worker " + nobody, "ping worker " + nobody}) {
    const ShellRun run = Kiln(command);
    EXPECT_EQ(run.status, 3) << command;
    EXPECT_THAT(run.output, HasSubstr("nobody listens at " + nobody)) << command;
  }
}

// A flag takes one value, so that what follows it is still the model.
TEST_F(KilnCommand, FlagsBeforeTheModelLeaveItAlone) {
  const std::string model = Path("model.onnx");
  EXPECT_EQ(Kiln("import --dim n=1..64 " + model + " -o " + Path("m.kp")).status, 0);
  EXPECT_EQ(Kiln("run --dim x.0=3 " + model).status, 0);
  EXPECT_EQ(Kiln("run --input x=" + Path("test_data_set_0/input_0.pb") + " " + model).status, 0);
  const ShellRun twice = Kiln("import --dim n=1..64 --dim n=8 " + model + " -o " + Path("m.kp"));
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.output, AllOf(HasSubstr("\"n=1..64\""), HasSubstr("\"n=8\"")));
  const ShellRun program = Kiln("import " + Path("m.kp") + " -o " + Path("n.kp"));
  EXPECT_EQ(program.status, 2);
  EXPECT_THAT(program.output, AllOf(HasSubstr("is a program of Kiln already"), HasSubstr("kiln dis")));
}

// Names that a model or a command line brings do not reach the terminal as commands to it.
TEST_F(KilnCommand, NamesAreShownNotObeyed) {
  const std::string evil = "x\x1b[2J\n\xc2\x9b", shown = "x\\x1b[2J\\n\\u009b";
  onnx::TestModel model(13);
  model.Input(onnx::Tensor32(evil.c_str(), {"n"}));
  model.Node("Abs", {evil.c_str()}, {"y"}).Output("y");
  std::ofstream(Path("evil.onnx"), std::ios::binary) << model.Bytes();
  for (const std::string& command :
       {"verify " + Path("evil.onnx"), "dis --compact " + Path("evil.onnx"), "dis " + Path("evil.onnx"),
        "run " + Path("evil.onnx"), "verify '" + Path(evil.c_str()) + "'",
        "import " + Path("evil.onnx") + " -o " + Path("e.kp"), "explain '" + Path(evil.c_str()) + "'",
        "'" + evil + "'"}) {
    const ShellRun run = Kiln(command);
    for (const char control : {'\x1b', '\x9b'}) EXPECT_EQ(run.output.find(control), std::string::npos) << command;
    if (command.starts_with("dis")) continue;  // in quotes, as they are in a program's text
    EXPECT_THAT(run.output, HasSubstr(shown)) << command;
  }
  const ShellRun worker = Start("kiln-worker", "--insecure --listen ipc://" + Path("w") + " --model 'm=" + evil + "'");
  EXPECT_EQ(worker.status, 2);
  EXPECT_THAT(worker.output, HasSubstr(shown));
  EXPECT_EQ(worker.output.find('\x1b'), std::string::npos);
}

TEST_F(KilnCommand, RunThatIsInterruptedLeavesNothingBehind) {
  fs::create_directories(Path("tmp"));
  setenv("TMPDIR", Path("tmp").c_str(), 1);
  const ShellRun run =
      Kiln("run " + Path("model.onnx") +
           " --dim x.0=1000 --repeat 1000000 & pid=$!; sleep 2; kill -TERM $pid; wait $pid; exit $?; true");
  unsetenv("TMPDIR");
  EXPECT_EQ(run.status, 128 + 15) << run.output;
  EXPECT_TRUE(fs::is_empty(Path("tmp")));
}

TEST_F(KilnCommand, OnnxTestCountsAndNamesTheFirstDifference) {
  ShellRun run = Kiln("onnx-test --mode interpreted " + directory_.string());
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("1 passed, 0 failed, 0 skipped"));
  EXPECT_EQ(Kiln("onnx-test --mode interpreted --dynamic " + directory_.string()).status, 0);
  EXPECT_THAT(Kiln("onnx-test --mode compiled --json " + directory_.string()).output,
              AllOf(HasSubstr(R"("outcome":"passed")"), HasSubstr(R"("ops":{"Mul":{"generated":1,"reference":0}})")));
  WriteVectors({2, 5});
  run = Kiln("onnx-test --mode interpreted " + directory_.string());
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("differs at [1]: 4, expected 5"));
  EXPECT_THAT(run.output, HasSubstr("0 passed, 1 failed, 0 skipped"));
}

TEST_F(KilnCommand, DimHintsBecomeConstraintsOfTheProgram) {
  const std::string model = (directory_ / "model.onnx").string(), program = (directory_ / "m.kp").string();
  const ShellRun import = Kiln("import " + model + " -o " + program + " --dim n=1..64:8");
  EXPECT_EQ(import.status, 0) << import.output;
  EXPECT_THAT(import.output, HasSubstr("tensors of one run: at most 512 bytes"));
  EXPECT_THAT(Kiln("dis " + program).output, HasSubstr("symbol n in [8, 64] divisor 8"));
  const ShellRun run = Kiln("run " + model + " --dim n=8..64:8 --repeat 3 --check");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(Kiln("run " + model + " --dim q=3").output, HasSubstr("no input has this dim; there are"));
  EXPECT_THAT(Kiln("run " + model + " --dim n=3..").output, HasSubstr("a random size needs a largest one"));
  const ShellRun wrong = Kiln("import " + model + " -o " + program + " --dim m=1..64");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("no input has a dim of this name"));
  EXPECT_EQ(Kiln("import " + model + " -o " + program + " --dim n=9..2").status, 2);
  EXPECT_THAT(Kiln("verify " + model).output, HasSubstr("no bound; value \"x\": symbol n has no upper bound"));
}

}  // namespace
}  // namespace kiln
