// `kiln explain` against a real fleet: each test has a model of its own, so that none meets another's plans.
#include <chrono>
#include <regex>
#include <thread>

#include "cli/fleet/embedded_fleet.h"
#include "tests/cli/kiln_command.h"

namespace kiln {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Not;

constexpr int kTriesMax = 300;  // of something that comes soon, 100 ms apart

class ExplainCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new testing::TempDirectory;
    auto fleet = cli::EmbeddedFleet::Start({directory_->path() + "/fleet", "memory", 2, KILN_BIN_DIR});
    ASSERT_TRUE(fleet.has_value()) << ToString(fleet.error());
    fleet_ = fleet->release();
    // Plans are asked for whatever they save.
    const auto worker = fleet_->StartWorker(
        {1, {"--hot-ms", "0", "--hot-runs", "5", "--horizon-s", "100000000", "--shadow-share", "1"}, true});
    ASSERT_TRUE(worker.has_value()) << ToString(worker.error());
  }
  static void TearDownTestSuite() {
    delete fleet_;
    delete directory_;
  }
  void SetUp() override {
    name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = directory_->path() + "/" + name_ + ".onnx";
    static float factor = 1;
    factor += 1;  // part of the segment's id
    onnx::TestModel model(13);
    model.Input(onnx::Tensor32("x", {"n", "m"})).Initializer(onnx::FloatTensor("w", {1}, {factor}));
    model.Node("Mul", {"x", "w"}, {"s"}).Node("Relu", {"s"}, {"y"}).Node("NonZero", {"y"}, {"where"});
    model.Output("y").Output("where");
    const char* names[] = {"scale", "clip", "find"};
    for (int i = 0; i < 3; ++i) model.graph().mutable_node(i)->set_name(names[i]);
    std::ofstream(path_, std::ios::binary) << model.Bytes();
    Run(512, 256, 1);
  }
  static std::string Worker() { return " --worker " + fleet_->WorkerEndpoint(0) + " "; }
  std::string Running(int n, int m, const std::string& more) const {
    return "run " + path_ + " --name " + name_ + Worker() + "--dim n=" + std::to_string(n) +
           " --dim m=" + std::to_string(m) + " " + more;
  }
  void Run(int n, int m, int runs) const {
    const ShellRun run = Kiln(Running(n, m, "--repeat " + std::to_string(runs)));
    ASSERT_EQ(run.status, 0) << run.output;
  }
  ShellRun Explain(const std::string& flags = "") const { return Kiln("explain " + name_ + Worker() + flags); }
  // What explain says once it says `what`; so many calls of the shape go on between looks.
  std::string ExplainUntil(const std::string& what, int n = 512, int m = 256, int runs = 20) const {
    std::string text;
    for (int i = 0; i < kTriesMax; ++i) {
      text = Explain().output;
      if (std::regex_search(text, std::regex(what))) return text;
      if (runs > 0) Run(n, m, runs);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "explain never said \"" << what << "\", but:\n" << text;
    return text;
  }
  static std::string Found(const std::string& text, const std::string& pattern) {
    std::smatch match;
    return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "";
  }
  static void Quarantine(const std::string& plan) {
    const ShellRun run = Kiln("cache --store " + fleet_->StoreEndpoint() + " quarantine " + plan);
    ASSERT_EQ(run.status, 0) << run.output;
  }

  static inline testing::TempDirectory* directory_ = nullptr;
  static inline cli::EmbeddedFleet* fleet_ = nullptr;
  std::string name_, path_;
};

TEST_F(ExplainCommand, SaysHowASegmentRunsWhyAndWhatItCosts) {
  // Calls are counted behind their answers.
  const std::string first = ExplainUntil("last interpreted call at", 512, 256, 0);
  EXPECT_THAT(
      first, AllOf(HasSubstr(name_ + ": 1 segment, 0 of them with a plan"), HasSubstr("in main: Mul scale … Relu clip"),
                   HasSubstr("inputs      x : f32[n, m]"), HasSubstr("n: dim 0 of x"),
                   HasSubstr("now         interpreted"), HasSubstr("because     cold"),
                   HasSubstr("cost        1 interpreted, "), HasSubstr("last interpreted call at n=512, m=256"),
                   HasSubstr("to change   a plan is asked for after 5 runs and 0 ms in the interpreter; so far 1 runs"),
                   HasSubstr("in no segment, always interpreted: 1 node (NonZero)")));
  const std::string later = ExplainUntil("[0-9]+ calls by plan");
  EXPECT_THAT(later, AllOf(HasSubstr("1 of them with a plan"), HasSubstr("plan published"),
                           ContainsRegex("plan [0-9a-f]+  generic, published"), HasSubstr("holds for  n: 0 or more"),
                           ContainsRegex("interpreted: cold +[1-9]"), ContainsRegex("interpreted: shadowing +[1-9]")));
}

TEST_F(ExplainCommand, ChoosesSegmentsByIndexIdAndNode) {
  const std::string id = Found(Explain().output, "segment 0 \\[([0-9a-f]{12})\\]");
  ASSERT_EQ(id.size(), 12u);
  for (const std::string& flags : {std::string("--segment 0"), "--segment " + id, std::string("--node scale"),
                                   std::string("--node clip"), std::string("--segment 0 --node clip")}) {
    const ShellRun run = Explain(flags);
    EXPECT_EQ(run.status, 0) << flags;
    EXPECT_THAT(run.output, HasSubstr("segment 0 [" + id + "]")) << flags;
  }
  const ShellRun outside = Explain("--node find");
  EXPECT_EQ(outside.status, 0);
  EXPECT_THAT(outside.output,
              AllOf(HasSubstr("NonZero find in main is in no segment: always interpreted"),
                    HasSubstr("its output sizes depend on tensor contents"), Not(HasSubstr("segment 0"))));
  struct Case {
    const char *flags, *says;
  };
  for (const Case& c : {Case{"--segment 7", "no segment \"7\"; it has 1 segments, counted from 0"},
                        Case{"--segment ffffffffffff", "no segment \"ffffffffffff\""},
                        Case{"--node nothing", "has no node \"nothing\""},
                        Case{"--segment 0 --node find", "no segment \"0\" with a node \"find\""}}) {
    const ShellRun run = Explain(c.flags);
    EXPECT_EQ(run.status, 2) << c.flags;
    EXPECT_THAT(run.output, HasSubstr(c.says));
  }
}

TEST_F(ExplainCommand, ShowsStepsWithTheirTimesAndTheCodeOfAKernel) {
  ExplainUntil("[0-9]+ calls by plan");
  const auto during_calls = [&](const std::string& flags) {
    return RunShell(KILN_BIN_DIR "/kiln " + Running(512, 256, "--seconds 60") + " >/dev/null 2>&1 & pid=$!; " +
                    KILN_BIN_DIR "/kiln explain " + name_ + Worker() + flags + " 2>&1; kill $pid");
  };
  const std::string steps = during_calls("--plan").output;
  EXPECT_THAT(steps, AllOf(ContainsRegex("measured at .* over [0-9]+ calls: .* each, arena"),
                           ContainsRegex("[0-9.]+ [um]s +[0-9.]+%  mul [+] .*\\[[0-9a-f]+\\] .*: scale, clip")));
  const std::string kernel = Found(steps, "%  mul \\+ .* \\[([0-9a-f]{8})\\]");
  ASSERT_EQ(kernel.size(), 8u) << steps;
  const std::string compile = " --compile " + fleet_->CompileEndpoint();
  const auto shows_code = [&](const std::string& text) {
    EXPECT_THAT(text, AllOf(HasSubstr("\nkernel " + kernel), ContainsRegex("segment 0, plan [0-9a-f]+, step 0: mul"),
                            ContainsRegex("[0-9]+ bytes of code for "), HasSubstr(" instructions in ")));
  };
  shows_code(Explain("--asm " + kernel + compile).output);
  shows_code(during_calls(compile + " --asm").output);  // the one that takes the most time
  const ShellRun unknown = Explain("--asm 0123456789abcdef" + compile);
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("has a kernel \"0123456789abcdef\"; --plan lists them"));
  const ShellRun without = Explain("--asm " + kernel);
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.output, HasSubstr("needs --compile"));
}

// Exact plans for (512, 256) and (640, 320), and none for all shapes.
TEST_F(ExplainCommand, NamesTheNearestPlanOfAMissFieldByFieldAndWhatWasQuarantined) {
  ExplainUntil("exact, published");
  const std::string both = ExplainUntil("exact, published(.|\n)*exact, published", 640, 320);
  const std::string general = Found(both, "plan ([0-9a-f]{12})  generic, published");
  ASSERT_EQ(general.size(), 12u) << both;
  Quarantine(general);
  ExplainUntil("last error  quarantined");
  Run(512, 300, 1);
  const std::string missed = ExplainUntil("last interpreted call at n=512, m=300");
  EXPECT_THAT(missed, Not(HasSubstr("generic")));
  EXPECT_THAT(missed, ContainsRegex("plan [0-9a-f]+  exact, published, the nearest to the last interpreted call; .*\n"
                                    "      holds for  n: exactly 512\n"
                                    "                 m: exactly 256\n"
                                    "(.*\n)?"
                                    "      refused    m: dim 1 of x is 300; the plan holds for exactly 256\n"));
  EXPECT_THAT(missed, ContainsRegex("refused    n: dim 0 of x is 512; the plan holds for exactly 640\n"
                                    "      refused    m: dim 1 of x is 300; the plan holds for exactly 320\n"));
  EXPECT_THAT(missed, AllOf(HasSubstr("last error  quarantined: "), HasSubstr("kiln cache quarantine --lift"),
                            ContainsRegex("interpreted: guard_failed +[1-9]")));

  std::string rest = missed;
  for (std::string plan; !(plan = Found(rest, "plan ([0-9a-f]{12})  exact")).empty();
       rest.erase(rest.find("plan " + plan), 17))
    Quarantine(plan);
  const std::string none = ExplainUntil("because     quarantined: ");
  EXPECT_THAT(none, AllOf(HasSubstr("now         interpreted"), HasSubstr("kiln cache quarantine --lift"),
                          Not(HasSubstr("compile_failed"))));
  EXPECT_THAT(ExplainUntil("interpreted: quarantined +[1-9]"), Not(HasSubstr("compile_failed")));
}

TEST_F(ExplainCommand, AnUnknownModelIsNamed) {
  const ShellRun run = Kiln("explain nothing" + Worker());
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.output, HasSubstr("\"nothing\""));
}

}  // namespace
}  // namespace kiln
