#include "vm-worker/tiering/shadow.h"

#include "common/base/clock.h"
#include "common/native/guarded_memory.h"
#include "common/numeric/difference.h"
#include "common/segment/decisions.h"
#include "vm-worker/dispatch/plan_instance.h"

namespace kiln {
namespace {

// Memory of one shadow run: every block ends at an inaccessible page.
class GuardedRunMemory final : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override { return AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override {
    blocks_.push_back(std::make_unique<GuardedMemory>(bytes));
    return blocks_.back()->data();
  }

 private:
  std::vector<std::unique_ptr<GuardedMemory>> blocks_;
};

}  // namespace

ShadowVerdict CheckShadow(const ShadowSample& sample) {
  ShadowVerdict verdict{sample.plan, false, {}};
  const Segment& segment = sample.plan->segment();
  std::vector<TensorRef> inputs;
  for (const Tensor& input : sample.inputs) inputs.push_back(input.ref);
  std::vector<int64_t> symbols(segment.symbols.size(), -1);
  if (Status bound = BindSymbols(segment, inputs, sample.parameters, symbols); !bound.has_value()) {
    verdict.detail = bound.error().message;
    return verdict;
  }
  auto instance = PlanInstance::Instantiate(sample.plan, symbols);
  if (!instance.has_value()) {
    verdict.detail = instance.error().message;
    return verdict;
  }
  GuardedRunMemory memory;
  std::vector<void*> outputs;
  for (size_t i = 0; i < (*instance)->output_count(); ++i)
    outputs.push_back(memory.AllocateScratch(static_cast<size_t>((*instance)->output_bytes(i))));
  void* arena = memory.AllocateScratch(static_cast<size_t>((*instance)->arena_bytes()));
  if (Status ran = (*instance)->Run({inputs, outputs, arena, &memory, nullptr, nullptr}); !ran.has_value()) {
    verdict.detail = ran.error().message;
    return verdict;
  }
  const std::vector<ErrorBound> bounds = OutputErrorBounds(segment.body, symbols, sample.plan->plan().numeric_mode);
  const std::vector<bool> behind_decision = OutputsBehindDecisions(segment);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorRef actual = MakeRef((*instance)->output_dtype(i), (*instance)->output_dims(i), outputs[i]);
    if (auto difference = FirstDifference(sample.outputs[i].ref, actual, bounds[i])) {
      verdict.detail = "output " + std::to_string(i) + " " + *difference;
      if (!behind_decision[i]) {
        verdict.undecided = false;
        return verdict;
      }
      verdict.undecided = true;
    }
  }
  verdict.clean = !verdict.undecided;
  return verdict;
}

ShadowRunner::ShadowRunner(Options options, std::function<void(ShadowVerdict)> report)
    : options_(options), report_(std::move(report)), thread_([this] { Run(); }) {}

ShadowRunner::~ShadowRunner() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool ShadowRunner::HasRoom() const {
  std::lock_guard lock(mutex_);
  return queue_.size() < options_.queue_max;
}

bool ShadowRunner::Offer(ShadowSample sample) {
  std::lock_guard lock(mutex_);
  if (queue_.size() >= options_.queue_max || stopping_) return false;
  queue_.push_back(std::move(sample));
  wake_.notify_one();
  return true;
}

void ShadowRunner::Run() {
  for (;;) {
    ShadowSample sample;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      sample = std::move(queue_.front());
      queue_.pop_front();
    }
    const int64_t start = SystemClock().NowNs();
    ShadowVerdict verdict = CheckShadow(sample);
    const int64_t used = SystemClock().NowNs() - start;
    sample = {};
    report_(std::move(verdict));
    const auto rest = static_cast<int64_t>(static_cast<double>(used) * (1 / options_.core_share_max - 1));
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::nanoseconds(rest), [this] { return stopping_; });
  }
}

}  // namespace kiln
