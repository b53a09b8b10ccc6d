#include "vm-worker/dispatch/epoch.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "common/base/limits.h"

namespace kiln {
namespace {

TEST(EpochDomain, FreesOnlyAfterTheReadersThatCouldSeeItHaveLeft) {
  EpochDomain epochs;
  const int reader = epochs.RegisterReader();
  epochs.Enter(reader);
  auto object = std::make_shared<int>(7);
  std::weak_ptr<int> watch = object;
  epochs.Retire(std::move(object));
  EXPECT_EQ(epochs.Reclaim(), 1u);
  EXPECT_FALSE(watch.expired());
  epochs.Leave(reader);
  EXPECT_EQ(epochs.Reclaim(), 0u);
  EXPECT_TRUE(watch.expired());
}

TEST(EpochDomain, AReaderThatEnteredLaterDoesNotHoldBack) {
  EpochDomain epochs;
  const int reader = epochs.RegisterReader();
  auto object = std::make_shared<int>(7);
  epochs.Retire(std::move(object));
  epochs.Enter(reader);
  EXPECT_EQ(epochs.Reclaim(), 0u);
  epochs.Leave(reader);
}

TEST(EpochDomain, PlacesRunOutWithoutHarm) {
  EpochDomain epochs;
  for (int i = 0; i < limits::kEpochReadersMax; ++i) EXPECT_EQ(epochs.RegisterReader(), i);
  EXPECT_EQ(epochs.RegisterReader(), -1);
  epochs.UnregisterReader(3);
  EXPECT_EQ(epochs.RegisterReader(), 3);
}

// The thread sanitizer's build is what makes this a test of ordering; here a freed object shows as a wrong value.
TEST(EpochDomain, ReadersNeverSeeAFreedObject) {
  struct Value {
    explicit Value(int v) : a(v), b(v) {}
    ~Value() { a = -1; }
    int a, b;
  };
  EpochDomain epochs;
  std::atomic<const Value*> current{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  auto first = std::make_shared<const Value>(0);
  current.store(first.get());
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&] {
      const int reader = epochs.RegisterReader();
      while (!stop.load()) {
        EpochScope scope(epochs, reader);
        const Value* value = current.load(std::memory_order_seq_cst);
        if (value->a != value->b) wrong.fetch_add(1);
      }
      epochs.UnregisterReader(reader);
    });
  std::shared_ptr<const Value> held = first;
  first.reset();
  for (int i = 1; i < 5000; ++i) {
    auto next = std::make_shared<const Value>(i);
    current.store(next.get(), std::memory_order_seq_cst);
    epochs.Retire(std::move(held));
    held = std::move(next);
    epochs.Reclaim();
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
}

// One thread retires while another reclaims: what is retired during a look at the readers waits for the next look.
TEST(EpochDomain, RetiringAndReclaimingThreadsDoNotMeet) {
  struct Value {
    ~Value() { alive = 0; }
    std::atomic<int> alive{1};
  };
  EpochDomain epochs;
  auto held = std::make_shared<const Value>();
  std::atomic<const Value*> current{held.get()};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    const int place = epochs.RegisterReader();
    while (!stop.load()) {
      EpochScope scope(epochs, place);
      const Value* value = current.load(std::memory_order_seq_cst);
      std::this_thread::yield();  // stays inside while others run
      if (value->alive.load() != 1) wrong.fetch_add(1);
    }
    epochs.UnregisterReader(place);
  });
  std::thread reclaimer([&] {
    while (!stop.load()) epochs.Reclaim();
  });
  for (int i = 0; i < 5000; ++i) {
    auto next = std::make_shared<const Value>();
    current.store(next.get(), std::memory_order_seq_cst);
    epochs.Retire(std::exchange(held, std::move(next)));
  }
  stop.store(true);
  reader.join();
  reclaimer.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(epochs.Reclaim(), 0u);
}

}  // namespace
}  // namespace kiln
