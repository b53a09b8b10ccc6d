#include "compile-service/jobs/child_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/base/clock.h"

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
    replay_ = (std::filesystem::temp_directory_path() / ("kiln-replay-" + std::to_string(getpid()))).string();
    std::filesystem::remove_all(replay_);
    ChildPoolOptions options;
    options.binary = ECHO_CHILD;
    options.job_deadline_ms = 1'000;
    options.limits.address_space_bytes = int64_t{1} << 30;
    options.replay_directory = replay_;
    auto pool = ChildPool::Start(options);
    ASSERT_TRUE(pool.has_value()) << ToString(pool.error());
    pool_ = std::move(*pool);
  }
  void TearDown() override {
    pool_.reset();
    std::filesystem::remove_all(replay_);
  }
  Result<Frame> Do(const std::string& order) { return pool_->Submit(Order(order), 0).get(); }
  size_t Replays() const {
    size_t count = 0;
    if (std::filesystem::exists(replay_))
      for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(replay_)) ++count;
    return count;
  }
  std::string replay_;
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
  EXPECT_FALSE(Do("lie").has_value());
  EXPECT_EQ(Text(Do("still here").value()), "still here");
  EXPECT_EQ(pool_->crashes(), 2u);
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
  for (size_t i = 0; i < kChildJobsQueuedMax; ++i) waiting.push_back(pool_->Submit(Order("x"), 0));
  EXPECT_EQ(Do("one too many").error().code, ErrorCode::kBusy);
  EXPECT_FALSE(blocker.get().has_value());
  for (ChildAnswer& answer : waiting) EXPECT_TRUE(answer.get().has_value());
}

TEST_F(ChildPoolTest, TheNewestReplayFilesAreKept) {
  std::filesystem::create_directories(replay_);
  for (size_t i = 0; i < kReplayFilesMax + 6; ++i) {
    const std::string path = replay_ + "/" + std::to_string(i) + ".job";
    std::ofstream(path) << "a job";
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(i < 7 ? 100 + i : 1));
  }
  EXPECT_FALSE(Do("crash").has_value());
  EXPECT_EQ(Replays(), kReplayFilesMax);
  EXPECT_FALSE(std::filesystem::exists(replay_ + "/6.job")) << "one of the oldest";
  EXPECT_TRUE(std::filesystem::exists(replay_ + "/7.job"));
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
