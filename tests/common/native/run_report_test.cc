#include "common/native/run_report.h"

#include <gtest/gtest.h>

#include <new>

#include "common/native/guarded_memory.h"

namespace kiln {
namespace {

// Where shadow runs put it: its end is the end of what may be read.
RunReport* GuardedReport(GuardedMemory& memory) {
  return static_cast<RunReport*>(memory.data());
}

TEST(RunReport, SaysWhatTheChildWrote) {
  GuardedMemory memory(sizeof(RunReport), 64, GuardedSharing::kShared);
  RunReport* report = GuardedReport(memory);
  ASSERT_NE(report, nullptr);
  EXPECT_TRUE(report->Read().has_value()) << "nothing was written";
  report->Write({ErrorCode::kOutOfRange, "index 9", {}});
  EXPECT_EQ(report->Read().error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(report->Read().error().message, "index 9");
  report->Write({ErrorCode::kOutOfRange, std::string(5'000, 'x'), {}});
  EXPECT_EQ(report->Read().error().message, std::string(sizeof(report->text), 'x'));
}

TEST(RunReport, OfAnyBytesIsAnErrorAndReadsNoFurther) {
  for (const int byte : {0x01, 0x02, 0x80, 0xff}) {
    GuardedMemory memory(sizeof(RunReport), 64, GuardedSharing::kShared);
    RunReport* report = GuardedReport(memory);
    ASSERT_NE(report, nullptr);
    std::memset(static_cast<void*>(report), byte, sizeof(RunReport));
    const Status read = report->Read();
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().message.size(), sizeof(report->text));
    EXPECT_FALSE(ErrorCodeName(read.error().code).empty());
  }
}

}  // namespace
}  // namespace kiln
