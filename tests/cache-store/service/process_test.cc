// The real binary: ready line, clean stop, exclusive store, and kill -9 in the middle of publishing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "common/cache_api/client.h"
#include "common/security/key_directory.h"
#include "tests/support/scrape.h"
#include "tests/support/shell.h"
#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

constexpr int64_t kWaitMs = 10'000;
constexpr int64_t kPublishMs = 500;  // what a publish into a dead store may cost the test

// One kiln-cache process; killed with the test.
class CacheProcess {
 public:
  explicit CacheProcess(const std::string& directory)
      : CacheProcess({"--insecure", "--listen", "ipc://" + directory + "/cache", "--blob-listen",
                      "ipc://" + directory + "/blobs", "--store", "rocksdb:" + directory + "/db"}) {}
  explicit CacheProcess(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {KILN_BIN_DIR "/kiln-cache", "--log-level", "off", "--die-with-parent"});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::close(out[1]);
    char c;
    while (::read(out[0], &c, 1) == 1 && c != '\n') first_line_.push_back(c);
    ::close(out[0]);
  }
  ~CacheProcess() { Stop(SIGKILL); }
  // The exit status, or minus the signal.
  int Stop(int signal) {
    if (pid_ <= 0) return 0;
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Signal(int signal) const { ::kill(pid_, signal); }
  const std::string& first_line() const { return first_line_; }

 private:
  pid_t pid_ = -1;
  std::string first_line_;
};

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { loop_ = Loop::Start("client").value(); }
  void TearDown() override { loop_.reset(); }
  std::unique_ptr<cache::CacheClient> Connect() {
    return cache::CacheClient::Connect(*loop_, {.endpoint = "ipc://" + directory_ + "/cache",
                                                .blob_endpoint = "ipc://" + directory_ + "/blobs",
                                                .security = {.insecure = true}})
        .value();
  }
  // Plan `number` with three kernels that only it needs.
  Status Publish(cache::CacheClient& client, uint32_t number) {
    std::vector<Bytes> kernels;
    for (uint8_t i = 0; i < 3; ++i) {
      Bytes kernel(20'000, i);
      std::memcpy(kernel.data(), &number, sizeof number);
      kernels.push_back(std::move(kernel));
    }
    ASSIGN_OR_RETURN(const auto ids, client.PublishBlobsSync(kernels, kPublishMs));
    PlanRecord record{.plan_key = FieldHasher("test.plan").U32(number).Finish(),
                      .segment = FieldHasher("test.segment").Finish(),
                      .target = "x86-64-v3"};
    for (const Digest& id : ids) record.kernels.push_back({id, 20'000});
    RETURN_IF_ERROR(client.CallSync(cache::PublishPlanRequest{EncodeAndSign(record, key_), {}}, kPublishMs));
    return {};
  }

  // What `kiln cache` with these arguments prints; its exit status into `status`.
  std::string Tool(const std::string& arguments, int* status) {
    const std::string command =
        KILN_BIN_DIR "/kiln cache --store ipc://" + directory_ + "/cache " + arguments + " 2>&1";
    testing::ShellRun run = testing::RunShell(command);
    *status = run.status;
    return std::move(run.output);
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  SigningKey key_ = SigningKey::Generate();
  std::unique_ptr<Loop> loop_;
};

TEST_F(ProcessTest, SaysWhenItIsReadyAndStopsCleanly) {
  CacheProcess process(directory_);
  EXPECT_EQ(process.first_line(), "ready listen=ipc://" + directory_ + "/cache blobs=ipc://" + directory_ + "/blobs");
  EXPECT_TRUE(Connect()->CallSync(cache::PingRequest{}, kWaitMs));
  EXPECT_EQ(process.Stop(SIGTERM), 0);
}

TEST_F(ProcessTest, RefusesASecondOwnerOfTheStoreAndPlaintextWithoutTheFlag) {
  CacheProcess first(directory_);
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--insecure", "--listen", "ipc://" + directory_ + "/other", "--store", "rocksdb:" + directory_ + "/db"},
           {"--insecure", "--listen", "tcp://0.0.0.0:7399", "--store", "memory:"},
           {"--listen", "ipc://" + directory_ + "/other", "--store", "memory:"},
           {"--insecure", "--listen", "ipc://" + directory_ + "/other"},
           {"--insecure", "--listen", "ipc://" + directory_ + "/other", "--store", "nonsense:"}}) {
    CacheProcess refused(arguments);
    EXPECT_EQ(refused.first_line(), "");
    const int status = refused.Stop(0);
    EXPECT_TRUE(status == 2 || status == 3) << status;
  }
}

TEST_F(ProcessTest, AdministratorsPinQuarantineAndPurgeFromTheCommandLine) {
  CacheProcess process(directory_);
  auto client = Connect();
  for (uint32_t plan = 1; plan <= 3; ++plan) ASSERT_TRUE(Publish(*client, plan));
  const auto key = [](uint32_t number) { return FieldHasher("test.plan").U32(number).Finish(); };
  const auto summary = [&](uint32_t number) {
    const auto page = client->CallSync(cache::ListRequest{}, kWaitMs);
    for (const cache::PlanSummary& plan : page->plans)
      if (plan.plan_key == key(number)) return std::optional(plan);
    return std::optional<cache::PlanSummary>();
  };
  int status = 0;
  EXPECT_NE(Tool("pin " + key(1).Hex() + " " + key(2).Hex(), &status).find("pinned"), std::string::npos);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(summary(1)->pinned && summary(2)->pinned && !summary(3)->pinned);
  Tool("unpin " + key(2).Hex(), &status);
  EXPECT_FALSE(summary(2)->pinned);
  Tool("quarantine " + key(3).Hex(), &status);
  EXPECT_TRUE(summary(3)->quarantined);
  Tool("quarantine --lift " + key(3).Hex(), &status);
  EXPECT_FALSE(summary(3)->quarantined);
  EXPECT_EQ(Tool("purge --target x86-64-v3 --dry-run", &status), "3 plans would be purged\n");
  EXPECT_TRUE(summary(1).has_value());
  EXPECT_EQ(Tool("purge " + key(1).Hex(), &status), "1 plans purged\n");
  EXPECT_FALSE(summary(1).has_value());
  const std::string segment = FieldHasher("test.segment").Finish().Hex();
  EXPECT_EQ(Tool("purge --dry-run --segment " + segment, &status), "2 plans would be purged\n");
  EXPECT_NE(Tool("ls --segment " + segment.substr(0, 12), &status).find(key(2).ShortHex()), std::string::npos);
  EXPECT_EQ(Tool("--json purge --segment " + segment.substr(0, 12), &status), "{\"dry_run\":false,\"plans\":2}\n");
  EXPECT_NE(Tool("purge --target nosuch", &status).find("there are x86-64-v2, x86-64-v3, "), std::string::npos);
  EXPECT_EQ(status, 2);
  for (const char* wrong : {"purge", "purge --segment 12", "pin", "pin zz"}) {
    Tool(wrong, &status);
    EXPECT_NE(status, 0) << wrong;
  }
}

TEST_F(ProcessTest, AnswersMetrics) {
  CacheProcess process({"--insecure", "--listen", "ipc://" + directory_ + "/cache", "--blob-listen",
                        "ipc://" + directory_ + "/blobs", "--store", "memory:", "--metrics", "127.0.0.1:0"});
  const size_t at = process.first_line().find("metrics=");
  ASSERT_NE(at, std::string::npos) << process.first_line();
  auto client = Connect();
  ASSERT_TRUE(Publish(*client, 1));
  const std::string page = testing::Scrape(process.first_line().substr(at + std::strlen("metrics=")));
  EXPECT_NE(page.find("kiln_cache_plans 1"), std::string::npos) << page;
  EXPECT_NE(page.find("kiln_cache_events_total{event=\"blobs_stored\"} 3"), std::string::npos) << page;
}

TEST_F(ProcessTest, ReadsItsListsAgainOnSighup) {
  const auto keys = KeyDirectory::Create(directory_ + "/keys").value();
  const CurveKeyPair server = keys.LoadOrCreateCurve("cache").value(), first = GenerateCurveKeyPair().value(),
                     second = GenerateCurveKeyPair().value();
  ASSERT_TRUE(keys.Allow(Role::kCompile, first.public_z85, "first"));
  ASSERT_TRUE(keys.Trust(SigningKey::Generate().public_key(), "another"));
  CacheProcess process({"--keys", keys.path(), "--listen", "tcp://127.0.0.1:*", "--store", "memory:"});
  ASSERT_TRUE(process.first_line().starts_with("ready listen=tcp://")) << process.first_line();
  const auto connect = [&](const CurveKeyPair& pair) {
    return cache::CacheClient::Connect(*loop_, {.endpoint = process.first_line().substr(std::strlen("ready listen=")),
                                                .security = {.keys = pair, .server_public_z85 = server.public_z85}})
        .value();
  };
  auto client = connect(first);
  ASSERT_TRUE(client->CallSync(cache::PingRequest{}, kWaitMs));
  EXPECT_EQ(Publish(*client, 1).error().code, ErrorCode::kIntegrityFailure) << "nobody trusts the signer yet";
  ASSERT_TRUE(keys.Trust(key_.public_key(), "test"));
  process.Signal(SIGHUP);
  const auto eventually = [](const std::function<bool()>& done) {
    for (int i = 0; i < 500 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return done();
  };
  EXPECT_TRUE(eventually([&] { return Publish(*client, 1).has_value(); }));

  std::filesystem::remove(keys.path() + "/allow.list");
  ASSERT_TRUE(keys.Allow(Role::kCompile, second.public_z85, "second"));
  process.Signal(SIGHUP);
  EXPECT_TRUE(eventually([&] {
    const auto refused = client->CallSync(cache::PingRequest{}, kWaitMs);
    return !refused.has_value() && refused.error().code == ErrorCode::kPermissionDenied;
  })) << "a peer that is connected already";
  EXPECT_TRUE(connect(second)->CallSync(cache::PingRequest{}, kWaitMs));

  std::filesystem::remove(keys.path() + "/allow.list");
  process.Signal(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(connect(second)->CallSync(cache::PingRequest{}, kWaitMs)) << "a list that cannot be read changes nothing";
}

// Publishing goes on while the store is killed at random moments. After each restart every plan it names is whole, and
// every plan whose publish was acknowledged is there.
TEST_F(ProcessTest, KillAtAnyMomentLeavesNoHalfEntry) {
  std::random_device device;
  const uint32_t seed = device();
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  std::atomic<uint32_t> next{1}, acknowledged{0};
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    CacheProcess process(directory_);
    ASSERT_TRUE(process.first_line().starts_with("ready"));
    auto client = Connect();
    uint32_t found = 0;
    Digest after;
    for (;;) {
      const auto page = client->CallSync(cache::ListRequest{.after = after}, kWaitMs);
      ASSERT_TRUE(page) << ToString(page.error());
      if (page->plans.empty()) break;
      for (const cache::PlanSummary& plan : page->plans) {
        const auto record = client->CallSync(cache::GetPlanRequest{plan.plan_key}, kWaitMs);
        ASSERT_TRUE(record) << ToString(record.error());
        const auto decoded = DecodeAndVerify(record->record, {key_.public_key()});
        ASSERT_TRUE(decoded);
        std::vector<Digest> ids;
        for (const KernelRef& kernel : decoded->record.kernels) ids.push_back(kernel.id);
        const auto blobs = client->GetBlobsSync(ids, kWaitMs);
        ASSERT_TRUE(blobs) << ToString(blobs.error());
        for (const Bytes& blob : *blobs) ASSERT_EQ(blob.size(), 20'000u);
        ++found;
      }
      after = page->plans.back().plan_key;
    }
    EXPECT_GE(found, acknowledged.load());
    std::atomic<bool> stop{false};
    std::thread publisher([&] {
      while (!stop) {
        const Status status = Publish(*client, next++);
        if (status) ++acknowledged;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    EXPECT_EQ(process.Stop(SIGKILL), -SIGKILL);
    stop = true;
    publisher.join();
  }
  EXPECT_GT(acknowledged.load(), 0u);
}

}  // namespace
}  // namespace kiln
