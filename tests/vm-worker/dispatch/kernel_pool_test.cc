// The pool runs every element of every range once, whatever runs beside it. Meant for the thread sanitizer too.
#include "vm-worker/dispatch/kernel_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kiln::testing {
namespace {

// pointers[0]: counts per element; pointers[1]: kernels running now, and the most so far.
struct Watch {
  std::atomic<int> running{0}, most{0};
};

void CountElements(const KilnKernelArgs* args, int64_t begin, int64_t end) {
  auto* counts = static_cast<int32_t*>(args->pointers[0]);
  auto* watch = static_cast<Watch*>(args->pointers[1]);
  const int now = watch->running.fetch_add(1) + 1;
  for (int most = watch->most.load(); most < now && !watch->most.compare_exchange_weak(most, now);) {
  }
  for (int64_t i = begin; i < end; ++i) counts[i] += static_cast<int32_t>(args->dims[0]);
  if (args->dims[1] != 0) std::this_thread::yield();
  watch->running.fetch_sub(1);
}

struct Sizes {
  int threads;
  int64_t range, parts;
};

class KernelPoolTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(KernelPoolTest, EveryElementOnce) {
  const auto [threads, range, parts] = GetParam();
  KernelPool pool(threads);
  EXPECT_EQ(pool.threads(), threads);
  std::vector<int32_t> counts(static_cast<size_t>(range), 0);
  Watch watch;
  void* pointers[] = {counts.data(), &watch};
  const int64_t dims[] = {1, 1};
  const KilnKernelArgs args{pointers, dims, nullptr};
  constexpr int kRuns = 50;
  for (int run = 0; run < kRuns; ++run) pool.Run(CountElements, args, range, parts);
  for (int32_t count : counts) EXPECT_EQ(count, kRuns);
  EXPECT_LE(watch.most.load(), threads);
}

INSTANTIATE_TEST_SUITE_P(Sizes, KernelPoolTest,
                         ::testing::Values(Sizes{1, 100, 8}, Sizes{2, 0, 8}, Sizes{2, 1, 8}, Sizes{2, 1000, 1},
                                           Sizes{3, 7, 100}, Sizes{4, 1001, 5}, Sizes{8, 4096, 1000}),
                         [](const auto& info) {
                           return "Threads" + std::to_string(info.param.threads) + "Range" +
                                  std::to_string(info.param.range) + "Parts" + std::to_string(info.param.parts);
                         });

TEST(KernelPoolTest, ConcurrentCallersShareTheirThreads) {
  constexpr int kCallers = 3, kRuns = 200;
  constexpr int64_t kRange = 512;
  KernelPool pool(kCallers + 1);  // at most one helper at a time beside all callers
  Watch watch;
  std::vector<std::vector<int32_t>> counts(kCallers, std::vector<int32_t>(kRange, 0));
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      void* pointers[] = {counts[static_cast<size_t>(caller)].data(), &watch};
      const int64_t dims[] = {caller + 1, 1};
      const KilnKernelArgs args{pointers, dims, nullptr};
      for (int run = 0; run < kRuns; ++run) pool.Run(CountElements, args, kRange, 16);
    });
  for (std::thread& caller : callers) caller.join();
  for (int caller = 0; caller < kCallers; ++caller)
    for (int32_t count : counts[static_cast<size_t>(caller)]) EXPECT_EQ(count, kRuns * (caller + 1));
}

TEST(KernelPoolTest, HelpersTakePartsWhenTheCallerIsBusy) {
  KernelPool pool(2);
  std::vector<int32_t> counts(64, 0);
  Watch watch;
  void* pointers[] = {counts.data(), &watch};
  const int64_t dims[] = {1, 1};
  const KilnKernelArgs args{pointers, dims, nullptr};
  const auto slow = [](const KilnKernelArgs* a, int64_t begin, int64_t end) {
    CountElements(a, begin, end);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  int runs = 0;
  for (; runs < 200 && pool.helped_parts() == 0; ++runs) pool.Run(slow, args, 64, 8);
  EXPECT_GT(pool.helped_parts(), 0u);
  for (int32_t count : counts) EXPECT_EQ(count, runs);
}

}  // namespace
}  // namespace kiln::testing
