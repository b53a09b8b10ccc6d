#include "common/base/writable_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

mode_t ModeOf(const std::string& path) {
  struct stat found{};
  EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 07777;
}

TEST(MakeWritable, MakesAClosedDirectoryAndChangesNoneThatIsThere) {
  const testing::TempDirectory temp;
  const std::string fresh = temp.path() + "/a/b/";
  ASSERT_TRUE(MakeWritable(fresh).has_value());
  EXPECT_EQ(ModeOf(fresh), 0700u);
  EXPECT_TRUE(fs::is_empty(fresh)) << "nothing is left of the trial";
  ASSERT_EQ(::chmod(fresh.c_str(), 01777), 0);
  ASSERT_TRUE(MakeWritable(fresh).has_value());
  EXPECT_EQ(ModeOf(fresh), 01777u);
}

TEST(MakeWritable, WhatCannotBeWrittenToIsNamedWithTheReason) {
  const testing::TempDirectory temp;
  const std::string file = temp.path() + "/file";
  std::ofstream(file) << "x";
  for (const std::string& directory : {std::string("/proc/kiln"), std::string("/proc"), file, file + "/below"}) {
    const Status status = MakeWritable(directory);
    ASSERT_FALSE(status.has_value()) << directory;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find("\"" + directory + "\""), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace kiln
