#include "tests/docs/onnx_page.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/segment/segment.h"
#include "compile-service/codegen/cuda/cuda_source.h"
#include "compile-service/lower/lower_segment.h"
#include "tests/common/ops/typed_case.h"

namespace kiln::testing {
namespace {

constexpr DType kTypes[] = {
#define KILN_DTYPE(value, name, text, type, bytes, kind) DType::k##name,
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
};

using Types = std::set<DType>;

// "floats", "integers", "all"… where a set is a class, else its members.
std::string Text(const Types& types) {
  if (types.empty()) return "–";
  struct Class {
    const char* name;
    bool (*holds)(DType);
  };
  constexpr Class kClasses[] = {
      {"all", [](DType) { return true; }},
      {"numbers", [](DType type) { return IsFloat(type) || IsInteger(type); }},
      {"floats", [](DType type) { return IsFloat(type); }},
      {"integers", [](DType type) { return IsInteger(type); }},
  };
  Types rest = types;
  std::string text;
  const auto add = [&](std::string_view word) {
    if (!text.empty()) text += " ";
    text += word;
  };
  for (const Class& group : kClasses) {
    std::vector<DType> members;
    std::ranges::copy_if(kTypes, std::back_inserter(members), group.holds);
    if (!std::ranges::all_of(members, [&](DType type) { return rest.contains(type); })) continue;
    add(group.name);
    for (DType type : members) rest.erase(type);
  }
  for (DType type : kTypes) {
    if (rest.contains(type)) add(DTypeName(type));
  }
  return text;
}

// Whether kernels alone compute it; on a device, whether each has a text.
bool Lowers(const TypedCase& typed, bool weights, Target target) {
  const Result<std::vector<TensorDesc>> outputs = InferOp(typed.op);
  if (!outputs) return false;
  const Program program = OneNode(typed, *outputs, weights);
  if (!VerifyProgram(program)) return false;
  const std::vector<SegmentSite> sites = FindSegments(program);
  if (sites.size() != 1) return false;
  const Result<Segment> segment = CanonicalSegment(program, sites[0]);
  if (!segment) return false;
  const auto lowered = lower::LowerSegment(
      {*segment, target, NumericMode::kDefault, std::vector<int64_t>(segment->symbols.size(), 1), {}});
  if (!lowered || lowered->coverage.kernel_nodes == 0 || lowered->coverage.reference_nodes > 0) return false;
  return !InfoOf(target).is_device() || std::ranges::all_of(lowered->specs, [](const ir::KernelSpec& spec) {
    return codegen::cuda::EmitCuda(spec).has_value();
  });
}

constexpr Target kProcessor = Target::kX86V4, kDevice = Target::kSm90;

struct Support {
  Types interpreted, compiled, on_device;
};

std::map<TensorOp, Support> Measure(const std::string& case_file) {
  std::map<TensorOp, Support> support;
  for (const FileCase& file_case : ReadCaseFile(case_file)) {
    Support& row = support[file_case.op.op];
    if (file_case.op.inputs.size() <= TypedInput(file_case.op.op)) continue;
    for (DType type : kTypes) {
      for (bool alone : {false, true}) {
        const TypedCase typed = InType(file_case, type, alone);
        if (!Runs(typed)) continue;
        row.interpreted.insert(type);
        for (const auto& [target, types] : {std::pair{kProcessor, &row.compiled}, {kDevice, &row.on_device}})
          if (!types->contains(type) && (Lowers(typed, false, target) || Lowers(typed, true, target)))
            types->insert(type);
      }
    }
  }
  return support;
}

// --- what is imported ---
struct Form {
  std::string domain;
  int64_t first, last;
  std::string rewrite;
  TensorOp op;
};

std::map<std::string, std::vector<Form>> Forms() {
  constexpr int64_t kAnyOpset = INT64_MAX;
  std::map<std::string, std::vector<Form>> forms;
#define KILN_ONNX_OP(domain, name, opset_min, opset_max, rewrite, op, attributes) \
  forms[#name].push_back({domain, opset_min, opset_max, #rewrite, TensorOp::k##op});
#include "vm-worker/onnx/node_rules.def"
#undef KILN_ONNX_OP
  return forms;
}

std::string FormText(const Form& form) {
  std::string text = form.domain.empty() ? "" : form.domain + " ";
  text += std::to_string(form.first);
  if (form.last == INT64_MAX) return text + "+";
  return form.last == form.first ? text : text + "–" + std::to_string(form.last);
}

std::string ImportTable() {
  std::string text = "| operator | operator sets | becomes |\n|---|---|---|\n";
  for (const auto& [name, forms] : Forms()) {
    std::string sets, op;
    for (const Form& form : forms) {
      sets += (sets.empty() ? "" : ", ") + FormText(form);
      const std::string made = std::string(OpInfo(form.op).name) + (form.rewrite == "Direct" ? "" : "…");
      if (op.find(made) == std::string::npos) op += (op.empty() ? "" : ", ") + made;
    }
    text += "| " + name + " | " + sets + " | " + op + " |\n";
  }
  return text;
}

std::string RefusedTable() {
  std::string text = "| domain | operator | why |\n|---|---|---|\n";
  const auto add = [&](std::string_view domain, std::string_view name, std::string_view reason) {
    text += "| " + std::string(domain.empty() ? "ai.onnx" : domain) + " | " + std::string(name == "*" ? "`*`" : name) +
            " | " + std::string(reason) + " |\n";
  };
#define KILN_ONNX_REFUSED(domain, name, reason) add(domain, name, reason);
#include "vm-worker/onnx/refused_ops.def"
#undef KILN_ONNX_REFUSED
  return text;
}

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string OpTable(const std::map<TensorOp, Support>& support) {
  std::string text = "| op | interpreter | CPU kernel | GPU kernel | meaning |\n|---|---|---|---|---|\n";
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    const auto found = support.find(row.op);
    const bool typed = found != support.end() && !found->second.interpreted.empty();
    const std::string interpreted = typed ? Text(found->second.interpreted) : "yes";
    const auto kernels = [&](Types Support::* types) -> std::string {
      if (row.family == OpFamily::kView) return "no work";
      return typed ? Text(found->second.*types) : "–";
    };
    text += "| " + std::string(row.name) + " | " + interpreted + " | " + kernels(&Support::compiled) + " | " +
            kernels(&Support::on_device) + " | " + Escaped(row.doc) + " |\n";
  }
  return text;
}

}  // namespace

std::string OnnxPage(const std::string& case_file) {
  return "# ONNX\n"
         "Written by `make docs` from the op table, the importer's table and trials of every op; a test compares it "
         "with them.\n"
         "Models may also use functions of their own, which are inlined. Not supported, with an error that names the "
         "node: strings,\n"
         "training, ai.onnx.ml, image decoding (the operators are listed below),\n"
         "element types below 8 bits and of 8-bit floats, sequences as inputs or outputs of a model. A sequence whose "
         "length only running tells holds tensors of one rank; one whose\n"
         "length is known holds any. Initialisers that a model of format version 4 or later also lists as inputs are "
         "constants, which\n"
         "a run may replace by tensors of its own: then it runs a program in which they are inputs.\n\n"
         "## Operators that are read\n"
         "`…`: by way of further ops. All forms become the newest form of an op of the next table.\n\n" +
         ImportTable() +
         "\n## Operators that are refused by choice\n"
         "`*`: every operator of the domain.\n\n" +
         RefusedTable() +
         "\n## Ops\n"
         "Element types are those of the data; indices, axes and sizes are i64 or i32. *Interpreter*: the reference "
         "kernel, which plans\n"
         "call where no kernel is generated. *CPU kernel*: the compile service generates one, tried for x86-64-v4. "
         "*GPU kernel*: "
         "the same for sm_90;\n"
         "its text is tested on a processor, and was not run on a GPU. Views cost nothing where\n"
         "strides allow. A type is listed where some form of the op has a kernel: integers that Resize interpolates, "
         "antialiasing where it "
         "shrinks, and convolutions whose weights are made at run time\n"
         "are left to the reference kernel. Nodes that draw random numbers are in no plan. "
         "Extremes: a NaN wins in Min, Max, ReduceMin and "
         "ReduceMax, as in "
         "NumPy.\n"
         "Where the format leaves open how Resize makes integers of interpolated values: over all axes in floating "
         "point, "
         "then once,\n"
         "saturating; `linear` cuts off, as onnxruntime does, `cubic` and antialiased results go to the nearest "
         "integer, "
         "halves to the\n"
         "even one, as the format's reference implementation does. Positions are computed in f32.\n\n" +
         OpTable(Measure(case_file));
}

}  // namespace kiln::testing
