// One test for every backend.
#include <gtest/gtest.h>

#include "cache-store/store/kv_store.h"
#include "tests/support/temp_directory.h"

namespace kiln::store {
namespace {

Bytes B(std::string_view text) {
  return Bytes(text.begin(), text.end());
}

class KvConformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { Reopen(); }
  void TearDown() override { kv_.reset(); }
  void Reopen() {
    kv_.reset();
    const std::string kind = GetParam();
    kv_ = OpenKvStore(kind == "rocksdb" ? "rocksdb:" + directory_ + "/db" : "memory:").value();
  }
  void Put(Space space, std::string_view key, std::string_view value) {
    KvBatch batch;
    batch.Put(space, key, B(value));
    ASSERT_TRUE(kv_->Write(batch));
  }
  std::string Get(Space space, std::string_view key) {
    const auto value = kv_->Get(space, key).value();
    return value ? std::string(value->begin(), value->end()) : "<absent>";
  }
  std::string Keys(Space space, std::string_view prefix, int limit = 1000) {
    std::string keys;
    EXPECT_TRUE(kv_->Scan(space, prefix, [&](std::string_view key, std::span<const uint8_t>) {
      keys.append(key).append(" ");
      return --limit > 0;
    }));
    return keys;
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  std::unique_ptr<KvStore> kv_;
};

TEST_P(KvConformance, ReadsBackWhatWasWrittenPerSpace) {
  Put(Space::kPlans, "a", "1");
  Put(Space::kBlobs, "a", "2");
  Put(Space::kPlans, "empty", "");
  EXPECT_EQ(Get(Space::kPlans, "a"), "1");
  EXPECT_EQ(Get(Space::kBlobs, "a"), "2");
  EXPECT_EQ(Get(Space::kPlans, "empty"), "");
  EXPECT_EQ(Get(Space::kMeta, "a"), "<absent>");
}

TEST_P(KvConformance, BatchesAreInOrderAndCoverAllSpaces) {
  Put(Space::kPlans, "old", "x");
  KvBatch batch;
  for (int i = 0; i < kSpaceCount; ++i) batch.Put(static_cast<Space>(i), "k", B(std::to_string(i)));
  batch.Delete(Space::kPlans, "old");
  batch.Put(Space::kPlans, "k", B("last"));
  batch.Delete(Space::kBlobs, "k");
  batch.Delete(Space::kBlobs, "never there");
  ASSERT_TRUE(kv_->Write(batch));
  EXPECT_EQ(Get(Space::kPlans, "old"), "<absent>");
  EXPECT_EQ(Get(Space::kPlans, "k"), "last");
  EXPECT_EQ(Get(Space::kBlobs, "k"), "<absent>");
  EXPECT_EQ(Get(Space::kMeta, "k"), std::to_string(static_cast<int>(Space::kMeta)));
}

TEST_P(KvConformance, ScansArePrefixesInUnsignedByteOrder) {
  for (std::string_view key : {"b", "a2", "a10", "a", "\xff", "\x01", "c"}) Put(Space::kMeta, key, "v");
  EXPECT_EQ(Keys(Space::kMeta, "a"), "a a10 a2 ");
  EXPECT_EQ(Keys(Space::kMeta, ""), "\x01 a a10 a2 b c \xff ");
  EXPECT_EQ(Keys(Space::kMeta, "", 2), "\x01 a ");
  EXPECT_EQ(Keys(Space::kMeta, "zz"), "");
  const std::string zeros(3, '\0');
  Put(Space::kMeta, zeros, "v");
  EXPECT_EQ(Keys(Space::kMeta, std::string_view(zeros.data(), 1)), zeros + " ");
}

TEST_P(KvConformance, LargeValuesSurvive) {
  const std::string large(5 << 20, 'x');
  Put(Space::kBlobs, "large", large);
  EXPECT_EQ(Get(Space::kBlobs, "large"), large);
}

TEST_P(KvConformance, DurableBackendsKeepSyncedWritesOverAReopen) {
  KvBatch batch;
  batch.Put(Space::kPlans, "p", B("1"));
  ASSERT_TRUE(kv_->Write(batch));
  Reopen();
  EXPECT_EQ(Get(Space::kPlans, "p"), kv_->properties().durable ? "1" : "<absent>");
  EXPECT_TRUE(kv_->properties().exact_leases);
}

INSTANTIATE_TEST_SUITE_P(Backends, KvConformance, ::testing::Values("memory", "rocksdb"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OpenKvStore, RefusesUnknownAddressesAndASecondOwner) {
  EXPECT_EQ(OpenKvStore("mysql:x").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(OpenKvStore("rocksdb:").error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(OpenKvStore("rocksdb:/proc/nowhere/db"));
  const testing::TempDirectory temporary;
  const std::string& directory = temporary.path();
  const auto first = OpenKvStore("rocksdb:" + directory + "/db");
  ASSERT_TRUE(first);
  EXPECT_EQ(OpenKvStore("rocksdb:" + directory + "/db").error().code, ErrorCode::kBusy);
}

}  // namespace
}  // namespace kiln::store
