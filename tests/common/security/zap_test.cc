#include "common/security/zap.h"

#include <gtest/gtest.h>
#include <zmq.h>

#include "common/security/transport_keys.h"

namespace kiln {
namespace {

std::string RawKey(const std::string& z85) {
  std::string raw(32, '\0');
  zmq_z85_decode(reinterpret_cast<uint8_t*>(raw.data()), z85.c_str());
  return raw;
}

TEST(Zap, KnownKeyGetsItsRoleAsUserId) {
  const std::string key = GenerateCurveKeyPair()->public_z85;
  AllowList list;
  ASSERT_TRUE(list.Add(Role::kCompile, key));
  const ZapDecision decision = DecideZap({"1.0", "7", "d", "127.0.0.1", "", "CURVE", RawKey(key)}, &list);
  ASSERT_TRUE(decision.accepted);
  EXPECT_EQ(decision.reply[1], "7");
  EXPECT_EQ(decision.reply[2], "200");
  const PeerIdentity peer = ParseUserId(decision.reply[4]).value();
  EXPECT_EQ(peer.role, Role::kCompile);
  EXPECT_EQ(peer.key, key);
}

TEST(Zap, EverythingElseIsRefused) {
  const std::string key = GenerateCurveKeyPair()->public_z85;
  const AllowList list;
  EXPECT_FALSE(DecideZap({"1.0", "7", "d", "a", "", "CURVE", RawKey(key)}, &list).accepted);
  EXPECT_FALSE(DecideZap({"1.0", "7", "d", "a", "", "CURVE", RawKey(key)}, nullptr).accepted);
  EXPECT_FALSE(DecideZap({"1.0", "7", "d", "a", "", "CURVE", "short"}, &list).accepted);
  EXPECT_FALSE(DecideZap({"1.0", "7", "d", "a", "", "NULL"}, &list).accepted);
  EXPECT_FALSE(DecideZap({"1.0", "7", "d", "a", "", "PLAIN", "user", "password"}, &list).accepted);
  EXPECT_FALSE(DecideZap({"2.0", "7", "d", "a", "", "CURVE", RawKey(key)}, &list).well_formed);
  EXPECT_FALSE(DecideZap({}, &list).well_formed);
  EXPECT_FALSE(ParseUserId("root:" + key));
  EXPECT_FALSE(ParseUserId(""));
}

}  // namespace
}  // namespace kiln
