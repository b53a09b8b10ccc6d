// Flipped bytes in the files of a RocksDB: the cache comes up, what it answers is whole, and it takes everything again.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tests/cache-store/records/fixture.h"
#include "tests/support/temp_directory.h"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr uint8_t kPlans = 8;
constexpr size_t kKernelBytes = 3000;
constexpr size_t kSamplesPerFile = 5;

class RocksDbDamage : public RecordsTest {
 protected:
  void SetUp() override { RecordsTest::SetUp(); }
  void TearDown() override { records_.reset(); }
  std::string Store(const char* name) const { return root_ + "/" + name; }
  void OpenStore(const std::string& path) {
    records_.reset();
    auto kv = OpenKvStore("rocksdb:" + path);
    ASSERT_TRUE(kv) << ToString(kv.error());
    auto opened = Records::Open(*std::move(kv), options_);
    ASSERT_TRUE(opened) << ToString(opened.error());
    records_ = *std::move(opened);
  }
  Status PublishAll() {
    for (uint8_t plan = 1; plan <= kPlans; ++plan)
      RETURN_IF_ERROR(Publish(plan, {plan, static_cast<uint8_t>(plan + 1)}, kKernelBytes));
    return {};
  }
  bool IsWhole(uint8_t plan) {
    return HasPlan(plan) && HasKernel(plan, kKernelBytes) && HasKernel(static_cast<uint8_t>(plan + 1), kKernelBytes);
  }
  // A store in tables and a log, with a plan in quarantine.
  void MakeStore(const std::string& path) {
    OpenStore(path);
    ASSERT_TRUE(PublishAll());
    ASSERT_TRUE(Do(cache::QuarantineRequest{D(kPlans), true}));
    OpenStore(path);  // makes tables of the log
    ASSERT_TRUE(Publish(100, {100}, kKernelBytes));
    records_.reset();
  }
  // What the loss may be: nothing, or a plan; never a wrong one, nor one that is in quarantine.
  void ExpectUsable(const std::string& path) {
    OpenStore(path);
    if (HasFatalFailure()) return;
    EXPECT_FALSE(HasPlan(kPlans)) << "the mark of a plan that gives wrong results is lost, and it is not";
    for (const Digest& key : VariantKeys()) (void)Do(cache::GetPlanRequest{key});  // drops what cannot be read
    for (int round = 0; round < 3; ++round) {
      // Twice: a kernel that turns out to be unreadable takes its plans along.
      for (uint8_t plan = 1; plan < kPlans; ++plan) (void)IsWhole(plan);
      for (uint8_t plan = 1; plan < kPlans; ++plan) {
        const auto published = Publish(plan, {plan, static_cast<uint8_t>(plan + 1)}, kKernelBytes);
        ASSERT_TRUE(published) << ToString(published.error());
      }
      for (uint8_t plan = 1; plan < kPlans; ++plan) ASSERT_TRUE(IsWhole(plan)) << int{plan};
      OpenStore(path);  // more tables each time, until they are compacted
      if (HasFatalFailure()) return;
    }
    for (uint8_t plan = 1; plan < kPlans; ++plan) EXPECT_TRUE(IsWhole(plan)) << int{plan};
  }

  // In memory where that can be: hundreds of stores are opened, and each opening syncs dozens of files.
  const testing::TempDirectory temp_directory_{fs::is_directory("/dev/shm") ? "/dev/shm" : "/tmp"};
  const std::string& root_ = temp_directory_.path();
};

TEST_F(RocksDbDamage, AFlippedByteAnywhereCostsAtMostWhatItHits) {
  const std::string sound = Store("sound"), damaged = Store("damaged");
  MakeStore(sound);
  int stores = 0, rebuilt = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(sound)) {
    const size_t bytes = fs::file_size(file);
    if (bytes == 0 || file.path().filename() == "LOCK") continue;
    for (size_t sample = 0; sample < std::min(kSamplesPerFile, bytes); ++sample) {
      const size_t offset = sample * (bytes - 1) / (std::min(kSamplesPerFile, bytes) - 1 + (bytes == 1));
      SCOPED_TRACE(file.path().filename().string() + " at " + std::to_string(offset));
      records_.reset();
      fs::remove_all(damaged);
      fs::copy(sound, damaged);
      std::fstream stream(fs::path(damaged) / file.path().filename(), std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(offset));
      const char byte = static_cast<char>(stream.get() ^ 0x10);
      stream.seekp(static_cast<std::streamoff>(offset));
      stream.put(byte);
      stream.close();
      ExpectUsable(damaged);
      ++stores;
      rebuilt += fs::exists(damaged + "/damaged-1") ? 1 : 0;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(stores, 30);
  EXPECT_GT(rebuilt, 2);
}

// All plain files below a directory, with what is in them.
std::map<std::string, std::string> FilesOf(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), path).string()] = {std::istreambuf_iterator<char>(stream), {}};
  }
  return files;
}

TEST_F(RocksDbDamage, ADirectoryOfSomethingElseIsRefusedAndLeftAsItIs) {
  const std::vector<std::vector<std::string>> foreign = {{"CURRENT"},    {"CURRENT", "foo.txt"},    {"foo.txt"},
                                                         {"000007.log"}, {"foo.txt", "000007.log"}, {"000009.sst"}};
  for (const std::vector<std::string>& names : foreign) {
    SCOPED_TRACE(::testing::PrintToString(names));
    const std::string path = Store("foreign");
    fs::remove_all(path);
    fs::create_directories(path + "/data");
    for (const std::string& name : names) std::ofstream(path + "/" + name) << "somebody's " << name;
    std::ofstream(path + "/data/deep") << "deep";
    const auto before = FilesOf(path);
    const auto opened = OpenKvStore("rocksdb:" + path);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument) << ToString(opened.error());
    EXPECT_NE(opened.error().message.find(names[0]), std::string::npos) << opened.error().message;
    EXPECT_EQ(FilesOf(path), before);
  }
}

TEST_F(RocksDbDamage, FilesBesideADamagedDatabaseStayAndNothingIsEverDeleted) {
  const std::string path = Store("beside");
  MakeStore(path);
  const std::vector<std::string> others = {"foo.txt", "notes.log", "MANIFEST-copy", "CURRENT.bak", "OPTIONS-mine"};
  for (const std::string& name : others) std::ofstream(path + "/" + name) << name;
  for (int round = 1; round <= 10; ++round) {
    SCOPED_TRACE(round);
    records_.reset();
    std::ofstream(path + "/CURRENT") << "no manifest\n";
    const auto before = FilesOf(path);
    const auto opened = OpenKvStore("rocksdb:" + path);
    const auto after = FilesOf(path);
    for (const std::string& name : others) EXPECT_EQ(after.contains(name) ? after.at(name) : "", name);
    if (round <= 9) {
      ASSERT_TRUE(opened) << ToString(opened.error());
      const std::string aside = "damaged-" + std::to_string(round) + "/";
      for (const auto& [name, bytes] : before)
        if (!name.contains('/') && std::ranges::find(others, name) == others.end()) {
          EXPECT_EQ(after.contains(aside + name) ? after.at(aside + name) : "absent", bytes) << name;
        }
    } else {
      ASSERT_FALSE(opened);
      EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(opened.error().message.find("damaged-1 to -9"), std::string::npos) << opened.error().message;
      EXPECT_EQ(after, before);
    }
  }
}

TEST_F(RocksDbDamage, ARebuildThatWasCutOffBeginsEmptyAndKeepsWhatLay) {
  const std::string path = Store("cut");
  MakeStore(path);
  const auto whole = FilesOf(path);
  fs::create_directories(path + "/damaged-1");
  fs::remove(path + "/CURRENT");  // it comes last when files are moved in
  OpenStore(path);
  if (HasFatalFailure()) return;
  EXPECT_FALSE(HasPlan(1));
  const auto after = FilesOf(path);
  for (const auto& [name, bytes] : whole)
    if (name != "CURRENT") {
      EXPECT_EQ(after.contains("damaged-2/" + name) ? after.at("damaged-2/" + name) : "absent", bytes) << name;
    }
}

}  // namespace
}  // namespace kiln::store
