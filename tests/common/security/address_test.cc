#include "common/security/address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

TEST(Address, PlaintextNeedsTheFlagAndNeverLeavesTheHost) {
  struct Row {
    const char* endpoint;
    bool insecure;
    bool allowed;
  };
  for (const Row& row :
       {Row{"inproc://a", false, true}, Row{"ipc:///run/kiln/a", false, false}, Row{"ipc:///run/kiln/a", true, true},
        Row{"tcp://127.0.0.1:1", false, false}, Row{"tcp://127.0.0.1:1", true, true}, Row{"tcp://[::1]:1", true, true},
        Row{"tcp://localhost:1", true, true}, Row{"tcp://0.0.0.0:1", true, false}, Row{"tcp://*:1", true, false},
        Row{"tcp://10.0.0.1:1", true, false}, Row{"tcp://127.9.8.7:1", true, true},
        // Names that only look like loopback.
        Row{"tcp://127.evil.example:1", true, false}, Row{"tcp://127.0.0.1.example:1", true, false},
        Row{"tcp://127.1:1", true, false}, Row{"tcp://localhost.example:1", true, false}})
    EXPECT_EQ(CheckPlaintextEndpoint(row.endpoint, row.insecure).has_value(), row.allowed) << row.endpoint;
}

TEST(Address, NonsenseIsAnInputError) {
  for (const char* endpoint : {"", "tcp://", "tcp://host", "tcp://:1", "tcp://h:", "udp://a:1", "ipc://", "inproc://"})
    EXPECT_EQ(ClassifyEndpoint(endpoint).error().code, ErrorCode::kInvalidArgument) << endpoint;
}

TEST(Address, IpcDirectoryMustBeClosedToOthers) {
  const testing::TempDirectory temporary;
  const char* path = temporary.path().c_str();
  const std::string endpoint = "ipc://" + temporary.path() + "/s";
  EXPECT_TRUE(CheckSocketDirectory(endpoint));
  ::chmod(path, 0755);
  EXPECT_EQ(CheckSocketDirectory(endpoint).error().code, ErrorCode::kPermissionDenied);
  ::rmdir(path);
  EXPECT_EQ(CheckSocketDirectory(endpoint).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(CheckSocketDirectory("ipc://@abstract").error().code, ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace kiln
