#include "compile-service/jobs/child_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "compile-service/jobs/job_codec.h"
#include "compile-service/jobs/replay_files.h"
#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

Frame Order(const std::string& text) {
  return {7, {text.begin(), text.end()}};
}
std::string Text(const Frame& frame) {
  return {frame.payload.begin(), frame.payload.end()};
}

class ChildPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ChildPoolOptions options;
    options.binary = ECHO_CHILD;
    options.job_deadline_ms = 1'000;
    options.limits.address_space_bytes = int64_t{1} << 30;
    options.replay_directory = replay_;
    auto pool = ChildPool::Start(options);
    ASSERT_TRUE(pool.has_value()) << ToString(pool.error());
    pool_ = std::move(*pool);
  }
  void TearDown() override { pool_.reset(); }
  Result<Frame> Do(const std::string& order) { return pool_->Submit(Order(order), 0).get(); }
  size_t Replays() const {
    size_t count = 0;
    if (std::filesystem::exists(replay_))
      for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(replay_)) ++count;
    return count;
  }
  const testing::TempDirectory temp_directory_;
  const std::string replay_ = temp_directory_.path() + "/replay";
  std::unique_ptr<ChildPool> pool_;
};

TEST_F(ChildPoolTest, AChildServesManyJobs) {
  const std::string first = Text(Do("pid").value());
  EXPECT_EQ(Text(Do("hello").value()), "hello");
  EXPECT_EQ(Text(Do("pid").value()), first);
  EXPECT_EQ(pool_->crashes(), 0u);
}

TEST_F(ChildPoolTest, ACrashCostsOneJobAndLeavesAReplayFile) {
  const std::string first = Text(Do("pid").value());
  const Result<Frame> crashed = Do("crash");
  ASSERT_FALSE(crashed.has_value());
  EXPECT_EQ(crashed.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(crashed.error().message.find("Segmentation fault"), std::string::npos) << crashed.error().message;
  EXPECT_NE(Text(Do("pid").value()), first);
  EXPECT_EQ(pool_->crashes(), 1u);
  EXPECT_EQ(Replays(), 1u);
}

TEST_F(ChildPoolTest, AChildThatEndsBetweenJobsCostsNone) {
  for (int signal : {SIGKILL, SIGTERM, SIGABRT}) {
    const std::string pid = Text(Do("pid").value());
    ASSERT_EQ(kill(static_cast<pid_t>(std::stol(pid)), signal), 0);
    usleep(100'000);
    const Result<Frame> answer = Do("pid");
    ASSERT_TRUE(answer.has_value()) << ToString(answer.error());
    EXPECT_NE(Text(*answer), pid);
  }
  EXPECT_EQ(pool_->crashes(), 0u);
  EXPECT_EQ(Replays(), 0u);
}

// Small jobs fit into the socket's buffer, large ones wait for the reader: both have the deadline.
TEST_F(ChildPoolTest, AStoppedChildIsEndedAtTheDeadlineWhateverTheJobsSize) {
  for (size_t bytes : {size_t{5}, size_t{16} << 20}) {
    const std::string pid = Text(Do("pid").value());
    ASSERT_EQ(kill(static_cast<pid_t>(std::stol(pid)), SIGSTOP), 0);
    const Result<Frame> answer = Do(std::string(bytes, 'x'));
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::kDeadlineExceeded) << ToString(answer.error());
    EXPECT_NE(Text(Do("pid").value()), pid);
  }
}

TEST_F(ChildPoolTest, AHungChildIsEndedAtTheDeadline) {
  const Result<Frame> hung = Do("hang");
  ASSERT_FALSE(hung.has_value());
  EXPECT_EQ(hung.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(Text(Do("still here").value()), "still here");
}

TEST_F(ChildPoolTest, AnEarlyExitAndALieAreOneJobEach) {
  EXPECT_NE(Do("exit").error().message.find("status 3"), std::string::npos);
  EXPECT_EQ(Do("lie").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(Text(Do("still here").value()), "still here");
  EXPECT_EQ(pool_->crashes(), 2u);
}

TEST_F(ChildPoolTest, AJobThatIsTooLargeCostsNoChild) {
  const std::string first = Text(Do("pid").value());
  const Result<Frame> large = pool_->Submit({7, std::vector<uint8_t>(limits::kChildFrameBytesMax + 1)}, 0).get();
  EXPECT_EQ(large.error().code, ErrorCode::kLimitExceeded) << ToString(large.error());
  EXPECT_EQ(Text(Do("pid").value()), first);
  EXPECT_EQ(pool_->crashes(), 0u);
}

TEST_F(ChildPoolTest, WhatAChildRefusesIsCountedAndCanBeReplayed) {
  const Frame refused = FailedFrame({ErrorCode::kCompileFailed, "wrong result", {}});  // comes back as it is
  const Frame impossible = FailedFrame({ErrorCode::kUnsupported, "no such thing", {}});
  for (const bool keeps : {false, true}) {
    ChildPoolOptions options;
    options.binary = ECHO_CHILD;
    options.replay_directory = replay_;
    options.keeps_refused = keeps;
    pool_ = ChildPool::Start(options).value();
    EXPECT_TRUE(pool_->Submit(refused, 0).get().has_value());
    EXPECT_TRUE(pool_->Submit(impossible, 0).get().has_value());
    EXPECT_EQ(pool_->refused(), keeps ? 1u : 0u);
    EXPECT_EQ(pool_->crashes(), 0u);
    EXPECT_EQ(Replays(), keeps ? 1u : 0u);
  }
  const Result<Frame> again = ReadReplay(std::filesystem::directory_iterator(replay_)->path().string());
  ASSERT_TRUE(again.has_value()) << ToString(again.error());
  EXPECT_EQ(again->kind, refused.kind);
  EXPECT_EQ(again->payload, refused.payload);
  EXPECT_FALSE(ReadReplay(replay_ + "/nothing").has_value());
}

TEST_F(ChildPoolTest, AChildOfOneJobDoesNoOther) {
  ChildPoolOptions options;
  options.binary = ECHO_CHILD;
  options.one_job_each = true;
  pool_ = ChildPool::Start(options).value();
  const std::string first = Text(Do("pid").value());
  EXPECT_NE(Text(Do("pid").value()), first);
  EXPECT_EQ(pool_->crashes(), 0u);
}

TEST_F(ChildPoolTest, ExhaustedMemoryCostsOneJob) {
  if (!kLimitsAddressSpace) GTEST_SKIP() << "a sanitized child has no limit of address space";
  EXPECT_EQ(Do("memory").error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(Text(Do("still here").value()), "still here");
  EXPECT_EQ(pool_->crashes(), 1u);
}

TEST_F(ChildPoolTest, HigherPriorityGoesFirst) {
  auto blocker = pool_->Submit(Order("hang"), 9);  // keeps the only child busy until its deadline
  usleep(100'000);
  auto low = pool_->Submit(Order("low"), 1);
  auto high = pool_->Submit(Order("high"), 5);
  EXPECT_FALSE(blocker.get().has_value());
  EXPECT_EQ(Text(high.get().value()), "high");
  EXPECT_EQ(Text(low.get().value()), "low");
}

TEST_F(ChildPoolTest, WhatNobodyWaitsForIsNotDone) {
  auto blocker = pool_->Submit(Order("hang"), 9);
  usleep(100'000);
  {
    const auto dropped = pool_->Submit(Order("crash"), 5);
  }
  const auto control = std::make_shared<JobControl>();
  auto cancelled = pool_->Submit(Order("crash"), 5, control);
  control->Cancel();
  auto expired = pool_->Submit(Order("crash"), 5, std::make_shared<JobControl>(SystemClock().NowNs()));
  EXPECT_EQ(cancelled.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(expired.get().error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(blocker.get().has_value());
  EXPECT_EQ(Text(Do("still here").value()), "still here");
  EXPECT_EQ(pool_->crashes(), 1u) << "the blocker alone";
}

TEST_F(ChildPoolTest, AChildIsEndedWhenNobodyWaitsForItsJobAndThatIsNoFaultOfTheJob) {
  const auto control = std::make_shared<JobControl>();
  auto running = pool_->Submit(Order("hang"), 0, control);
  usleep(100'000);
  control->Cancel();
  EXPECT_EQ(running.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(Text(Do("still here").value()), "still here");
  EXPECT_EQ(pool_->crashes(), 0u);
  EXPECT_EQ(Replays(), 0u);
}

TEST_F(ChildPoolTest, TheQueueIsBounded) {
  auto blocker = pool_->Submit(Order("hang"), 9);
  usleep(100'000);
  std::vector<ChildAnswer> waiting;
  for (size_t i = 0; i < limits::kChildJobsQueuedMax; ++i) waiting.push_back(pool_->Submit(Order("x"), 0));
  EXPECT_EQ(Do("one too many").error().code, ErrorCode::kBusy);
  EXPECT_FALSE(blocker.get().has_value());
  for (ChildAnswer& answer : waiting) EXPECT_TRUE(answer.get().has_value());
}

TEST_F(ChildPoolTest, TheNewestReplayFilesAreKept) {
  std::filesystem::create_directories(replay_);
  for (size_t i = 0; i < limits::kReplayFilesMax + 6; ++i) {
    const std::string path = replay_ + "/" + std::to_string(i) + ".job";
    std::ofstream(path) << "a job";
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(i < 7 ? 100 + i : 1));
  }
  EXPECT_FALSE(Do("crash").has_value());
  EXPECT_EQ(Replays(), limits::kReplayFilesMax);
  EXPECT_FALSE(std::filesystem::exists(replay_ + "/6.job")) << "one of the oldest";
  EXPECT_TRUE(std::filesystem::exists(replay_ + "/7.job"));
}

TEST_F(ChildPoolTest, ReplayFilesAreBoundedInBytesToo) {
  std::filesystem::create_directories(replay_);
  for (int i = 0; i < 3; ++i) {
    const std::string path = replay_ + "/" + std::to_string(i) + ".7.job";
    std::ofstream(path) << "a job";
    std::filesystem::resize_file(path, limits::kReplayBytesMax / 3);  // sparse
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(9 - i));
  }
  ASSERT_TRUE(WriteReplay(replay_, Order("one more")).has_value());
  EXPECT_EQ(Replays(), 3u);
  EXPECT_FALSE(std::filesystem::exists(replay_ + "/0.7.job")) << "the oldest";
  EXPECT_FALSE(WriteReplay(replay_, {7, std::vector<uint8_t>(limits::kReplayBytesMax + 1)}).has_value());
  EXPECT_EQ(Replays(), 3u);
}

TEST_F(ChildPoolTest, StoppingEndsAJobThatHangs) {
  ChildPoolOptions options;
  options.binary = ECHO_CHILD;
  options.job_deadline_ms = 3'600'000;
  options.replay_directory = replay_;
  pool_ = ChildPool::Start(options).value();
  auto busy = pool_->Submit(Order("hang"), 0);
  usleep(100'000);
  pool_.reset();
  EXPECT_EQ(busy.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(Replays(), 0u);
}

TEST_F(ChildPoolTest, StoppingAnswersWhatWaits) {
  auto busy = pool_->Submit(Order("hang"), 9);
  usleep(100'000);
  auto waiting = pool_->Submit(Order("never"), 0);
  pool_.reset();
  EXPECT_FALSE(busy.get().has_value());
  EXPECT_EQ(waiting.get().error().code, ErrorCode::kCancelled);
}

TEST(ChildPool, AMissingBinaryIsAnErrorAtTheStart) {
  ChildPoolOptions options;
  options.binary = "/nonexistent/kiln-child";
  EXPECT_EQ(ChildPool::Start(options).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace kiln
