#include "compile-service/jobs/job_codec.h"

#include "common/base/byte_io.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

std::vector<uint8_t> GetBytes(ByteReader& reader) {
  return reader.Bytes(limits::kChildFrameBytesMax);
}

void PutTrials(ByteWriter& writer, const std::vector<std::vector<int64_t>>& trials) {
  writer.U32(static_cast<uint32_t>(trials.size()));
  for (const auto& dims : trials) writer.Int64s(dims);
}

std::vector<std::vector<int64_t>> GetTrials(ByteReader& reader) {
  std::vector<std::vector<int64_t>> trials(reader.Count(4, limits::kChildTrialsMax));
  for (auto& dims : trials) dims = reader.Int64s(limits::kChildTrialDimsMax);
  return trials;
}

void PutCalls(ByteWriter& writer, const std::vector<TimedCall>& calls) {
  writer.U32(static_cast<uint32_t>(calls.size()));
  for (const TimedCall& call : calls) {
    writer.Int64s(call.dims);
    writer.I64(call.uses);
  }
}

std::vector<TimedCall> GetCalls(ByteReader& reader) {
  std::vector<TimedCall> calls(reader.Count(12, limits::kTunableCallsMax));
  for (TimedCall& call : calls) {
    call.dims = reader.Int64s(limits::kChildTrialDimsMax);
    call.uses = reader.I64();
  }
  return calls;
}

void PutTunables(ByteWriter& writer, const std::vector<LowerAnswer::Tunable>& tunables) {
  writer.U32(static_cast<uint32_t>(tunables.size()));
  for (const LowerAnswer::Tunable& tunable : tunables) {
    writer.U32(static_cast<uint32_t>(tunable.forms.size()));
    for (const LowerAnswer::Tunable::Form& form : tunable.forms) {
      writer.Id(form.key);
      writer.Bytes(form.spec);
      writer.Text(form.what);
    }
    PutCalls(writer, tunable.calls);
  }
}

std::vector<LowerAnswer::Tunable> GetTunables(ByteReader& reader) {
  std::vector<LowerAnswer::Tunable> tunables(reader.Count(8, limits::kTunableKernelsMax));
  for (LowerAnswer::Tunable& tunable : tunables) {
    tunable.forms.resize(reader.Count(kDigestBytes + 8, limits::kTunableFormsMax));
    for (LowerAnswer::Tunable::Form& form : tunable.forms) {
      form.key = reader.Id();
      form.spec = GetBytes(reader);
      form.what = reader.Text(limits::kTunableTextBytesMax);
    }
    tunable.calls = GetCalls(reader);
  }
  return tunables;
}

Frame MakeFrame(JobKind kind, ByteWriter& writer) {
  return {static_cast<uint8_t>(kind), writer.Take()};
}

// The frame has the kind, or carries the error that the other end reports.
Status Expect(const Frame& frame, JobKind kind) {
  if (frame.kind == static_cast<uint8_t>(kind)) return {};
  if (std::optional<Error> error = ReportedError(frame)) return std::unexpected(std::move(*error));
  return Fail(ErrorCode::kMalformed,
              "child frame has kind " + std::to_string(frame.kind) + ", not " + std::to_string(static_cast<int>(kind)));
}

template <class T>
Result<T> Finish(ByteReader& reader, T value) {
  if (!reader.AtEnd()) return Fail(ErrorCode::kMalformed, "child frame ends early or has bytes left over");
  return value;
}

Result<Target> TargetFrom(uint8_t number) {
  if (const std::optional<Target> target = TargetFromNumber(number)) return *target;
  return Fail(ErrorCode::kMalformed, "unknown target number " + std::to_string(number));
}

}  // namespace

Frame FailedFrame(const Error& error) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(error.code));
  writer.Text(std::string_view(error.message).substr(0, limits::kChildErrorBytesMax));
  return MakeFrame(JobKind::kFailed, writer);
}

std::optional<Error> ReportedError(const Frame& frame) {
  if (frame.kind != static_cast<uint8_t>(JobKind::kFailed)) return std::nullopt;
  ByteReader reader(frame.payload);
  const ErrorCode code = ErrorCodeFromWire(reader.U8());
  return Error{code, reader.Text(limits::kChildErrorBytesMax), {}};
}

Frame LowerFrame(std::vector<uint8_t> compile_request) {
  return {static_cast<uint8_t>(JobKind::kLower), std::move(compile_request)};
}

Frame LowerTunedFrame(const std::vector<uint8_t>& compile_request, const std::vector<uint32_t>& chosen) {
  ByteWriter writer;
  writer.Bytes(compile_request);
  writer.U32(static_cast<uint32_t>(chosen.size()));
  for (const uint32_t form : chosen) writer.U32(form);
  return MakeFrame(JobKind::kLowerTuned, writer);
}

Result<LowerTunedJob> LowerTunedJobFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kLowerTuned));
  ByteReader reader(frame.payload);
  LowerTunedJob job;
  job.request = GetBytes(reader);
  job.chosen.resize(reader.Count(4, limits::kTunableKernelsMax));
  for (uint32_t& form : job.chosen) form = reader.U32();
  return Finish(reader, std::move(job));
}

Frame DisassembleFrame(std::vector<uint8_t> code) {
  return {static_cast<uint8_t>(JobKind::kDisassemble), std::move(code)};
}

Frame ListingFrame(std::string_view text) {
  ByteWriter writer;
  writer.Text(text);
  return MakeFrame(JobKind::kDisassemble, writer);
}

Result<std::string> ListingFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kDisassemble));
  ByteReader reader(frame.payload);
  return Finish(reader, reader.Text(limits::kChildFrameBytesMax));
}

Frame ToFrame(const LowerAnswer& answer) {
  ByteWriter writer;
  writer.Id(answer.codegen_id);
  writer.Bytes(answer.plan);
  writer.U32(static_cast<uint32_t>(answer.kernels.size()));
  for (const LowerAnswer::Kernel& kernel : answer.kernels) {
    writer.Id(kernel.key);
    writer.Bytes(kernel.spec);
    PutTrials(writer, kernel.trial_dims);
  }
  writer.U32(answer.generated_nodes);
  writer.U32(answer.reference_nodes);
  PutTunables(writer, answer.tunable);
  return MakeFrame(JobKind::kLower, writer);
}

Result<LowerAnswer> LowerAnswerFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kLower));
  ByteReader reader(frame.payload);
  LowerAnswer answer;
  answer.codegen_id = reader.Id();
  answer.plan = GetBytes(reader);
  answer.kernels.resize(reader.Count(kDigestBytes + 8, limits::kChildKernelsMax));
  for (LowerAnswer::Kernel& kernel : answer.kernels) {
    kernel.key = reader.Id();
    kernel.spec = GetBytes(reader);
    kernel.trial_dims = GetTrials(reader);
  }
  answer.generated_nodes = reader.U32();
  answer.reference_nodes = reader.U32();
  answer.tunable = GetTunables(reader);
  return Finish(reader, std::move(answer));
}

Frame ToFrame(const CompileKernelJob& job) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(job.target));
  writer.Bytes(job.spec);
  return MakeFrame(JobKind::kCompileKernel, writer);
}

Result<CompileKernelJob> CompileKernelJobFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kCompileKernel));
  ByteReader reader(frame.payload);
  CompileKernelJob job;
  ASSIGN_OR_RETURN(job.target, TargetFrom(reader.U8()));
  job.spec = GetBytes(reader);
  return Finish(reader, std::move(job));
}

Frame ToFrame(const CompileKernelAnswer& answer) {
  ByteWriter writer;
  writer.Bytes(answer.code);
  return MakeFrame(JobKind::kCompileKernel, writer);
}

Result<CompileKernelAnswer> CompileKernelAnswerFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kCompileKernel));
  ByteReader reader(frame.payload);
  return Finish(reader, CompileKernelAnswer{GetBytes(reader)});
}

Frame ToFrame(const ValidateJob& job) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(job.target));
  writer.Bytes(job.spec);
  writer.Bytes(job.code);
  PutTrials(writer, job.trial_dims);
  writer.U64(job.seed);
  writer.U32(job.deadline_ms);
  return MakeFrame(JobKind::kValidate, writer);
}

Result<ValidateJob> ValidateJobFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kValidate));
  ByteReader reader(frame.payload);
  ValidateJob job;
  ASSIGN_OR_RETURN(job.target, TargetFrom(reader.U8()));
  job.spec = GetBytes(reader);
  job.code = GetBytes(reader);
  job.trial_dims = GetTrials(reader);
  job.seed = reader.U64();
  job.deadline_ms = reader.U32();
  return Finish(reader, std::move(job));
}

Frame ToFrame(const ValidateAnswer& answer) {
  ByteWriter writer;
  writer.U32(answer.trials);
  return MakeFrame(JobKind::kValidate, writer);
}

Result<ValidateAnswer> ValidateAnswerFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kValidate));
  ByteReader reader(frame.payload);
  return Finish(reader, ValidateAnswer{reader.U32()});
}

Frame ToFrame(const TimeJob& job) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(job.target));
  writer.U32(static_cast<uint32_t>(job.forms.size()));
  for (const TimeJob::Form& form : job.forms) {
    writer.Bytes(form.spec);
    writer.Bytes(form.code);
  }
  PutCalls(writer, job.calls);
  writer.I64(job.budget_ms);
  return MakeFrame(JobKind::kTime, writer);
}

Result<TimeJob> TimeJobFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kTime));
  ByteReader reader(frame.payload);
  TimeJob job;
  ASSIGN_OR_RETURN(job.target, TargetFrom(reader.U8()));
  job.forms.resize(reader.Count(8, limits::kTunableFormsMax));
  for (TimeJob::Form& form : job.forms) {
    form.spec = GetBytes(reader);
    form.code = GetBytes(reader);
  }
  job.calls = GetCalls(reader);
  job.budget_ms = reader.I64();
  return Finish(reader, std::move(job));
}

Frame ToFrame(const TimeAnswer& answer) {
  ByteWriter writer;
  writer.Int64s(answer.ns);
  return MakeFrame(JobKind::kTime, writer);
}

Result<TimeAnswer> TimeAnswerFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kTime));
  ByteReader reader(frame.payload);
  return Finish(reader, TimeAnswer{reader.Int64s(limits::kTunableFormsMax)});
}

Frame ToFrame(const TryPlanJob& job) {
  ByteWriter writer;
  writer.Bytes(job.segment);
  writer.Bytes(job.plan);
  writer.U32(static_cast<uint32_t>(job.code.size()));
  for (const auto& code : job.code) writer.Bytes(code);
  writer.U32(static_cast<uint32_t>(job.inputs.size()));
  for (const auto& dims : job.inputs) writer.Int64s(dims);
  writer.Int64s(job.parameters);
  writer.U64(job.seed);
  writer.U64(job.own_seed);
  writer.U32(job.deadline_ms);
  return MakeFrame(JobKind::kTryPlan, writer);
}

Result<TryPlanJob> TryPlanJobFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kTryPlan));
  ByteReader reader(frame.payload);
  TryPlanJob job;
  job.segment = GetBytes(reader);
  job.plan = GetBytes(reader);
  job.code.resize(reader.Count(4, limits::kPlanKernelsMax));
  for (auto& code : job.code) code = GetBytes(reader);
  job.inputs.resize(reader.Count(4, limits::kGuardInputsMax));
  for (auto& dims : job.inputs) dims = reader.Int64s(limits::kRankMax);
  job.parameters = reader.Int64s(limits::kGuardSymbolsMax);
  job.seed = reader.U64();
  job.own_seed = reader.U64();
  job.deadline_ms = reader.U32();
  return Finish(reader, std::move(job));
}

Frame ToFrame(const ReproduceVerdict& verdict) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(verdict.outcome));
  writer.Text(std::string_view(verdict.detail).substr(0, limits::kChildErrorBytesMax));
  return MakeFrame(JobKind::kTryPlan, writer);
}

Result<ReproduceVerdict> ReproduceVerdictFrom(const Frame& frame) {
  RETURN_IF_ERROR(Expect(frame, JobKind::kTryPlan));
  ByteReader reader(frame.payload);
  const std::optional<ReproduceOutcome> outcome = ReproduceOutcomeFromNumber(reader.U8());
  ReproduceVerdict verdict{outcome.value_or(ReproduceOutcome::kUndecided), reader.Text(limits::kChildErrorBytesMax)};
  if (!outcome) reader.Reject();
  return Finish(reader, std::move(verdict));
}

}  // namespace kiln
