#include "vm-worker/tiering/shadow.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "common/base/caught.h"
#include "common/native/contained_run.h"
#include "common/native/guarded_memory.h"
#include "common/native/run_report.h"
#include "common/numeric/difference.h"
#include "common/segment/decisions.h"
#include "vm-worker/dispatch/device_instance.h"
#include "vm-worker/dispatch/plan_instance.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

// Memory of one shadow run: every block ends at an inaccessible page. nullptr when there is none.
class GuardedRunMemory final : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override { return AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override { return Take(bytes, GuardedSharing::kPrivate)->data(); }
  // What the child writes and the parent reads.
  void* AllocateShared(size_t bytes) { return Take(bytes, GuardedSharing::kShared)->data(); }
  // A write-protected copy.
  void* CopyOf(const TensorRef& contiguous) {
    const auto bytes = static_cast<size_t>(contiguous.bytes());
    GuardedMemory* block = Take(bytes, GuardedSharing::kPrivate);
    if (block->data() == nullptr) return nullptr;
    std::memcpy(block->data(), contiguous.data, bytes);
    return block->MakeReadOnly() ? block->data() : nullptr;
  }

 private:
  GuardedMemory* Take(size_t bytes, GuardedSharing sharing) {
    blocks_.push_back(std::make_unique<GuardedMemory>(bytes, 64, sharing));
    return blocks_.back().get();
  }
  std::vector<std::unique_ptr<GuardedMemory>> blocks_;
};

Status PlaceInputs(const ShadowSample& sample, GuardedRunMemory& memory, std::vector<TensorRef>& inputs) {
  for (const Tensor& input : sample.inputs) {
    void* copy = memory.CopyOf(input.ref);
    if (copy == nullptr) return Fail(ErrorCode::kResourceExhausted, "no guarded memory for the inputs of a shadow run");
    inputs.push_back(MakeRef(input.dtype(), input.dims(), copy));
  }
  return {};
}

// The plan's outputs, in `memory`. Fault: IntegrityFailure; what says nothing about the plan: ResourceExhausted.
Status RunPlanContained(const ShadowSample& sample, std::span<const int64_t> symbols, GuardedRunMemory& memory,
                        std::vector<TensorRef>& actual, const std::atomic<bool>* stop, bool& faulted) {
  std::vector<TensorRef> inputs;
  RETURN_IF_ERROR(PlaceInputs(sample, memory, inputs));
  ASSIGN_OR_RETURN(std::unique_ptr<PlanInstance> instance, PlanInstance::Instantiate(sample.plan, symbols));
  std::vector<void*> outputs;
  for (size_t i = 0; i < instance->output_count(); ++i) {
    outputs.push_back(memory.AllocateShared(static_cast<size_t>(instance->output_bytes(i))));
    actual.push_back(instance->output(i));
    actual.back().data = outputs.back();
  }
  void* arena = memory.AllocateScratch(static_cast<size_t>(instance->arena_bytes()));
  auto* report = static_cast<RunReport*>(memory.AllocateShared(sizeof(RunReport)));
  if (arena == nullptr || report == nullptr || std::find(outputs.begin(), outputs.end(), nullptr) != outputs.end())
    return Fail(ErrorCode::kResourceExhausted, "no guarded memory for a shadow run");
  const ContainedEnd end = RunContained(
      [&] {
        const Status ran = instance->Run({inputs, outputs, arena, &memory, nullptr, nullptr});
        if (ran.has_value()) return;
        report->Write(ran.error());
      },
      {.stop = stop});
  faulted = end.kind == ContainedEnd::Kind::kFaulted;
  switch (end.kind) {
    case ContainedEnd::Kind::kReturned:
      return report->Read();
    case ContainedEnd::Kind::kFaulted:
      return Fail(ErrorCode::kIntegrityFailure, "the plan's run ended its process: " + end.detail);
    case ContainedEnd::Kind::kNotRun:
      return Fail(ErrorCode::kResourceExhausted, end.detail);
  }
  return {};
}

// The plan's outputs by the device, in `memory`. Fault: IntegrityFailure; what says nothing about the plan:
// ResourceExhausted.
Status RunPlanOnDevice(const ShadowSample& sample, std::span<const int64_t> symbols, DeviceLane* lane,
                       GuardedRunMemory& memory, std::vector<TensorRef>& actual, bool& faulted) {
  if (lane == nullptr) return Fail(ErrorCode::kResourceExhausted, "no stream of the device for a shadow run");
  std::vector<TensorRef> inputs;
  RETURN_IF_ERROR(PlaceInputs(sample, memory, inputs));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceInstance> instance,
                   DeviceInstance::Instantiate(sample.plan, symbols, DeviceTrust::kUnproven));
  // Apart, buffers take more room than they will; a plan must not be lost for that.
  if (!lane->Reserve(instance->device_bytes()).has_value()) {
    ASSIGN_OR_RETURN(instance, DeviceInstance::Instantiate(sample.plan, symbols));
  }
  std::vector<void*> outputs;
  for (size_t i = 0; i < instance->output_count(); ++i) {
    outputs.push_back(memory.AllocateScratch(static_cast<size_t>(instance->output_bytes(i))));
    actual.push_back(instance->output(i));
    actual.back().data = outputs.back();
  }
  void* arena = memory.AllocateScratch(static_cast<size_t>(instance->host_bytes()));
  if (arena == nullptr || std::find(outputs.begin(), outputs.end(), nullptr) != outputs.end())
    return Fail(ErrorCode::kResourceExhausted, "no guarded memory for a shadow run");
  Status ran = instance->Run(*lane, {inputs, outputs, arena, &memory});
  if (ran.has_value()) return {};
  // A device that is lost without a kernel's fault, or by another plan's, says nothing about this one.
  const DeviceLoss loss = lane->device().loss();
  const bool lost_by_this = loss.by_kernel && std::ranges::count(loss.suspects, sample.plan->key()) > 0;
  const ErrorCode code = ran.error().code;
  faulted = lost_by_this ||
            (!lane->device().lost() && (code == ErrorCode::kIntegrityFailure || code == ErrorCode::kInternal));
  if (faulted || code == ErrorCode::kOutOfRange) return ran;
  return lane->device().lost() || code == ErrorCode::kUnavailable
             ? Fail(ErrorCode::kResourceExhausted, ran.error().message)
             : ran;
}

std::vector<TensorRef> Refs(const std::vector<Tensor>& tensors) {
  std::vector<TensorRef> refs;
  for (const Tensor& tensor : tensors) refs.push_back(tensor.ref);
  return refs;
}

// By the interpreter.
Result<std::vector<Tensor>> Interpret(const ShadowSample& sample) {
  const Segment& segment = sample.plan->segment();
  ASSIGN_OR_RETURN(const auto body, LoadSegmentBody(segment));
  VmContext context;
  return RunSegment(context, *body, segment, Refs(sample.inputs), sample.plan->weights(), sample.parameters);
}

// What was expected beside what came.
void Compare(const ShadowSample& sample, std::span<const int64_t> symbols, std::span<const TensorRef> expected,
             std::span<const TensorRef> actual, ShadowVerdict& verdict) {
  const Segment& segment = sample.plan->segment();
  const std::vector<ErrorBound> bounds = OutputErrorBounds(segment.body, symbols, sample.plan->plan().numeric_mode);
  const std::vector<bool> behind_decision = OutputsBehindDecisions(segment);
  verdict.outcome = ShadowOutcome::kClean;
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto difference = FirstDifference(expected[i], actual[i], bounds[i], DifferenceText::kWithoutValues);
    if (!difference) continue;
    verdict.detail = "output " + std::to_string(i) + " " + *difference;
    verdict.outcome = behind_decision[i] ? ShadowOutcome::kUndecided : ShadowOutcome::kMismatch;
    if (!behind_decision[i]) return;
  }
}

Status Check(const ShadowSample& sample, const std::atomic<bool>* stop, DeviceLane* lane, ShadowVerdict& verdict,
             bool& faulted) {
  const std::vector<TensorRef> inputs = Refs(sample.inputs);
  std::vector<int64_t> symbols(sample.plan->segment().symbols.size(), -1);
  RETURN_IF_ERROR(BindSymbols(sample.plan->segment(), inputs, sample.parameters, symbols));
  std::vector<Tensor> interpreted;
  std::vector<TensorRef> expected = Refs(sample.outputs), actual = expected;
  if (sample.answer != SampleAnswer::kInterpreter) {
    // What the interpreter cannot do here says nothing about the plan.
    Result<std::vector<Tensor>> outputs = Interpret(sample);
    if (!outputs.has_value()) return Fail(ErrorCode::kResourceExhausted, outputs.error().message);
    interpreted = std::move(*outputs);
    expected = Refs(interpreted);
  }
  GuardedRunMemory memory;
  if (sample.answer != SampleAnswer::kThisPlan) {
    actual.clear();
    RETURN_IF_ERROR(sample.plan->on_device() ? RunPlanOnDevice(sample, symbols, lane, memory, actual, faulted)
                                             : RunPlanContained(sample, symbols, memory, actual, stop, faulted));
  }
  Compare(sample, symbols, expected, actual, verdict);
  return {};
}

}  // namespace

ShadowVerdict CheckShadow(const ShadowSample& sample, const std::atomic<bool>* stop, DeviceLane* lane) {
  ShadowVerdict verdict{sample.plan, ShadowOutcome::kUndecided, {}, sample.answer == SampleAnswer::kThisPlan};
  for (const Tensor& input : sample.inputs) verdict.inputs.push_back(input.dims());
  verdict.parameters = sample.parameters;
  bool faulted = false;
  const Status checked = Caught([&] { return Check(sample, stop, lane, verdict, faulted); });
  if (checked.has_value()) return verdict;
  verdict.detail = checked.error().message;
  if (faulted) {
    verdict.outcome = ShadowOutcome::kFault;
  } else if (checked.error().code == ErrorCode::kResourceExhausted || checked.error().code == ErrorCode::kOutOfRange ||
             verdict.answered_by_plan) {  // a number that the plan checks and the interpreter never reads says nothing
    verdict.outcome = ShadowOutcome::kUndecided;
  } else {
    verdict.outcome = ShadowOutcome::kMismatch;  // the interpreter answered what the plan refuses
  }
  return verdict;
}

ShadowRunner::ShadowRunner(Options options, std::function<void(ShadowVerdict)> report)
    : options_(options), report_(std::move(report)) {
  if (options_.own_thread) thread_ = std::thread([this] { Run(); });
}

ShadowRunner::~ShadowRunner() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_ = true;  // a plan that runs without end is not waited for
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool ShadowRunner::Offer(ShadowSample sample) {
  std::lock_guard lock(mutex_);
  if (queue_.size() >= options_.queue_max || stopping_) return false;
  queue_.push_back(std::move(sample));
  waiting_.store(queue_.size(), std::memory_order_relaxed);
  wake_.notify_one();
  return true;
}

bool ShadowRunner::Step() {
  ShadowSample sample;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || queue_.empty()) return false;
    sample = std::move(queue_.front());
    queue_.pop_front();
    waiting_.store(queue_.size(), std::memory_order_relaxed);
  }
  const std::string plan = sample.plan->key().ShortHex(), segment = sample.plan->segment().id.ShortHex();
  const Status done = Caught([&]() -> Status {
    ShadowVerdict verdict = CheckShadow(sample, &stop_, sample.plan->on_device() ? Lane() : nullptr);
    sample = {};
    report_(std::move(verdict));
    return {};
  });
  if (!done.has_value())
    spdlog::error("segment {}: a shadow run of plan {} ended early: {}", segment, plan, ToString(done.error()));
  return true;
}

DeviceLane* ShadowRunner::Lane() {
  if (options_.device == nullptr || options_.device->lost()) return nullptr;
  if (lane_ == nullptr)
    if (auto lane = DeviceLane::Open(*options_.device); lane.has_value()) lane_ = std::move(*lane);
  return lane_.get();
}

void ShadowRunner::Run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
    }
    const int64_t start = options_.clock->NowNs();
    Step();
    const int64_t used = options_.clock->NowNs() - start;
    const auto rest = static_cast<int64_t>(static_cast<double>(used) * (1 / options_.core_share_max - 1));
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::nanoseconds(rest), [this] { return stopping_; });
  }
}

}  // namespace kiln
