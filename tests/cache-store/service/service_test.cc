// The service over real sockets, with the client library.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cache-store/service/cache_service.h"
#include "cache-store/store/memory_store.h"
#include "common/cache_api/client.h"
#include "common/security/allow_list.h"
#include "tests/support/temp_directory.h"

namespace kiln::store {
namespace {

constexpr int64_t kWaitMs = 10'000;

Digest D(uint8_t fill) {
  Digest digest;
  digest.bytes.fill(fill);
  return digest;
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class CacheServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    loop_ = Loop::Start("client").value();
  }
  void TearDown() override {
    client_.reset();
    service_.reset();
    loop_.reset();
  }
  std::string Ipc(const std::string& name) const { return "ipc://" + directory_ + "/" + name; }

  void StartPlain() {
    service_ = CacheService::Start(MakeMemoryStore(), {.endpoints = {Ipc("cache")},
                                                       .blob_endpoint = Ipc("blobs"),
                                                       .hint_endpoint = Ipc("hints"),
                                                       .security = {.insecure = true}})
                   .value();
    client_ = cache::CacheClient::Connect(*loop_, {.endpoint = Ipc("cache"),
                                                   .blob_endpoint = Ipc("blobs"),
                                                   .hint_endpoint = Ipc("hints"),
                                                   .security = {.insecure = true},
                                                   .on_new_head = [this](uint64_t head) { seen_head_ = head; }})
                  .value();
  }
  Result<cache::PublishPlanReply> Publish(cache::CacheClient& client, uint8_t number,
                                          const std::vector<Bytes>& kernels) {
    ASSIGN_OR_RETURN(const std::vector<Digest> ids, client.PublishBlobsSync(kernels, kWaitMs));
    PlanRecord record{.plan_key = D(number), .segment = D(200), .target = "x86-64-v3", .guard = {1}, .plan = {2}};
    std::vector<KernelBinding> index;
    for (size_t i = 0; i < ids.size(); ++i) {
      record.kernels.push_back({ids[i], kernels[i].size()});
      index.push_back(BindKernel(D(static_cast<uint8_t>(100 + i)), ids[i], ValidationKind::kExecuted, key_));
    }
    return client.CallSync(cache::PublishPlanRequest{EncodeAndSign(record, key_), index}, kWaitMs);
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  SigningKey key_ = SigningKey::Generate();
  std::atomic<uint64_t> seen_head_{0};
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<CacheService> service_;
  std::unique_ptr<cache::CacheClient> client_;
};

TEST_F(CacheServiceTest, APlanTravelsFromPublisherToWorker) {
  StartPlain();
  const std::vector<Bytes> kernels{Bytes(3'500'000, 1), Bytes(10, 2), Bytes(1 << 20, 3), Bytes(700'000, 4)};
  ASSERT_TRUE(Publish(*client_, 1, kernels)->stored);
  const auto variants = client_->CallSync(cache::VariantsRequest{D(200), {"x86-64-v3"}}, kWaitMs);
  ASSERT_EQ(variants->variants.size(), 1u);
  const auto plan = client_->CallSync(cache::GetPlanRequest{variants->variants[0].plan_key}, kWaitMs);
  const auto decoded = DecodeAndVerify(plan->record, {key_.public_key()});
  ASSERT_TRUE(decoded);
  std::vector<Digest> ids;
  for (const KernelRef& kernel : decoded->record.kernels) ids.push_back(kernel.id);
  ids.insert(ids.begin() + 1, D(99));  // one that is not stored
  const auto blobs = client_->GetBlobsSync(ids, kWaitMs);
  ASSERT_TRUE(blobs) << ToString(blobs.error());
  EXPECT_EQ((*blobs)[0], kernels[0]);
  EXPECT_TRUE((*blobs)[1].empty());
  EXPECT_EQ((*blobs)[2], kernels[1]);
  EXPECT_EQ((*blobs)[3], kernels[2]);
  EXPECT_EQ((*blobs)[4], kernels[3]);
  EXPECT_EQ(client_->CallSync(cache::PingRequest{}, kWaitMs)->version, KILN_VERSION);
  EXPECT_TRUE(client_->GetBlobsSync({}, kWaitMs)->empty());
}

TEST_F(CacheServiceTest, EveryReplyCarriesTheChangeLogHeadAndHintsComeUnasked) {
  StartPlain();
  ASSERT_TRUE(client_->CallSync(cache::PingRequest{}, kWaitMs));
  const uint64_t before = client_->log_head();
  EXPECT_EQ(before, service_->records().head());
  // A change that this client did not make.
  ASSERT_TRUE(Eventually([&] {
    Records& records = service_->records();
    (void)records.Handle(cache::PublishBlobsRequest{{Bytes{1}}}, Caller{});
    PlanRecord record{
        .plan_key = D(static_cast<uint8_t>(records.head())), .segment = D(200), .target = "t", .guard = {}, .plan = {}};
    (void)records.Handle(cache::PublishPlanRequest{EncodeAndSign(record, key_), {}}, Caller{});
    return seen_head_.load() > before;
  }));
  // Failures carry it too.
  EXPECT_EQ(client_->CallSync(cache::GetPlanRequest{D(255)}, kWaitMs).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(Eventually([&] { return client_->log_head() == service_->records().head(); }));
}

TEST_F(CacheServiceTest, RolesOpenAndCloseMethods) {
  const CurveKeyPair server = GenerateCurveKeyPair().value(), worker = GenerateCurveKeyPair().value(),
                     compile = GenerateCurveKeyPair().value(), admin = GenerateCurveKeyPair().value();
  AllowList list;
  ASSERT_TRUE(list.Add(Role::kWorker, worker.public_z85));
  ASSERT_TRUE(list.Add(Role::kCompile, compile.public_z85));
  ASSERT_TRUE(list.Add(Role::kAdmin, admin.public_z85));
  service_ = CacheService::Start(MakeMemoryStore(),
                                 {.endpoints = {"tcp://127.0.0.1:*"},
                                  .security = {.keys = server, .allow_list = std::make_shared<const AllowList>(list)}})
                 .value();
  const auto connect = [&](const CurveKeyPair& keys) {
    return cache::CacheClient::Connect(*loop_, {.endpoint = service_->endpoints()[0],
                                                .security = {.keys = keys, .server_public_z85 = server.public_z85}})
        .value();
  };
  auto as_worker = connect(worker), as_compile = connect(compile), as_admin = connect(admin);
  EXPECT_EQ(as_worker->PublishBlobsSync({Bytes{1}}, kWaitMs).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(Publish(*as_worker, 1, {Bytes{1}}).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(as_worker->CallSync(cache::ClaimRequest{cache::ClaimKind::kPlan, {D(1)}, 1000, "w"}, kWaitMs).error().code,
            ErrorCode::kPermissionDenied);
  EXPECT_TRUE(Publish(*as_compile, 1, {Bytes{1}}));
  EXPECT_EQ(as_compile->CallSync(cache::PurgeRequest{cache::PurgeKind::kPlan, D(1)}, kWaitMs).error().code,
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(as_worker->CallSync(cache::VariantsRequest{D(200), {}}, kWaitMs)->variants.size(), 1u);
  EXPECT_EQ(as_admin->CallSync(cache::PurgeRequest{cache::PurgeKind::kPlan, D(1)}, kWaitMs)->plans, 1u);
}

TEST_F(CacheServiceTest, MalformedPayloadsAreErrorsForEveryMethod) {
  StartPlain();
  auto raw = RpcClient::Connect(*loop_, {.endpoint = Ipc("cache"), .security = {.insecure = true}}).value();
  auto raw_blobs = RpcClient::Connect(*loop_, {.endpoint = Ipc("blobs"), .security = {.insecure = true}}).value();
  for (uint16_t method = 0; method < 40; ++method)
    for (const Bytes& payload : {Bytes{}, Bytes(3, 0xff), Bytes(200, 0xff), Bytes(64, 0)})
      for (RpcClient* client : {raw.get(), raw_blobs.get()}) {
        const auto reply = client->CallSync(method, {payload, {Bytes(10, 1)}}, kWaitMs);
        if (!reply) {
          EXPECT_NE(reply.error().code, ErrorCode::kDeadlineExceeded) << method;
        }
      }
  EXPECT_TRUE(client_->CallSync(cache::PingRequest{}, kWaitMs));
}

// A store that answers kernel requests with other bytes, wrong chunks, or nothing.
TEST_F(CacheServiceTest, LyingStoreNeverGetsWrongKernelsPastTheClient) {
  std::atomic<int> lie{0};
  auto server_loop = Loop::Start("liar").value();
  auto liar = RpcServer::Listen(*server_loop, {.endpoints = {Ipc("liar")}, .security = {.insecure = true}}).value();
  const Bytes good(100, 7);
  liar->Register(static_cast<uint16_t>(cache::Method::kGetBlobs), kAnyRole,
                 [&](const RequestContext&, Message, Replier reply) {
                   cache::BlobChunk chunk{.index = 0, .offset = 0, .total = 100, .found = true, .bytes = good};
                   cache::GetBlobsReply answer;
                   switch (lie.load()) {
                     case 0:
                       chunk.bytes[5] ^= 1;
                       break;
                     case 1:
                       chunk.index = 3;
                       break;
                     case 2:
                       chunk.offset = 50;
                       chunk.total = 1000;
                       break;
                     case 3:
                       chunk.total = uint64_t{1} << 60;
                       break;
                     case 4:
                       return reply.Ok(cache::Encode(answer));
                     case 5:
                       chunk.bytes.clear();
                       break;
                     default:
                       break;
                   }
                   answer.chunks.push_back(chunk);
                   reply.Ok(cache::Encode(answer));
                 });
  liar->Serve();
  client_ = cache::CacheClient::Connect(*loop_, {.endpoint = Ipc("liar"), .security = {.insecure = true}}).value();
  for (; lie < 6; ++lie) EXPECT_FALSE(client_->GetBlobsSync({KernelIdOf(good)}, kWaitMs)) << lie.load();
  EXPECT_EQ(client_->GetBlobsSync({KernelIdOf(good)}, kWaitMs)->at(0), good);
  client_.reset();
  liar.reset();
}

TEST_F(CacheServiceTest, AbsentStoreCostsTheDeadline) {
  client_ = cache::CacheClient::Connect(*loop_, {.endpoint = Ipc("nobody"), .security = {.insecure = true}}).value();
  EXPECT_EQ(client_->CallSync(cache::VariantsRequest{D(1), {}}, 50).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(client_->GetBlobsSync({D(1)}, 50));
}

}  // namespace
}  // namespace kiln::store
