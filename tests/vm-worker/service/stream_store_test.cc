#include "vm-worker/service/stream_store.h"

#include <gtest/gtest.h>

#include <deque>

namespace kiln {
namespace {

class HandClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t WallMs() const override { return 0; }
  int64_t now_ns = 1;
};

class StreamStoreTest : public ::testing::Test {
 protected:
  StreamOptions Options(size_t streams, int64_t bytes, int64_t idle_ns = 1000) {
    return {.streams_max = streams, .bytes_max = bytes, .idle_ns = idle_ns, .clock = &clock_};
  }
  static std::vector<Tensor> State(int64_t elements, float value) {
    Tensor tensor = Tensor::Allocate(DType::kF32, {elements});
    for (float& element : tensor.values<float>()) element = value;
    return {tensor};
  }

  HandClock clock_;
  std::shared_ptr<const void> model_ = std::make_shared<int>(1), other_ = std::make_shared<int>(2);
};

TEST_F(StreamStoreTest, CommittedStateIsTheNextRuns) {
  StreamStore store(Options(4, 1024));
  const uint64_t id = store.Open(model_, {{1, 2}}, State(4, 1)).value();
  EXPECT_NE(id, 0u);
  for (int run = 1; run <= 3; ++run) {
    auto lease = store.Take(id, model_);
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(lease->links()[0].output, 2u);
    EXPECT_EQ(lease->state()[0].values<float>()[0], static_cast<float>(run));
    EXPECT_EQ(store.Commit(*std::move(lease), State(4, static_cast<float>(run + 1))).value(),
              static_cast<uint64_t>(run));
  }
}

TEST_F(StreamStoreTest, IdsAreNeverZeroNorThoseOfOpenStreams) {
  StreamOptions options = Options(4, 1024);
  options.random = [draws = std::deque<uint64_t>{7, 7, 0, 9}]() mutable {
    const uint64_t next = draws.front();
    draws.pop_front();
    return next;
  };
  StreamStore store(options);
  EXPECT_EQ(store.Open(model_, {{0, 0}}, State(4, 1)).value(), 7u);
  EXPECT_EQ(store.Open(model_, {{0, 0}}, State(4, 1)).value(), 9u);
}

TEST_F(StreamStoreTest, AFailedRunLeavesTheStreamAsItWas) {
  StreamStore store(Options(4, 1024));
  const uint64_t id = store.Open(model_, {{0, 0}}, State(4, 1)).value();
  {
    auto lease = store.Take(id, model_);
  }
  EXPECT_EQ(store.Take(id, model_)->state()[0].values<float>()[0], 1.0f);
}

TEST_F(StreamStoreTest, OneRunAtATime) {
  StreamStore store(Options(4, 1024));
  const uint64_t id = store.Open(model_, {{0, 0}}, State(4, 1)).value();
  auto lease = store.Take(id, model_);
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(store.Take(id, model_).error().code, ErrorCode::kBusy);
}

TEST_F(StreamStoreTest, IdleStreamsAreLostAndTheirBytesFreed) {
  StreamStore store(Options(4, 1024));
  const uint64_t id = store.Open(model_, {{0, 0}}, State(4, 1)).value(),
                 used = store.Open(model_, {{0, 0}}, State(4, 1)).value();
  clock_.now_ns += 900;
  EXPECT_TRUE(store.Take(used, model_).has_value());
  clock_.now_ns += 200;
  EXPECT_EQ(store.Take(id, model_).error().code, ErrorCode::kStateLost);
  EXPECT_TRUE(store.Take(used, model_).has_value());
  EXPECT_EQ(store.stats().expired, 1u);
  EXPECT_EQ(store.stats().bytes, 16);
}

TEST_F(StreamStoreTest, CountAndBytesAreBounded) {
  StreamStore store(Options(2, 64));
  const uint64_t first = store.Open(model_, {{0, 0}}, State(4, 1)).value();
  ASSERT_TRUE(store.Open(model_, {{0, 0}}, State(4, 1)).has_value());
  EXPECT_EQ(store.Open(model_, {{0, 0}}, State(1, 1)).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(store.Close(first));
  EXPECT_EQ(store.Open(model_, {{0, 0}}, State(13, 1)).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(store.Open(model_, {{0, 0}}, State(12, 1)).has_value());
  EXPECT_EQ(store.stats().refused, 2u);
}

TEST_F(StreamStoreTest, ExpiredStreamsMakeRoom) {
  StreamStore store(Options(1, 64));
  ASSERT_TRUE(store.Open(model_, {{0, 0}}, State(4, 1)).has_value());
  clock_.now_ns += 1001;
  EXPECT_TRUE(store.Open(model_, {{0, 0}}, State(4, 1)).has_value());
}

TEST_F(StreamStoreTest, StateThatGrowsPastTheLimitIsRefusedAndTheStreamStays) {
  StreamStore store(Options(2, 64));
  const uint64_t id = store.Open(model_, {{0, 0}}, State(4, 7)).value();
  EXPECT_EQ(store.Commit(store.Take(id, model_).value(), State(17, 8)).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(store.Take(id, model_)->state()[0].values<float>()[0], 7.0f);
  EXPECT_TRUE(store.Commit(store.Take(id, model_).value(), State(16, 8)).has_value());
  EXPECT_EQ(store.stats().bytes, 64);
}

TEST_F(StreamStoreTest, AnotherModelsOrAnotherProcesssIdIsLost) {
  StreamStore store(Options(4, 1024)), restarted(Options(4, 1024));
  const uint64_t id = store.Open(model_, {{0, 0}}, State(4, 1)).value();
  ASSERT_TRUE(restarted.Open(model_, {{0, 0}}, State(4, 1)).has_value());
  EXPECT_EQ(store.Take(id, other_).error().code, ErrorCode::kStateLost);
  EXPECT_EQ(restarted.Take(id, model_).error().code, ErrorCode::kStateLost);
  model_.reset();
  EXPECT_EQ(store.stats().open, 0u) << "a stream ends with its model";
}

TEST_F(StreamStoreTest, AStreamClosedDuringItsRunIsGone) {
  StreamStore store(Options(4, 1024));
  const uint64_t id = store.Open(model_, {{0, 0}}, State(4, 1)).value();
  auto lease = store.Take(id, model_);
  EXPECT_TRUE(store.Close(id));
  EXPECT_TRUE(store.Commit(*std::move(lease), State(4, 2)).has_value());
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.Take(id, model_).error().code, ErrorCode::kStateLost);
}

}  // namespace
}  // namespace kiln
