#include "compile-service/validate/recurrent_columns.h"

#include <algorithm>

#include "compile-service/validate/dot_columns.h"

namespace kiln {
namespace {

std::vector<ir::Store> StoresOf(const ir::RecurrentSpec& spec) {
  std::vector<ir::Store> stores;
  for (const auto* stages : {&spec.before, &spec.steps, &spec.after})
    for (const ir::RecurrentStage& stage : *stages)
      stores.insert(stores.end(), stage.stores.begin(), stage.stores.end());
  return stores;
}

class RecurrentEvaluator {
 public:
  RecurrentEvaluator(const ir::RecurrentSpec& spec, const SpecCall& call)
      : spec_(spec), call_(call), input_(static_cast<size_t>(spec.units)), wide_input_(input_.size()) {
    for (const ir::RecurrentStage& stage : spec.before) AddStage(stage, before_);
    for (const ir::RecurrentStage& stage : spec.steps) AddStage(stage, steps_);
    for (const ir::RecurrentStage& stage : spec.after) AddStage(stage, after_);
  }

  void Run(int64_t begin, int64_t end) {
    const int64_t time = call_.Value(spec_.time);
    for (int64_t row = begin * spec_.tile_rows; row < std::min(call_.Value(spec_.rows), end * spec_.tile_rows); ++row) {
      int64_t length = time;
      if (spec_.lengths >= 0)
        length = std::clamp<int64_t>(
            static_cast<const int32_t*>(call_.pointers[static_cast<size_t>(spec_.lengths)])[row], 0, time);
      for (StageColumns& stage : before_) RunStage(stage, 0, row);
      for (int64_t turn = 0; turn < length; ++turn)
        for (StageColumns& stage : steps_) RunStage(stage, spec_.reversed ? length - 1 - turn : turn, row);
      for (int64_t turn = length; turn < time; ++turn)
        for (StageColumns& stage : after_) RunStage(stage, turn, row);
    }
  }

 private:
  struct StageColumns {
    const ir::RecurrentStage& stage;
    ScalarColumns columns;
    std::vector<int32_t> order;
  };

  void AddStage(const ir::RecurrentStage& stage, std::vector<StageColumns>& list) {
    ScalarColumns columns(stage.body, spec_.accesses, static_cast<size_t>(stage.gates), call_.pointers, call_.dims);
    std::vector<int32_t> order = columns.OrderFor(RootsOf(stage.stores));
    if (call_.leaning != Leaning::kNone)
      columns.Lean(call_.leaning, FindDecisions(stage.body, Loads(spec_.accesses, StoresOf(spec_)), Sums(true)));
    list.push_back({stage, std::move(columns), std::move(order)});
  }

  // One row at one time. Runs of units stay inside a block of the panels.
  void RunStage(StageColumns& at, int64_t time, int64_t row) {
    const ir::RecurrentStage& stage = at.stage;
    const int64_t width = int64_t{stage.vectors} * call_.lanes, step = stage.gates * width;
    if (stage.gates > 0) LoadState(stage, time, row);
    for (int64_t unit = 0; unit < spec_.units;) {
      int64_t n = std::min(kColumnLength, spec_.units - unit);
      if (stage.gates > 0) {
        n = std::min(n, width - unit % width);
        const float* block = static_cast<const float*>(call_.pointers[static_cast<size_t>(stage.panels)]) +
                             unit / width * spec_.units * step + unit % width;
        for (int64_t gate = 0; gate < stage.gates; ++gate)
          DotColumns(wide_input_, block + gate * width, step, n, at.columns.result<float>(static_cast<size_t>(gate)));
      }
      const int64_t coordinates[] = {time, row, unit};
      at.columns.Evaluate(at.order, coordinates, n);
      at.columns.StoreAll(stage.stores, coordinates, n);
      unit += n;
    }
  }

  void LoadState(const ir::RecurrentStage& stage, int64_t time, int64_t row) {
    const ir::Access& access = spec_.accesses[static_cast<size_t>(stage.input)];
    call_.LoadRow(access, time * call_.Value(access.strides[0]) + row * call_.Value(access.strides[1]),
                  call_.Value(access.strides[2]), spec_.units, input_.data());
    std::copy(input_.begin(), input_.end(), wide_input_.begin());
  }

  const ir::RecurrentSpec& spec_;
  const SpecCall& call_;
  std::vector<float> input_;
  std::vector<double> wide_input_;
  std::vector<StageColumns> before_, steps_, after_;
};

}  // namespace

void EvaluateRecurrence(const ir::RecurrentSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  RecurrentEvaluator(spec, call).Run(begin, end);
}

}  // namespace kiln
