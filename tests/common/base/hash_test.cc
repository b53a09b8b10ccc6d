#include "common/base/hash.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(FieldHasher, LengthPrefixesKeepNeighbouringFieldsApart) {
  const Digest ab_c = FieldHasher("test.v1").Text("ab").Text("c").Finish();
  const Digest a_bc = FieldHasher("test.v1").Text("a").Text("bc").Finish();
  EXPECT_NE(ab_c, a_bc);
}

TEST(FieldHasher, DomainTagSeparatesEqualFields) {
  EXPECT_NE(FieldHasher("one.v1").U32(7).Finish(), FieldHasher("two.v1").U32(7).Finish());
}

TEST(FieldHasher, ValueIsStableAcrossBuilds) {
  EXPECT_EQ(HashBytes({}).Hex(), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
}

TEST(Digest, HexRoundTrips) {
  const Digest digest = FieldHasher("test.v1").I64(-5).Finish();
  EXPECT_EQ(DigestFromHex(digest.Hex()).value(), digest);
  EXPECT_EQ(DigestFromHex("xyz").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(DigestFromHex(std::string(64, 'G')).error().code, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace kiln
