// Every bound of the system that is not a user setting, in one place. Sizes in bytes, times in milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::limits {

// --- tensors and programs ---
inline constexpr int kRankMax = 8;
// Contents of integer tensors (shapes, axes, indices) are followed up to this many elements; longer ones are data.
inline constexpr int64_t kShapeContentsMax = 1024;
inline constexpr int64_t kTensorBytesMax = int64_t{1} << 40;
inline constexpr size_t kImmediateElementsMax = 16;  // constants up to this size are part of a segment by value
inline constexpr size_t kProgramNodesMax = 1'000'000;
inline constexpr size_t kProgramValuesMax = 4'000'000;
inline constexpr size_t kProgramBytesMax = size_t{1} << 31;
inline constexpr int kRegionDepthMax = 32;
inline constexpr size_t kNameBytesMax = 4096;
inline constexpr size_t kModelBytesMax = size_t{1} << 35;

// --- segments, plans, kernels ---
inline constexpr size_t kSegmentNodesMax = 8192;
inline constexpr size_t kPlanKernelsMax = 128;
inline constexpr size_t kPlanStepsMax = 8192;
inline constexpr size_t kKernelBlobBytesMax = size_t{4} << 20;
inline constexpr size_t kPlansPerSegmentDefault = 8;
inline constexpr size_t kSlotPlansMax = 64;

// --- messages ---
inline constexpr size_t kEnvelopeBytesMax = size_t{64} << 20;
inline constexpr size_t kMessagePartsMax = 1024;
inline constexpr size_t kBlobChunkBytes = size_t{1} << 20;
inline constexpr int kHeartbeatIntervalMs = 1000;
inline constexpr int kHeartbeatTimeoutMs = 5000;
inline constexpr int kLookupTimeoutMs = 2000;
inline constexpr int kChangeLogPollMs = 2000;

// --- queues ---
inline constexpr size_t kRequestQueueDefault = 256;
inline constexpr size_t kCompileQueueDefault = 256;
inline constexpr size_t kPendingRpcMax = 4096;

// --- compile service ---
inline constexpr size_t kTrialsPerKernelMax = 8;                  // calls with different dims
inline constexpr size_t kChildJobsQueuedMax = 4096;               // jobs that wait for a child
inline constexpr size_t kChildFrameBytesMax = size_t{256} << 20;  // between front and child
inline constexpr size_t kReplayFilesMax = 64;                     // of jobs that went wrong; the oldest go first
inline constexpr size_t kReplayBytesMax = size_t{128} << 20;      // of all of them
inline constexpr size_t kFailuresRememberedMax = 4096;            // requests
inline constexpr size_t kCompileBytesMax = size_t{256} << 20;     // requests that wait or are in work, together
inline constexpr size_t kCompileWaitersMax =
    16 * kCompileQueueDefault;  // callers, of whom many may wait for one request

// --- cache store ---
inline constexpr size_t kPlansPerSegmentMax = 1024;  // stored, per target
inline constexpr size_t kVariantsMax = 4096;         // in one reply, of all targets
inline constexpr size_t kLeasesMax = 65'536;
inline constexpr size_t kChangeLogEntriesMax = 10'000;
inline constexpr size_t kMachinesKeptMax = 64;  // witnesses of one plan
inline constexpr size_t kQuarantineMarksMax = 65'536;

}  // namespace kiln::limits
