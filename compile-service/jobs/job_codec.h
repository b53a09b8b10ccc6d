// The jobs that the front gives to its children, as plain structs and as frames. Both ends are of one build; bytes are
// checked all the same, because a child that ran foreign code may send anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/target.h"
#include "common/base/result.h"
#include "common/compile_api/reproduce_outcome.h"
#include "compile-service/jobs/child_process.h"

namespace kiln {

enum class JobKind : uint8_t {
#define KILN_JOB(value, name, doc) k##name = value,
#include "compile-service/jobs/job_kinds.def"
#undef KILN_JOB
};

// Argument of a compile child that makes no compiler ahead: for jobs without one.
inline constexpr char kColdChild[] = "--cold";

// One call of a kernel, and how often a run of its plan makes it.
struct TimedCall {
  std::vector<int64_t> dims;
  int64_t uses = 0;
};

// kLower: the payload is an encoded CompileRequest. This is the answer.
struct LowerAnswer {
  struct Kernel {
    KernelKey key;                                 // of spec, target and code generator
    std::vector<uint8_t> spec;                     // EncodeSpec
    std::vector<std::vector<int64_t>> trial_dims;  // dims arguments of real calls, for validation
  };
  // A kernel of a plan of the tuned tier that could have several forms: the plan's own first.
  struct Tunable {
    struct Form {
      KernelKey key;
      std::vector<uint8_t> spec;
      std::string what;  // "tile 8x3"
    };
    std::vector<Form> forms;
    std::vector<TimedCall> calls;
  };
  Digest codegen_id;          // of the child's code generator
  std::vector<uint8_t> plan;  // EncodePlan, without kernel ids
  std::vector<Kernel> kernels;
  uint32_t generated_nodes = 0, reference_nodes = 0;
  std::vector<Tunable> tunable;  // only for requests of the tuned tier
};

struct CompileKernelJob {
  Target target{};
  std::vector<uint8_t> spec;
};
struct CompileKernelAnswer {
  std::vector<uint8_t> code;  // kernel_blob.h
};

struct ValidateJob {
  Target target{};
  std::vector<uint8_t> spec;
  std::vector<uint8_t> code;
  std::vector<std::vector<int64_t>> trial_dims;
  uint64_t seed = 0;
  uint32_t deadline_ms = 0;  // of all trials
};
struct ValidateAnswer {
  uint32_t trials = 0;  // calls compared; 0: nothing could be executed here
};

// Forms of one kernel, each with its code. The answer is the time of the calls together, per form.
struct TimeJob {
  struct Form {
    std::vector<uint8_t> spec, code;
  };
  Target target{};
  std::vector<Form> forms;
  std::vector<TimedCall> calls;
  int64_t budget_ms = 0;
};
struct TimeAnswer {
  std::vector<int64_t> ns;
};

// A plan that a worker accuses. The answer is a ReproduceVerdict.
struct TryPlanJob {
  std::vector<uint8_t> segment;              // EncodeSegment
  std::vector<uint8_t> plan;                 // EncodePlan
  std::vector<std::vector<uint8_t>> code;    // of its kernels, in order
  std::vector<std::vector<int64_t>> inputs;  // dims of the run-time inputs
  std::vector<int64_t> parameters;
  uint64_t seed = 0, own_seed = 0;  // PlanTrial
  uint32_t deadline_ms = 0;         // of all draws
};

// The kernel's code; the answer is a listing.
Frame DisassembleFrame(std::vector<uint8_t> code);
Frame ListingFrame(std::string_view text);
Result<std::string> ListingFrom(const Frame& frame);

Frame FailedFrame(const Error& error);
std::optional<Error> ReportedError(const Frame& frame);  // of a FailedFrame
Frame LowerFrame(std::vector<uint8_t> compile_request);
// `chosen`: a form for each of LowerAnswer::tunable.
Frame LowerTunedFrame(const std::vector<uint8_t>& compile_request, const std::vector<uint32_t>& chosen);
Frame ToFrame(const LowerAnswer& answer);
Frame ToFrame(const CompileKernelJob& job);
Frame ToFrame(const CompileKernelAnswer& answer);
Frame ToFrame(const ValidateJob& job);
Frame ToFrame(const ValidateAnswer& answer);
Frame ToFrame(const TimeJob& job);
Frame ToFrame(const TimeAnswer& answer);
Frame ToFrame(const TryPlanJob& job);
Frame ToFrame(const ReproduceVerdict& verdict);

// Each fails with the answer's own error when the frame is kFailed, with Malformed when it is anything else unexpected.
Result<LowerAnswer> LowerAnswerFrom(const Frame& frame);
Result<CompileKernelJob> CompileKernelJobFrom(const Frame& frame);
Result<CompileKernelAnswer> CompileKernelAnswerFrom(const Frame& frame);
Result<ValidateJob> ValidateJobFrom(const Frame& frame);
Result<ValidateAnswer> ValidateAnswerFrom(const Frame& frame);
Result<TimeJob> TimeJobFrom(const Frame& frame);
Result<TimeAnswer> TimeAnswerFrom(const Frame& frame);
Result<TryPlanJob> TryPlanJobFrom(const Frame& frame);
Result<ReproduceVerdict> ReproduceVerdictFrom(const Frame& frame);
// The request and what was chosen.
struct LowerTunedJob {
  std::vector<uint8_t> request;
  std::vector<uint32_t> chosen;
};
Result<LowerTunedJob> LowerTunedJobFrom(const Frame& frame);

}  // namespace kiln
