// The control thread before a store that is slow, hung, or gives what is not wanted any more.
#include "vm-worker/tiering/tier_controller.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "common/messaging/rpc_server.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

// Longer than any test waits: what hangs, hangs for all of it.
constexpr int64_t kHungMs = 600'000;
constexpr auto kWait = std::chrono::seconds(60);

bool Eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kWait;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class TierControllerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kiln-tiers-XXXXXX";
    directory_ = ::mkdtemp(path);
    store_loop_ = Loop::Start("store").value();
    loop_ = Loop::Start("worker").value();
    const std::string endpoint = "ipc://" + directory_ + "/store";
    server_ = RpcServer::Listen(*store_loop_, {.endpoints = {endpoint}, .security = {.insecure = true}}).value();
    On(cache::Method::kVariants, [this](Replier reply) {
      cache::VariantsReply variants;
      cache::Variant variant{.plan_key = ComputePlanKey(plan_), .target = plan_.target, .abi = plan_.abi};
      variant.numeric_mode = static_cast<uint8_t>(plan_.numeric_mode);
      variant.evidence.shadow_runs = 3;
      variants.variants.push_back(std::move(variant));
      reply.Ok(cache::Encode(variants));
    });
    On(cache::Method::kChangeLog, [this](Replier reply) {
      ++log_reads_;
      reply.Ok(cache::Encode(changes_));
    });
    On(cache::Method::kGetPlan, [this](Replier reply) {
      if (hangs_) return asked_.push_back(std::move(reply));
      reply.Ok(cache::Encode(cache::GetPlanReply{record_}));
    });
    server_->Serve();
    store_ = cache::CacheClient::Connect(*loop_, {.endpoint = endpoint, .security = {.insecure = true}}).value();
    record_ = EncodeAndSign({.plan_key = ComputePlanKey(plan_),
                             .segment = plan_.segment,
                             .target = plan_.target,
                             .abi = plan_.abi,
                             .guard = EncodeGuard(plan_.guard, plan_.symbols),
                             .plan = EncodePlan(plan_)},
                            key_);
    source_ = std::make_unique<PlanSource>(*store_, nullptr, trusted_, HostTargets().front());
    TierOptions options;
    options.targets = HostTargets();
    options.store_deadline_ms = kHungMs;
    options.change_log_ms = 20;
    options.tick_ms = 5;
    tiers_ = std::make_unique<TierController>(epochs_, store_.get(), source_.get(), nullptr, nullptr, options);
  }
  void TearDown() override {
    if (model_ != nullptr) tiers_->RemoveModel(model_);
    tiers_.reset();
    source_.reset();
    server_.reset();
    store_.reset();
    asked_.clear();
    loop_.reset();
    store_loop_.reset();
    std::filesystem::remove_all(directory_);
  }

  // `handler` runs on the store's loop, as everything that touches what tests change by OnStore.
  void On(cache::Method method, std::function<void(Replier)> handler) {
    server_->Register(
        static_cast<uint16_t>(method), kAnyRole,
        [handler = std::move(handler)](const RequestContext&, Message, Replier reply) { handler(std::move(reply)); });
  }
  void OnStore(const std::function<void()>& change) { store_loop_->RunSync(change); }

  void AddModel() {
    Program program = ParseProgram(R"(program "p" {
      symbol n in [0, 4096]
      func main(%x: f32[n, 4]) -> (%y) {
        %y : f32[n, 4] = Relu(%x)
      }
    })")
                          .value();
    model_ = std::make_shared<Model>("m", LoadedProgram::Load(std::move(program)).value(), epochs_);
    tiers_->AddModel(model_);
  }
  SegmentStatus Segment() const { return tiers_->Segments(*model_).at(0); }
  bool Published() const { return !Segment().published.empty(); }
  bool Asked() {
    bool asked = false;
    OnStore([&] { asked = !asked_.empty(); });
    return asked;
  }
  void Answer() {
    OnStore([this] {
      for (const Replier& reply : asked_) reply.Ok(cache::Encode(cache::GetPlanReply{record_}));
      asked_.clear();
    });
  }

  std::string directory_;
  std::unique_ptr<Loop> store_loop_, loop_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<cache::CacheClient> store_;
  const SigningKey key_ = SigningKey::Generate();
  SignerList trusted_{key_.public_key()};
  const Plan plan_ = testing::ReluPlan(1, 64);
  Bytes record_;
  cache::ChangeLogReply changes_;
  int log_reads_ = 0;
  bool hangs_ = false;
  std::vector<Replier> asked_;
  EpochDomain epochs_;
  std::unique_ptr<PlanSource> source_;
  std::unique_ptr<TierController> tiers_;
  std::shared_ptr<Model> model_;
};

TEST_F(TierControllerTest, APlanThatTheFleetHasProvenIsPublished) {
  AddModel();
  EXPECT_TRUE(tiers_->WaitWarm(60'000));
  EXPECT_TRUE(Published());
}

TEST_F(TierControllerTest, AHungStoreHoldsNoQuestionBack) {
  hangs_ = true;
  AddModel();
  ASSERT_TRUE(Eventually([this] { return Asked(); }));
  auto answers = std::async(std::launch::async, [this] {
    tiers_->Stats();
    tiers_->Segments(*model_);
    tiers_->AddModel(std::make_shared<Model>(
        "other",
        LoadedProgram::Load(ParseProgram("program \"q\" { func main(%x: f32[2]) -> (%y) { %y : f32[2] = "
                                         "Exp(%x) } }")
                                .value())
            .value(),
        epochs_));
  });
  ASSERT_EQ(answers.wait_for(kWait), std::future_status::ready) << "they waited for the store";
  EXPECT_FALSE(Published());
  EXPECT_FALSE(tiers_->WaitWarm(10)) << "a plan is on its way";
  Answer();
  EXPECT_TRUE(Eventually([this] { return Published(); }));
}

TEST_F(TierControllerTest, AHungChangeLogHoldsNoQuestionBack) {
  AddModel();
  ASSERT_TRUE(Eventually([this] { return Published(); }));
  std::vector<Replier> kept;
  auto late =
      RpcServer::Listen(*store_loop_, {.endpoints = {"ipc://" + directory_ + "/late"}, .security = {.insecure = true}})
          .value();
  late->Register(static_cast<uint16_t>(cache::Method::kChangeLog), kAnyRole,
                 [&kept](const RequestContext&, Message, Replier reply) { kept.push_back(std::move(reply)); });
  late->Serve();
  auto store =
      cache::CacheClient::Connect(*loop_, {.endpoint = "ipc://" + directory_ + "/late", .security = {.insecure = true}})
          .value();
  TierOptions options;
  options.targets = HostTargets();
  options.store_deadline_ms = kHungMs;
  auto tiers = std::make_unique<TierController>(epochs_, store.get(), source_.get(), nullptr, nullptr, options);
  ASSERT_TRUE(Eventually([&] {
    bool asked = false;
    OnStore([&] { asked = !kept.empty(); });
    return asked;
  }));
  auto answers = std::async(std::launch::async, [&] { tiers->Stats(); });
  EXPECT_EQ(answers.wait_for(kWait), std::future_status::ready);
  auto ends = std::async(std::launch::async, [&] { tiers.reset(); });
  EXPECT_EQ(ends.wait_for(kWait), std::future_status::ready) << "its end waited for the store";
  OnStore([&] { kept.clear(); });
  late.reset();
}

TEST_F(TierControllerTest, PlansOfASignerThatIsRevokedAreWithdrawn) {
  AddModel();
  ASSERT_TRUE(Eventually([this] { return Published(); }));
  trusted_.Replace({});
  tiers_->OnSignersReplaced();
  EXPECT_TRUE(Eventually([this] { return !Published(); }));
  EXPECT_TRUE(model_->runtime(0).slot.plans().empty()) << "calls do not find it either";
  EXPECT_TRUE(Eventually([this] { return Segment().reason != MissReason::kGuardFailed; }));
}

TEST_F(TierControllerTest, APlanWhoseSignerIsRevokedOnTheWayIsNotTaken) {
  hangs_ = true;
  AddModel();
  ASSERT_TRUE(Eventually([this] { return Asked(); }));
  trusted_.Replace({});
  tiers_->OnSignersReplaced();
  Answer();
  EXPECT_TRUE(Eventually([this] { return tiers_->Stats().rejected > 0; }));
  EXPECT_FALSE(Published());
}

TEST_F(TierControllerTest, APlanThatIsQuarantinedOnTheWayIsNotTaken) {
  hangs_ = true;
  AddModel();
  ASSERT_TRUE(Eventually([this] { return Asked(); }));
  int before = 0;
  OnStore([&] {
    changes_.entries.push_back({1, cache::ChangeKind::kQuarantine, ComputePlanKey(plan_), plan_.segment, plan_.target});
    changes_.head = 1;
    before = log_reads_;
  });
  // A second reading follows when the first one's answer has been taken in.
  ASSERT_TRUE(Eventually([&] {
    bool taken = false;
    OnStore([&] { taken = log_reads_ >= before + 2; });
    return taken;
  }));
  Answer();
  EXPECT_TRUE(tiers_->WaitWarm(60'000));
  EXPECT_FALSE(Published());
}

}  // namespace
}  // namespace kiln
