#include "vm-worker/cache_client/plan_source.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "common/base/clock.h"

namespace kiln {
namespace {

// The record says what we asked for, and the plan inside says the same as the record.
Status CheckRecord(const PlanRecord& record, const Plan& plan, const PlanKey& key, const SegmentId& segment,
                   Target host) {
  if (record.plan_key != key || record.segment != segment || plan.segment != segment || ComputePlanKey(plan) != key)
    return Fail(ErrorCode::kIntegrityFailure, "record " + key.ShortHex() + " holds another plan than its key names");
  if (record.target != plan.target || record.abi != plan.abi)
    return Fail(ErrorCode::kIntegrityFailure,
                "record " + key.ShortHex() + " and its plan disagree about target or ABI");
  if (record.abi != KILN_KERNEL_ABI)
    return Fail(ErrorCode::kTargetMismatch, "plan " + key.ShortHex() + " needs kernel ABI " +
                                                std::to_string(record.abi) + ", this worker has " +
                                                std::to_string(KILN_KERNEL_ABI));
  const std::optional<Target> target = TargetFromName(record.target);
  if (!target || !CanRun(host, *target))
    return Fail(ErrorCode::kTargetMismatch, "plan " + key.ShortHex() + " is for " + record.target +
                                                ", this host runs at most " + std::string(InfoOf(host).name));
  return {};
}

int64_t NowMs() {
  return SystemClock().NowNs() / 1'000'000;
}

}  // namespace

// One plan on its way. Touched by the source's thread alone.
struct Journey {
  PlanKey key;
  SegmentId segment;
  int64_t deadline_ms = 0;  // on the clock
  PlanSource::Done done;
  bool from_disk = false;
  Bytes record;
  std::shared_ptr<const Plan> plan;
  Evidence evidence;
  Provenance provenance;
  SignPublicKey signer{};
  std::vector<Bytes> kernels;
  std::vector<Digest> missing;  // kernels that only the store has, and their places in the plan
  std::vector<size_t> places;

  int64_t LeftMs() const { return std::max<int64_t>(1, deadline_ms - NowMs()); }
};
using JourneyPtr = std::shared_ptr<Journey>;

// Lives on in callbacks of the store's client after the source has gone; then it drops what they bring.
struct PlanSource::Core : std::enable_shared_from_this<Core> {
  Core(cache::CacheClient& store, DiskTier* disk, SignerList trusted, Target host)
      : store(store), disk(disk), trusted(std::move(trusted)), host(host) {}

  void Post(std::function<void()> step);
  void Run();
  // The stages, in order. Each ends in the next one, in a question to the store, or in Finish.
  void Begin(const JourneyPtr& journey);
  void AskRecord(const JourneyPtr& journey);
  void Open(const JourneyPtr& journey);
  Status CheckAndDecode(Journey& journey) const;
  void AskKernels(const JourneyPtr& journey);
  Status TakeKernels(Journey& journey, Result<std::vector<Bytes>> fetched);
  void Map(const JourneyPtr& journey);
  void Fail(const JourneyPtr& journey, const Error& error);

  cache::CacheClient& store;
  DiskTier* const disk;
  const SignerList trusted;
  const Target host;
  std::mutex mutex;  // guards steps and closed
  std::condition_variable wake;
  std::deque<std::function<void()>> steps;
  bool closed = false;
  std::thread thread;
};

void PlanSource::Core::Post(std::function<void()> step) {
  std::lock_guard lock(mutex);
  if (closed) return;
  steps.push_back(std::move(step));
  wake.notify_one();
}

void PlanSource::Core::Run() {
  for (;;) {
    std::function<void()> step;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [this] { return closed || !steps.empty(); });
      if (closed) return;
      step = std::move(steps.front());
      steps.pop_front();
    }
    step();
  }
}

void PlanSource::Core::Begin(const JourneyPtr& journey) {
  if (disk != nullptr)
    if (std::optional<Bytes> record = disk->Record(journey->key)) {
      journey->record = std::move(*record);
      journey->from_disk = true;
      return Open(journey);
    }
  AskRecord(journey);
}

void PlanSource::Core::AskRecord(const JourneyPtr& journey) {
  store.Call(cache::GetPlanRequest{journey->key}, journey->LeftMs(),
             [self = shared_from_this(), journey](Result<cache::GetPlanReply> reply) {
               self->Post([self, journey, reply = std::move(reply)] {
                 if (!reply.has_value()) return self->Fail(journey, reply.error());
                 journey->record = reply->record;
                 self->Open(journey);
               });
             });
}

Status PlanSource::Core::CheckAndDecode(Journey& journey) const {
  ASSIGN_OR_RETURN(SignedRecord verified, DecodeAndVerify(journey.record, *trusted.Get()));
  ASSIGN_OR_RETURN(Plan plan, DecodePlan(verified.record.plan));
  RETURN_IF_ERROR(CheckRecord(verified.record, plan, journey.key, journey.segment, host));
  journey.plan = std::make_shared<const Plan>(std::move(plan));
  journey.evidence = verified.record.evidence;
  journey.provenance = verified.record.provenance;
  journey.signer = verified.signer;
  return {};
}

void PlanSource::Core::Open(const JourneyPtr& journey) {
  if (Status checked = CheckAndDecode(*journey); !checked.has_value()) return Fail(journey, checked.error());
  AskKernels(journey);
}

void PlanSource::Core::AskKernels(const JourneyPtr& journey) {
  const std::vector<KernelId>& ids = journey->plan->kernels;
  journey->kernels.assign(ids.size(), {});
  journey->missing.clear();
  journey->places.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    std::optional<Bytes> code = disk == nullptr ? std::nullopt : disk->Kernel(ids[i]);
    if (code.has_value()) {
      journey->kernels[i] = std::move(*code);
      continue;
    }
    journey->missing.push_back(ids[i]);
    journey->places.push_back(i);
  }
  if (journey->missing.empty()) return Map(journey);
  store.GetBlobs(journey->missing, journey->LeftMs(),
                 [self = shared_from_this(), journey](Result<std::vector<Bytes>> fetched) {
                   self->Post([self, journey, fetched = std::move(fetched)]() mutable {
                     Status taken = self->TakeKernels(*journey, std::move(fetched));
                     if (!taken.has_value()) return self->Fail(journey, taken.error());
                     self->Map(journey);
                   });
                 });
}

Status PlanSource::Core::TakeKernels(Journey& journey, Result<std::vector<Bytes>> fetched) {
  if (!fetched.has_value()) return std::unexpected(fetched.error());
  if (fetched->size() != journey.missing.size())
    return kiln::Fail(ErrorCode::kMalformed, "the cache store answered with the wrong number of kernels");
  for (size_t i = 0; i < fetched->size(); ++i) {
    Bytes& code = (*fetched)[i];
    if (code.empty())
      return kiln::Fail(ErrorCode::kNotFound, "the cache store has no kernel " + journey.missing[i].ShortHex());
    if (disk != nullptr) disk->PutKernel(journey.missing[i], code);
    journey.kernels[journey.places[i]] = std::move(code);
  }
  return {};
}

void PlanSource::Core::Map(const JourneyPtr& journey) {
  const std::vector<std::span<const uint8_t>> blobs(journey->kernels.begin(), journey->kernels.end());
  auto code = CodeMapping::Map(journey->plan->kernels, blobs, host);
  if (!code.has_value()) return Fail(journey, code.error());
  if (disk != nullptr && !journey->from_disk) disk->PutRecord(journey->key, journey->record);
  journey->done(FetchedPlan{journey->key, journey->plan, std::move(*code), journey->evidence, journey->provenance,
                            journey->signer, journey->from_disk});
}

void PlanSource::Core::Fail(const JourneyPtr& journey, const Error& error) {
  // A store that is away says nothing about the disk's record; anything else is a reason to take the store's.
  const bool away = error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
  if (!journey->from_disk || away) return journey->done(std::unexpected(error));
  disk->DropRecord(journey->key);
  journey->from_disk = false;
  AskRecord(journey);
}

PlanSource::PlanSource(cache::CacheClient& store, DiskTier* disk, SignerList trusted, Target host)
    : core_(std::make_shared<Core>(store, disk, std::move(trusted), host)) {
  core_->thread = std::thread([core = core_.get()] { core->Run(); });
}

PlanSource::~PlanSource() {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(core_->mutex);
    core_->closed = true;
    dropped.swap(core_->steps);
  }
  core_->wake.notify_all();
  core_->thread.join();
}

void PlanSource::FetchAsync(const PlanKey& key, const SegmentId& segment, int64_t deadline_ms, Done done) {
  auto journey = std::make_shared<Journey>();
  journey->key = key;
  journey->segment = segment;
  journey->deadline_ms = NowMs() + deadline_ms;
  journey->done = std::move(done);
  core_->Post([core = core_.get(), journey = std::move(journey)] { core->Begin(journey); });
}

Result<FetchedPlan> PlanSource::Fetch(const PlanKey& key, const SegmentId& segment, int64_t deadline_ms) {
  const auto arrived = std::make_shared<std::promise<Result<FetchedPlan>>>();
  std::future<Result<FetchedPlan>> result = arrived->get_future();
  FetchAsync(key, segment, deadline_ms, [arrived](Result<FetchedPlan> plan) { arrived->set_value(std::move(plan)); });
  return result.get();
}

bool PlanSource::Trusts(const SignPublicKey& signer) const {
  const std::shared_ptr<const TrustedSigners> signers = core_->trusted.Get();
  return std::ranges::find(*signers, signer) != signers->end();
}

}  // namespace kiln
