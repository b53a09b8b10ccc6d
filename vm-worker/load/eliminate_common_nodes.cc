#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "vm-worker/load/passes.h"
#include "vm-worker/load/replace_values.h"

namespace kiln {
namespace {

class Merger {
 public:
  Merger(const Program& program, Function& function)
      : program_(program), function_(function), replacements_(function.values.size()) {}

  bool Run() {
    MergeIn(0);
    if (changed_) replacements_.ApplyTo(function_);
    return changed_;
  }

 private:
  // Nodes of a region are visible in the regions inside it, so they leave the table when the region ends.
  void MergeIn(RegionId id) {
    std::vector<Node> nodes;
    nodes.swap(function_.regions[static_cast<size_t>(id)].nodes);
    const std::vector<ValueId> outputs = function_.regions[static_cast<size_t>(id)].outputs;
    std::vector<std::pair<uint64_t, size_t>> added;
    std::vector<Node> kept;
    kept.reserve(nodes.size());
    for (Node& node : nodes) {
      replacements_.ApplyTo(node.inputs);
      for (RegionId inner : node.regions) MergeIn(inner);
      if (MayMerge(node)) {
        const uint64_t hash = HashOf(node);
        const Node* first = FindEqual(hash, node);
        const bool gives_output = std::ranges::any_of(
            node.outputs, [&](ValueId value) { return std::ranges::find(outputs, value) != outputs.end(); });
        if (first != nullptr && !gives_output) {
          for (size_t i = 0; i < node.outputs.size(); ++i) replacements_.Replace(node.outputs[i], first->outputs[i]);
          changed_ = true;
          continue;
        }
        if (first == nullptr) {
          table_[hash].push_back(node);
          added.emplace_back(hash, 1);
        }
      }
      kept.push_back(std::move(node));
    }
    for (auto entry = added.rbegin(); entry != added.rend(); ++entry) table_[entry->first].pop_back();
    function_.regions[static_cast<size_t>(id)].nodes = std::move(kept);
  }

  static bool MayMerge(const Node& node) {
    const OpEffects effects = OpInfo(node.op).effects;
    return node.regions.empty() && effects != OpEffects::kRandom && effects != OpEffects::kControl &&
           std::ranges::find(node.outputs, kNoValue) == node.outputs.end();
  }

  uint64_t HashOf(const Node& node) const {
    uint64_t hash = static_cast<uint64_t>(node.op) * 0x9e3779b97f4a7c15u + node.outputs.size();
    for (ValueId input : node.inputs) hash = (hash ^ static_cast<uint64_t>(input)) * 0x9e3779b97f4a7c15u;
    if (node.op == TensorOp::kConstant) {
      const Tensor& tensor = ConstantOf(node);
      if (Program::IsImmediate(tensor)) hash ^= FastHash(BytesOf(tensor));
    }
    return hash;
  }

  const Node* FindEqual(uint64_t hash, const Node& node) {
    for (const Node& candidate : table_[hash]) {
      if (Equal(candidate, node)) return &candidate;
    }
    return nullptr;
  }

  bool Equal(const Node& a, const Node& b) const {
    if (a.op != b.op || a.inputs != b.inputs || a.outputs.size() != b.outputs.size()) return false;
    // Equal nodes with dims of their own: what was derived from one's symbols does not hold for the other's.
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      if (!(DescOf(a.outputs[i]) == DescOf(b.outputs[i]))) return false;
    }
    if (a.attributes == b.attributes) return true;
    if (a.op != TensorOp::kConstant) return false;
    const Tensor& left = ConstantOf(a);
    const Tensor& right = ConstantOf(b);
    if (left.dtype() != right.dtype() || !(left.dims() == right.dims())) return false;
    if (left.ref.data == right.ref.data) return true;
    return Program::IsImmediate(left) && std::ranges::equal(BytesOf(left), BytesOf(right));
  }

  const TensorDesc& DescOf(ValueId value) const { return function_.values[static_cast<size_t>(value)].desc; }
  const Tensor& ConstantOf(const Node& node) const {
    return program_.constants[static_cast<size_t>(node.attributes.Constant("value"))].tensor;
  }
  static std::span<const uint8_t> BytesOf(const Tensor& tensor) {
    return {tensor.ref.as<const uint8_t>(), static_cast<size_t>(tensor.ref.bytes())};
  }

  const Program& program_;
  Function& function_;
  ValueReplacements replacements_;
  std::unordered_map<uint64_t, std::vector<Node>> table_;
  bool changed_ = false;
};

}  // namespace

Result<bool> EliminateCommonNodes(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) changed |= Merger(program, function).Run();
  return changed;
}

}  // namespace kiln
