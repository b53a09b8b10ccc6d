#include "cli/fleet/fleet_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/security/key_directory.h"
#include "common/worker_api/worker_api.h"
#include "tests/support/temp_directory.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

class FleetKeys : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = CreateFleetKeys(directory_);
    ASSERT_TRUE(status.has_value()) << ToString(status.error());
  }
  KeyDirectory Of(std::string_view holder) const {
    return KeyDirectory::Open(directory_ + "/" + std::string(holder)).value();
  }
  const testing::TempDirectory temp_directory_;
  const std::string directory_ = temp_directory_.path() + "/keys";
};

TEST_F(FleetKeys, OnlyTheToolAndTheAdministratorMayLoadModels) {
  const AllowList list = Of("worker").LoadAllowList().value();
  const auto may_load = [&](std::string_view holder) {
    const Role role = list.RoleOf(Of("worker").LoadCurvePublic(holder).value()).value();
    for (const WorkerMethod method : {WorkerMethod::kRun, WorkerMethod::kOpenStream, WorkerMethod::kList})
      EXPECT_NE(MethodRoles(method) & RoleBit(role), 0) << holder;
    EXPECT_EQ(MethodRoles(WorkerMethod::kLoad), MethodRoles(WorkerMethod::kUnload));
    return (MethodRoles(WorkerMethod::kLoad) & RoleBit(role)) != 0;
  };
  EXPECT_TRUE(may_load("tool") && may_load("admin"));
  EXPECT_FALSE(may_load("worker") || may_load("cache") || may_load("compile"));
}

TEST_F(FleetKeys, NoDirectoryHoldsAnothersSecret) {
  for (const KeyHolder& holder : KeyHolders())
    for (const auto& entry : fs::directory_iterator(directory_ + "/" + std::string(holder.name))) {
      const std::string file = entry.path().filename().string();
      EXPECT_TRUE(!file.ends_with(".secret") || file.starts_with(std::string(holder.name) + ".")) << entry.path();
    }
}

TEST_F(FleetKeys, EveryHolderCanReachEveryServiceInItsRole) {
  for (const KeyHolder& holder : KeyHolders())
    for (const std::string_view service : {"cache", "compile", "worker"}) {
      const auto client = Of(holder.name).ClientFor(holder.name, service);
      const auto server = Of(service).ServerFor(service);
      ASSERT_TRUE(client.has_value() && server.has_value());
      EXPECT_EQ(client->server_public_z85, server->keys.public_z85);
      EXPECT_EQ(server->allow_list->RoleOf(client->keys.public_z85).value(), holder.role) << holder.name;
    }
}

TEST_F(FleetKeys, AllTrustTheCompileServicesSignature) {
  const SignPublicKey signer = Of("compile").LoadSigning("compile")->public_key();
  for (const KeyHolder& holder : KeyHolders())
    EXPECT_EQ(Of(holder.name).LoadTrustedSigners().value(), TrustedSigners{signer});
}

TEST_F(FleetKeys, RunningAgainKeepsTheKeysAndReplacesALostOneEverywhere) {
  const std::string before = Of("worker").LoadCurve("worker")->public_z85;
  ASSERT_TRUE(CreateFleetKeys(directory_).has_value());
  EXPECT_EQ(Of("worker").LoadCurve("worker")->public_z85, before);
  EXPECT_EQ(Of("cache").LoadAllowList()->size(), KeyHolders().size());
  fs::remove(directory_ + "/worker/worker.curve.secret");
  ASSERT_TRUE(CreateFleetKeys(directory_).has_value());
  const std::string after = Of("worker").LoadCurve("worker")->public_z85;
  EXPECT_NE(after, before);
  EXPECT_EQ(Of("tool").LoadCurvePublic("worker").value(), after);
  EXPECT_EQ(Of("cache").LoadAllowList()->RoleOf(after).value(), Role::kWorker);
}

}  // namespace
}  // namespace kiln::cli
