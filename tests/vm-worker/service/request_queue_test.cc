#include "vm-worker/service/request_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using Queue = RequestQueue<std::unique_ptr<int>>;

bool Push(Queue& queue, int value) {
  auto item = std::make_unique<int>(value);
  return queue.Push(item);
}

TEST(RequestQueue, ItemsLeaveInTheOrderTheyCame) {
  Queue queue(3);
  for (int value : {1, 2, 3}) EXPECT_TRUE(Push(queue, value));
  for (int value : {1, 2, 3}) EXPECT_EQ(**queue.Pop(), value);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(RequestQueue, ARefusedItemStaysWithItsOwner) {
  Queue queue(1);
  EXPECT_TRUE(Push(queue, 1));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.Push(item));
  EXPECT_EQ(*item, 2);
  EXPECT_EQ(**queue.Pop(), 1);
  EXPECT_TRUE(queue.Push(item));
  EXPECT_EQ(item, nullptr);
}

TEST(RequestQueue, AClosedQueueRefusesNewItemsAndHandsOutTheOldOnes) {
  Queue queue(4);
  EXPECT_TRUE(Push(queue, 1));
  queue.Close();
  EXPECT_FALSE(Push(queue, 2));
  EXPECT_EQ(**queue.Pop(), 1);
  EXPECT_FALSE(queue.Pop().has_value());
}

TEST(RequestQueue, ClosingWakesEveryWaitingThread) {
  Queue queue(1);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) waiting.emplace_back([&queue] { EXPECT_FALSE(queue.Pop().has_value()); });
  queue.Close();
  for (std::thread& thread : waiting) thread.join();
}

TEST(RequestQueue, EveryItemIsTakenOnceByOneOfManyThreads) {
  constexpr int kProducers = 3, kConsumers = 3, kEach = 500;
  Queue queue(8);
  std::vector<std::vector<int>> taken(kConsumers);
  std::vector<std::thread> consumers, producers;
  for (std::vector<int>& mine : taken)
    consumers.emplace_back([&queue, &mine] {
      while (auto item = queue.Pop()) mine.push_back(**item);
    });
  for (int producer = 0; producer < kProducers; ++producer)
    producers.emplace_back([&queue, producer] {
      for (int i = 0; i < kEach; ++i) {
        auto item = std::make_unique<int>(producer * kEach + i);
        while (!queue.Push(item)) std::this_thread::yield();
      }
    });
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();
  std::vector<int> times(kProducers * kEach, 0);
  for (const std::vector<int>& mine : taken)
    for (int value : mine) ++times[static_cast<size_t>(value)];
  EXPECT_EQ(times, std::vector<int>(kProducers * kEach, 1));
}

}  // namespace
}  // namespace kiln
