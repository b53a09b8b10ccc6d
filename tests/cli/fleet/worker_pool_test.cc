// Several workers as one: which answers are asked for again elsewhere, and for how long.
#include "cli/fleet/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "common/base/transient.h"
#include "common/messaging/rpc_server.h"
#include "tests/support/error_codes.h"
#include "tests/support/temp_directory.h"

namespace kiln::cli {
namespace {

// Two workers that answer as they are told, and the pool of both.
class WorkerPoolTest : public ::testing::Test {
 protected:
  struct Worker {
    std::unique_ptr<RpcServer> server;
    std::atomic<int> runs{0};
    std::atomic<ErrorCode> answer{};  // zero: an empty reply
    std::atomic<bool> silent{false};
    std::mutex mutex;
    std::vector<Replier> unanswered;
  };

  void SetUp() override {
    loop_ = Loop::Start("pool").value();
    server_loop_ = Loop::Start("workers").value();
    std::vector<std::string> endpoints;
    for (Worker& worker : workers_) {
      endpoints.push_back("ipc://" + directory_ + "/" + std::to_string(endpoints.size()));
      worker.server =
          RpcServer::Listen(*server_loop_, {.endpoints = {endpoints.back()}, .security = {.insecure = true}}).value();
      worker.server->Register(static_cast<uint16_t>(WorkerMethod::kRun), kAnyRole,
                              [&worker](const RequestContext&, Message, Replier reply) {
                                ++worker.runs;
                                if (worker.silent) {
                                  const std::lock_guard lock(worker.mutex);
                                  return worker.unanswered.push_back(std::move(reply));
                                }
                                if (const ErrorCode code = worker.answer; code != ErrorCode{})
                                  return reply.Fail({code, "as told", {}});
                                reply.Ok(Encode(RunReply{}));
                              });
      worker.server->Serve();
    }
    pool_ = WorkerPool::Connect(*loop_, endpoints, "").value();
    EXPECT_TRUE(pool_->Run({}, 5'000).has_value() && pool_->Run({}, 5'000).has_value());
    for (Worker& worker : workers_) worker.runs = 0;
  }
  void TearDown() override {
    pool_.reset();
    for (Worker& worker : workers_) worker.server.reset();
    server_loop_.reset();
    loop_.reset();
  }
  int Runs() const { return workers_[0].runs + workers_[1].runs; }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  std::unique_ptr<Loop> loop_, server_loop_;
  Worker workers_[2];
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerPoolTest, WhatIsTransientIsAskedOnceElsewhereAndNothingElseIs) {
  uint64_t retried = 0;
  for (const ErrorCode code : testing::kErrorCodes) {
    SCOPED_TRACE(ErrorCodeName(code));
    for (Worker& worker : workers_) worker.runs = 0, worker.answer = code;
    EXPECT_EQ(pool_->Run({}, 5'000).error().code, code);
    EXPECT_EQ(Runs(), IsTransient(code) ? 2 : 1);
    for (const Worker& worker : workers_) EXPECT_LE(worker.runs, 1) << "each worker is asked once";
    EXPECT_EQ(pool_->retried(), retried += IsTransient(code) ? 1 : 0);
  }
}

TEST_F(WorkerPoolTest, AnotherWorkerAnswersForOneThatCannot) {
  workers_[0].answer = ErrorCode::kResourceExhausted;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool_->Run({}, 5'000).has_value());
  EXPECT_EQ(workers_[1].runs, 4);
  EXPECT_EQ(workers_[0].runs, static_cast<int>(pool_->retried()));
  EXPECT_GT(workers_[0].runs, 0);
}

TEST_F(WorkerPoolTest, TheDeadlineIsThatOfBothTries) {
  for (Worker& worker : workers_) worker.silent = true;
  EXPECT_EQ(pool_->Run({}, 50).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(Runs(), 1) << "nothing was left of it for another worker";
  EXPECT_EQ(pool_->retried(), 0u);
}

}  // namespace
}  // namespace kiln::cli
