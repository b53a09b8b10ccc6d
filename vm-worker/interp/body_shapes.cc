#include "vm-worker/interp/body_shapes.h"

#include <algorithm>
#include <unordered_map>

#include "common/segment/shape_rule.h"

namespace kiln {
namespace {

class BodyShapes {
 public:
  BodyShapes(const Program& program, const Function& function, std::span<const int64_t> frame)
      : program_(program), function_(function), frame_(frame) {}

  void Set(ValueId id, const TensorRef& ref) { values_[id].ref = MakeRef(ref.dtype, ref.dims, nullptr); }
  void Visit(const Node& node);
  std::optional<Dims> DimsOf(ValueId id) {
    const Known& known = At(id);
    return known.ref ? std::optional(known.ref->dims) : std::nullopt;
  }

 private:
  struct Known {
    std::optional<TensorRef> ref;
    std::optional<KnownValues> contents;
  };
  // Of a value from around the region, too.
  const Known& At(ValueId id);
  std::optional<int64_t> StatedDim(ValueId id, size_t dim) const;  // by the program and the frame
  void Ask(const Node& node);
  void Join(const Node& node);

  const Program& program_;
  const Function& function_;
  std::span<const int64_t> frame_;
  std::unordered_map<ValueId, Known> values_;
};

std::optional<int64_t> BodyShapes::StatedDim(ValueId id, size_t dim) const {
  const TensorDesc& desc = function_.values[static_cast<size_t>(id)].desc;
  if (!desc.has_rank() || dim >= desc.dims->size()) return std::nullopt;
  const Result<std::optional<int64_t>> value = EvaluateInFrame(program_.symbols, (*desc.dims)[dim], frame_);
  return value.has_value() ? *value : std::nullopt;
}

const BodyShapes::Known& BodyShapes::At(ValueId id) {
  const auto [it, is_new] = values_.try_emplace(id);
  if (!is_new) return it->second;
  const TensorDesc& desc = function_.values[static_cast<size_t>(id)].desc;
  if (!desc.has_rank()) return it->second;
  Dims dims;
  for (size_t d = 0; d < desc.dims->size(); ++d) dims.push_back(StatedDim(id, d).value_or(0));
  it->second.ref = MakeRef(desc.dtype, dims, nullptr);
  return it->second;
}

void BodyShapes::Visit(const Node& node) {
  if (node.op == TensorOp::kIf) return Join(node);
  if (node.regions.empty()) return Ask(node);
  // A loop keeps the sizes of its state, as far as can be told.
  const bool is_scan = node.op == TensorOp::kScan;
  const size_t first = is_scan ? 0 : 2;
  const size_t scanned = is_scan ? static_cast<size_t>(node.attributes.Int("num_scan_inputs", 0)) : 0;
  for (size_t i = 0; first + i + scanned < node.inputs.size() && i < node.outputs.size(); ++i)
    if (node.outputs[i] >= 0) values_[node.outputs[i]] = Known{At(node.inputs[first + i]).ref, {}};
}

void BodyShapes::Ask(const Node& node) {
  std::vector<Known> inputs;
  for (ValueId id : node.inputs) inputs.push_back(id < 0 ? Known{} : At(id));
  std::vector<const TensorRef*> refs;
  bool complete = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    refs.push_back(inputs[i].ref ? &*inputs[i].ref : nullptr);
    complete &= node.inputs[i] < 0 || inputs[i].ref.has_value();
  }
  ShapeRule rule;
  const auto known = [&](int i) { return inputs[static_cast<size_t>(i)].contents; };
  const auto no_floats = [](int) { return std::optional<std::vector<double>>(); };
  if (!complete || !rule.Run({program_, node}, refs, known, no_floats, true).has_value()) return;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const TensorDesc& desc = rule.outputs()[i];
    if (node.outputs[i] < 0 || !desc.has_rank()) continue;
    Known output;
    Dims dims;
    for (size_t d = 0; d < desc.dims->size(); ++d)
      dims.push_back((*desc.dims)[d].is_const() ? (*desc.dims)[d].value() : StatedDim(node.outputs[i], d).value_or(0));
    output.ref = MakeRef(desc.dtype, dims, nullptr);
    // Other contents are in terms of the rule's own symbols.
    const std::optional<KnownValues>* contents = rule.known_output(i);
    if (contents != nullptr && *contents && std::ranges::all_of(**contents, &Dim::is_const))
      output.contents = *contents;
    values_[node.outputs[i]] = std::move(output);
  }
}

// Of an If: what both branches say.
void BodyShapes::Join(const Node& node) {
  for (RegionId region : node.regions)
    for (const Node& inner : function_.regions[static_cast<size_t>(region)].nodes) Visit(inner);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    std::optional<TensorRef> joined;
    for (RegionId region : node.regions) {
      const std::optional<TensorRef> branch = At(function_.regions[static_cast<size_t>(region)].outputs[i]).ref;
      if (!branch || (joined && joined->rank() != branch->rank())) {
        joined.reset();
        break;
      }
      if (!joined) joined = branch;
      for (int d = 0; d < joined->rank(); ++d)
        if (joined->dims[d] != branch->dims[d])
          joined->dims[d] = StatedDim(node.outputs[i], static_cast<size_t>(d)).value_or(0);
    }
    values_[node.outputs[i]] = Known{joined, {}};
  }
}

}  // namespace

std::vector<std::optional<Dims>> BodyOutputDims(const Program& program, const Function& function, const Region& body,
                                                std::span<const TensorRef> inputs, std::span<const int64_t> frame) {
  BodyShapes shapes(program, function, frame);
  // Constants of regions around it, which may be axes or sizes.
  for (const Region& region : function.regions)
    for (const Node& node : region.nodes)
      if (node.op == TensorOp::kConstant) shapes.Visit(node);
  for (size_t i = 0; i < inputs.size() && i < body.inputs.size(); ++i) shapes.Set(body.inputs[i], inputs[i]);
  for (const Node& node : body.nodes) shapes.Visit(node);
  std::vector<std::optional<Dims>> dims;
  for (ValueId id : body.outputs) dims.push_back(shapes.DimsOf(id));
  return dims;
}

}  // namespace kiln
