// A worker answers whatever becomes of the other services, and uses them again when they are back.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <signal.h>

#include "common/numeric/difference.h"
#include "common/worker_api/explain.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/small_model.h"
#include "vm-worker/onnx/importer.h"

namespace kiln {
namespace {

using testing::Eventually;
using testing::SmallModel;

class ServicesTest : public testing::FleetTest {
 protected:
  // Sends one request and compares the answer; true when a plan answered.
  bool Ask(RpcClient& worker, int64_t rows) {
    const RunRequest request{"m", {{"x", model_.Input(rows)}}};
    const auto reply = CallRun(worker, request, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return false;
    EXPECT_EQ(model_.Difference(rows, reply->outputs.at(0).tensor), "");
    return reply->timing.plan_segments > 0;
  }
  bool AskUntilCompiled(RpcClient& worker) {
    int64_t rows = 0;
    return Eventually([&] { return Ask(worker, 1 + rows++ % 9); });
  }
  void Load(RpcClient& worker) {
    const auto loaded = CallLoad(worker, {"m", model_.WriteTo(directory_)}, 10'000);
    ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
  }
  SmallModel model_;
};

TEST_F(ServicesTest, PlansArriveAndServeShapesNeverSeen) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  EXPECT_FALSE(Ask(*worker, 3)) << "the first answer is interpreted";
  ASSERT_TRUE(AskUntilCompiled(*worker));
  for (const int64_t rows : {0, 1, 100, 257}) EXPECT_TRUE(Ask(*worker, rows)) << rows << " rows";
}

// Calls that the generic plan answers make a shape frequent; what that plan takes for it, and how often it comes, pays
// for an exact one. Sizes that come seldom stay on the generic plan.
TEST_F(ServicesTest, ADominantShapeEndsUpOnAnExactPlan) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  ASSERT_TRUE(AskUntilCompiled(*worker));
  const auto plans = [&] {
    const auto reply = CallExplain(*worker, {.model = "m"}, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    std::vector<std::string> guards;
    if (!reply.has_value()) return guards;
    for (const ExplainedPlan& plan : reply->segments.at(0).plans)
      if (plan.state == "published") guards.push_back(fmt::format("{}", fmt::join(plan.guard, "; ")));
    return guards;
  };
  ASSERT_EQ(plans().size(), 1u);
  int64_t calls = 0;
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(Ask(*worker, 2000)) << "a plan answers while the exact one is made and checked";
      if (++calls % 8 == 0) {
        EXPECT_TRUE(Ask(*worker, 1 + calls % 9));
      }
    }
    return plans().size() == 2;
  })) << calls
      << " calls";
  EXPECT_THAT(plans(), ::testing::Contains(::testing::HasSubstr("2000")));
  for (const int64_t rows : {2000, 3, 77, 2000}) EXPECT_TRUE(Ask(*worker, rows));
  EXPECT_EQ(CallStats(*worker, {}, 5'000)->Value("compiled"), 2u);
}

TEST_F(ServicesTest, ASecondWorkerIsWarmWithoutTheCompileService) {
  RpcClient* first = StartWorker();
  Load(*first);
  ASSERT_TRUE(AskUntilCompiled(*first));
  fleet_->StopCompile();
  RpcClient* second = StartWorker({"--model", "m=" + model_.WriteTo(directory_)});
  ASSERT_TRUE(Eventually([&] { return Ask(*second, 77); }, 5'000));
  const auto stats = CallStats(*second, {}, 5'000);
  EXPECT_EQ(stats->Value("compiled"), 0u);
  EXPECT_EQ(stats->Value("fetched"), 1u);
}

TEST_F(ServicesTest, WithoutStoreAndCompilerTheWorkerInterpretsAndRemoteUseResumes) {
  fleet_->StopCompile();
  fleet_->StopCache();
  RpcClient* worker = StartWorker();
  Load(*worker);
  for (int64_t i = 0; i < 30; ++i) EXPECT_FALSE(Ask(*worker, 1 + i % 5));
  ASSERT_TRUE(fleet_->StartCache().has_value());
  ASSERT_TRUE(fleet_->StartCompile().has_value());
  EXPECT_TRUE(AskUntilCompiled(*worker));
}

TEST_F(ServicesTest, HungServicesDoNotHoldAnAnswerBack) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  kill(fleet_->cache().pid(), SIGSTOP);
  kill(fleet_->compile().pid(), SIGSTOP);
  for (int64_t i = 0; i < 200; ++i) Ask(*worker, 1 + i % 5);
  // The other kinds of requests, too. worker_service_test says the same of a fetch that hangs until it is let go.
  for (int i = 0; i < 3; ++i) {
    const std::string name = "more" + std::to_string(i);
    const auto loaded = CallLoad(*worker, {name, directory_ + "/model.onnx"}, 10'000);
    EXPECT_TRUE(loaded.has_value()) << ToString(loaded.error());
    const auto stream = CallOpenStream(*worker, {name, {{"x", "y"}}, {}}, 10'000);
    EXPECT_EQ(stream.error().code, ErrorCode::kShapeMismatch)
        << "y has other columns than x, and that is known at once";
    EXPECT_TRUE(CallStats(*worker, {name}, 10'000).has_value());
    EXPECT_TRUE(CallUnload(*worker, {name}, 10'000).has_value());
  }
  kill(fleet_->cache().pid(), SIGCONT);
  kill(fleet_->compile().pid(), SIGCONT);
  EXPECT_TRUE(AskUntilCompiled(*worker));
}

TEST_F(ServicesTest, KilledServicesLoseNothing) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  ASSERT_TRUE(AskUntilCompiled(*worker));
  kill(fleet_->cache().pid(), SIGKILL);
  kill(fleet_->compile().pid(), SIGKILL);
  for (int64_t i = 0; i < 20; ++i) EXPECT_TRUE(Ask(*worker, 1 + i)) << "published plans go on answering";
  fleet_->StopCache();
  ASSERT_TRUE(fleet_->StartCache().has_value());
  RpcClient* second = StartWorker({"--model", "m=" + model_.WriteTo(directory_)});
  EXPECT_TRUE(Eventually([&] { return Ask(*second, 5); }, 10'000)) << "the store kept the plan";
}

TEST_F(ServicesTest, BadRequestsAreAnsweredAndTheWorkerLivesOn) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  const auto code = [&](const RunRequest& request) {
    const auto reply = CallRun(*worker, request, 5'000);
    return reply.has_value() ? ErrorCode::kInternal : reply.error().code;
  };
  EXPECT_EQ(code({"no such model", {}}), ErrorCode::kNotFound);
  EXPECT_EQ(code({"m", {}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"m", {{"y", model_.Input(2)}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"m", {{"x", model_.Input(2)}, {"x", model_.Input(2)}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"m", {{"x", Tensor::Zeros(DType::kF32, {2, 3})}}}), ErrorCode::kShapeMismatch);
  EXPECT_NE(code({"m", {{"x", Tensor::Zeros(DType::kI64, {2, 8})}}}), ErrorCode::kInternal);
  EXPECT_NE(code({"m", {{"x", Tensor::Zeros(DType::kF32, {8})}}}), ErrorCode::kInternal);
  const auto garbage =
      worker->CallSync(static_cast<uint16_t>(WorkerMethod::kRun), {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {}}, 5'000);
  EXPECT_EQ(garbage.error().code, ErrorCode::kMalformed);
  std::ofstream(directory_ + "/damaged.onnx") << "this is no model";
  EXPECT_EQ(CallLoad(*worker, {"d", directory_ + "/damaged.onnx"}, 5'000).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(CallLoad(*worker, {"d", directory_ + "/absent.onnx"}, 5'000).error().code, ErrorCode::kNotFound);
  Ask(*worker, 4);
}

TEST_F(ServicesTest, TensorsTravelBySharedMemoryOnOneHost) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  const auto reply = CallRunShared(*worker, {"m", {{"x", model_.Input(40)}}}, 10'000);
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
  EXPECT_EQ(model_.Difference(40, reply->outputs.at(0).tensor), "");
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(entry.path().filename().string().starts_with("kiln-" + std::to_string(getpid()))) << "left behind";
}

TEST_F(ServicesTest, AnInitialiserThatTheModelListsAsInputMayBeGiven) {
  RpcClient* worker = StartWorker();
  testing::SmallModel model(24, "Relu", true);
  const auto loaded = CallLoad(*worker, {"m", model.WriteTo(directory_)}, 10'000);
  ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
  ASSERT_EQ(loaded->inputs.size(), 1u);
  ASSERT_EQ(loaded->optional_inputs.size(), 1u);
  EXPECT_EQ(loaded->optional_inputs[0].name, "b");
  EXPECT_EQ(loaded->optional_inputs[0].text, "f32[24]");

  const Tensor x = model.Input(5);
  const auto plain = CallRun(*worker, {"m", {{"x", x}}}, 10'000);
  ASSERT_TRUE(plain.has_value()) << ToString(plain.error());
  EXPECT_EQ(model.Difference(5, plain->outputs.at(0).tensor), "") << "the model's own value";

  auto imported = ImportOnnx(directory_ + "/model.onnx", {.overrides = {"b"}});
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const auto program = LoadedProgram::Load(std::move(imported->program)).value();
  VmContext context;
  for (const float value : {0.0f, 4.0f}) {
    const Tensor b = Tensor::Of<float>(DType::kF32, {24}, std::vector<float>(24, value));
    b.ref.as<float>()[3] = -2;
    const auto expected = context.Run(*program, std::vector<TensorRef>{x.ref, b.ref});
    ASSERT_TRUE(expected.has_value());
    const auto given = CallRun(*worker, {"m", {{"x", x}, {"b", b}}}, 10'000);
    ASSERT_TRUE(given.has_value()) << ToString(given.error());
    EXPECT_EQ(FirstDifference(expected->at(0).ref, given->outputs.at(0).tensor.ref,
                              {.scope = ErrorScope::kElement, .relative = 1e-5, .tiny = 1e-7}),
              std::nullopt);
    EXPECT_NE(model.Difference(5, given->outputs.at(0).tensor), "") << "the bias plays a part";
  }
  const auto wrong = CallRun(*worker, {"m", {{"x", x}, {"b", Tensor::Zeros(DType::kF32, {23})}}}, 10'000);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, ErrorCode::kShapeMismatch) << ToString(wrong.error());
  EXPECT_EQ(model.Difference(5, CallRun(*worker, {"m", {{"x", x}}}, 10'000)->outputs.at(0).tensor), "");
}

TEST_F(ServicesTest, MemoryOfRunsIsBounded) {
  RpcClient* worker = StartWorker({"--run-memory-bytes", "1048576"});
  Load(*worker);
  const auto large = CallRun(*worker, {"m", {{"x", model_.Input(100'000)}}}, 30'000);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kResourceExhausted) << ToString(large.error());
  Ask(*worker, 7);
}

TEST_F(ServicesTest, AnAnswerThatFitsNoMessageIsAnErrorThatSaysSo) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  constexpr int64_t kRows = 720'000;  // 24 columns of 4 bytes each: 69 MB
  const auto large = CallRun(*worker, {"m", {{"x", model_.Input(kRows)}}}, 60'000);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kLimitExceeded) << ToString(large.error());
  EXPECT_NE(large.error().message.find("69120000 bytes"), std::string::npos) << large.error().message;
  EXPECT_NE(large.error().message.find("part of the batch"), std::string::npos) << large.error().message;
  Ask(*worker, 7);
}

TEST_F(ServicesTest, ModelsComeAndGo) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  EXPECT_EQ(CallList(*worker, 5'000)->names, std::vector<std::string>{"m"});
  ASSERT_TRUE(AskUntilCompiled(*worker));
  EXPECT_TRUE(CallUnload(*worker, {"m"}, 5'000).has_value());
  EXPECT_TRUE(CallList(*worker, 5'000)->names.empty());
  EXPECT_EQ(CallUnload(*worker, {"m"}, 5'000).error().code, ErrorCode::kNotFound);
  Load(*worker);
  EXPECT_TRUE(Eventually([&] { return Ask(*worker, 6); }, 10'000)) << "the plan is in the store";
}

}  // namespace
}  // namespace kiln
