#include "compile-service/validate/time_kernels.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <random>

#include "common/native/code_mapping.h"
#include "common/native/guarded_memory.h"
#include "compile-service/validate/pointer_extents.h"
#include "compile-service/validate/trial_values.h"

namespace kiln {
namespace {

constexpr int64_t kBytesMax = int64_t{512} << 20;
constexpr int64_t kRoundNs = 100'000;  // at least, of one form: far above what reading the clock costs
constexpr int kRoundsMin = 3, kRoundsMax = 25;

// Time that others take from this thread does not count.
int64_t ThreadNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Memory of one call, the same for all forms.
class CallMemory {
 public:
  static Result<CallMemory> Make(std::span<const KernelForm> forms, const FormCall& call, int lanes) {
    ASSIGN_OR_RETURN(const std::vector<PointerExtent> extents, PointerExtents(forms[0].spec, call.dims, lanes));
    int64_t bytes = 0;
    for (const PointerExtent& extent : extents) bytes += extent.elements * DTypeBytes(extent.dtype);
    if (bytes > kBytesMax)
      return Fail(ErrorCode::kLimitExceeded, "a call works on " + std::to_string(bytes) + " bytes; at most " +
                                                 std::to_string(kBytesMax) + " are used to time it");
    for (const KernelForm& form : forms) {
      ASSIGN_OR_RETURN(const std::vector<PointerExtent> others, PointerExtents(form.spec, call.dims, lanes));
      for (size_t i = 0; i < extents.size(); ++i)
        if (others.size() != extents.size() || others[i].elements != extents[i].elements ||
            others[i].before != extents[i].before)
          return Fail(ErrorCode::kUnsupported, "the forms of the kernel do not work on the same memory");
    }
    CallMemory memory;
    std::mt19937_64 random(1);
    for (const PointerExtent& extent : extents) {
      auto block = std::make_unique<GuardedMemory>(static_cast<size_t>(extent.elements * DTypeBytes(extent.dtype)));
      if (block->data() == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory to time a kernel in");
      FillRandom(extent, block->data(), random, {});
      memory.pointers_.push_back(static_cast<char*>(block->data()) + extent.before * DTypeBytes(extent.dtype));
      memory.blocks_.push_back(std::move(block));
    }
    return memory;
  }
  void* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<std::unique_ptr<GuardedMemory>> blocks_;
  std::vector<void*> pointers_;
};

// Least time of one call per form.
std::vector<int64_t> Race(std::span<const KernelForm> forms, const CodeMapping& code, const CallMemory& memory,
                          const FormCall& call, int lanes, int64_t budget_ns) {
  const KilnKernelArgs args{memory.pointers(), call.dims.data(), nullptr};
  std::vector<int64_t> least(forms.size(), INT64_MAX), repeats(forms.size(), 1), range;
  for (const KernelForm& form : forms) range.push_back(ir::RangeOf(form.spec, call.dims, lanes));
  const auto run = [&](size_t f, int64_t times) {
    const int64_t start = ThreadNs();
    for (int64_t i = 0; i < times; ++i) code.entry(f)(&args, 0, range[f]);
    return std::max<int64_t>(1, ThreadNs() - start);
  };
  const int64_t end = ThreadNs() + budget_ns;
  for (size_t f = 0; f < forms.size(); ++f) {
    run(f, 1);  // pages, caches, branch predictors
    repeats[f] = std::clamp<int64_t>(kRoundNs / run(f, 1), 1, 10'000);
  }
  for (int round = 0; round < kRoundsMax && (round < kRoundsMin || ThreadNs() < end); ++round)
    for (size_t f = 0; f < forms.size(); ++f) least[f] = std::min(least[f], run(f, repeats[f]) / repeats[f]);
  return least;
}

}  // namespace

Result<std::vector<int64_t>> TimeKernels(std::span<const KernelForm> forms, Target target,
                                         std::span<const FormCall> calls, int64_t budget_ms) {
  const std::vector<Target> host = HostTargets();
  if (host.empty() || host.front() != target)
    return Fail(ErrorCode::kUnsupported, "kernels for " + std::string(InfoOf(target).name) +
                                             " are timed on a host of that target; this one is " +
                                             (host.empty() ? "none" : std::string(InfoOf(host.front()).name)));
  if (forms.empty() || calls.empty()) return Fail(ErrorCode::kInvalidArgument, "no kernel or no call to time");
  std::vector<KernelId> ids;
  std::vector<std::span<const uint8_t>> blobs;
  for (const KernelForm& form : forms) {
    ids.push_back(HashBytes(form.code));
    blobs.push_back(form.code);
  }
  ASSIGN_OR_RETURN(const auto code, CodeMapping::Map(ids, blobs, host.front()));
  const int lanes = InfoOf(target).f32_lanes();
  const int64_t budget_ns = budget_ms * 1'000'000 / static_cast<int64_t>(calls.size());
  std::vector<int64_t> total(forms.size(), 0);
  for (const FormCall& call : calls) {
    ASSIGN_OR_RETURN(const CallMemory memory, CallMemory::Make(forms, call, lanes));
    const std::vector<int64_t> least = Race(forms, *code, memory, call, lanes, budget_ns);
    for (size_t f = 0; f < forms.size(); ++f) total[f] += least[f] * call.uses;
  }
  return total;
}

}  // namespace kiln
