#include <gtest/gtest.h>

#include "common/security/allow_list.h"
#include "tests/common/messaging/fixture.h"

namespace kiln {
namespace {

class CurveTest : public MessagingTest {
 protected:
  void SetUp() override {
    MessagingTest::SetUp();
    server_keys_ = GenerateCurveKeyPair().value();
    AllowList list;
    ASSERT_TRUE(list.Add(Role::kWorker, worker_.public_z85));
    ASSERT_TRUE(list.Add(Role::kAdmin, admin_.public_z85));
    allowed_ = std::make_shared<const AllowList>(std::move(list));
    server_ =
        StartServer({.endpoints = {"tcp://127.0.0.1:*"}, .security = {.keys = server_keys_, .allow_list = allowed_}});
  }
  void TearDown() override {
    server_.reset();
    MessagingTest::TearDown();
  }
  std::unique_ptr<RpcClient> ConnectAs(const CurveKeyPair& keys, const std::string& server_key) {
    return RpcClient::Connect(*client_loop_, {.endpoint = server_->endpoints()[0],
                                              .security = {.keys = keys, .server_public_z85 = server_key},
                                              .reconnect_max_ms = 50})
        .value();
  }

  std::shared_ptr<const AllowList> allowed_;
  CurveKeyPair server_keys_;
  CurveKeyPair worker_ = GenerateCurveKeyPair().value(), admin_ = GenerateCurveKeyPair().value();
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CurveTest, ListedKeysGetTheirRoleOnEachRequest) {
  EXPECT_EQ(Echo(*ConnectAs(worker_, server_keys_.public_z85), "who"), "worker " + worker_.public_z85);
  auto admin = ConnectAs(admin_, server_keys_.public_z85);
  EXPECT_EQ(Echo(*admin, "who"), "admin " + admin_.public_z85);
  EXPECT_TRUE(admin->CallSync(kAdminMethod, {}, 5000));
}

TEST_F(CurveTest, MethodsAreClosedToOtherRoles) {
  auto worker = ConnectAs(worker_, server_keys_.public_z85);
  const auto refused = worker->CallSync(kAdminMethod, {}, 5000);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(refused.error().message, "role worker may not call Sweep (for this test); it takes a key of role admin");
  EXPECT_EQ(server_->Stats().refused, 1u);
}

TEST_F(CurveTest, UnknownKeyNeverReachesAHandlerAndTheErrorSaysWhy) {
  auto stranger = ConnectAs(GenerateCurveKeyPair().value(), server_keys_.public_z85);
  const auto reply = stranger->CallSync(kEcho, {}, 1000);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(reply.error().message.find("refuses our key"), std::string::npos) << reply.error().message;
  EXPECT_EQ(server_->Stats().requests, 0u);
}

TEST_F(CurveTest, AClientThatWasRefusedIsServedOnceItsKeyIsAllowed) {
  const CurveKeyPair late = GenerateCurveKeyPair().value();
  auto client = ConnectAs(late, server_keys_.public_z85);
  const auto refused = client->CallSync(kEcho, {}, 500);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("refuses our key"), std::string::npos) << refused.error().message;
  AllowList longer;
  ASSERT_TRUE(longer.Add(Role::kWorker, late.public_z85));
  allowed_->Replace(longer);
  EXPECT_TRUE(Eventually([&] { return Echo(*client, "who", 500) == "worker " + late.public_z85; }));
}

TEST_F(CurveTest, WrongServerKeyAndPlaintextAreRefused) {
  auto misled = ConnectAs(worker_, GenerateCurveKeyPair()->public_z85);
  EXPECT_EQ(misled->CallSync(kEcho, {}, 300).error().code, ErrorCode::kDeadlineExceeded);
  auto plain = StartClient(server_->endpoints()[0]);
  EXPECT_EQ(plain->CallSync(kEcho, {}, 300).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(server_->Stats().requests, 0u);
}

}  // namespace
}  // namespace kiln
