#include <fmt/format.h>

#include "compile-service/ir/kernel_spec.h"
#include "compile-service/ir/spec_form.h"

namespace kiln::ir {

namespace {

std::string_view CombineName(Combine combine) {
  switch (combine) {
    case Combine::kSum:
      return "sum";
    case Combine::kMax:
      return "max";
    case Combine::kMin:
      return "min";
    case Combine::kProduct:
      return "product";
  }
  return "?";
}

std::string Text(const SpecInt& value) {
  return fmt::format("{}{}", value.is_argument ? "$" : "", value.value);
}

std::string Text(const std::vector<SpecInt>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ", ") + Text(values[i]);
  return text + "]";
}

std::string Text(const Access& access) {
  return fmt::format("pointer {} {} strides {}", access.pointer, DTypeName(access.storage), Text(access.strides));
}

const char* Text(BLayout layout) {
  switch (layout) {
    case BLayout::kRows:
      return "rows";
    case BLayout::kPanels:
      return "panels";
    case BLayout::kTransposed:
      return "transposed rows";
  }
  return "?";
}

std::string Text(const WindowGeometry& g) {
  return fmt::format("{}x{} -> {}x{} kernel {}x{} stride {}x{} dilation {}x{} pad {},{} strides {} {} {}",
                     Text(g.in_height), Text(g.in_width), Text(g.out_height), Text(g.out_width), g.kernel_h, g.kernel_w,
                     g.stride_h, g.stride_w, g.dilation_h, g.dilation_w, g.pad_top, g.pad_left, Text(g.image_stride),
                     Text(g.row_stride), Text(g.column_stride));
}

std::string Text(const ScalarNode& node) {
  std::string text = fmt::format("{} {}", ScalarOpName(node.op), DTypeName(node.type));
  for (int32_t operand : {node.a, node.b, node.c})
    if (operand >= 0) text += fmt::format(" %{}", operand);
  if (node.op == ScalarOp::kConstant)
    return text + (IsFloat(node.type) ? fmt::format(" {}", node.number) : fmt::format(" {}", node.integer));
  const bool indexed =
      (IsLeaf(node.op) || node.op == ScalarOp::kLoadAt) && (node.op != ScalarOp::kAccumulator || node.index != 0);
  return indexed ? text + fmt::format(" #{}", node.index) : text;
}

std::string Lines(const std::vector<Access>& accesses, const ScalarProgram& program) {
  std::string text;
  for (size_t i = 0; i < accesses.size(); ++i) text += fmt::format("  access #{}: {}\n", i, Text(accesses[i]));
  for (size_t i = 0; i < program.size(); ++i) text += fmt::format("  %{} = {}\n", i, Text(program[i]));
  return text;
}

std::string Lines(const std::vector<Store>& stores) {
  std::string text;
  for (const Store& store : stores) text += fmt::format("  store %{} to #{}\n", store.node, store.access);
  return text;
}

struct Printer {
  std::string operator()(const LoopNestSpec& nest) const {
    std::string text =
        fmt::format("loop nest outer {} reduce {} inner {}{}{}\n", Text(nest.outer), Text(nest.reduce),
                    Text(nest.inner), nest.reduce_inner ? " (reduced)" : "", nest.pairs_rows ? " in pairs" : "");
    text += Lines(nest.accesses, nest.body);
    for (size_t i = 0; i < nest.stages.size(); ++i) {
      const Stage& stage = nest.stages[i];
      if (stage.kind == Stage::Kind::kReduce) {
        text += fmt::format("  stage {}: {} of %{}\n", i, CombineName(stage.combine), stage.node);
        continue;
      }
      if (stage.kind != Stage::Kind::kStore) {
        text += stage.kind == Stage::Kind::kScatter
                    ? fmt::format("  stage {}: scatter to the place of %{}\n", i, stage.node)
                    : fmt::format("  stage {}: scan of %{} from {}\n", i, stage.node, CombineName(stage.combine));
        text += Lines(stage.stores);
        continue;
      }
      static constexpr const char* kDomains[] = {"?", "row", "inner", "full"};
      text += fmt::format("  stage {}: store over {}\n", i, kDomains[static_cast<int>(stage.domain) & 3]);
      text += Lines(stage.stores);
    }
    return text;
  }

  std::string operator()(const ContractionSpec& c) const {
    std::string text = fmt::format("contraction batch {} m {}{} n {} k {} tile {}x{}\n", Text(c.batch), Text(c.m),
                                   c.few_rows ? " (or few)" : "", Text(c.n), Text(c.k), c.tile.mr, c.tile.nv);
    text += fmt::format("  a: {}\n  b ({}): {}\n", Text(c.a), Text(c.b_layout), Text(c.b));
    if (c.conv)
      text += fmt::format("  convolution {} zeros {}{}\n", Text(*c.conv), c.zeros, c.winograd ? " by Winograd" : "");
    return text + Lines(c.accesses, c.epilogue) + Lines(c.stores);
  }

  std::string operator()(const AttentionSpec& a) const {
    std::string text =
        fmt::format("attention batch {} queries {} keys {} elements {} and {} tile {}x{}\n", Text(a.batch), Text(a.m),
                    Text(a.n), a.key_elements, a.value_elements, a.tile.mr, a.tile.nv);
    text += fmt::format("  q: {}\n  k: {}\n  v: {}\n  out: {}\n", Text(a.q), Text(a.k), Text(a.v), Text(a.out));
    return text + Lines(a.accesses, a.scores) + fmt::format("  score %{}\n", a.score);
  }

  std::string operator()(const WindowSpec& w) const {
    std::string text = fmt::format("window {} images {} channels {} {}{}{}\n", CombineName(w.combine), Text(w.images),
                                   Text(w.channels), Text(w.geometry), w.average ? " average" : "",
                                   w.count_include_pad ? " counting padding" : "");
    if (w.out_columns > 0) text += fmt::format("  {} columns at a time\n", w.out_columns);
    text += fmt::format("  input: {}\n", Text(w.input));
    if (w.weights) text += fmt::format("  weights: {}\n", Text(*w.weights));
    return text + Lines(w.accesses, w.epilogue) + Lines(w.stores);
  }

  std::string operator()(const RecurrentSpec& r) const {
    std::string text = fmt::format("recurrent time {}{} rows {} (tile {}) units {}\n", Text(r.time),
                                   r.reversed ? " reversed" : "", Text(r.rows), r.tile_rows, r.units);
    if (r.lengths >= 0) text += fmt::format("  lengths: pointer {}\n", r.lengths);
    text += Lines(r.accesses, {});
    const auto add = [&](const char* name, const std::vector<RecurrentStage>& stages) {
      for (const RecurrentStage& stage : stages) {
        text += fmt::format("  {}:", name);
        if (stage.gates > 0)
          text += fmt::format(" {} gates x {} vectors of #{} with panels {}", stage.gates, stage.vectors, stage.input,
                              stage.panels);
        text += "\n" + Lines({}, stage.body) + Lines(stage.stores);
      }
    };
    add("before", r.before);
    add("step", r.steps);
    add("after", r.after);
    return text;
  }
};

}  // namespace

std::string SpecForm(const KernelSpec& spec) {
  struct Form {
    std::string operator()(const LoopNestSpec& nest) const {
      const size_t reduced = nest.reduce.size() + (nest.reduce_inner ? 1 : 0);
      const size_t plain = nest.outer.size() + (nest.reduce_inner ? 0 : 1);
      return fmt::format("loops {}", plain) + (reduced > 0 ? fmt::format(" + {} reduced", reduced) : "") +
             (nest.pairs_rows ? ", in pairs" : "");
    }
    std::string operator()(const ContractionSpec& c) const {
      return fmt::format("tile {}x{}, b in {}{}", c.tile.mr, c.tile.nv, Text(c.b_layout),
                         c.winograd ? fmt::format(", Winograd F({}, {})", kWinogradColumns, kWinogradKernel) : "");
    }
    std::string operator()(const WindowSpec& w) const {
      return fmt::format("window {}x{}", w.geometry.kernel_h, w.geometry.kernel_w) +
             (w.out_columns > 0 ? fmt::format(", {} columns", w.out_columns) : "");
    }
    std::string operator()(const RecurrentSpec& r) const {
      return fmt::format("{} units, {} rows a tile", r.units, r.tile_rows);
    }
    std::string operator()(const AttentionSpec& a) const {
      return fmt::format("{} and {} elements, tile {}x{}", a.key_elements, a.value_elements, a.tile.mr, a.tile.nv);
    }
  };
  return std::visit(Form{}, spec.kernel);
}

std::string PrintSpec(const KernelSpec& spec) {
  return fmt::format("kernel pointers {} dims {}\n", spec.pointers, spec.dims) + std::visit(Printer{}, spec.kernel);
}

}  // namespace kiln::ir
