#include "bench/models/tier.h"

#include <ctime>
#include <optional>

#include "bench/models/allocations.h"
#include "common/base/clock.h"

namespace kiln::bench {
namespace {

int64_t ProcessCpuNs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class SilentObserver final : public CallObserver {
 public:
  void Interpreted(int, const Signature&, int64_t) override {}
  void ShadowCandidate(int, const SegmentEntry&, const LinkedPlan&, bool) override {}
};

}  // namespace

struct Tier::State {
  std::shared_ptr<const LoadedProgram> program;
  std::optional<cli::PlanServices> services;  // none: interpreter
  cli::StrictTier kind = cli::StrictTier::kGeneric;
  KernelPool* pool = nullptr;
  TierPlans plans;

  EpochDomain epochs;
  int reader = -1;
  std::vector<std::unique_ptr<SegmentRuntime>> runtimes;
  std::vector<SegmentCounters> counters;
  SilentObserver observer;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<VmContext> context;
  int64_t wall_ns = 0;

  explicit State(std::shared_ptr<const LoadedProgram> loaded)
      : program(std::move(loaded)), reader(epochs.RegisterReader()), counters(program->segments().size()) {
    for (size_t i = 0; i < program->segments().size(); ++i)
      runtimes.push_back(std::make_unique<SegmentRuntime>(epochs));
  }
  ~State() {
    dispatcher.reset();
    epochs.UnregisterReader(reader);
  }

  Status Obtain(const SegmentEntry& entry);
};

namespace {

// Obtains what is missing, then dispatches.
template <class State>
class PreparingHook final : public SegmentHook {
 public:
  explicit PreparingHook(State& state) : state_(state) {}
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    const int64_t start = SystemClock().NowNs();
    const Status status = state_.Obtain(entry);
    state_.plans.obtain_ns += SystemClock().NowNs() - start;
    if (!status.has_value() && state_.plans.failure.empty())
      state_.plans.failure = "segment " + std::to_string(entry.segment) + ": " + ToString(status.error());
    return state_.dispatcher->Enter(entry);
  }
  void Leave(const SegmentEntry& entry, int64_t elapsed_ns) override { state_.dispatcher->Leave(entry, elapsed_ns); }

 private:
  State& state_;
};

}  // namespace

Status Tier::State::Obtain(const SegmentEntry& entry) {
  const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
  Slot& slot = runtimes[static_cast<size_t>(entry.segment)]->slot;
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, cli::SymbolValuesOf(segment, entry));
  auto published = slot.plans();
  for (const auto& plan : published)
    if (cli::Admits(*plan, values, entry)) return {};
  ASSIGN_OR_RETURN(cli::ObtainedPlan obtained, cli::ObtainPlan(*services, kind, entry, segment, values));
  ++plans.plans;
  plans.kernels += obtained.reply.kernels;
  plans.kernels_compiled += obtained.reply.kernels_compiled;
  plans.generated_nodes += obtained.reply.generated_nodes;
  plans.reference_nodes += obtained.reply.reference_nodes;
  published.push_back(std::move(obtained.plan));
  slot.Publish(std::move(published));
  return {};
}

Tier::Tier(std::unique_ptr<State> state) : state_(std::move(state)) {
  Renew();
}
Tier::Tier(Tier&&) noexcept = default;
Tier::~Tier() = default;

Tier Tier::Interpreter(std::shared_ptr<const LoadedProgram> program) {
  return Tier(std::make_unique<State>(std::move(program)));
}

Tier Tier::Planned(std::shared_ptr<const LoadedProgram> program, cli::PlanServices services, cli::StrictTier plans,
                   KernelPool* pool) {
  auto state = std::make_unique<State>(std::move(program));
  state->services.emplace(services);
  state->kind = plans;
  state->pool = pool;
  return Tier(std::move(state));
}

void Tier::Renew() {
  State& state = *state_;
  state.context = std::make_unique<VmContext>();
  for (SegmentCounters& counters : state.counters) {
    counters.kernel_ns = 0;
    counters.reference_ns = 0;
  }
  state.wall_ns = 0;
  if (!state.services) return;
  state.dispatcher = std::make_unique<Dispatcher>(state.runtimes, state.counters, state.observer,
                                                  DispatcherOptions{.pool = state.pool});
}

Result<std::vector<Tensor>> Tier::Prepare(const Request& request) {
  State& state = *state_;
  if (!state.services) return state.context->Run(*state.program, request.inputs);
  // No epoch is held here: publishing frees former lists.
  PreparingHook<State> hook(state);
  RunOptions options;
  options.hook = &hook;
  return state.context->Run(*state.program, request.inputs, options);
}

Result<Sample> Tier::Run(const Request& request) {
  State& state = *state_;
  const int64_t wall = SystemClock().NowNs(), cpu = ProcessCpuNs(), allocations = ThreadAllocations();
  {
    EpochScope epoch(state.epochs, state.reader);
    RunOptions options;
    options.hook = state.dispatcher.get();
    auto outputs = state.context->RunBorrowed(*state.program, request.inputs, options);
    if (!outputs.has_value()) return FailIn(request.name, outputs.error());
  }
  const Sample sample{ProcessCpuNs() - cpu, SystemClock().NowNs() - wall, ThreadAllocations() - allocations};
  state.wall_ns += sample.wall_ns;
  return sample;
}

Shares Tier::shares() const {
  const auto total = static_cast<double>(state_->wall_ns);
  if (total <= 0) return {};
  uint64_t kernel_ns = 0, reference_ns = 0;
  for (const SegmentCounters& counters : state_->counters) {
    kernel_ns += counters.kernel_ns;
    reference_ns += counters.reference_ns;
  }
  const double kernels = static_cast<double>(kernel_ns) / total, reference = static_cast<double>(reference_ns) / total;
  return {kernels, reference, 1 - kernels - reference};
}

const TierPlans& Tier::plans() const {
  return state_->plans;
}

}  // namespace kiln::bench
