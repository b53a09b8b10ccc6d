// Workers with a device: the double of the driver in the real process, found by the loader as a driver is.
#include <gmock/gmock.h>

#include "common/worker_api/explain.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/publish_plan.h"
#include "tests/end_to_end/small_model.h"
#include "tests/support/cuda/nvrtc_double.h"
#include "tests/support/shell.h"
#include "tests/vm-worker/dispatch/device_fixture.h"

namespace kiln {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

constexpr const char* kRelu = R"(program "p" {
  symbol n in [0, 4096]
  func main(%x: f32[n, 4]) -> (%y) {
    %y : f32[n, 4] = Relu(%x)
  }
})";

class DeviceFleet : public testing::FleetTest {
 protected:
  void SetUp() override {
    setenv("LD_LIBRARY_PATH", KILN_CUDA_DOUBLE_DIR, 1);
    testing::SetCudaDouble("");
    testing::FleetTest::SetUp();
  }
  void TearDown() override {
    testing::FleetTest::TearDown();
    unsetenv("LD_LIBRARY_PATH");
  }
  // Publishes a plan for the device with this kernel; nothing replaces it.
  void Publish(const std::string& kernel) {
    fleet_->StopCompile();
    testing::PublishPlan(*loop_, *fleet_, testing::DeviceReluPlan(0, 4096, kernel), {testing::TestKernel(kernel)});
    std::ofstream(directory_ + "/relu.kiln") << kRelu;
  }
  RpcClient* Worker(const std::string& disk, std::vector<std::string> more = {"--device", "cuda:0"}) {
    more.insert(more.end(), {"--model", "m=" + directory_ + "/relu.kiln", "--disk-cache", directory_ + "/" + disk});
    return StartWorker(std::move(more));
  }
  // Answered, and right: else counted.
  bool Ask(RpcClient& worker, int64_t rows) {
    const Tensor x = testing::Numbers(rows);
    const auto reply = CallRun(worker, {"m", {{"x", x}}}, 20'000);
    failed_ += reply.has_value() ? 0 : 1;
    if (!reply.has_value()) return false;
    for (int64_t i = 0; i < rows * 4; ++i)
      if (reply->outputs.at(0).tensor.ref.as<float>()[i] != std::max(0.0f, x.ref.as<float>()[i])) {
        ++wrong_;
        break;
      }
    return reply->timing.plan_segments > 0;
  }
  static uint64_t Stat(RpcClient& worker, const std::string& name) {
    const auto stats = CallStats(worker, {}, 5'000);
    return stats.has_value() ? stats->Value(name) : 0;
  }
  int failed_ = 0, wrong_ = 0;
};

TEST_F(DeviceFleet, PlansRunThereAndASecondWorkerIsWarm) {
  Publish("relu");
  RpcClient* first = Worker("a");
  ASSERT_TRUE(Eventually([&] { return Ask(*first, 7); })) << "three clean shadow runs publish it";
  EXPECT_EQ(Stat(*first, "device_ready"), 1u);
  const uint64_t allocations = Stat(*first, "device_allocations"), calls = Stat(*first, "device_calls");
  for (int64_t i = 0; i < 200; ++i) EXPECT_TRUE(Ask(*first, 1 + i % 50));
  EXPECT_EQ(Stat(*first, "device_calls"), calls + 200);
  EXPECT_EQ(Stat(*first, "device_allocations"), allocations);
  const auto explained = CallExplain(*first, {"m", "", "", true}, 5'000);
  ASSERT_TRUE(explained.has_value());
  EXPECT_THAT(explained->host, HasSubstr("device cuda:0, Kiln's double, compute capability 9.0"));
  EXPECT_EQ(explained->segments.at(0).plans.at(0).target, "sm_90");

  RpcClient* second = Worker("b");
  EXPECT_TRUE(Ask(*second, 7)) << "its first request is answered on the device";
  EXPECT_EQ(Stat(*second, "shadow_clean"), 0u);
  EXPECT_EQ(failed_ + wrong_, 0);
}

TEST_F(DeviceFleet, ADeviceThatBreaksInUseFailsNoRequest) {
  testing::SetCudaDouble("fail=100:719");
  Publish("relu");
  RpcClient* worker = Worker("a");
  for (int64_t i = 0; i < 400; ++i) Ask(*worker, 1 + i % 50);
  ASSERT_TRUE(Eventually([&] {
    Ask(*worker, 9);
    return Stat(*worker, "device_lost") == 1;
  }));
  for (int64_t i = 0; i < 200; ++i) Ask(*worker, 1 + i % 50);
  EXPECT_EQ(failed_, 0);
  EXPECT_EQ(wrong_, 0);
  EXPECT_EQ(fleet_->FirstEndedWorker(), "");
  const auto explained = CallExplain(*worker, {"m", "", "", true}, 5'000);
  ASSERT_TRUE(explained.has_value());
  EXPECT_THAT(explained->host, HasSubstr("lost: "));
  EXPECT_THAT(explained->host, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
}

TEST_F(DeviceFleet, AWrongKernelIsCaughtByShadowRuns) {
  Publish("wrong");
  RpcClient* worker = Worker("a");
  ASSERT_TRUE(Eventually([&] {
    EXPECT_FALSE(Ask(*worker, 7));
    return Stat(*worker, "shadow_mismatches") > 0;
  }));
  for (int64_t rows = 1; rows < 20; ++rows) EXPECT_FALSE(Ask(*worker, rows));
  EXPECT_EQ(failed_ + wrong_, 0);
}

// A kernel that faults in its shadow run: the process loses its device and no request; a worker that is started again
// has it back, and does not run that plan.
TEST_F(DeviceFleet, AFaultingKernelCostsTheDeviceUntilARestart) {
  Publish("faulting");
  RpcClient* worker = Worker("a");
  ASSERT_TRUE(Eventually([&] {
    EXPECT_FALSE(Ask(*worker, 7));
    return Stat(*worker, "device_lost") == 1;
  }));
  for (int64_t rows = 1; rows < 20; ++rows) EXPECT_FALSE(Ask(*worker, rows));
  EXPECT_TRUE(Eventually([&] { return Stat(*worker, "quarantined") > 0; }));
  fleet_->StopWorker(0);
  RpcClient* restarted = Worker("a");
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(Ask(*restarted, 7));
  EXPECT_EQ(Stat(*restarted, "device_ready"), 1u);
  EXPECT_EQ(Stat(*restarted, "device_calls"), 0u);
  EXPECT_EQ(failed_ + wrong_, 0);
}

// Both doubles: a compile service that makes plans for the device of a model with a size that is not known before, and
// workers that run them.
class BakedForDevice : public DeviceFleet {
 protected:
  RpcClient* ModelWorker(const std::string& disk) {
    return StartWorker(
        {"--device", "cuda:0", "--model", "m=" + model_.WriteTo(directory_), "--disk-cache", directory_ + "/" + disk});
  }
  // Whether a plan answered; the answer is checked against the interpreter's.
  bool AskModel(RpcClient& worker, int64_t rows) {
    const auto reply = CallRun(worker, {"m", {{"x", model_.Input(rows)}}}, 20'000);
    failed_ += reply.has_value() ? 0 : 1;
    if (!reply.has_value()) return false;
    const std::string difference = model_.Difference(rows, reply->outputs.at(0).tensor);
    EXPECT_EQ(difference, "") << rows;
    wrong_ += difference.empty() ? 0 : 1;
    return reply->timing.plan_segments > 0;
  }
  std::string PublishedTarget(RpcClient& worker) {
    const auto reply = CallExplain(worker, {.model = "m"}, 10'000);
    if (!reply.has_value() || reply->segments.empty()) return "";
    for (const ExplainedPlan& plan : reply->segments.front().plans)
      if (plan.state == "published") return plan.target;
    return "";
  }
  testing::SmallModel model_;
};

TEST_F(BakedForDevice, OneWorkerHasItMadeAndTheNextIsWarmWithoutACompileService) {
  fleet_->StopCompile();
  ASSERT_TRUE(fleet_->StartCompile({"--nvrtc", testing::kNvrtcDouble}).has_value());
  RpcClient* first = ModelWorker("a");
  int64_t rows = 0;
  ASSERT_TRUE(Eventually([&] { return AskModel(*first, 1 + rows++ % 7); }, 180'000));
  EXPECT_EQ(PublishedTarget(*first), "sm_90");
  for (const int64_t n : {1, 2, 3, 31, 32, 33, 64, 100, 257}) EXPECT_TRUE(AskModel(*first, n)) << n;
  const uint64_t allocations = Stat(*first, "device_allocations");
  for (int64_t i = 0; i < 50; ++i) EXPECT_TRUE(AskModel(*first, 1 + i % 100));
  EXPECT_EQ(Stat(*first, "device_allocations"), allocations);
  EXPECT_EQ(Stat(*first, "shadow_mismatches") + Stat(*first, "shadow_faults"), 0u);

  fleet_->StopCompile();
  RpcClient* second = ModelWorker("b");
  EXPECT_TRUE(AskModel(*second, 5)) << "its first request is answered by plan";
  EXPECT_EQ(PublishedTarget(*second), "sm_90");
  EXPECT_EQ(Stat(*second, "compile_requests"), 0u);
  EXPECT_EQ(failed_ + wrong_, 0);
}

TEST_F(BakedForDevice, ADeviceThatBreaksIsFollowedByPlansForTheProcessor) {
  testing::SetCudaDouble("fail=200:700");
  fleet_->StopCompile();
  ASSERT_TRUE(fleet_->StartCompile({"--nvrtc", testing::kNvrtcDouble}).has_value());
  RpcClient* worker = ModelWorker("a");
  int64_t rows = 0;
  ASSERT_TRUE(Eventually([&] { return AskModel(*worker, 1 + rows++ % 7); }, 180'000));
  ASSERT_TRUE(Eventually([&] {
    AskModel(*worker, 1 + rows++ % 7);
    return Stat(*worker, "device_lost") == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return AskModel(*worker, 1 + rows++ % 7); })) << "by a plan for the processor";
  EXPECT_EQ(PublishedTarget(*worker), InfoOf(HostTargets().front()).name);
  EXPECT_EQ(failed_ + wrong_, 0);
}

TEST_F(BakedForDevice, WithoutNvrtcPlansForTheProcessorAreMadeAndTheDeviceIsAskedForOnce) {
  fleet_->StopCompile();
  ASSERT_TRUE(fleet_->StartCompile({"--nvrtc", testing::kCudaDouble}).has_value()) << "a library that is none";
  RpcClient* worker = ModelWorker("a");
  int64_t rows = 0;
  ASSERT_TRUE(Eventually([&] { return AskModel(*worker, 1 + rows++ % 7); }, 120'000));
  EXPECT_EQ(PublishedTarget(*worker), InfoOf(HostTargets().front()).name);
  EXPECT_EQ(Stat(*worker, "compile_requests"), 2u);
  EXPECT_EQ(Stat(*worker, "compile_failures"), 1u);
  const auto explained = CallExplain(*worker, {.model = "m"}, 10'000);
  ASSERT_TRUE(explained.has_value());
  EXPECT_THAT(explained->host, HasSubstr("the compile service makes no plans for it"));
  EXPECT_EQ(failed_ + wrong_, 0);
}

// What a worker is started with decides whether it goes on without the device that is not there.
TEST(WorkerDevice, WithoutADriverOnlyAnExplicitWishKeepsItFromStarting) {
  unsetenv("LD_LIBRARY_PATH");
  const testing::TempDirectory directory;
  const std::string& path = directory.path();
  const std::string worker =
      KILN_BIN_DIR "/kiln-worker --insecure --keys " + path + "/keys --listen ipc://" + path + "/w.sock --device ";
  for (const char* wish : {"cuda:0", "cuda:x", "gpu", "cuda:-1", ""}) {
    const auto refused = testing::RunShell("timeout 20 " + worker + "'" + wish + "' 2>&1");
    EXPECT_NE(refused.status, 0) << wish;
    EXPECT_THAT(refused.output, HasSubstr("--device")) << wish;
  }
  for (const std::string wish : {"cpu", "auto"}) {
    auto started = cli::ServiceProcess::Start(
        KILN_BIN_DIR "/kiln-worker",
        {"--insecure", "--keys", path + "/keys", "--listen", "ipc://" + path + "/w.sock", "--device", wish},
        path + "/worker.log", 20'000);
    ASSERT_TRUE(started.has_value()) << wish;
    (*started)->Stop();
  }
}

}  // namespace
}  // namespace kiln
