// The bounds of what comes from outside (messages, files, models and plans; what peers may ask and report) and of the
// queues, tables and caches that grow with it. Sizes in bytes, times in milliseconds. Not here: settings of users,
// which have defaults in option structs; numbers that tune, such as block sizes, thresholds of heuristics and
// waiting times, which stand beside their use; and sizes that a format or the system fixes.
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
inline constexpr size_t kAttributesMax = 256;  // of a node
inline constexpr size_t kAttributeItemsMax = size_t{1} << 16;
inline constexpr size_t kSplatBytesMax = size_t{1} << 30;  // a few bytes of text must not reserve a large tensor
inline constexpr int kDimTextDepthMax = 256;
// Of one dim expression; beyond them it becomes the too-large atom, which evaluation rejects.
inline constexpr int32_t kDimNodesMax = 4096;
inline constexpr int32_t kDimDepthMax = 64;
inline constexpr size_t kDimTermsMax = 64;
inline constexpr size_t kDimDegreeMax = 32;
// What is spent on finding out whether any sizes satisfy a program's constraints: nodes of theirs beyond which none is
// looked at before a call enters, passes over them, values tried one by one per constraint, and nodes evaluated for
// all of these.
inline constexpr int64_t kConstraintNodesMax = int64_t{1} << 15;
inline constexpr int kConstraintRoundsMax = 4;
inline constexpr int64_t kConstraintTriesMax = int64_t{1} << 12;
inline constexpr int64_t kConstraintNodesTriedMax = int64_t{1} << 20;
// What nodes ask of the sizes of a program's inputs is checked wherever a run enters; beyond these, only by the nodes.
inline constexpr size_t kEntryRequirementsMax = 256;
inline constexpr size_t kEntryRequirementWordsMax = 256;  // of the code of one expression
// Loading a program costs about its segments times its symbols and nodes; a hostile one could make that endless.
inline constexpr size_t kLoadCostMax = size_t{1} << 32;
// Samples of one bin, and positions of one axis of a box; a box that needs more is no box of an image.
inline constexpr int64_t kRoiSamplesMax = int64_t{1} << 24;
inline constexpr int kUserOpOperandsMax = 64;  // inputs, and outputs, that a plug-in library may declare

// --- model files ---
inline constexpr size_t kModelBytesMax = size_t{1} << 35;
inline constexpr int kOnnxNestingMax = 100;         // of messages in the file
inline constexpr size_t kSequenceLengthMax = 4096;  // tensors
inline constexpr int kIfSplitsMax = 12;             // each one copies the rest of a graph
// Elements of a sparse tensor's dense form: at most Max in all, and at most Free and so many per stored value.
inline constexpr int64_t kSparseElementsMax = int64_t{1} << 28;
inline constexpr int64_t kSparseElementsFree = int64_t{1} << 20;
inline constexpr int64_t kSparseExpansionMax = 4096;

// --- other files ---
inline constexpr size_t kKeyFileBytesMax = size_t{1} << 20;         // keys and lists of them
inline constexpr size_t kComparisonFileBytesMax = size_t{1} << 32;  // what `kiln replay` reads
inline constexpr int64_t kTextLineWidthMax = 8192;                  // pictures of the main job
inline constexpr int64_t kTextLineHeightMax = 512;

// --- segments, plans, kernels ---
inline constexpr size_t kSegmentNodesMax = 8192;
inline constexpr size_t kPlanKernelsMax = 128;
inline constexpr size_t kPlanStepsMax = 8192;
inline constexpr size_t kRecordBytesMax = size_t{16} << 20;  // a signed plan
inline constexpr size_t kTargetBytesMax = 256;
inline constexpr size_t kGuardSymbolsMax = 4096;
inline constexpr size_t kGuardConstraintsMax = 65'536;
inline constexpr size_t kGuardInputsMax = 4096;
inline constexpr size_t kGuardExpressionWordsMax = 4096;
inline constexpr size_t kKernelBlobBytesMax = size_t{4} << 20;
inline constexpr size_t kSpecItemsMax = 8192;  // of any list while a kernel spec is decoded; then the bounds below hold
inline constexpr int32_t kSpecPointersMax = 256;
inline constexpr int32_t kSpecArgumentsMax = 1024;
inline constexpr size_t kSpecDimsMax = 16;
inline constexpr size_t kSpecAccessesMax = 128;
inline constexpr size_t kSpecNodesMax = 4096;  // of one scalar program
inline constexpr size_t kSpecStagesMax = 32;
inline constexpr size_t kSpecStoresMax = 64;
inline constexpr int64_t kSpecWindowMax = 4096;  // sizes, strides, dilations
inline constexpr int32_t kSpecUnitsMax = 8192;   // of a recurrence
inline constexpr int64_t kSpecIntMax = int64_t{1} << 40;
inline constexpr size_t kListingBytesMax = size_t{2} << 20;  // a kernel's code as text
inline constexpr size_t kListingInstructionsMax = 30'000;

// --- messages ---
inline constexpr size_t kEnvelopeBytesMax = size_t{64} << 20;
// Beside its tensors a message has names, sizes and an envelope.
inline constexpr int64_t kMessageTensorBytesMax = static_cast<int64_t>(kEnvelopeBytesMax) - (int64_t{1} << 20);
inline constexpr size_t kMessagePartsMax = 1024;
inline constexpr size_t kErrorTextBytesMax = 4096;
inline constexpr size_t kHintBytesMax = 4096;
inline constexpr size_t kBlobChunkBytes = size_t{1} << 20;
inline constexpr uint32_t kDeadlineMsMax = 24 * 3600 * 1000;
inline constexpr int kHeartbeatIntervalMs = 1000;
inline constexpr int kHeartbeatTimeoutMs = 5000;
inline constexpr int kLookupTimeoutMs = 2000;
inline constexpr int kChangeLogPollMs = 2000;
// Of the cache store's messages.
inline constexpr size_t kMessageKeysMax = 4096;  // digests, and rows of a reply
inline constexpr size_t kMessageTargetsMax = 64;
inline constexpr size_t kMessageWeightFormsMax = 64;
inline constexpr size_t kMessageTextBytesMax = 1024;

// --- queues ---
inline constexpr size_t kRequestQueueDefault = 256;
inline constexpr size_t kCompileQueueDefault = 256;
inline constexpr size_t kPendingRpcMax = 4096;
inline constexpr int kPeerRequestsQueuedMax = 256;  // inside ZeroMQ while the loop is busy; then the peer waits
inline constexpr size_t kPeerUnreadBytesMax = size_t{128} << 20;     // replies that a peer does not read
inline constexpr size_t kBlobPeerUnreadBytesMax = size_t{16} << 20;  // the same of chunks of kernels, 1 MiB each
inline constexpr size_t kPeerAccountsMax = 1024;                     // then those without unread bytes are forgotten

// --- worker ---
inline constexpr int kThreadsMax = 200;                    // that answer requests; that kernels run on
inline constexpr int kEpochReadersMax = kThreadsMax + 56;  // with those that explain
inline constexpr size_t kLoadsQueuedMax = 16;              // models
inline constexpr size_t kQuestionsQueuedMax = 64;          // about models
inline constexpr size_t kModelVariantsMax = 4;             // sets of inputs that callers override, per model
inline constexpr size_t kSlotPlansMax = 64;
inline constexpr size_t kPlansPerSegmentDefault = 8;
inline constexpr size_t kShapesPerThreadMax = 512;  // of a model, until the control thread collects them
inline constexpr size_t kShapesPerSegmentMax = 1024;
inline constexpr size_t kFetchesQueuedMax = 4096;
inline constexpr size_t kRejectedPlansMax = 256;  // of a segment
inline constexpr size_t kAccusationsMax = 256;    // beyond them the store is away; each plan is out of use here anyway
inline constexpr size_t kCodeRangesMax = 8192;    // of plans that a fault can be traced to
inline constexpr int64_t kDiskCacheFileBytesMax = int64_t{64} << 20;
inline constexpr size_t kDiskCacheMarksMax = 4096;

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

// Of what a child answers.
inline constexpr size_t kChildErrorBytesMax = size_t{1} << 16;
inline constexpr size_t kChildKernelsMax = size_t{1} << 14;
inline constexpr size_t kChildTrialsMax = 256;
inline constexpr size_t kChildTrialDimsMax = size_t{1} << 12;
inline constexpr size_t kTunableKernelsMax = 64;     // of a plan
inline constexpr size_t kTunableFormsMax = 64;       // of a kernel
inline constexpr size_t kTunableCallsMax = 64;       // that a form is timed on
inline constexpr size_t kTunableTextBytesMax = 256;  // what a form is

// --- cache store ---
inline constexpr size_t kStorePendingMax = 1024;  // requests, on each of its two sockets
inline constexpr size_t kBlobPartBytesMax = kKernelBlobBytesMax + (size_t{64} << 10);  // a kernel and its envelope
inline constexpr size_t kPlansPerSegmentMax = 1024;                                    // stored, per target
inline constexpr size_t kVariantsMax = 4096;                                           // in one reply, of all targets
inline constexpr uint32_t kListEntriesMax = 1000;                                      // plans in one reply
inline constexpr size_t kLeasesMax = 65'536;
inline constexpr uint32_t kLeaseMsMin = 100;
inline constexpr uint32_t kLeaseMsMax = 600'000;
inline constexpr size_t kHolderBytesMax = 256;
inline constexpr size_t kChangeLogEntriesMax =
    10'000;  // kept; a reader that fell further behind reads everything again
inline constexpr uint32_t kChangeReplyEntriesMax = 1000;
inline constexpr size_t kEntryTextBytesMax = 4096;  // in an entry on disk
inline constexpr size_t kEntryGuardBytesMax = size_t{1} << 20;
inline constexpr uint32_t kCleanRunsPerMachineMax = 8;  // counted for a plan, however many one machine claims
inline constexpr uint32_t kShadowRunsCountedMax = 1'000'000;
inline constexpr size_t kMachinesKeptMax = 64;  // witnesses of one plan
inline constexpr size_t kQuarantineMarksMax = 65'536;

}  // namespace kiln::limits
