// A disk that is really full: a small file system in memory under a RocksDB.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cache-store/store/kv_store.h"
#include "tests/support/temp_directory.h"

namespace kiln::store {
namespace {

constexpr size_t kValueBytes = size_t{128} << 10;

class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    mounted_ = ::mount("kiln", directory_.c_str(), "tmpfs", 0, "size=24m") == 0;
    if (!mounted_) GTEST_SKIP() << "a file system of a size of its own needs root";
  }
  void TearDown() override {
    kv_.reset();
    if (mounted_) ::umount2(directory_.c_str(), MNT_DETACH);
  }
  void Open() {
    kv_.reset();
    auto opened = OpenKvStore("rocksdb:" + directory_ + "/db");
    ASSERT_TRUE(opened.has_value()) << ToString(opened.error());
    kv_ = std::move(*opened);
  }
  Status Put(int key) {
    KvBatch batch;
    batch.Put(Space::kBlobs, std::to_string(key), Bytes(kValueBytes, static_cast<uint8_t>(key)));
    return kv_->Write(batch);
  }
  bool Holds(int key) const {
    const auto value = kv_->Get(Space::kBlobs, std::to_string(key));
    return value.has_value() && value->has_value() && **value == Bytes(kValueBytes, static_cast<uint8_t>(key));
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  bool mounted_ = false;
  std::unique_ptr<KvStore> kv_;
};

TEST_F(FullDisk, WritesFailWithAStatusReadsGoOnAndRoomMakesItWellAgain) {
  Open();
  int written = 0;
  Status status;
  for (; written < 1000; ++written)
    if (status = Put(written); !status.has_value()) break;
  ASSERT_FALSE(status.has_value()) << "24 MiB held " << written << " values of 128 KiB";
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted) << ToString(status.error());
  ASSERT_GT(written, 40);
  for (int key = 0; key < written; ++key) EXPECT_TRUE(Holds(key)) << key;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Put(2000 + i).has_value());
  for (int key = 0; key < written; ++key) EXPECT_TRUE(Holds(key)) << key;

  ASSERT_EQ(::mount("kiln", directory_.c_str(), "tmpfs", MS_REMOUNT, "size=96m"), 0);
  bool well = false;
  for (int i = 0; i < 100 && !well; ++i) {  // RocksDB looks for room again by itself
    well = Put(3000).has_value();
    if (!well) ::usleep(100'000);
  }
  EXPECT_TRUE(well) << "writes go on once there is room";
  Open();
  for (int key = 0; key < written; ++key) EXPECT_TRUE(Holds(key)) << key;
}

// Writers and syncs at once, while room comes and goes: each call ends with a status, and the process lives.
TEST_F(FullDisk, WritersAndSyncsThatMeetAFullDiskGetAStatus) {
  std::atomic<int> failures{0};
  for (const char* size : {"size=24m", "size=28m", "size=32m", "size=64m"}) {
    ASSERT_EQ(::mount("kiln", directory_.c_str(), "tmpfs", MS_REMOUNT, size), 0);
    auto opened = OpenKvStore("rocksdb:" + directory_ + "/db");
    if (!opened.has_value()) {
      EXPECT_EQ(opened.error().code, ErrorCode::kResourceExhausted) << ToString(opened.error());
      continue;
    }
    kv_ = std::move(*opened);
    const auto work = [&](int thread) {
      for (int i = 0; i < 400; ++i) {
        KvBatch batch;
        const std::string key = std::to_string(thread * 1000 + i % 100);
        batch.Put(Space::kBlobs, key, Bytes(i % 4 == 0 ? kValueBytes : 2000, static_cast<uint8_t>(i)));
        batch.Put(Space::kPlans, key, Bytes(100, static_cast<uint8_t>(i)));
        if (!kv_->Write(batch).has_value()) ++failures;
        if (i % 10 == 0) (void)kv_->Sync();
      }
    };
    std::thread first(work, 1), second(work, 2);
    first.join();
    second.join();
    kv_.reset();
  }
  EXPECT_GT(failures, 0);
  ASSERT_EQ(::mount("kiln", directory_.c_str(), "tmpfs", MS_REMOUNT, "size=200m"), 0);
  Open();
  EXPECT_TRUE(Put(1).has_value());
  EXPECT_TRUE(kv_->Sync().has_value());
}

TEST_F(FullDisk, OpeningOneIsAnErrorOrWorks) {
  Open();
  int written = 0;
  while (written < 1000 && Put(written).has_value()) ++written;
  for (int round = 0; round < 3; ++round) {
    kv_.reset();
    auto opened = OpenKvStore("rocksdb:" + directory_ + "/db");
    if (!opened.has_value()) {
      EXPECT_EQ(opened.error().code, ErrorCode::kResourceExhausted) << ToString(opened.error());
      continue;
    }
    kv_ = std::move(*opened);
    EXPECT_TRUE(Holds(0));
  }
  kv_.reset();
  ASSERT_EQ(::mount("kiln", directory_.c_str(), "tmpfs", MS_REMOUNT, "size=96m"), 0);
  Open();
  for (int key = 0; key < written; ++key) EXPECT_TRUE(Holds(key)) << key;
}

}  // namespace
}  // namespace kiln::store
