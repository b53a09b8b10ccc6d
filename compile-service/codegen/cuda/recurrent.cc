// Recurrences: a block per tile of rows goes through time, a thread per (row, unit) in turn; a barrier behind each
// stage lets the next one see what it stored.
#include "compile-service/codegen/cuda/emitters.h"

namespace kiln::codegen::cuda {

using ir::RecurrentSpec;
using ir::RecurrentStage;

namespace {

constexpr int64_t kLanes = 32;
constexpr int kChain = 128;  // terms of a sum that are added up by themselves

class RecurrentEmitter {
 public:
  RecurrentEmitter(KernelText& text, const RecurrentSpec& spec) : text_(text), out_(text.out()), spec_(spec) {}

  CudaSource Emit() {
    return text_.Function(kBlockThreads, 1, [&] {
      text_.Pointers(spec_.accesses);
      Panels();
      if (spec_.lengths >= 0) text_.Pointer("lengths", spec_.lengths, DType::kI32);
      out_.Line("const long long first = (begin + blockIdx.x) * {};", spec_.tile_rows);
      out_.Line("const long long points = kiln_least({} - first, {}) * {};", KernelText::Int(spec_.rows),
                spec_.tile_rows, spec_.units);
      out_.Line("const long long all = {};", KernelText::Int(spec_.time));
      if (spec_.lengths >= 0) {
        out_.Put("const long long given = lengths[first];");
        out_.Put("const long long length = given < 0 ? 0 : kiln_least(given, all);");
      } else {
        out_.Put("const long long length = all;");
      }
      out_.Put("const long long begin_time = 0;");
      for (size_t i = 0; i < spec_.before.size(); ++i) Stage("before", i, spec_.before[i], "begin_time");
      Turns("for (long long turn = 0; turn < length; ++turn)", "steps", spec_.steps,
            spec_.reversed ? "length - 1 - turn" : "turn");
      Turns("for (long long turn = length; turn < all; ++turn)", "after", spec_.after, "turn");
    });
  }

 private:
  static std::string PanelName(const std::string& list, size_t index) { return list + std::to_string(index); }

  void Panels() {
    const auto declare = [&](const std::string& name, const std::vector<RecurrentStage>& stages) {
      for (size_t i = 0; i < stages.size(); ++i)
        if (stages[i].gates > 0) text_.Pointer(PanelName(name, i), stages[i].panels, DType::kF32);
    };
    declare("steps", spec_.steps);
    declare("after", spec_.after);
  }

  void Turns(const std::string& head, const std::string& name, const std::vector<RecurrentStage>& stages,
             const std::string& time) {
    if (stages.empty()) return;
    out_.Block(head, [&] {
      out_.Line("const long long time = {};", time);
      for (size_t i = 0; i < stages.size(); ++i) Stage(name, i, stages[i], "time");
    });
  }

  // The sums of one unit's gates, as sum0, sum1, …
  void Sums(const std::string& panels, const RecurrentStage& stage, const std::string& time) {
    const int64_t width = stage.vectors * kLanes, step = stage.gates * width;
    const ir::Access& input = spec_.accesses[static_cast<size_t>(stage.input)];
    out_.Line("const kiln_f32* const column = {} + unit / {} * {}ll + unit % {};", panels, width, spec_.units * step,
              width);
    const std::string before = KernelText::Offset(input, std::vector<std::string>{time, "row", ""});
    out_.Line("const kiln_f32* const given = a{} + {};", stage.input, before);
    const auto each_gate = [&](auto write) {
      for (int32_t gate = 0; gate < stage.gates; ++gate) write(gate);
    };
    each_gate([&](int32_t gate) { out_.Line("float sum{} = 0.0f;", gate); });
    out_.Block(fmt::format("for (int chain = 0; chain < {}; chain += {})", spec_.units, kChain), [&] {
      out_.Line("const int end_of_chain = chain + {0} < {1} ? chain + {0} : {1};", kChain, spec_.units);
      each_gate([&](int32_t gate) { out_.Line("float part{} = 0.0f;", gate); });
      out_.Block("for (int k = chain; k < end_of_chain; ++k)", [&] {
        out_.Line("const float factor = given[k * {}];", KernelText::Int(input.strides[2]));
        each_gate([&](int32_t gate) {
          out_.Line("part{0} = fmaf(factor, column[k * {1}ll + {2}], part{0});", gate, step, gate * width);
        });
      });
      each_gate([&](int32_t gate) { out_.Line("sum{0} += part{0};", gate); });
    });
  }

  void Stage(const std::string& list, size_t index, const RecurrentStage& stage, const std::string& time) {
    out_.Block(fmt::format("for (long long at = threadIdx.x; at < points; at += {})", kBlockThreads), [&] {
      out_.Line("const long long row = first + at / {0}, unit = at % {0};", spec_.units);
      if (stage.gates > 0) Sums(PanelName(list, index), stage, time);
      text_.Epilogue(stage.body, stage.stores, spec_.accesses, {time, "row", "unit"},
                     [](int32_t gate) { return "sum" + std::to_string(gate); });
    });
    out_.Put("__syncthreads();");
  }

  KernelText& text_;
  SourceWriter& out_;
  const RecurrentSpec& spec_;
};

}  // namespace

CudaSource EmitRecurrent(KernelText& text, const RecurrentSpec& spec) {
  return RecurrentEmitter(text, spec).Emit();
}

}  // namespace kiln::codegen::cuda
