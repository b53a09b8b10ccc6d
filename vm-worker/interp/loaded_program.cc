#include "vm-worker/interp/loaded_program.h"

#include <algorithm>
#include <atomic>

#include "common/base/limits.h"
#include "common/bytecode/emit.h"
#include "common/bytecode/symbol_definitions.h"
#include "common/bytecode/verify_compact.h"

namespace kiln {
namespace {

std::string NodeText(const Node& node) {
  return std::string(OpInfo(node.op).name) + (node.name.empty() ? "" : " \"" + node.name + "\"");
}

// The dtype that chooses a node's kernel.
DType KernelDType(const Function& function, const Node& node) {
  const size_t first = node.op == TensorOp::kWhere ? 1 : 0;
  for (size_t i = first; i < node.inputs.size(); ++i)
    if (node.inputs[i] != kNoValue) return function.values[static_cast<size_t>(node.inputs[i])].desc.dtype;
  return node.outputs.empty() ? DType::kF32 : function.values[static_cast<size_t>(node.outputs[0])].desc.dtype;
}

Status CheckLoadCost(const Program& program) {
  size_t nodes = 0, segments = 1;
  for (const Function& function : program.functions)
    for (const Region& region : function.regions) {
      nodes += region.nodes.size();
      for (const Node& node : region.nodes) segments += OpInfo(node.op).effects >= OpEffects::kDataShape;
    }
  const size_t facts = nodes + program.symbols.symbol_count();
  if (facts == 0 || segments <= limits::kLoadCostMax / facts) return {};
  return Fail(ErrorCode::kLimitExceeded, "the program has " + std::to_string(nodes) + " nodes and up to " +
                                             std::to_string(segments) + " segments; that is too many to load");
}

}  // namespace

Result<std::shared_ptr<const LoadedProgram>> LoadedProgram::Load(Program program, const LoadOptions& options) {
  RETURN_IF_ERROR(VerifyProgram(program));
  RETURN_IF_ERROR(CheckLoadCost(program));
  static std::atomic<uint64_t> next_serial{1};
  const std::shared_ptr<LoadedProgram> loaded(new LoadedProgram);
  loaded->serial_ = next_serial.fetch_add(1, std::memory_order_relaxed);
  loaded->program_ = std::move(program);
  // An absent tensor is told by its null pointer, so an empty one needs another.
  for (Constant& constant : loaded->program_.constants)
    if (!constant.tensor.ref.data) constant.tensor = Tensor::Allocate(constant.tensor.dtype(), constant.tensor.dims());
  const Program& owned = loaded->program_;

  const SymbolDefinitions definitions = FindSymbolDefinitions(owned, options.given);
  SegmentedProgram segmented = SegmentProgram(owned, definitions);
  if (segmented.refuted) return std::unexpected(*segmented.refuted);
  if (options.entry_requirements) {
    auto found = FindEntryRequirements(owned, definitions);
    if (!found) return FailIn("function \"" + owned.entry().name.substr(0, 200) + "\"", found.error());
    loaded->entry_requirements_ = *std::move(found);
  }
  loaded->sites_ = std::move(segmented.sites);
  std::vector<SegmentRange> ranges;
  for (const SegmentSite& site : loaded->sites_) {
    ASSIGN_OR_RETURN(Segment segment, CanonicalSegment(owned, definitions, site));
    loaded->segments_.push_back(std::move(segment));
    std::vector<TensorRef>& weights = loaded->weights_.emplace_back();
    for (ConstantId id : site.weights) weights.push_back(owned.constants[static_cast<size_t>(id)].tensor.ref);
    ranges.push_back({site.function, site.region, site.first_node, site.end_node, site.inputs, site.outputs});
  }
  loaded->code_ = EmitCompact(owned, definitions, ranges, ShapeFactsOf(segmented));
  if (options.verify_code) RETURN_IF_ERROR(VerifyCompact(loaded->code_, owned));
  RETURN_IF_ERROR(loaded->ChooseKernels());
  return std::shared_ptr<const LoadedProgram>(loaded);
}

Status LoadedProgram::ChooseKernels() {
  kernels_.resize(code_.nodes.size());
  for (size_t i = 0; i < code_.nodes.size(); ++i) {
    const NodePlace& place = code_.nodes[i];
    const Node& node = place.In(program_);
    const TensorOpInfo& info = OpInfo(node.op);
    if (info.family == OpFamily::kView || info.effects == OpEffects::kControl || IsRematerialised(node.op)) continue;
    const Function& function = program_.functions[static_cast<size_t>(place.function)];
    auto kernel = FindReferenceKernel(node.op, KernelDType(function, node));
    if (!kernel) return FailIn("node " + NodeText(node), kernel.error());
    kernels_[i].kernel = *kernel;
    if (kernel->prepare) kernels_[i].prepared = kernel->prepare(node.attributes);
    if (info.effects == OpEffects::kRandom) kernels_[i].random_node = static_cast<int32_t>(random_nodes_++);
  }
  return {};
}

size_t LoadedProgram::overhead_bytes() const {
  return code_.code.size() * sizeof(uint32_t) + code_.nodes.size() * (sizeof(NodePlace) + sizeof(NodeKernel)) +
         segments_.size() * sizeof(Segment);
}

Result<std::shared_ptr<const LoadedProgram>> LoadSegmentBody(const Segment& segment, const LoadOptions& options) {
  LoadOptions with_given = options;
  with_given.entry_requirements = false;  // those are of the program that it is a part of
  for (size_t i = 0; i < segment.symbols.size(); ++i)
    if (segment.symbols[i].kind == SymbolSource::Kind::kParameter) with_given.given.push_back(static_cast<SymbolId>(i));
  return LoadedProgram::Load(segment.body, with_given);
}

}  // namespace kiln
