// What explain says about a model, in the source's names and with the figures.
#include <gmock/gmock.h>

#include <map>
#include <thread>

#include "common/artifact/target_text.h"
#include "common/base/clock.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/explain/explain_model.h"
#include "vm-worker/explain/explain_plan.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kModel = R"(program "p" {
  symbol rows in [0, 4096]
  func main(%x: f32[rows, 4]) -> (%y) {
    %r : f32[rows, 4] = Relu(%x)
    %y : f32[rows, 4] = Neg(%r)
  }
})";

std::shared_ptr<Model> LoadModel(EpochDomain& epochs) {
  auto program = ParseProgram(kModel);
  EXPECT_TRUE(program.has_value()) << (program.has_value() ? "" : ToString(program.error()));
  program->functions[0].regions[0].nodes[0].name = "first";
  program->functions[0].regions[0].nodes[1].name = "second";
  return std::make_shared<Model>("m", LoadedProgram::Load(std::move(*program)).value(), epochs);
}

// A worker without services, and one thread of it.
struct Worker {
  EpochDomain epochs;
  TierController tiers{epochs,
                       nullptr,
                       [](const Program&, std::span<const TensorRef>) -> Result<Tensor> {
                         return Fail(ErrorCode::kInternal, "no recipes here");
                       },
                       {.targets = HostTargets()}};
  std::shared_ptr<Model> model = LoadModel(epochs);
  ModelThread& thread = model->AddThread();
  std::unique_ptr<CallObserver> observer = tiers.MakeObserver(model, thread);
  Dispatcher dispatcher{model->runtimes(), thread.counters, *observer};
  VmContext context;
  int reader = epochs.RegisterReader();
  Worker() { tiers.AddModel(model); }

  void Run(int64_t rows) {
    const Tensor x = Tensor::Zeros(DType::kF32, {rows, 4});
    EpochScope scope(epochs, reader);
    RunOptions options;
    options.hook = &dispatcher;
    ASSERT_TRUE(context.Run(model->program(), {&x.ref, 1}, options).has_value());
  }
};

std::vector<std::string> NodeNames(const ExplainedSegment& segment) {
  std::vector<std::string> names;
  for (const ExplainedNode& node : segment.nodes) names.push_back(node.op + " " + node.name);
  return names;
}

TEST(Explain, NamesNodesInputsAndSizesOfTheSource) {
  Worker worker;
  const auto reply = ExplainModel(*worker.model, worker.tiers, {"m", "", "", false});
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
  ASSERT_EQ(reply->segments.size(), 1u);
  const ExplainedSegment& segment = reply->segments[0];
  EXPECT_THAT(NodeNames(segment), ElementsAre("Relu first", "Neg second"));
  EXPECT_THAT(segment.inputs, ElementsAre("x : f32[rows, 4]"));
  EXPECT_THAT(segment.symbols, ElementsAre("rows: dim 0 of x"));
  EXPECT_EQ(segment.end_reason, SegmentEndText(SegmentEnd::kRegionEnd));
  EXPECT_EQ(segment.reason, "disabled");
  EXPECT_THAT(segment.remedies, ElementsAre(HasSubstr("--store")));
  EXPECT_EQ(segment.state, "not called yet");
  EXPECT_THAT(reply->outside, IsEmpty());
}

TEST(Explain, CountsInterpretedCallsUnderTheirReasonWithTheirTime) {
  Worker worker;
  for (int i = 0; i < 7; ++i) worker.Run(3);
  ExplainReply reply;
  for (int i = 0; i < 500; ++i) {  // the control thread collects on its tick
    reply = ExplainModel(*worker.model, worker.tiers, {"m", "0", "second", false}).value();
    if (!reply.misses.empty() && reply.misses[0].calls == 7) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(reply.misses.size(), 1u);
  EXPECT_EQ(reply.misses[0].reason, "disabled");
  EXPECT_EQ(reply.misses[0].calls, 7u);
  EXPECT_GT(reply.misses[0].ns, 0u);
  EXPECT_EQ(reply.segments.at(0).interpreted_calls, 7u);
  EXPECT_EQ(reply.segments.at(0).last_shape, "rows=3");
  EXPECT_EQ(reply.segments.at(0).state, "interpreted");
}

TEST(Explain, AnUnknownSegmentOrNodeIsNotFound) {
  Worker worker;
  EXPECT_EQ(ExplainModel(*worker.model, worker.tiers, {"m", "7", "", false}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ExplainModel(*worker.model, worker.tiers, {"m", "", "third", false}).error().code, ErrorCode::kNotFound);
}

// Segments "%a = Relu" and "%b = Neg" around a node that none can hold.
constexpr const char* kCutModel = R"(program "p" {
  symbol rows in [0, 4096]
  symbol found in [0, 16384]
  func main(%x: f32[rows, 4]) -> (%n, %b) {
    %a : f32[rows, 4] = Relu(%x)
    %n : i64[2, found] = NonZero(%a)
    %b : i64[2, found] = Neg(%n)
  }
})";

TEST(Explain, ANodeOfNoSegmentIsNamedWithItsPlaceAndWhatKeepsItOut) {
  Worker worker;
  auto program = ParseProgram(kCutModel);
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  std::vector<Node>& nodes = program->functions[0].regions[0].nodes;
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].name = "node" + std::to_string(i);
  const Model model("m", LoadedProgram::Load(std::move(*program)).value(), worker.epochs);
  const auto reply = ExplainModel(model, worker.tiers, {"m", "", "node1", false});
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
  EXPECT_THAT(reply->segments, IsEmpty());
  ASSERT_EQ(reply->outside.size(), 1u);
  EXPECT_EQ(reply->outside[0].name, "node1");
  EXPECT_EQ(reply->outside[0].place, "main");
  EXPECT_THAT(reply->outside[0].reason, HasSubstr("depend on tensor contents"));
  ExplainReply back;
  ASSERT_TRUE(Decode(Encode(*reply), back).has_value());
  EXPECT_EQ(back.outside[0].reason, reply->outside[0].reason);
  EXPECT_EQ(back.outside[0].place, "main");
  EXPECT_THAT(ExplainModel(model, worker.tiers, {"m", "", "node9", false}).error().message,
              HasSubstr("no node \"node9\""));
  EXPECT_EQ(ExplainModel(model, worker.tiers, {"m", "0", "node1", false}).error().code, ErrorCode::kNotFound);
}

// Nodes within branches, and the node that has the branches.
TEST(Explain, EveryNodeOutsideSaysWhereItLies) {
  Worker worker;
  auto program = ParseProgram(R"(program "p" {
  symbol k in [0, 4]
  symbol a in [0, 4]
  symbol b in [0, 4]
  func main(%c: bool[], %x: f32[4]) -> (%y) {
    %y : i64[1, k] = If(%c) then() -> (%r) {
      %r : i64[1, a] = NonZero(%x)
    } else() -> (%e) {
      %n : f32[4] = Neg(%x)
      %e : i64[1, b] = NonZero(%n)
    }
  }
})");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  const Model model("m", LoadedProgram::Load(std::move(*program)).value(), worker.epochs);
  const auto reply = ExplainModel(model, worker.tiers, {"m", "", "", false});
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
  std::map<std::string, std::string> places, reasons;
  for (const ExplainedNode& node : reply->outside) {
    places[node.op] = node.place;
    reasons[node.op] = node.reason;
  }
  EXPECT_EQ(places, (std::map<std::string, std::string>{{"If", "main"}, {"NonZero", "main, inside If \"\""}}));
  EXPECT_THAT(reasons["If"], HasSubstr("the segments within its regions"));
  EXPECT_THAT(reasons["NonZero"], HasSubstr("depend on tensor contents"));
}

// Many segments, so that some id begins with a digit that is another's index.
TEST(Explain, DigitsThatAreAnIndexMeanTheIndexAndFewDigitsAreNoId) {
  constexpr int kSegments = 40;
  std::string text =
      "program \"p\" {\n  func main(%c: bool[], %x0: f32[4]) -> (%x" + std::to_string(kSegments) + ") {\n";
  for (int i = 0; i < kSegments; ++i) {  // each of another length, so that each is another segment
    std::string from = "%x" + std::to_string(i);
    for (int j = 0; j <= i; ++j) {
      const std::string to = "%t" + std::to_string(i) + "_" + std::to_string(j);
      text += "    " + to + " : f32[4] = Relu(" + from + ")\n";
      from = to;
    }
    text += "    %x" + std::to_string(i + 1) + " : f32[4] = If(%c) then() -> (" + from + ") {\n    } else() -> (" +
            from + ") {\n    }\n";
  }
  auto program = ParseProgram(text + "  }\n}");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  Worker worker;
  const auto model = std::make_shared<Model>("n", LoadedProgram::Load(std::move(*program)).value(), worker.epochs);
  worker.tiers.AddModel(model);
  const auto all = ExplainModel(*model, worker.tiers, {"n", "", "", false}).value().segments;
  ASSERT_EQ(all.size(), static_cast<size_t>(kSegments));
  bool ambiguous = false;
  for (const ExplainedSegment& segment : all) {
    const std::string index = std::to_string(segment.index);
    for (const ExplainedSegment& other : all) ambiguous |= other.index != segment.index && other.id.starts_with(index);
    const auto by_index = ExplainModel(*model, worker.tiers, {"n", index, "", false});
    ASSERT_TRUE(by_index.has_value());
    ASSERT_EQ(by_index->segments.size(), 1u) << index;
    EXPECT_EQ(by_index->segments[0].index, segment.index);
    const auto by_id = ExplainModel(*model, worker.tiers, {"n", segment.id.substr(0, 12), "", false});
    ASSERT_TRUE(by_id.has_value());
    EXPECT_EQ(by_id->segments.at(0).index, segment.index);
  }
  EXPECT_TRUE(ambiguous) << "no id begins with an index: this test shows nothing";
  for (int number = kSegments; number < 1000; ++number)
    EXPECT_FALSE(ExplainModel(*model, worker.tiers, {"n", std::to_string(number), "", false}).has_value()) << number;
}

TEST(GuardMismatch, NamesDimValueAndWhatThePlanHoldsFor) {
  const auto program = LoadedProgram::Load(testing::ReluProgram()).value();
  const SegmentNames names(*program, 0);
  Plan plan = testing::ReluPlan(48, 192);
  plan.guard.symbols[0].divisor = 8;
  const auto at = [](int64_t rows) {
    return SeenCall{{rows}, {{DType::kF32, {rows, 4}, {4, 1}, LayoutClass::kContiguous, AlignmentClass::k64}}};
  };
  EXPECT_THAT(GuardMismatch(plan, names, at(320)),
              ElementsAre("n: dim 0 of x is 320; the plan holds for 48 to 192, multiples of 8"));
  EXPECT_THAT(GuardMismatch(plan, names, at(64)), IsEmpty());
  plan.guard.max_elements = 100;
  EXPECT_THAT(GuardMismatch(plan, names, at(50)), ElementsAre(HasSubstr("is 50"), HasSubstr("has 200 elements")));
}

TEST(Explain, AKernelThatNoPlanHasIsNotFound) {
  Worker worker;
  ExplainRequest request{"m", "", "", true};
  request.code = "27e90201";
  const auto reply = ExplainModel(*worker.model, worker.tiers, request);
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(reply.error().message, HasSubstr("27e90201"));
}

TEST(Explain, TheReplyTravelsWithCodeAndHost) {
  ExplainReply reply{"m", {}, {}, {}, "x86-64-v3; not x86-64-v4", "abc", {1, 2, 3}};
  ExplainReply back;
  ASSERT_TRUE(Decode(Encode(reply), back).has_value());
  EXPECT_EQ(back.host, reply.host);
  EXPECT_EQ(back.kernel, "abc");
  EXPECT_EQ(back.code, reply.code);
}

TEST(Explain, TargetsAreNamedWithWhatTheHostLacks) {
  EXPECT_EQ(TargetsText({Target::kX86V4Bf16Vnni, Target::kX86V4}), "x86-64-v4+bf16+vnni");
  EXPECT_THAT(TargetsText({Target::kX86V3, Target::kX86V2}),
              HasSubstr("x86-64-v3; not x86-64-v4: this host lacks AVX-512 F"));
  EXPECT_THAT(TargetsText({}), HasSubstr("none; not "));
}

TEST(ExplainPlan, NamesTheMemoryOfAKernelAndItsLayout) {
  const auto program = LoadedProgram::Load(testing::ReluProgram()).value();
  const SegmentNames names(*program, 0);
  Plan plan = testing::ReluPlan(1, 64);
  const Dim n = plan.symbols.SymbolDim(0), one = Dim::Const(1), two = Dim::Const(2), six = Dim::Const(6);
  const std::vector<Dim> dims = {n, two, Dim::Const(3)};
  plan.values.push_back({StorageKind::kArena, 4, DType::kF32, Dim::Const(0), dims, {six, one, two}});
  plan.values.push_back({StorageKind::kArena, 5, DType::kF32, Dim::Const(0), dims, {six, Dim::Const(0), one}});
  plan.values.push_back({StorageKind::kPrepacked, 2, DType::kF32, Dim::Const(0), dims, {six, Dim::Const(3), one}});
  KernelStep step;
  step.pointers = {0, 2, 3, 4, 1};
  EXPECT_EQ(OperandsText(plan, step, names, std::vector<int64_t>{5}),
            "x row-major, t4 channels-last, t5 broadcast, packed 2, output 0 row-major");
  EXPECT_EQ(OperandsText(plan, step, names, {}), "x, t4, t5, packed 2, output 0");
}

TEST(ExplainPlan, ListsReferenceStepsAndMeasuredTimes) {
  const auto program = LoadedProgram::Load(testing::ReluProgram()).value();
  const SegmentNames names(*program, 0);
  const PlanStatus status{{}, true, 3, testing::Linked(testing::ReluPlan(1, 64))};
  const ExplainedPlan plan = ExplainPlan(status, names, PlanTiming{{}, 2, {500}, {5}, 64}, true, 3);
  EXPECT_EQ(plan.state, "published");
  EXPECT_EQ(plan.reference_steps, 1u);
  EXPECT_EQ(plan.generated_steps, 0u);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].op, "Relu");
  EXPECT_EQ(plan.steps[0].ns, 500u);
  EXPECT_EQ(plan.timed_calls, 2u);
  EXPECT_EQ(plan.timed_shape, "n=5");
  EXPECT_THAT(plan.guard, ElementsAre("n: 1 to 64", HasSubstr("contiguous")));
}

TEST(ExplainMessages, SurviveTheWireAndRejectBadNodeIndices) {
  ExplainReply reply{"m", {}, {{"nz", "NonZero"}}, {{"cold", 3, 99}}};
  ExplainedSegment& segment = reply.segments.emplace_back();
  segment.index = 4;
  segment.nodes = {{"first", "Relu"}};
  segment.remedies = {"wait"};
  segment.plans.push_back({.key = "ab",
                           .steps = {{"relu", "k", "", "n", {0}, 12}},
                           .mismatch = {"n is 3"},
                           .guard_bytes = {1, 2},
                           .tuning = {"tile 8x3 4.0 us"}});
  ExplainReply back;
  ASSERT_TRUE(Decode(Encode(reply), back).has_value());
  EXPECT_EQ(Encode(back).payload, Encode(reply).payload);
  EXPECT_EQ(back.segments.at(0).plans.at(0).steps.at(0).ns, 12u);
  segment.plans[0].steps[0].nodes = {1};
  EXPECT_EQ(Decode(Encode(reply), back).error().code, ErrorCode::kMalformed);
  EXPECT_FALSE(Decode(Message{{1, 2, 3}, {}}, back).has_value());
}

}  // namespace
}  // namespace kiln
