// A worker's service in this process: requests, loads and questions beside a fleet that hangs.
#include "vm-worker/service/worker_service.h"

#include <filesystem>
#include <fstream>
#include <future>

#include "common/messaging/rpc_client.h"
#include "common/worker_api/explain.h"
#include "tests/support/captured_log.h"
#include "tests/support/temp_directory.h"
#include "tests/vm-worker/onnx/model_builder.h"
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

constexpr int64_t kWaitMs = 60'000;  // answers that do not wait for anything; far beyond what a busy machine needs

constexpr const char* kRelu = R"(program "p" {
  symbol n in [0, 4096]
  func main(%x: f32[n, 4]) -> (%y) {
    %y : f32[n, 4] = Relu(%x)
  }
})";
constexpr const char* kCell = R"(program "p" {
  func main(%x: f32[4], %s: f32[4]) -> (%next) {
    %next : f32[4] = Add(%x, %s)
  }
})";
constexpr const char* kEndless = R"(program "p" {
  func main(%x: f32[4]) -> (%last) {
    %last : f32[4] = Loop(_, _, %x) body(%i: i64[], %go: bool[], %s: f32[4]) -> (%go, %next) {
      %next : f32[4] = Neg(%s)
    }
  }
})";
constexpr const char* kExpand = R"(program "p" {
  symbol m in [0, 1099511627776]
  func main(%x: f32[1], %shape: i64[1]) -> (%y) {
    %y : f32[m] = Expand(%x, %shape)
  }
})";
constexpr const char* kExpandCopied = R"(program "p" {
  symbol m in [0, 1099511627776]
  func main(%x: f32[1], %shape: i64[1]) -> (%y) {
    %e : f32[m] = Expand(%x, %shape)
    %y : f32[m] = Neg(%e)
  }
})";

// Fetches do not come back before they are let go.
class HungFleet final : public PlanServices {
 public:
  void Variants(const cache::VariantsRequest& request, Done<cache::VariantsReply> done) override {
    fleet_.Variants(request, std::move(done));
  }
  void ReadChangeLog(const cache::ChangeLogRequest& request, Done<cache::ChangeLogReply> done) override {
    fleet_.ReadChangeLog(request, std::move(done));
  }
  void Report(const cache::ReportRequest&, Done<cache::ReportReply>) override {}
  bool CanCompile() const override { return false; }
  void Compile(const CompileRequest&, Done<CompileReply>) override {}
  void Cancel(const Digest&) override {}
  void Reproduce(const ReproduceRequest&, Done<ReproduceReply>) override {}
  Result<FetchedPlan> Fetch(const PlanKey&, const SegmentId&) override {
    std::unique_lock lock(mutex_);
    fetching_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return released_; });
    return Fail(ErrorCode::kDeadlineExceeded, "the store did not answer");
  }
  Status Standing(const PlanKey& key) override { return fleet_.Standing(key); }
  void Forget(const PlanKey&) override {}
  void Remember(const Mark&) override {}
  void Forgive(const PlanKey&) override {}
  std::vector<Mark> Untold() override { return {}; }
  void Told(const PlanKey&) override {}
  bool Trusts(const SignPublicKey&) const override { return true; }

  void WaitUntilAFetchHangs() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return fetching_; });
  }
  void Release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  testing::FakeFleet& fleet() { return fleet_; }

 private:
  testing::FakeFleet fleet_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool fetching_ = false, released_ = false;
};

class WorkerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fleet_.fleet().Publish(testing::ReluPlan(0, 4096));
    TierOptions tier_options;
    tier_options.budget = &budget_;
    tier_options.targets = HostTargets();
    tiers_ = std::make_unique<TierController>(epochs_, &fleet_, InterpretRecipe, tier_options);
    registry_ = std::make_unique<ModelRegistry>(epochs_, *tiers_);
    WorkerServiceOptions options;
    options.run_memory_bytes = size_t{64} << 20;
    options.budget = &budget_;
    service_ = std::make_unique<WorkerService>(*registry_, *tiers_, epochs_, options);
    loop_ = Loop::Start("worker").value();
    const std::string endpoint = "ipc://" + directory_ + "/worker";
    server_ = RpcServer::Listen(*loop_, {.endpoints = {endpoint}, .security = {.insecure = true}}).value();
    service_->RegisterOn(*server_);
    server_->Serve();
    RpcClientOptions client;
    client.endpoint = endpoint;
    client.security.insecure = true;
    client_ = RpcClient::Connect(*loop_, std::move(client)).value();
  }
  void TearDown() override {
    fleet_.Release();
    client_.reset();
    server_->Drain();
    service_.reset();
    server_.reset();
    loop_.reset();
    registry_.reset();
    tiers_.reset();
  }
  Status Load(const std::string& name, const char* text) {
    const std::string path = directory_ + "/" + name + ".kiln";
    std::ofstream(path) << text;
    ASSIGN_OR_RETURN([[maybe_unused]] LoadReply reply, CallLoad(*client_, {name, path}, kWaitMs));
    return {};
  }
  static NamedTensor Row(const std::string& name, const Dims& dims) { return {name, Tensor::Zeros(DType::kF32, dims)}; }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  MemoryBudget budget_{int64_t{80} << 20};
  EpochDomain epochs_;
  HungFleet fleet_;
  std::unique_ptr<TierController> tiers_;
  std::unique_ptr<ModelRegistry> registry_;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<RpcClient> client_;
};

TEST_F(WorkerServiceTest, AHungStoreHoldsUpNoRequestOfAnyKind) {
  ASSERT_TRUE(Load("relu", kRelu).has_value());
  fleet_.WaitUntilAFetchHangs();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(CallRun(*client_, {"relu", {Row("x", {3, 4})}}, kWaitMs).has_value());
  EXPECT_TRUE(Load("cell", kCell).has_value());
  const auto stream = CallOpenStream(*client_, {"cell", {{"s", "next"}}, {}}, kWaitMs);
  ASSERT_TRUE(stream.has_value()) << ToString(stream.error());
  EXPECT_TRUE(CallRun(*client_, {"cell", {Row("x", {4})}, stream->stream}, kWaitMs).has_value());
  EXPECT_TRUE(CallCloseStream(*client_, {stream->stream}, kWaitMs).has_value());
  EXPECT_TRUE(CallStats(*client_, {"relu"}, kWaitMs).has_value());
  EXPECT_TRUE(CallUnload(*client_, {"relu"}, kWaitMs).has_value());
  EXPECT_EQ(fleet_.fleet().fetches_asked, 0) << "none of it waited for the fetch, which hangs still";
}

TEST_F(WorkerServiceTest, AnEndlessLoopEndsAtItsDeadlineAndTheThreadAnswersAgain) {
  ASSERT_TRUE(Load("endless", kEndless).has_value());
  ASSERT_TRUE(Load("relu", kRelu).has_value());
  EXPECT_EQ(CallRun(*client_, {"endless", {Row("x", {4})}}, 200).error().code, ErrorCode::kDeadlineExceeded);
  const auto next = CallRun(*client_, {"relu", {Row("x", {3, 4})}}, kWaitMs);
  EXPECT_TRUE(next.has_value()) << ToString(next.error());
}

// As the programs' own binding does; any other shape stays an error.
TEST_F(WorkerServiceTest, TakesOneElementForADeclaredScalarInRunsAndStreams) {
  ASSERT_TRUE(Load("scaled", R"(program "scaled" {
    func main(%x: f32[4], %s: f32[4], %rate: f32[]) -> (%y, %next) {
      %y : f32[4] = Mul(%x, %rate)
      %next : f32[4] = Add(%s, %y) } })")
                  .has_value());
  for (const Dims& dims : {Dims{}, Dims{1}}) {
    const auto reply = CallRun(*client_, {"scaled", {Row("x", {4}), Row("s", {4}), Row("rate", dims)}}, kWaitMs);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    const auto stream = CallOpenStream(*client_, {"scaled", {{"s", "next"}}, {}}, kWaitMs);
    ASSERT_TRUE(stream.has_value()) << ToString(stream.error());
    const auto step = CallRun(*client_, {"scaled", {Row("x", {4}), Row("rate", dims)}, stream->stream}, kWaitMs);
    EXPECT_TRUE(step.has_value()) << ToString(step.error());
  }
  for (const Dims& dims : {Dims{2}, Dims{1, 1}, Dims{0}}) {
    const auto reply = CallRun(*client_, {"scaled", {Row("x", {4}), Row("s", {4}), Row("rate", dims)}}, kWaitMs);
    ASSERT_FALSE(reply.has_value());
    EXPECT_EQ(reply.error().code, ErrorCode::kShapeMismatch);
    EXPECT_NE(reply.error().message.find("rate"), std::string::npos);
  }
}

TEST_F(WorkerServiceTest, ALostStreamIsAnErrorOfItsOwnAndAFlagToCallersThatDoNotKnowIt) {
  const auto open = [&] { return CallOpenStream(*client_, {"cell", {{"s", "next"}}, {}}, kWaitMs)->stream; };
  const auto run = [&](uint64_t stream) { return CallRun(*client_, {"cell", {Row("x", {4})}, stream}, kWaitMs); };
  ASSERT_TRUE(Load("cell", kCell).has_value());
  const uint64_t closed = open(), unloaded = open(), never = 12345;
  ASSERT_TRUE(run(closed).has_value());
  ASSERT_TRUE(CallCloseStream(*client_, {closed}, kWaitMs).has_value());
  EXPECT_EQ(run(closed).error().code, ErrorCode::kStateLost);
  EXPECT_TRUE(run(unloaded).has_value());
  ASSERT_TRUE(CallUnload(*client_, {"cell"}, kWaitMs).has_value());
  ASSERT_TRUE(Load("cell", kCell).has_value());
  EXPECT_EQ(run(unloaded).error().code, ErrorCode::kStateLost);
  EXPECT_EQ(run(never).error().code, ErrorCode::kStateLost) << "of a worker that restarted";

  RunRequest old{"cell", {Row("x", {4})}, never};
  old.knows_state_lost = false;
  const auto raw = client_->CallSync(static_cast<uint16_t>(WorkerMethod::kRun), Encode(old), kWaitMs);
  ASSERT_TRUE(raw.has_value()) << ToString(raw.error());
  RunReply reply;
  ASSERT_TRUE(Decode(raw->message, reply).has_value());
  EXPECT_TRUE(reply.state_lost);
  EXPECT_EQ(CallRun(*client_, old, kWaitMs).error().code, ErrorCode::kStateLost) << "as of a worker before the error";
}

// By the trace id that the caller chose, and by what it asked about.
TEST_F(WorkerServiceTest, AFailedRequestIsLoggedWithItsModelAndStream) {
  ASSERT_TRUE(Load("cell", kCell).has_value());
  const testing::CapturedLog log;
  EXPECT_FALSE(CallRun(*client_, {"cell", {Row("x", {5}), Row("s", {4})}}, kWaitMs).has_value());
  EXPECT_FALSE(CallRun(*client_, {"cell", {Row("x", {4})}, 12345}, kWaitMs).has_value());
  EXPECT_FALSE(CallRun(*client_, {"absent\nmodel", {}}, kWaitMs).has_value());
  EXPECT_FALSE(CallUnload(*client_, {"nothing"}, kWaitMs).has_value());
  EXPECT_FALSE(CallExplain(*client_, {"unknown", "", "", false}, kWaitMs).has_value());
  const auto told = [&](const std::string& of) {
    return std::ranges::any_of(log.Lines(), [&](const std::string& line) {
      return line.contains("request ") && line.contains(" of " + of + " failed: ");
    });
  };
  for (const char* of :
       {"model cell", "model cell, stream 12345", "model absent\\nmodel", "model nothing", "model unknown"})
    EXPECT_TRUE(told(of)) << of;
}

TEST_F(WorkerServiceTest, AModelThatNoSizesSatisfyIsRefusedAtItsLoad) {
  const Status status = Load("none", R"(program "p" {
    symbol n in [1, 8]
    constraint 2*n == 9
    func main(%x: f32[n]) -> (%y) {
      %y : f32[n] = Relu(%x)
    }
  })");
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("constraint 2*n == 9 cannot hold"), std::string::npos)
      << status.error().message;
}

TEST_F(WorkerServiceTest, OneFileIsOneModelHoweverItsPathIsSpelled) {
  const char* text = "program \"m\" { func main(%x: f32[4]) -> (%y) { %y : f32[4] = Neg(%x) } }";
  const std::filesystem::path path = std::filesystem::path(directory_) / "model.kiln";
  std::ofstream(path) << text;
  std::ofstream(directory_ + "/other.kiln") << text;
  std::filesystem::create_symlink(path, directory_ + "/link.kiln");
  const std::string relative = std::filesystem::relative(path).string();
  for (const std::string& spelling :
       {relative, path.string(), directory_ + "/./model.kiln", directory_ + "/link.kiln", "./" + relative}) {
    const auto reply = CallLoad(*client_, {"m", spelling}, kWaitMs);
    EXPECT_TRUE(reply.has_value()) << spelling;
  }
  const auto other = CallLoad(*client_, {"m", directory_ + "/other.kiln"}, kWaitMs);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::kAlreadyExists);
}

// The thread of loads is held up by a program of so many nodes that it takes its time: what needs a load waits there,
// and nothing else waits.
TEST_F(WorkerServiceTest, AVariantThatIsBeingLoadedHoldsUpNoOtherRequest) {
  onnx::TestModel model(13);
  model.Input(onnx::Tensor32("x", {4})).Input(onnx::Tensor32("w", {4}));
  model.Initializer(onnx::FloatTensor("w", {4}, {1, 2, 3, 4}));
  model.Node("Add", {"x", "w"}, {"y"}).Output("y");
  const std::string path = directory_ + "/optional.onnx", slow = directory_ + "/slow.kiln";
  std::ofstream(path) << model.Bytes();
  ASSERT_TRUE(CallLoad(*client_, {"optional", path}, kWaitMs).has_value());
  {
    std::ofstream file(slow);
    file << "program \"slow\" {\n  func main(%v0: f32[4]) -> (%v20000) {\n";
    for (int i = 0; i < 20'000; ++i) file << "    %v" << i + 1 << " : f32[4] = Neg(%v" << i << ")\n";
    file << "  }\n}\n";
  }
  std::promise<void> slow_ended;
  client_->Call(static_cast<uint16_t>(WorkerMethod::kLoad), Encode(LoadRequest{"slow", slow}), kWaitMs,
                [&](Result<RpcReply>) { slow_ended.set_value(); });
  std::promise<Result<RpcReply>> first, second;
  const auto run = [&](std::promise<Result<RpcReply>>& answer, int64_t deadline_ms) {
    client_->Call(static_cast<uint16_t>(WorkerMethod::kRun),
                  Encode(RunRequest{"optional", {Row("x", {4}), Row("w", {4})}, 0}), deadline_ms,
                  [&answer](Result<RpcReply> reply) { answer.set_value(std::move(reply)); });
  };
  run(first, kWaitMs);
  run(second, kWaitMs);
  const auto plain = CallRun(*client_, {"optional", {Row("x", {4})}}, kWaitMs);
  ASSERT_TRUE(plain.has_value()) << ToString(plain.error());
  EXPECT_EQ(plain->outputs.at(0).tensor.ref.as<float>()[3], 4.0f);
  std::future<Result<RpcReply>> answers[] = {first.get_future(), second.get_future()};
  for (const auto& answer : answers)
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "the load is still under way";

  slow_ended.get_future().wait();
  for (std::future<Result<RpcReply>>& answer : answers) {
    const Result<RpcReply> reply = answer.get();
    ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
    RunReply ran;
    ASSERT_TRUE(Decode(reply->message, ran).has_value());
    EXPECT_EQ(ran.outputs.at(0).tensor.ref.as<float>()[3], 0.0f) << "with the caller's own w";
  }
}

// The only request thread is busy: what comes now waits, and waiting costs memory.
TEST_F(WorkerServiceTest, RequestsThatWaitHoldNoMoreThanTheirShareOfTheBudget) {
  ASSERT_TRUE(Load("endless", kEndless).has_value());
  ASSERT_TRUE(Load("relu", kRelu).has_value());
  std::promise<void> ended;
  client_->Call(static_cast<uint16_t>(WorkerMethod::kRun), Encode(RunRequest{"endless", {Row("x", {4})}, 0}), 2'000,
                [&](Result<RpcReply>) { ended.set_value(); });
  constexpr int kRequests = 20;
  std::atomic<int> busy{0}, waiting{kRequests};
  std::atomic<int64_t> most{0};
  for (int i = 0; i < kRequests; ++i)  // of 4 MiB each; 40 MiB are the requests' share
    client_->CallDetailed(static_cast<uint16_t>(WorkerMethod::kRun),
                          Encode(RunRequest{"relu", {Row("x", {int64_t{1} << 18, 4})}, 0}), 1'500,
                          [&](std::expected<RpcReply, RpcFailure> reply) {
                            if (!reply.has_value() && reply.error().error.code == ErrorCode::kBusy) {
                              EXPECT_GT(reply.error().retry_after_ms, 0u);
                              ++busy;
                            }
                            most = std::max<int64_t>(most, budget_.used(MemoryUse::kRequests));
                            --waiting;
                          });
  ended.get_future().wait();
  while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(busy, kRequests / 2);
  EXPECT_LT(busy, kRequests);
  EXPECT_LE(most, int64_t{40} << 20);
  for (int i = 0; i < 1'000 && budget_.used(MemoryUse::kRequests) > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(budget_.used(MemoryUse::kRequests), 0) << "what expired was let go as well";
  const auto large = CallRun(*client_, {"relu", {Row("x", {int64_t{3} << 20, 4})}}, kWaitMs);  // 48 MiB
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kLimitExceeded) << ToString(large.error());
}

// More runs wait than there are slots: who watches the worker must still hear that it lives.
TEST_F(WorkerServiceTest, PingAndListAreAnsweredHoweverManyRequestsWait) {
  ASSERT_TRUE(Load("endless", kEndless).has_value());
  constexpr int kRequests = static_cast<int>(limits::kRequestQueueDefault) + 20;
  std::atomic<int> busy{0}, waiting{kRequests};
  for (int i = 0; i < kRequests; ++i)
    client_->Call(static_cast<uint16_t>(WorkerMethod::kRun), Encode(RunRequest{"endless", {Row("x", {4})}, 0}), 1'000,
                  [&](Result<RpcReply> reply) {
                    if (!reply.has_value() && reply.error().code == ErrorCode::kBusy) ++busy;
                    --waiting;
                  });
  for (const WorkerMethod method : {WorkerMethod::kPing, WorkerMethod::kList}) {
    const auto answer = client_->CallSync(static_cast<uint16_t>(method), {}, kWaitMs);
    EXPECT_TRUE(answer.has_value()) << ToString(answer.error());
  }
  EXPECT_GT(busy, 0) << "the slots were taken";
  EXPECT_GT(waiting, 0) << "and are so still";
  while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_F(WorkerServiceTest, ASizeThatTheCallerChoseIsRefusedByTheLimitItWouldPass) {
  const struct {
    const char* model;
    const char* text;
    ErrorCode code;
    const char* limit;
  } cases[] = {{"view", kExpand, ErrorCode::kLimitExceeded, "66060288"},               // of an answer
               {"copied", kExpandCopied, ErrorCode::kResourceExhausted, "67108864"}};  // of a run's memory
  for (const auto& [model, text, code, limit] : cases) {
    ASSERT_TRUE(Load(model, text).has_value());
    const auto run = [&](int64_t size) {
      const std::vector<int64_t> shape = {size};
      return CallRun(*client_, {model, {Row("x", {1}), {"shape", Tensor::Of<int64_t>(DType::kI64, {1}, shape)}}},
                     kWaitMs);
    };
    for (const int64_t size : {int64_t{1} << 25, int64_t{1} << 37}) {
      const auto refused = run(size);
      ASSERT_FALSE(refused.has_value()) << model << " " << size;
      EXPECT_EQ(refused.error().code, code) << model << ": " << ToString(refused.error());
      EXPECT_NE(refused.error().message.find(limit), std::string::npos) << refused.error().message;
    }
    const auto fits = run(1000);
    ASSERT_TRUE(fits.has_value()) << ToString(fits.error());
    EXPECT_EQ(fits->outputs.at(0).tensor.dims(), Dims{1000});
  }
}

}  // namespace
}  // namespace kiln
