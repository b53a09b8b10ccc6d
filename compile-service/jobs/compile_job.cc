#include "compile-service/jobs/compile_job.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/artifact/kernel_abi.h"
#include "common/artifact/plan.h"
#include "common/artifact/record.h"
#include "common/segment/segment.h"
#include "compile-service/jobs/check_lowered.h"
#include "compile-service/jobs/codegen_id_of.h"
#include "compile-service/jobs/tune_kernels.h"

namespace kiln {
namespace {

constexpr int64_t kStoreDeadlineMs = 5'000;
constexpr int64_t kReleaseDeadlineMs = 1'000;
constexpr uint32_t kLeaseMs = 30'000;
constexpr int64_t kLeaseExtendNs = int64_t{kLeaseMs} * 1'000'000 / 3;
constexpr int64_t kAwaitPollMs = 50;

}  // namespace

// What the stages hand on.
struct CompileJob::State {
  State(CompileRequest asked, CompileWorkshop& tools, std::shared_ptr<const JobControl> until)
      : request(std::move(asked)), workshop(tools), control(std::move(until)), started_ns(tools.clock.NowNs()) {}

  const CompileRequest request;
  CompileWorkshop& workshop;
  const std::shared_ptr<const JobControl> control;
  const int64_t started_ns;
  CompileOutcome outcome;
  Target target{};
  Digest codegen_id;
  Segment segment;
  std::optional<LowerAnswer> lowered;
  Plan plan;
  PlanKey plan_key;
  std::vector<KernelBinding> kernels;  // with zero ids until known
  std::vector<bool> hearsay;           // per kernel: the store has an entry that we do not believe
  std::vector<Bytes> fresh_code;       // per kernel; empty unless compiled here
  std::vector<Digest> kernel_leases;  // keys that we compile: ours in this process, and in the store where it gave them
  bool plan_begun = false;            // it is ours in this process
  bool plan_lease = false;            // and in the store, or may be: an answer can be lost
  CompileWait waits_for;
  std::unique_ptr<KernelTuner> tuner;  // tuned tier, until forms are chosen; refers to `lowered`
  std::vector<std::pair<KernelKey, KernelTuning>> measured;
  int64_t leased_ns = 0;  // when the leases were taken or extended
};

namespace {

using State = CompileJob::State;

// For one call of the store.
int64_t StoreMs(const CompileWorkshop& workshop, const JobControl& control) {
  const int64_t left_ms = (control.deadline_ns() - workshop.clock.NowNs()) / 1'000'000;
  return std::clamp<int64_t>(left_ms, 1, kStoreDeadlineMs);
}
int64_t StoreMs(const State& job) {
  return StoreMs(job.workshop, *job.control);
}

// What the store cannot do now is no fault of the request, which may be asked again at once; but for a plan that it
// does not want.
std::unexpected<Error> OfStore(const Error& error) {
  if (error.code == ErrorCode::kQuarantined) return std::unexpected(error);
  return Fail(ErrorCode::kUnavailable, "the cache store: " + ToString(error));
}

template <class Request>
Result<typename cache::MethodOf<Request>::Reply> Store(State& job, const Request& request) {
  auto reply = job.workshop.store.CallSync(request, StoreMs(job));
  if (!reply.has_value()) return OfStore(reply.error());
  return reply;
}

Result<cache::ClaimReply> Claim(State& job, cache::ClaimKind kind, const std::vector<Digest>& keys) {
  const cache::ClaimRequest claim{kind, keys, kLeaseMs, job.workshop.holder};
  ASSIGN_OR_RETURN(cache::ClaimReply reply, Store(job, claim));
  if (reply.entries.size() != keys.size())
    return OfStore({ErrorCode::kMalformed, "a claim was answered with the wrong number of entries", {}});
  return reply;
}

// A lease that cannot be extended, or that another replica took over, costs a second compilation and nothing else.
void ExtendLeases(State& job) {
  const int64_t now = job.workshop.clock.NowNs();
  if (now - job.leased_ns < kLeaseExtendNs) return;
  job.leased_ns = now;
  const auto extend = [&](cache::ClaimKind kind, const std::vector<Digest>& keys) {
    const auto reply = Claim(job, kind, keys);
    if (!reply.has_value())
      spdlog::warn("cannot extend the leases of plan {}: {}", job.plan_key.ShortHex(), ToString(reply.error()));
  };
  if (job.plan_lease) extend(cache::ClaimKind::kPlan, {job.plan_key});
  if (!job.kernel_leases.empty()) extend(cache::ClaimKind::kKernel, job.kernel_leases);
}

// After a failure the next replica need not wait for a lease to expire.
void Release(State& job, cache::ClaimKind kind, const std::vector<Digest>& keys) {
  const cache::ReleaseRequest release{kind, keys, job.workshop.holder};
  if (const auto reply = job.workshop.store.CallSync(release, kReleaseDeadlineMs); !reply.has_value())
    spdlog::warn("{} leases of plan {} stay for {} ms: {}", keys.size(), job.plan_key.ShortHex(), kLeaseMs,
                 ToString(reply.error()));
}

void EndKernels(State& job) {
  for (const Digest& key : job.kernel_leases) job.workshop.in_work->End(key);
  job.kernel_leases.clear();
}

// What a child answers. Meanwhile the leases are kept; a request that ends leaves at once.
Result<Frame> Await(State& job, ChildAnswer& answer) {
  while (!answer.IsThereWithin(kAwaitPollMs)) {
    RETURN_IF_ERROR(job.control->Check(job.workshop.clock.NowNs()));
    ExtendLeases(job);
  }
  return answer.get();
}

// Sends a frame of kLower or kLowerTuned and takes the answer.
Status TakeLowered(State& job, Frame frame) {
  ChildAnswer pending = job.workshop.compilers.Submit(std::move(frame), PriorityOf(job.request), job.control);
  ASSIGN_OR_RETURN(Frame answer, Await(job, pending));
  ASSIGN_OR_RETURN(LowerAnswer lowered, LowerAnswerFrom(answer));
  ASSIGN_OR_RETURN(job.plan, DecodePlan(lowered.plan));
  RETURN_IF_ERROR(CheckLowered(lowered, job.plan, job.request, job.segment, job.codegen_id));
  job.kernels.assign(lowered.kernels.size(), {});
  job.hearsay.assign(lowered.kernels.size(), false);
  job.fresh_code.assign(lowered.kernels.size(), {});
  CompileReply& reply = job.outcome.reply;
  reply.kernels = static_cast<uint32_t>(lowered.kernels.size());
  reply.generated_nodes = lowered.generated_nodes;
  reply.reference_nodes = lowered.reference_nodes;
  job.lowered = std::move(lowered);
  return {};
}

// Plans are tuned on their own target only: what is fastest elsewhere says nothing.
Status CheckHost(const State& job) {
  if (job.request.tier != PlanTier::kTuned || job.workshop.host == job.target) return {};
  const std::string host = job.workshop.host ? std::string(InfoOf(*job.workshop.host).name) : "no known target";
  return Fail(ErrorCode::kTargetMismatch, "plans for " + job.request.target + " are tuned on a host of that target; " +
                                              "this compile service runs on " + host);
}

Status Lower(State& job) {
  const std::optional<Target> target = TargetFromName(job.request.target);
  if (!target) return Fail(ErrorCode::kInvalidArgument, "unknown target \"" + job.request.target + "\"");
  job.target = *target;
  RETURN_IF_ERROR(CheckHost(job));
  ASSIGN_OR_RETURN(job.codegen_id, CodegenIdOf(job.target, job.workshop.nvrtc));
  ASSIGN_OR_RETURN(job.segment, DecodeSegment(job.request.segment));
  RETURN_IF_ERROR(TakeLowered(job, LowerFrame(EncodeCompileRequest(job.request).payload)));
  job.plan_key = job.outcome.reply.plan_key = ComputePlanKey(job.plan);
  if (job.request.tier != PlanTier::kTuned) return {};
  if (job.lowered->tunable.empty())
    return Fail(ErrorCode::kUnsupported, "none of the segment's hottest kernels has another form to choose");
  job.tuner = std::make_unique<KernelTuner>(*job.lowered, job.target, job.workshop, job.control);
  return {};
}

// Times the forms of one kernel; after the last one lowers again with the fastest. False while kernels are left. The
// plan's key stays: what was measured is no part of it.
Result<bool> Tune(State& job) {
  if (job.tuner == nullptr) return true;
  RETURN_IF_ERROR(job.tuner->Next([&job](ChildAnswer& answer) { return Await(job, answer); }));
  if (!job.tuner->done()) {
    job.waits_for.ready = true;
    return false;
  }
  job.measured = job.tuner->measured();
  const std::vector<uint32_t> chosen = job.tuner->chosen();
  job.tuner.reset();
  job.outcome.kernels_timed = static_cast<uint32_t>(chosen.size());
  job.outcome.forms_taken =
      static_cast<uint32_t>(std::count_if(chosen.begin(), chosen.end(), [](uint32_t form) { return form > 0; }));
  RETURN_IF_ERROR(TakeLowered(job, LowerTunedFrame(EncodeCompileRequest(job.request).payload, chosen)));
  if (ComputePlanKey(job.plan) != job.plan_key)
    return Fail(ErrorCode::kInternal, "plan " + job.plan_key.ShortHex() + " has another key once it is tuned");
  return true;
}

// Writes the measurements into the plan, by index of its kernels.
void RecordMeasurements(State& job) {
  std::vector<bool> has(job.lowered->kernels.size());  // kernels may have become one
  for (auto& [key, tuning] : job.measured)
    for (size_t i = 0; i < has.size(); ++i) {
      if (job.lowered->kernels[i].key != key || has[i]) continue;
      has[i] = true;
      tuning.kernel = static_cast<int32_t>(i);
      job.plan.tuning.push_back(std::move(tuning));
      break;
    }
}

// Whether the store holds a record of this plan that we would accept ourselves. A quarantined one of another code
// generator may be replaced.
Result<bool> IsPublished(State& job) {
  const auto reply = job.workshop.store.CallSync(cache::GetPlanRequest{job.plan_key}, StoreMs(job));
  if (!reply.has_value()) {
    if (reply.error().code == ErrorCode::kNotFound) return false;
    if (reply.error().code != ErrorCode::kQuarantined) return OfStore(reply.error());
    const StandingMark own{job.plan_key, job.lowered->codegen_id};
    ASSIGN_OR_RETURN(const bool stands, StillStands(own, job.workshop, *job.control));
    if (stands) return std::unexpected(reply.error());
    return false;
  }
  const auto decoded = DecodeAndVerify(reply->record, *job.workshop.trusted.Get());
  return decoded.has_value() && decoded->record.plan_key == job.plan_key;
}

// Takes or extends the lease on the plan. False while another job or replica has it.
Result<bool> ClaimPlan(State& job) {
  if (!job.plan_begun && !job.workshop.in_work->Begin(job.plan_key)) {
    job.waits_for = {job.plan_key};
    return false;
  }
  job.plan_begun = true;
  if (job.plan_lease && job.workshop.clock.NowNs() - job.leased_ns < kLeaseExtendNs) return true;
  job.plan_lease = true;
  ASSIGN_OR_RETURN(const cache::ClaimReply reply, Claim(job, cache::ClaimKind::kPlan, {job.plan_key}));
  const cache::ClaimEntry& entry = reply.entries[0];
  job.plan_lease = entry.state == cache::ClaimState::kGranted;
  job.leased_ns = job.workshop.clock.NowNs();
  if (entry.state == cache::ClaimState::kHeld) {
    job.waits_for = {{}, entry.remaining_ms};
    return false;
  }
  if (entry.state == cache::ClaimState::kPresent) {
    // Published meanwhile; or a record of a signer that is not trusted, which is none for us.
    ASSIGN_OR_RETURN(job.outcome.reply.already_there, IsPublished(job));
  }
  return true;
}

// Fills in what the store has and a trusted signer bound to the key that we asked for. What anybody else says about a
// key is no better than nothing: the bytes may compute something else, or nobody may ever have run them. A kernel that
// a replica on another host could not run is made and tried here, if this host can run it.
Status FindKnownKernels(State& job) {
  cache::LookupKernelsRequest lookup;
  std::vector<size_t> asked;
  for (size_t i = 0; i < job.kernels.size(); ++i) {
    if (!job.kernels[i].id.IsZero()) continue;
    lookup.keys.push_back(job.lowered->kernels[i].key);
    asked.push_back(i);
  }
  if (asked.empty()) return {};
  ASSIGN_OR_RETURN(cache::LookupKernelsReply reply, Store(job, lookup));
  if (reply.kernels.size() != asked.size())
    return OfStore({ErrorCode::kMalformed, "a kernel lookup was answered with the wrong number of ids", {}});
  const std::vector<Target> host = HostTargets();
  const bool runs_here = !host.empty() && CanRun(host.front(), job.target);
  const auto trusted = job.workshop.trusted.Get();
  for (size_t n = 0; n < asked.size(); ++n) {
    KernelBinding& known = reply.kernels[n];
    known.key = lookup.keys[n];
    const bool believed =
        IsBoundBy(known, *trusted) && (known.validation != ValidationKind::kNotExecuted || !runs_here);
    job.hearsay[asked[n]] = !known.id.IsZero() && !believed;
    if (job.hearsay[asked[n]])
      spdlog::info("kernel {} is compiled again: no trusted signer says that the stored one was tried",
                   known.key.ShortHex());
    if (!believed) continue;
    job.kernels[asked[n]] = known;
    ++job.outcome.kernels_reused;
  }
  return {};
}

// Which of the missing kernels are ours to compile; the others are in work elsewhere.
Result<std::vector<size_t>> ClaimKernels(State& job) {
  std::vector<size_t> begun, mine;
  for (size_t i = 0; i < job.kernels.size(); ++i) {
    const Digest& key = job.lowered->kernels[i].key;
    if (!job.kernels[i].id.IsZero()) continue;
    if (!job.workshop.in_work->Begin(key)) {
      job.waits_for = {key};
      continue;
    }
    begun.push_back(i);
    job.kernel_leases.push_back(key);
  }
  if (begun.empty()) return mine;
  ASSIGN_OR_RETURN(const cache::ClaimReply reply, Claim(job, cache::ClaimKind::kKernel, job.kernel_leases));
  for (size_t n = 0; n < begun.size(); ++n) {
    const cache::ClaimState state = reply.entries[n].state;
    if (state == cache::ClaimState::kGranted || (state == cache::ClaimState::kPresent && job.hearsay[begun[n]])) {
      mine.push_back(begun[n]);
      continue;
    }
    const Digest& key = job.lowered->kernels[begun[n]].key;
    job.waits_for = {{}, reply.entries[n].remaining_ms};
    job.workshop.in_work->End(key);
    std::erase(job.kernel_leases, key);
  }
  return mine;
}

// The trials end before the front gives the child up, so that their end is told.
uint32_t TrialsMs(const State& job) {
  return static_cast<uint32_t>(job.workshop.validators.job_deadline_ms() * 9 / 10);
}

using Pending = std::vector<std::pair<size_t, ChildAnswer>>;  // by kernel

// Compiles on all children. Each kernel goes to its trials as soon as it is there.
Result<Pending> CompileKernels(State& job, const std::vector<size_t>& mine) {
  const uint32_t priority = PriorityOf(job.request);
  Pending compiling, trying;
  for (const size_t i : mine)
    compiling.emplace_back(
        i, job.workshop.compilers.Submit(ToFrame(CompileKernelJob{job.target, job.lowered->kernels[i].spec}), priority,
                                         job.control));
  for (auto& [i, answer] : compiling) {
    ASSIGN_OR_RETURN(Frame frame, Await(job, answer));
    ASSIGN_OR_RETURN(CompileKernelAnswer compiled, CompileKernelAnswerFrom(frame));
    job.fresh_code[i] = std::move(compiled.code);
    const LowerAnswer::Kernel& kernel = job.lowered->kernels[i];
    const KernelId id = KernelIdOf(job.fresh_code[i]);
    const ValidateJob trials{job.target,        kernel.spec,      job.fresh_code[i],
                             kernel.trial_dims, DigestHash{}(id), TrialsMs(job)};
    trying.emplace_back(i, job.workshop.validators.Submit(ToFrame(trials), priority, job.control));
  }
  return trying;
}

// Binds what passed to its key, with how it was checked.
Status AwaitTrials(State& job, Pending trying) {
  for (auto& [i, pending] : trying) {
    const KernelId id = KernelIdOf(job.fresh_code[i]);
    ASSIGN_OR_RETURN(Frame frame, Await(job, pending));
    const Result<ValidateAnswer> answer = ValidateAnswerFrom(frame);
    if (!answer.has_value()) return FailIn("kernel " + id.ShortHex(), answer.error());
    const ValidationKind validation = answer->trials == 0 ? ValidationKind::kNotExecuted : ValidationKind::kExecuted;
    job.kernels[i] = BindKernel(job.lowered->kernels[i].key, id, validation, job.workshop.signing_key);
    ++job.outcome.reply.kernels_compiled;
  }
  return {};
}

// Other plans that wait for these kernels need not wait for this plan.
Status PublishKernels(State& job, const std::vector<size_t>& mine) {
  if (mine.empty()) return {};
  std::vector<Bytes> blobs;
  std::vector<KernelBinding> index;
  for (const size_t i : mine) {
    blobs.push_back(job.fresh_code[i]);
    index.push_back(job.kernels[i]);
  }
  if (const auto stored = job.workshop.store.PublishBlobsSync(std::move(blobs), StoreMs(job), std::move(index));
      !stored.has_value())
    return OfStore(stored.error());
  EndKernels(job);  // publishing ended the leases in the store
  return {};
}

Status PublishPlan(State& job) {
  job.plan.kernels.clear();
  for (const KernelBinding& kernel : job.kernels) job.plan.kernels.push_back(kernel.id);
  RecordMeasurements(job);
  RETURN_IF_ERROR(VerifyPlan(job.plan, job.segment));

  PlanRecord record;
  record.plan_key = job.plan_key;
  record.segment = job.segment.id;
  record.target = job.request.target;
  record.abi = job.plan.abi;
  record.numeric_mode = static_cast<uint8_t>(job.plan.numeric_mode);
  record.weights = static_cast<uint8_t>(job.plan.weights);
  record.guard = EncodeGuard(job.plan.guard, job.plan.symbols);
  record.plan = EncodePlan(job.plan);
  record.evidence.validation = ValidationKind::kExecuted;
  for (size_t i = 0; i < job.kernels.size(); ++i) {
    record.kernels.push_back({job.kernels[i].id, job.fresh_code[i].size()});
    record.evidence.validation = std::min(record.evidence.validation, job.kernels[i].validation);
  }
  record.provenance = {job.lowered->codegen_id,
                       static_cast<uint64_t>((job.workshop.clock.NowNs() - job.started_ns) / 1000),
                       job.workshop.clock.WallMs(), static_cast<uint8_t>(job.request.tier)};
  const cache::PublishPlanRequest publish{EncodeAndSign(record, job.workshop.signing_key), job.kernels};
  ASSIGN_OR_RETURN(const cache::PublishPlanReply reply, Store(job, publish));
  job.outcome.reply.already_there = !reply.stored;  // as good a one was stored meanwhile
  job.plan_lease = false;                           // publishing ended it
  return {};
}

// Wall time since the last call, microseconds.
class StageTimer {
 public:
  explicit StageTimer(const Clock& clock) : clock_(clock), last_ns_(clock.NowNs()) {}
  uint64_t LapUs() {
    const int64_t now = clock_.NowNs();
    return static_cast<uint64_t>((now - std::exchange(last_ns_, now)) / 1000);
  }

 private:
  const Clock& clock_;
  int64_t last_ns_;
};

// All that can be done for the plan's kernels now. False while some of them are in work elsewhere. What is ours is
// published before anybody waits for others, so that no two jobs wait for each other.
Result<bool> MakeKernels(State& job, StageTimer& timer) {
  RETURN_IF_ERROR(FindKnownKernels(job));
  ASSIGN_OR_RETURN(const std::vector<size_t> mine, ClaimKernels(job));
  ASSIGN_OR_RETURN(Pending trying, CompileKernels(job, mine));
  job.outcome.kernels_us += timer.LapUs();
  RETURN_IF_ERROR(AwaitTrials(job, std::move(trying)));
  job.outcome.validate_us += timer.LapUs();
  RETURN_IF_ERROR(PublishKernels(job, mine));
  job.outcome.publish_us += timer.LapUs();
  return std::none_of(job.kernels.begin(), job.kernels.end(), [](const KernelBinding& k) { return k.id.IsZero(); });
}

}  // namespace

std::optional<Target> HostTarget() {
  const std::vector<Target> targets = HostTargets();
  return targets.empty() ? std::nullopt : std::optional(targets.front());
}

uint32_t PriorityOf(const CompileRequest& request) {
  return request.tier == PlanTier::kTuned ? kTunedPriority : std::max(kTunedPriority + 1, request.priority);
}

Result<bool> StillStands(const StandingMark& mark, const CompileWorkshop& workshop, const JobControl& control) {
  cache::ListRequest list{.after = mark.plan_key, .limit = 1, .segment = {}};
  for (size_t i = kDigestBytes; i-- > 0 && list.after.bytes[i]-- == 0;) {  // the key before it
  }
  const auto reply = workshop.store.CallSync(list, StoreMs(workshop, control));
  if (!reply.has_value()) return OfStore(reply.error());
  const auto stands = [&](const cache::PlanSummary& plan) {
    return plan.plan_key == mark.plan_key && plan.quarantined && plan.codegen_id == mark.codegen_id;
  };
  return !reply->plans.empty() && stands(reply->plans[0]);
}

CompileJob::CompileJob(CompileRequest request, CompileWorkshop& workshop, std::shared_ptr<const JobControl> control)
    : state_(std::make_unique<State>(std::move(request), workshop, std::move(control))) {}

CompileJob::~CompileJob() {
  if (state_->plan_lease) Release(*state_, cache::ClaimKind::kPlan, {state_->plan_key});
  if (!state_->kernel_leases.empty()) Release(*state_, cache::ClaimKind::kKernel, state_->kernel_leases);
  EndKernels(*state_);
  if (state_->plan_begun) state_->workshop.in_work->End(state_->plan_key);
}

const CompileWait& CompileJob::waits_for() const {
  return state_->waits_for;
}

const CompileRequest& CompileJob::request() const {
  return state_->request;
}

std::optional<StandingMark> CompileJob::mark() const {
  if (!state_->lowered) return std::nullopt;
  return StandingMark{state_->plan_key, state_->lowered->codegen_id};
}

Result<std::optional<CompileOutcome>> CompileJob::Advance() {
  State& job = *state_;
  StageTimer timer(job.workshop.clock);
  RETURN_IF_ERROR(job.control->Check(job.workshop.clock.NowNs()));
  job.waits_for = {};
  CompileOutcome& outcome = job.outcome;
  if (!job.lowered) {
    RETURN_IF_ERROR(Lower(job));
    outcome.lower_us = timer.LapUs();
    ASSIGN_OR_RETURN(outcome.reply.already_there, IsPublished(job));
  }
  if (!outcome.reply.already_there) {
    ASSIGN_OR_RETURN(const bool claimed, ClaimPlan(job));
    if (!claimed) return std::optional<CompileOutcome>();
  }
  if (!outcome.reply.already_there) {
    ASSIGN_OR_RETURN(const bool chosen, Tune(job));
    outcome.tune_us += timer.LapUs();
    if (!chosen) return std::optional<CompileOutcome>();
    ASSIGN_OR_RETURN(const bool complete, MakeKernels(job, timer));
    if (!complete) return std::optional<CompileOutcome>();
    RETURN_IF_ERROR(PublishPlan(job));
    outcome.publish_us += timer.LapUs();
  }
  outcome.reply.compile_us = static_cast<uint64_t>((job.workshop.clock.NowNs() - job.started_ns) / 1000);
  return std::optional<CompileOutcome>(outcome);
}

}  // namespace kiln
