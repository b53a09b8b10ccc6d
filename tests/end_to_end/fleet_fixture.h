// A real fleet of processes in a directory of its own, and a model to send it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "cli/fleet/embedded_fleet.h"
#include "common/base/clock.h"
#include "common/bytecode/program_text.h"
#include "common/worker_api/worker_api.h"
#include "tests/support/temp_directory.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {

// Whether `done` becomes true within the time; for state that another process changes.
inline bool Eventually(const std::function<bool()>& done, int64_t timeout_ms = 60'000) {
  const int64_t deadline = SystemClock().NowNs() + timeout_ms * 1'000'000;
  while (SystemClock().NowNs() < deadline) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return done();
}

class FleetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loop = Loop::Start("test");
    ASSERT_TRUE(loop.has_value());
    loop_ = std::move(*loop);
    auto fleet = cli::EmbeddedFleet::Start({directory_, "rocksdb", 1, KILN_BIN_DIR});
    ASSERT_TRUE(fleet.has_value()) << ToString(fleet.error());
    fleet_ = std::move(*fleet);
  }
  void TearDown() override {
    clients_.clear();
    fleet_.reset();
    loop_.reset();
  }

  // A worker that asks for plans as soon as a segment has run a few times.
  RpcClient* StartWorker(std::vector<std::string> more = {}) {
    cli::WorkerOptions options;
    options.arguments = {"--hot-ms", "0", "--hot-runs", "4", "--shadow-share", "1.0", "--warm-wait-ms", "500"};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    auto worker = fleet_->StartWorker(options);
    EXPECT_TRUE(worker.has_value()) << ToString(worker.error());
    if (!worker.has_value()) return nullptr;
    auto client = cli::ConnectTool(*loop_, fleet_->WorkerEndpoint(*worker), "", "worker");
    EXPECT_TRUE(client.has_value());
    clients_.push_back(std::move(*client));
    return clients_.back().get();
  }

  const TempDirectory temp_directory_;
  const std::string directory_ = temp_directory_.path() + "/fleet";
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<cli::EmbeddedFleet> fleet_;
  std::vector<std::unique_ptr<RpcClient>> clients_;
};

}  // namespace kiln::testing
