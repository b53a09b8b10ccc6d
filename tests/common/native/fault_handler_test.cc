// Each fault in a process of its own.
#include "common/native/fault_handler.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "common/native/code_mapping.h"
#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

const Digest kPlan = HashBytes(std::vector<uint8_t>{1}), kContents = HashBytes(std::vector<uint8_t>{2});

class FaultHandler : public ::testing::Test {
 protected:
  // The wait status of a process that handles faults and runs `body`.
  int StatusOf(const std::function<void()>& body) const {
    const pid_t child = fork();
    if (child == 0) {
      if (!InstallFaultHandler(directory_).has_value()) _exit(99);
      body();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
  std::string Written() const {
    std::ifstream file(directory_ + "/" + kPlan.Hex() + kFaultSuffix);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
};

#ifdef __x86_64__
std::unique_ptr<CodeMapping> Mapped(const std::vector<uint8_t>& code) {
  const std::vector<uint8_t> blob = BuildKernelBlob(HostTargets().front(), 0, code);
  const KernelId id = HashBytes(blob);
  const std::span<const uint8_t> bytes(blob);
  return CodeMapping::Map({&id, 1}, {&bytes, 1}, HostTargets().front()).value();
}

TEST_F(FaultHandler, AFaultInThePlansCodeIsWrittenDownAndEndsTheProcess) {
  for (const std::vector<uint8_t>& code : {std::vector<uint8_t>{0x0f, 0x0b},                     // ud2
                                           std::vector<uint8_t>{0x31, 0xc0, 0x88, 0x00, 0xc3},   // store through null
                                           std::vector<uint8_t>{0x31, 0xc0, 0xf7, 0xf0, 0xc3}})  // divide by zero
  {
    const auto mapping = Mapped(code);
    mapping->AttributeFaults(kPlan, kContents);
    const int status = StatusOf([&] { mapping->entry(0)(nullptr, 0, 1); });
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), kKernelFaultExit);
    EXPECT_EQ(Written(), kContents.Hex());
    std::filesystem::remove(directory_ + "/" + kPlan.Hex() + kFaultSuffix);
  }
}

TEST_F(FaultHandler, CodeThatIsGoneIsNobodysAnyMore) {
  Mapped({0xc3})->AttributeFaults(kPlan, kContents);
  const auto other = Mapped({0x0f, 0x0b});
  const int status = StatusOf([&] { other->entry(0)(nullptr, 0, 1); });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGILL);
  EXPECT_EQ(Written(), "");
}
#endif

TEST_F(FaultHandler, AnyOtherFaultEndsTheProcessByItsSignal) {
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    const int status = StatusOf([&] { raise(number); });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), number);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace kiln
