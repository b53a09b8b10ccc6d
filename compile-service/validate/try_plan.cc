#include "compile-service/validate/try_plan.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/base/caught.h"
#include "common/native/contained_run.h"
#include "common/native/run_report.h"
#include "common/numeric/difference.h"
#include "common/segment/decisions.h"
#include "compile-service/validate/plan_run.h"
#include "compile-service/validate/reference_run.h"
#include "compile-service/validate/trial_values.h"

namespace kiln {
namespace {

constexpr int64_t kSideBytesMax = int64_t{1}
                                  << 30;    // of inputs and weights; of what the ops make; of the plan's memory
constexpr int kDrawsWithoutDifference = 3;  // are enough where draws are dear
constexpr int kDifferencesToAgree = 2;
constexpr int64_t kCheapNs = 500'000'000;  // processor time of all draws together, up to which they are cheap
// Of the ops' processor time: a plan that takes more than that, and some seconds, does not end.
constexpr int64_t kPlanTimeFactor = 10, kPlanSeconds = 2;
// Ranges of positions among integers, for ops that read them as such; 0: zeros.
constexpr int64_t kEntries[] = {4, 1, 0};

enum class DrawEnd : uint8_t { kRight, kWrong, kFault, kUntold, kHeldUp };  // the last one by the host
struct Draw {
  DrawEnd end = DrawEnd::kUntold;
  std::string detail;
};

uint64_t Mixed(uint64_t seed, uint64_t index) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(index)};
  uint32_t mixed[2];
  words.generate(std::begin(mixed), std::end(mixed));
  return uint64_t{mixed[0]} << 32 | mixed[1];
}

// Sums over weights keep about the size of their inputs: a product with a matrix has its smaller extents to sum over.
// What has one dim is as often a divisor, a variance or a scale, and lies around 1.
void FillWeight(const TensorRef& weight, int64_t entries, std::mt19937_64& random) {
  const int64_t elements = weight.elements();
  if (elements == 0) return;
  const int64_t summed = elements / *std::ranges::max_element(weight.dims.span());
  PointerExtent extent{.dtype = weight.dtype, .elements = elements};
  extent.size = weight.rank() > 1 ? std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(1, summed))) : 0.5;
  extent.entries = entries;
  FillRandom(extent, weight.data, random, {});
  if (weight.rank() > 1) return;
  DispatchDType(weight.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>)
      for (int64_t i = 0; i < elements; ++i)
        weight.as<T>()[i] = static_cast<T>(1.0f + static_cast<float>(weight.as<T>()[i]));
  });
}

bool IsFinite(const TensorRef& tensor) {
  return DispatchDType(tensor.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      return true;
    } else {
      const T* values = tensor.as<T>();
      return std::all_of(values, values + tensor.elements(),
                         [](T value) { return std::isfinite(static_cast<float>(value)); });
    }
  });
}

class PlanTrials {
 public:
  PlanTrials(const PlanTrial& trial, const CodeMapping& code)
      : trial_(trial),
        segment_(trial.segment),
        code_(code),
        begin_ns_(Now()),
        begin_processor_ns_(trial.processor_ns()),
        deadline_ns_(begin_ns_ + trial.budget_ms * 1'000'000) {}

  // InvalidArgument, ShapeMismatch: the case is none of the segment.
  Status Prepare() {
    if (trial_.inputs.size() != static_cast<size_t>(segment_.runtime_inputs))
      return Fail(ErrorCode::kInvalidArgument, "the segment has " + std::to_string(segment_.runtime_inputs) +
                                                   " run-time inputs, " + std::to_string(trial_.inputs.size()) +
                                                   " were named");
    int64_t left = kSideBytesMax;
    for (size_t i = 0; i < trial_.inputs.size(); ++i)
      RETURN_IF_ERROR(Hold(segment_.input(static_cast<int>(i)).dtype, trial_.inputs[i], inputs_, left));
    for (int w = 0; w < segment_.weight_count(); ++w) {
      const TensorDesc& desc = segment_.input(segment_.runtime_inputs + w);
      Dims dims;
      for (const Dim dim : *desc.dims) dims.push_back(dim.value());
      RETURN_IF_ERROR(Hold(desc.dtype, dims, weights_, left));
    }
    symbols_.assign(segment_.symbols.size(), -1);
    return BindSymbols(segment_, inputs_, trial_.parameters, symbols_);
  }

  // Why the plan would not have run for such a call.
  std::optional<std::string> NotAdmitted() const {
    const auto failure = CheckGuard(trial_.plan.guard, trial_.plan.symbols, symbols_, inputs_);
    return failure ? std::optional(failure->text) : std::nullopt;
  }

  Result<ReproduceVerdict> Run() {
    int right = 0, wrong = 0;
    std::string detail = "no draw could be made", held_up;
    const int64_t last_begin = deadline_ns_ - trial_.budget_ms * 1'000'000 / 2;
    for (int d = 0; d < (IsCheap() ? kCheapPlanDraws : kPlanDraws); ++d) {
      if (d > 0 && Now() >= last_begin) {
        if (OutOfTime() == DrawEnd::kHeldUp) held_up = "no time for another draw";
        break;
      }
      const Draw draw = Try(d);
      if (draw.end == DrawEnd::kFault) return ReproduceVerdict{ReproduceOutcome::kFault, draw.detail};
      right += draw.end == DrawEnd::kRight ? 1 : 0;
      wrong += draw.end == DrawEnd::kWrong ? 1 : 0;
      if (draw.end == DrawEnd::kHeldUp) held_up = draw.detail;
      if (draw.end == DrawEnd::kWrong || (draw.end == DrawEnd::kUntold && wrong == 0)) detail = draw.detail;
      if (wrong >= kDifferencesToAgree) return ReproduceVerdict{ReproduceOutcome::kMismatch, detail};
      if (wrong == 0 && right >= kDrawsWithoutDifference && !IsCheap()) break;
    }
    if (wrong == 0 && right >= (held_up.empty() ? 1 : kDrawsWithoutDifference))
      return ReproduceVerdict{ReproduceOutcome::kAgrees, "right for " + std::to_string(right) + " draws of values"};
    if (!held_up.empty()) return Fail(ErrorCode::kBusy, "the host is too busy to try the plan: " + held_up);
    if (wrong > 0) detail = "one draw of values differed, no other did: " + detail;
    return ReproduceVerdict{ReproduceOutcome::kUndecided, detail};
  }

 private:
  int64_t Now() const { return trial_.clock.NowNs(); }
  // A case of few elements hides what shows in larger ones more often than not, and costs little.
  bool IsCheap() const { return trial_.processor_ns() - begin_processor_ns_ < kCheapNs; }
  // How a draw ends for which no time is left.
  DrawEnd OutOfTime() const {
    const bool busy = HostWasBusy(Now() - begin_ns_, trial_.processor_ns() - begin_processor_ns_);
    return busy ? DrawEnd::kHeldUp : DrawEnd::kUntold;
  }

  Status Hold(DType dtype, const Dims& dims, std::vector<TensorRef>& list, int64_t& left) {
    ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
    const int64_t bytes = elements * DTypeBytes(dtype);
    left -= bytes;
    if (left < 0)
      return Fail(ErrorCode::kResourceExhausted,
                  "inputs and weights of more than " + std::to_string(kSideBytesMax >> 20) + " MiB are not tried");
    list.push_back(MakeRef(dtype, dims, nullptr));
    return {};
  }

  // New values in write-protected memory; nullopt: there is none.
  bool Fill(int64_t entries, std::mt19937_64& random) {
    memory_.clear();
    const auto place = [&](TensorRef& tensor) {
      memory_.push_back(std::make_unique<GuardedMemory>(static_cast<size_t>(tensor.bytes())));
      tensor.data = memory_.back()->data();
      return tensor.data != nullptr;
    };
    for (TensorRef& input : inputs_) {
      if (!place(input)) return false;
      FillRandom({.dtype = input.dtype,
                  .elements = input.elements(),
                  .zeros = entries == 0 && IsInteger(input.dtype),
                  .entries = entries},
                 input.data, random, {});
    }
    for (TensorRef& weight : weights_) {
      if (!place(weight)) return false;
      FillWeight(weight, entries, random);
    }
    return std::ranges::all_of(memory_, [](const auto& memory) { return memory->MakeReadOnly(); });
  }

  static bool IsInteger(DType dtype) {
    return DispatchDType(dtype, []<class T>() { return std::is_integral_v<T>; });
  }

  // What the ops make of the values that `seed` draws.
  Result<std::vector<Tensor>> Reference(uint64_t seed) {
    Status refused;
    for (const int64_t entries : kEntries) {
      std::mt19937_64 random(seed);
      if (!Fill(entries, random)) return Fail(ErrorCode::kResourceExhausted, "no guarded memory for a trial's values");
      std::vector<TensorRef> all = inputs_;
      all.insert(all.end(), weights_.begin(), weights_.end());
      auto outputs = RunByReference(segment_.body, all, symbols_, segment_.symbols, kSideBytesMax);
      if (outputs.has_value() || outputs.error().code == ErrorCode::kResourceExhausted) return outputs;
      refused = std::unexpected(outputs.error());
    }
    return std::unexpected(refused.error());
  }

  Draw Try(int draw) {
    const int64_t begin = trial_.processor_ns();
    const uint64_t seed = draw == 0 ? trial_.seed : Mixed(trial_.own_seed, static_cast<uint64_t>(draw));
    const Result<std::vector<Tensor>> expected = Reference(seed);
    if (!expected.has_value()) return {DrawEnd::kUntold, "the ops refuse the values: " + expected.error().message};
    const int64_t ops_s = (trial_.processor_ns() - begin) / 1'000'000'000 + 1;
    const bool odd = draw % 2 != 0;
    auto run = PlanRun::Prepare(trial_.plan, segment_, code_, symbols_, inputs_, weights_, {odd, odd}, kSideBytesMax);
    if (!run.has_value()) return Refused(run.error());
    const GuardedMemory shared(sizeof(RunReport), 64, GuardedSharing::kShared);
    auto* report = static_cast<RunReport*>(shared.data());
    const int64_t left_s = (deadline_ns_ - Now()) / 1'000'000'000;
    if (report == nullptr) return {DrawEnd::kUntold, "no guarded memory for a trial's report"};
    const int64_t cpu_s = kPlanSeconds + kPlanTimeFactor * (ops_s - 1);
    if (left_s <= cpu_s) return {OutOfTime(), "the case takes too long to be tried"};
    const ContainedEnd end = RunContained(
        [&] {
          if (const Status ran = (*run)->Run(); !ran.has_value()) report->Write(ran.error());
        },
        {.cpu_s = cpu_s, .wall_s = left_s});
    switch (end.kind) {
      case ContainedEnd::Kind::kFaulted:
        return {DrawEnd::kFault, "the plan's run ended its process: " + end.detail};
      case ContainedEnd::Kind::kNotRun:
        return {DrawEnd::kHeldUp, end.detail};
      case ContainedEnd::Kind::kReturned:
        break;
    }
    if (const Status ran = report->Read(); !ran.has_value()) return Refused(ran.error());
    return Compared(*expected, (*run)->outputs());
  }

  // The ops computed what the plan refuses. A number that a plan checks and no op reads, and a lack of memory, say
  // nothing.
  static Draw Refused(const Error& error) {
    switch (error.code) {
      case ErrorCode::kIntegrityFailure:
        return {DrawEnd::kFault, error.message};
      case ErrorCode::kOutOfRange:
      case ErrorCode::kResourceExhausted:
      case ErrorCode::kLimitExceeded:
        return {DrawEnd::kUntold, error.message};
      default:
        return {DrawEnd::kWrong, "the plan refuses what the ops compute: " + error.message};
    }
  }

  Draw Compared(const std::vector<Tensor>& expected, std::span<const TensorRef> actual) const {
    const std::vector<ErrorBound> bounds = OutputErrorBounds(segment_.body, symbols_, trial_.plan.numeric_mode);
    const std::vector<bool> behind_decision = OutputsBehindDecisions(segment_);
    Draw draw{DrawEnd::kRight, {}};
    for (size_t i = 0; i < actual.size(); ++i) {
      const auto difference = FirstDifference(expected[i].ref, actual[i], bounds[i], DifferenceText::kWithoutValues);
      if (!difference) continue;
      // Values that overflow differ by the order of their sums.
      const bool told = !behind_decision[i] && IsFinite(expected[i].ref);
      draw = {told ? DrawEnd::kWrong : DrawEnd::kUntold, "output " + std::to_string(i) + " " + *difference};
      if (told) break;
    }
    return draw;
  }

  const PlanTrial& trial_;
  const Segment& segment_;
  const CodeMapping& code_;
  const int64_t begin_ns_, begin_processor_ns_, deadline_ns_;
  std::vector<int64_t> symbols_;
  std::vector<TensorRef> inputs_, weights_;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
};

}  // namespace

int64_t ProcessorNs() {
  int64_t ns = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      ns += int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1'000;
  }
  return ns;
}

bool HostWasBusy(int64_t passed_ns, int64_t processor_ns) {
  return processor_ns < passed_ns / 2;
}

Result<ReproduceVerdict> TryPlan(const PlanTrial& trial) {
  const std::vector<Target> host = HostTargets();
  const std::optional<Target> target = TargetFromName(trial.plan.target);
  if (host.empty() || !target || !CanRun(host.front(), *target))
    return ReproduceVerdict{ReproduceOutcome::kUndecided, "this host cannot run plans for " + trial.plan.target};
  const std::vector<std::span<const uint8_t>> blobs(trial.code.begin(), trial.code.end());
  ASSIGN_OR_RETURN(const auto code, CodeMapping::Map(trial.plan.kernels, blobs, host.front()));
  PlanTrials trials(trial, *code);
  if (const Status prepared = trials.Prepare(); !prepared.has_value()) {
    if (prepared.error().code != ErrorCode::kResourceExhausted) return std::unexpected(prepared.error());
    return ReproduceVerdict{ReproduceOutcome::kUndecided, prepared.error().message};
  }
  if (const auto failure = trials.NotAdmitted())
    return ReproduceVerdict{ReproduceOutcome::kUndecided, "the plan does not admit such a call: " + *failure};
  return trials.Run();
}

}  // namespace kiln
