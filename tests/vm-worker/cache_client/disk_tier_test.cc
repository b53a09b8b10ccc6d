#include "vm-worker/cache_client/disk_tier.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "common/artifact/record.h"
#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

class DiskTierTest : public ::testing::Test {
 protected:
  void SetUp() override { disk_ = DiskTier::Open(directory_, 1 << 20).value(); }
  const testing::TempDirectory temp_directory_;
  const std::string directory_ = temp_directory_.path() + "/disk";
  std::unique_ptr<DiskTier> disk_;
};

TEST_F(DiskTierTest, GivesBackWhatWasPut) {
  const Bytes code = {1, 2, 3, 4, 5};
  disk_->PutKernel(KernelIdOf(code), code);
  EXPECT_EQ(disk_->Kernel(KernelIdOf(code)), code);
  EXPECT_FALSE(disk_->Kernel(Digest{}));
}

TEST_F(DiskTierTest, EveryFlippedByteIsAMissAndHealsWhenPutAgain) {
  const Bytes code(100, 7);
  const Digest id = KernelIdOf(code);
  disk_->PutKernel(id, code);
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) path = entry.path().string();
  std::ifstream file(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  for (size_t i = 0; i < good.size(); ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_FALSE(disk_->Kernel(id)) << "byte " << i;
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << good.substr(0, 40);
  EXPECT_FALSE(disk_->Kernel(id));
  disk_->PutKernel(id, code);
  EXPECT_EQ(disk_->Kernel(id), code);
}

TEST_F(DiskTierTest, StaysNearItsLimit) {
  for (int i = 0; i < 200; ++i) {
    Bytes code(20'000, static_cast<uint8_t>(i));
    disk_->PutKernel(KernelIdOf(code), code);
  }
  int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_))
    total += static_cast<int64_t>(entry.file_size());
  EXPECT_LE(total, (1 << 20) * 5 / 4);
}

TEST_F(DiskTierTest, AnUnwritableDirectoryIsAMissNotAnError) {
  std::filesystem::remove_all(directory_);
  const Bytes code = {1};
  disk_->PutKernel(KernelIdOf(code), code);
  EXPECT_FALSE(disk_->Kernel(KernelIdOf(code)));
}

// A limit on the size of files stands in for a disk that is full in the middle of one.
TEST_F(DiskTierTest, WhatDoesNotFitOnTheDiskIsNotThereInPart) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const Bytes code(3'000, 7);  // less than a stream's buffer: nothing is written before the end
  const auto put = [&](rlim_t bytes) {
    const rlimit full{bytes, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    disk_->PutRecord(KernelIdOf(code), code);
    const bool marked = disk_->PutMark({KernelIdOf(code), KernelIdOf(code)});
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    return marked;
  };
  EXPECT_FALSE(put(10));
  EXPECT_TRUE(std::filesystem::is_empty(directory_)) << "neither under its name nor under a temporary one";
  EXPECT_TRUE(put(before.rlim_cur));
  EXPECT_EQ(disk_->UntoldMarks().size(), 1u);
}

TEST_F(DiskTierTest, MarksOutliveTheProcessAndTheSpaceLimitUntilTheyAreCleared) {
  const auto id = [](uint8_t number) { return HashBytes(Bytes{number}); };
  const Digest plan = id(1), contents = id(2);
  auto disk = DiskTier::Open(directory_, 1'000).value();
  disk->PutMark({plan, contents});
  for (uint8_t i = 10; i < 60; ++i) disk->PutRecord(id(i), Bytes(500, i));  // far beyond the limit
  disk = DiskTier::Open(directory_, 1'000).value();
  EXPECT_EQ(disk->MarkOf(plan), contents);
  EXPECT_EQ(disk->MarkOf(contents), std::nullopt);
  ASSERT_EQ(disk->UntoldMarks().size(), 1u);
  EXPECT_EQ(disk->UntoldMarks()[0].plan_key, plan);
  disk->MarkTold(plan);
  EXPECT_TRUE(disk->UntoldMarks().empty());
  EXPECT_EQ(disk->MarkOf(plan), contents) << "told, and still marked";
  disk->ClearMark(plan);
  EXPECT_EQ(disk->MarkOf(plan), std::nullopt);
}

}  // namespace
}  // namespace kiln
