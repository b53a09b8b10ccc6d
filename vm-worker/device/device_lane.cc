#include "vm-worker/device/device_lane.h"

#include <algorithm>
#include <ctime>

#include "common/base/checked_math.h"

namespace kiln {
namespace {

constexpr int64_t kArenaStep = int64_t{2} << 20;  // arenas grow by whole steps, so that they stop growing soon
constexpr int64_t kGridMax = INT32_MAX;           // blocks of one launch
constexpr int64_t kSpinNs = 200'000;              // what ends soon is not slept for
constexpr int64_t kSleepNs = 20'000;

}  // namespace

Result<std::unique_ptr<DeviceLane>> DeviceLane::Open(CudaDevice& device) {
  RETURN_IF_ERROR(device.Enter());
  std::unique_ptr<DeviceLane> lane(new DeviceLane(device));
  RETURN_IF_ERROR(
      device.Check(device.driver().StreamCreate(&lane->stream_, cuda::kStreamNonBlocking), "cuStreamCreate"));
  device.Join(lane.get());
  return lane;
}

DeviceLane::~DeviceLane() {
  device_.Part(this);
  if (stream_ == nullptr || device_.lost() || !device_.Enter().has_value()) return;
  // What runs on uses the arena: it ends, or the device is lost and nothing of it is freed.
  if (!Wait(0).has_value()) return;
  (void)device_.Check(device_.driver().StreamDestroy(stream_), "cuStreamDestroy");
}

Result<bool> DeviceLane::IsDone() {
  const cuda::Code code = device_.driver().StreamQuery(stream_);
  if (code == cuda::kNotReady) return false;
  RETURN_IF_ERROR(device_.Check(code, "cuStreamQuery"));
  return true;
}

Status DeviceLane::Reserve(int64_t bytes) {
  if (bytes <= arena_bytes()) return {};
  if (device_.lost()) return device_.FailLost();
  RETURN_IF_ERROR(device_.Enter());
  ASSIGN_OR_RETURN(const bool done, IsDone());
  if (!done) return Fail(ErrorCode::kUnavailable, "the device still runs what an earlier call left");
  arena_ = {};  // first, so that both need not have room at once
  ASSIGN_OR_RETURN(arena_, device_.Allocate(MemoryUse::kArenas, RoundUp(bytes, kArenaStep), WithoutRoom::kGoWithout));
  return {};
}

Status DeviceLane::Begin(const Digest& plan, bool unproven) {
  if (device_.lost()) return device_.FailLost();
  RETURN_IF_ERROR(device_.Enter());
  if (under_way_) {
    ASSIGN_OR_RETURN(const bool done, IsDone());
    if (!done) {
      const int64_t waited_ms = (device_.options().clock->NowNs() - left_ns_) / 1'000'000;
      if (waited_ms > device_.options().run_max_ms)
        device_.Lose("what a call left did not end within " + std::to_string(waited_ms) + " ms", true);
      return Fail(ErrorCode::kUnavailable, "the device still runs what an earlier call left");
    }
    under_way_ = false;
    kept_ = nullptr;
  }
  {
    std::lock_guard lock(running_mutex_);
    running_ = Running{plan, unproven};
  }
  device_.counters().calls.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Status DeviceLane::Upload(cuda::Pointer to, const void* from, int64_t bytes) {
  if (bytes == 0) return {};
  device_.counters().bytes_in.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
  return device_.Check(device_.driver().MemcpyHtoDAsync(to, from, static_cast<size_t>(bytes), stream_),
                       "cuMemcpyHtoDAsync");
}

Status DeviceLane::Download(void* to, cuda::Pointer from, int64_t bytes) {
  if (bytes == 0) return {};
  device_.counters().bytes_out.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
  return device_.Check(device_.driver().MemcpyDtoHAsync(to, from, static_cast<size_t>(bytes), stream_),
                       "cuMemcpyDtoHAsync");
}

Status DeviceLane::Fill(cuda::Pointer to, uint8_t value, int64_t bytes) {
  if (bytes == 0) return {};
  return device_.Check(device_.driver().MemsetD8Async(to, value, static_cast<size_t>(bytes), stream_),
                       "cuMemsetD8Async");
}

Status DeviceLane::Launch(const DeviceKernel& kernel, void* args, int64_t range) {
  for (int64_t begin = 0; begin < range;) {
    const int64_t left = range - begin;
    const int64_t blocks = std::min(kGridMax, (left - 1) / kernel.items_per_block + 1);
    const bool all = (left - 1) / kernel.items_per_block < kGridMax;
    long long from = begin, to = all ? range : begin + blocks * kernel.items_per_block;
    void* parameters[] = {args, &from, &to};
    device_.counters().launches.fetch_add(1, std::memory_order_relaxed);
    RETURN_IF_ERROR(device_.Check(
        device_.driver().LaunchKernel(kernel.function, static_cast<unsigned>(blocks), 1, 1, kernel.threads, 1, 1,
                                      kernel.dynamic_shared, stream_, parameters, nullptr),
        "cuLaunchKernel"));
    begin = to;
  }
  return {};
}

Status DeviceLane::Wait(int64_t deadline_ns) {
  const Clock& clock = *device_.options().clock;
  int64_t start = 0;
  for (;;) {
    if (device_.lost()) return device_.FailLost();
    ASSIGN_OR_RETURN(const bool done, IsDone());
    if (done) return {};
    const int64_t now = clock.NowNs();
    if (start == 0) start = now;
    if (deadline_ns != 0 && now > deadline_ns)
      return Fail(ErrorCode::kDeadlineExceeded, "the device was still running the plan when the deadline passed");
    if (now - start > device_.options().run_max_ms * 1'000'000) {
      device_.Lose("a run did not end within " + std::to_string(device_.options().run_max_ms) + " ms", true);
      return device_.FailLost();
    }
    if (now - start < kSpinNs) continue;
    const timespec pause{0, kSleepNs};
    nanosleep(&pause, nullptr);
  }
}

void DeviceLane::End(bool failed, std::shared_ptr<const void> keep_alive) {
  {
    std::lock_guard lock(running_mutex_);
    running_.reset();
  }
  if (!failed) return;
  under_way_ = true;
  left_ns_ = device_.options().clock->NowNs();
  kept_ = std::move(keep_alive);
}

}  // namespace kiln
