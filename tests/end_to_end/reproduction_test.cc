// A wrong plan in a fleet with keys and one worker: the compile service sees for itself, and no worker uses it any
// more.
#include <gtest/gtest.h>

#include "cli/fleet/fleet_keys.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/publish_plan.h"
#include "tests/end_to_end/seeded_plan.h"

namespace kiln {
namespace {

using testing::Eventually;

constexpr int kReadyMs = 20'000;

class Reproduction : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = Loop::Start("test").value();
    ASSERT_TRUE(cli::CreateFleetKeys(keys_).has_value());
    cache_ = Start("kiln-cache", {"--listen", Socket("cache"), "--blob-listen", Socket("blobs"), "--hint-listen",
                                  Socket("hints"), "--store", "memory:", "--keys", keys_ + "/cache"});
    ASSERT_NE(cache_, nullptr);
    StartCompile();
    cache::CacheClientOptions options;
    options.endpoint = Socket("cache");
    options.blob_endpoint = Socket("blobs");
    options.security = cli::SecurityOfHolder(keys_ + "/compile", "cache").value();
    store_ = cache::CacheClient::Connect(*loop_, std::move(options)).value();
    auto services = onnx_test::CompiledServices::Start(directory_ + "/right", KILN_BIN_DIR);
    ASSERT_TRUE(services.has_value()) << ToString(services.error());
    ASSERT_NO_FATAL_FAILURE(testing::SeedPlan(**services, model_, seeded_));
    testing::PublishPlan(*store_, KeyDirectory::Open(keys_ + "/compile")->LoadSigning("compile").value(), seeded_.plan,
                         seeded_.code);
    path_ = model_.WriteTo(directory_);
  }
  void TearDown() override {
    clients_.clear();
    workers_.clear();
    compile_.reset();
    store_.reset();
    cache_.reset();
    loop_.reset();
  }

  std::string Socket(const std::string& name) const { return "ipc://" + directory_ + "/" + name; }
  std::unique_ptr<cli::ServiceProcess> Start(const std::string& name, std::vector<std::string> arguments) {
    arguments.emplace_back("--die-with-parent");
    auto process = cli::ServiceProcess::Start(std::string(KILN_BIN_DIR) + "/" + name, arguments,
                                              directory_ + "/" + name + ".log", kReadyMs);
    EXPECT_TRUE(process.has_value()) << ToString(process.error());
    return process.has_value() ? std::move(*process) : nullptr;
  }
  void StartCompile() {
    compile_ = Start("kiln-compile", {"--listen", Socket("compile"), "--store", Socket("cache"), "--store-blobs",
                                      Socket("blobs"), "--children", "1", "--keys", keys_ + "/compile"});
    ASSERT_NE(compile_, nullptr);
  }
  RpcClient& StartWorker() {
    const std::string endpoint = Socket("worker" + std::to_string(workers_.size()));
    workers_.push_back(Start("kiln-worker", {"--listen",       endpoint,
                                             "--store",        Socket("cache"),
                                             "--store-blobs",  Socket("blobs"),
                                             "--store-hints",  Socket("hints"),
                                             "--compile",      Socket("compile"),
                                             "--keys",         keys_ + "/worker",
                                             "--hot-ms",       "0",
                                             "--hot-runs",     "4",
                                             "--shadow-share", "1.0",
                                             "--model",        "m=" + path_}));
    clients_.push_back(cli::ConnectTool(*loop_, endpoint, keys_ + "/tool", "worker", kReadyMs).value());
    return *clients_.back();
  }
  // Whether a plan answered.
  bool Ask(RpcClient& worker) {
    const int64_t rows = 1 + asked_++ % 9;
    const auto reply = CallRun(worker, {"m", {{"x", model_.Input(rows)}}}, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return false;
    if (model_.Difference(rows, reply->outputs.at(0).tensor) != "") ++wrong_answers_;
    return reply->timing.plan_segments > 0;
  }
  uint64_t StoreStat(const std::string& name) {
    const auto reply = store_->CallSync(cache::StatsRequest{}, 5'000);
    if (!reply.has_value()) return 0;
    for (const cache::Stat& stat : reply->stats)
      if (stat.name == name) return stat.value;
    ADD_FAILURE() << "the store has no statistic " << name;
    return 0;
  }
  static uint64_t Stat(RpcClient& worker, const std::string& name) {
    const auto reply = CallStats(worker, {}, 5'000);
    return reply.has_value() ? reply->Value(name) : 0;
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  const std::string keys_ = directory_ + "/keys";
  testing::SmallModel model_;
  testing::SeededPlan seeded_;
  std::string path_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<cache::CacheClient> store_;
  std::unique_ptr<cli::ServiceProcess> cache_, compile_;
  std::vector<std::unique_ptr<cli::ServiceProcess>> workers_;
  std::vector<std::unique_ptr<RpcClient>> clients_;
  int64_t asked_ = 0, wrong_answers_ = 0;
};

TEST_F(Reproduction, OneWorkerIsEnoughToProtectTheFleet) {
  RpcClient& worker = StartWorker();
  EXPECT_TRUE(Eventually([&] {
    Ask(worker);
    return StoreStat("plans_quarantined") == 1;
  })) << asked_
      << " requests";
  EXPECT_TRUE(Eventually([&] { return Stat(worker, "reproductions_mismatch") == 1; }));
  // Another code generator's mark stands in nobody's way: the plan is made anew, and is right.
  EXPECT_TRUE(Eventually([&] { return Ask(worker); })) << asked_ << " requests";
  RpcClient& second = StartWorker();
  EXPECT_TRUE(Eventually([&] { return Ask(second); }));
  EXPECT_EQ(Stat(second, "shadow_mismatches"), 0u) << "it never met the wrong plan";
  EXPECT_EQ(wrong_answers_, 0);
  EXPECT_EQ(StoreStat("plans_quarantined"), 1u);
}

TEST_F(Reproduction, TheWordOfOneWorkerAloneIsNot) {
  compile_.reset();
  RpcClient& worker = StartWorker();
  EXPECT_TRUE(Eventually([&] {
    Ask(worker);
    return StoreStat("reports_bad") > 0;  // again where the answer to the first came late
  })) << asked_
      << " requests";
  EXPECT_EQ(StoreStat("plans_quarantined"), 0u);
  // The worker remembers whom to ask.
  StartCompile();
  EXPECT_TRUE(Eventually([&] {
    Ask(worker);
    return StoreStat("plans_quarantined") == 1;
  }));
  EXPECT_EQ(wrong_answers_, 0);
}

}  // namespace
}  // namespace kiln
