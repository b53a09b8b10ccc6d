#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/security/key_directory.h"
#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

class KeyDirectoryTest : public ::testing::Test {
 protected:
  KeyDirectory Open() { return KeyDirectory::Create(path_ + "/keys").value(); }

  const testing::TempDirectory temp_directory_;
  const std::string& path_ = temp_directory_.path();
};

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Signing, EveryFlippedBitOfMessageSignatureDomainOrKeyIsRefused) {
  const SigningKey key = SigningKey::Generate();
  std::string message = "plan";
  SignatureBytes signature = key.Sign("kiln.record.v1", Bytes(message));
  EXPECT_TRUE(VerifySignature(key.public_key(), "kiln.record.v1", Bytes(message), signature));
  EXPECT_FALSE(VerifySignature(key.public_key(), "kiln.bundle.v1", Bytes(message), signature));
  EXPECT_FALSE(VerifySignature(SigningKey::Generate().public_key(), "kiln.record.v1", Bytes(message), signature));
  for (size_t i = 0; i < signature.size(); ++i) {
    signature[i] ^= 1;
    EXPECT_FALSE(VerifySignature(key.public_key(), "kiln.record.v1", Bytes(message), signature)) << i;
    signature[i] ^= 1;
  }
  message[2] ^= 1;
  EXPECT_FALSE(VerifySignature(key.public_key(), "kiln.record.v1", Bytes(message), signature));
}

TEST_F(KeyDirectoryTest, KeysAreCreatedOnceWithClosedFilesAndLoadedAgain) {
  const KeyDirectory keys = Open();
  const CurveKeyPair curve = keys.LoadOrCreateCurve("cache").value();
  EXPECT_EQ(keys.LoadOrCreateCurve("cache")->secret_z85, curve.secret_z85);
  EXPECT_EQ(keys.LoadCurvePublic("cache").value(), curve.public_z85);
  const SigningKey signing = keys.LoadOrCreateSigning("compile").value();
  EXPECT_EQ(keys.LoadSigning("compile")->public_key(), signing.public_key());
  for (const char* name : {"/keys/cache.curve.secret", "/keys/compile.sign.secret"}) {
    struct stat info;
    ASSERT_EQ(::stat((path_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

// A service that is given another one's directory fails and leaves it as it is.
TEST_F(KeyDirectoryTest, UsersOfKeysNeverMakeAny) {
  EXPECT_EQ(KeyDirectory::Open(path_ + "/absent").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/absent"));
  const KeyDirectory admin = Open();
  const std::string cache = GenerateCurveKeyPair()->public_z85;
  ASSERT_TRUE(admin.LoadOrCreateCurve("admin"));
  ASSERT_TRUE(admin.StoreCurvePublic("cache", cache));
  ASSERT_TRUE(admin.Allow(Role::kAdmin, admin.LoadCurvePublic("admin").value(), "admin"));
  const Result<ServerSecurity> server = admin.ServerFor("cache");
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code, ErrorCode::kNotFound);
  EXPECT_NE(server.error().message.find("it is of: admin"), std::string::npos) << server.error().message;
  EXPECT_EQ(admin.ClientFor("worker", "cache").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(admin.ClientFor("admin", "cache").has_value());
  EXPECT_EQ(admin.LoadCurvePublic("cache").value(), cache);
  EXPECT_FALSE(admin.HasCurve("cache") || admin.HasCurve("worker"));
}

TEST_F(KeyDirectoryTest, OpenSecretsAndBrokenFilesAreNamedErrors) {
  const KeyDirectory keys = Open();
  ASSERT_TRUE(keys.LoadOrCreateCurve("cache"));
  const std::string secret = path_ + "/keys/cache.curve.secret";
  ::chmod(secret.c_str(), 0644);
  EXPECT_EQ(keys.LoadOrCreateCurve("cache").error().code, ErrorCode::kPermissionDenied);
  ::chmod(secret.c_str(), 0600);
  std::ofstream(secret) << "short\n";
  EXPECT_EQ(keys.LoadOrCreateCurve("cache").error().code, ErrorCode::kMalformed);
  EXPECT_NE(keys.LoadOrCreateCurve("cache").error().message.find("cache.curve.secret"), std::string::npos);
  EXPECT_EQ(keys.LoadSigning("absent").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(keys.LoadAllowList().error().code, ErrorCode::kNotFound);
}

TEST_F(KeyDirectoryTest, ASecretOfAnotherOwnerMayBeReadableByItsGroupButNeverByOthers) {
  const KeyDirectory keys = Open();
  ASSERT_TRUE(keys.LoadOrCreateCurve("cache"));
  const std::string secret = path_ + "/keys/cache.curve.secret";
  if (::chown(secret.c_str(), ::geteuid() + 1, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "giving a file away needs root";
  ::chmod(secret.c_str(), 0440);
  EXPECT_TRUE(keys.LoadCurve("cache"));
  for (const mode_t mode : {0444, 0460}) {
    ::chmod(secret.c_str(), mode);
    EXPECT_EQ(keys.LoadCurve("cache").error().code, ErrorCode::kPermissionDenied) << mode;
  }
}

TEST_F(KeyDirectoryTest, AllowListAndSignersRoundTrip) {
  const KeyDirectory keys = Open();
  const std::string worker = keys.LoadOrCreateCurve("worker")->public_z85;
  const std::string compile = keys.LoadOrCreateCurve("compile")->public_z85;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(keys.Allow(Role::kWorker, worker, "w"));
    ASSERT_TRUE(keys.Allow(Role::kCompile, compile, "c"));
  }
  const AllowList list = keys.LoadAllowList().value();
  EXPECT_EQ(list.size(), 2u);
  EXPECT_EQ(list.RoleOf(worker).value(), Role::kWorker);
  EXPECT_EQ(list.RoleOf(compile).value(), Role::kCompile);
  EXPECT_EQ(list.RoleOf(GenerateCurveKeyPair()->public_z85).error().code, ErrorCode::kPermissionDenied);

  const SigningKey signing = SigningKey::Generate();
  ASSERT_TRUE(keys.Trust(signing.public_key(), "a"));
  ASSERT_TRUE(keys.Trust(signing.public_key(), "a"));
  EXPECT_EQ(keys.LoadTrustedSigners().value(), TrustedSigners{signing.public_key()});
}

// What a comment says is no entry: a key that was put out of use must be taken in again when it is trusted again.
TEST_F(KeyDirectoryTest, AKeyInACommentIsNotListed) {
  const KeyDirectory keys = KeyDirectory::Open(path_).value();
  const SigningKey signing = SigningKey::Generate();
  const CurveKeyPair pair = GenerateCurveKeyPair().value();
  std::ofstream(path_ + "/signers.list") << "# revoked: " << signing.public_key().Hex() << "\n";
  std::ofstream(path_ + "/allow.list") << "# worker " << pair.public_z85 << "\n";
  EXPECT_TRUE(keys.LoadTrustedSigners()->empty());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(keys.Trust(signing.public_key(), "a"));
    ASSERT_TRUE(keys.Allow(Role::kWorker, pair.public_z85, "b"));
    EXPECT_EQ(keys.LoadTrustedSigners().value(), TrustedSigners{signing.public_key()});
    EXPECT_EQ(keys.LoadAllowList()->RoleOf(pair.public_z85).value(), Role::kWorker);
  }
  EXPECT_EQ(keys.Allow(Role::kAdmin, pair.public_z85, "b").error().code, ErrorCode::kAlreadyExists);
  std::ofstream(path_ + "/signers.list", std::ios::app) << "not a key\n";
  EXPECT_EQ(keys.Trust(signing.public_key(), "a").error().code, ErrorCode::kMalformed);
}

TEST(AllowList, BadLinesAreRefusedWithTheirNumber) {
  const std::string key = GenerateCurveKeyPair()->public_z85;
  EXPECT_TRUE(AllowList::Parse("# comment\n\nworker " + key + " label\n"));
  EXPECT_NE(AllowList::Parse("\nroot " + key).error().message.find("line 2"), std::string::npos);
  EXPECT_EQ(AllowList::Parse("worker " + key + "\nadmin " + key).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(AllowList::Parse("worker abc").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(ParseSigners("zz").error().code, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace kiln
