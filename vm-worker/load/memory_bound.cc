#include "vm-worker/load/memory_bound.h"

#include <algorithm>

namespace kiln {
namespace {

// Walks regions; stops at the first value without a bound.
class Bounder {
 public:
  explicit Bounder(const Program& program) : program_(program), function_(program.entry()) {}

  MemoryBound Run() {
    if (program_.functions.size() > 1) return {std::nullopt, "the program calls functions"};
    const int64_t bytes = RegionBytes(function_.regions[0]);
    if (!reason_.empty()) return {std::nullopt, reason_};
    if (bytes == Interval::kNoBound) return {std::nullopt, "the tensors together would pass 2^63 bytes"};
    return {bytes, {}};
  }

 private:
  // At most this many bytes; kNoBound is absorbing.
  static int64_t Plus(int64_t a, int64_t b) { return CheckedAdd(a, b).value_or(Interval::kNoBound); }

  int64_t ValueBytes(ValueId id) {
    const Value& value = function_.values[static_cast<size_t>(id)];
    const std::string name = value.name.empty() ? "value " + std::to_string(id) : "value \"" + value.name + "\"";
    if (!value.desc.has_rank()) return Unbounded(name + " has no known rank");
    int64_t bytes = DTypeBytes(value.desc.dtype);
    for (Dim dim : *value.desc.dims) {
      const Interval bounds = program_.symbols.Bounds(dim);
      if (bounds.max == Interval::kNoBound) return Unbounded(name + ": " + NoBoundText(dim));
      const auto product = CheckedMul(bytes, std::max<int64_t>(bounds.max, 0));
      if (!product) return Unbounded(name + " would pass 2^63 bytes");
      bytes = *product;
    }
    return bytes;
  }

  std::string NoBoundText(Dim dim) const {
    for (SymbolId id : program_.symbols.SymbolsOf(dim)) {
      if (program_.symbols.symbol(id).range.max == Interval::kNoBound) {
        return "symbol " + program_.symbols.SymbolText(id) + " has no upper bound";
      }
    }
    return "dim " + program_.symbols.ToString(dim) + " has no upper bound";
  }

  int64_t Unbounded(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return 0;
  }

  // Index of the last node of `region` that reads each value; the node count for what leaves the region. What a view
  // shows lives as long as the view.
  std::vector<size_t> LastReads(const Region& region) const {
    std::vector<size_t> last(function_.values.size(), 0);
    const auto read = [&](ValueId id, size_t at) {
      if (id != kNoValue) last[static_cast<size_t>(id)] = std::max(last[static_cast<size_t>(id)], at);
    };
    for (ValueId output : region.outputs) read(output, region.nodes.size());
    for (ValueId input : region.inputs) read(input, region.nodes.size());
    for (size_t at = region.nodes.size(); at-- > 0;) {
      const Node& node = region.nodes[at];
      size_t until = at;
      if (OpInfo(node.op).family == OpFamily::kView) {
        for (ValueId output : node.outputs) until = std::max(until, last[static_cast<size_t>(output)]);
      }
      for (ValueId input : node.inputs) read(input, until);
      for (RegionId inner : node.regions) ReadInside(function_.regions[static_cast<size_t>(inner)], at, read);
    }
    return last;
  }

  template <class Read>
  void ReadInside(const Region& region, size_t at, const Read& read) const {
    for (const Node& node : region.nodes) {
      for (ValueId input : node.inputs) read(input, at);
      for (RegionId inner : node.regions) ReadInside(function_.regions[static_cast<size_t>(inner)], at, read);
    }
  }

  // The largest sum of bytes alive at one node. A body's states exist twice: as they were and as they become.
  int64_t RegionBytes(const Region& region) {
    const std::vector<size_t> last = LastReads(region);
    int64_t alive = 0;
    for (ValueId input : region.inputs) alive = Plus(alive, ValueBytes(input));
    int64_t most = alive;
    std::vector<int64_t> freed(region.nodes.size() + 1, 0);
    for (size_t at = 0; at < region.nodes.size() && reason_.empty(); ++at) {
      const Node& node = region.nodes[at];
      int64_t inside = 0;
      for (RegionId inner : node.regions) {
        inside = std::max(inside, RegionBytes(function_.regions[static_cast<size_t>(inner)]));
      }
      const bool stored = node.op != TensorOp::kConstant;
      for (ValueId output : node.outputs) {
        const int64_t bytes = stored ? ValueBytes(output) : 0;
        alive = Plus(alive, bytes);
        int64_t& freed_then = freed[std::max(last[static_cast<size_t>(output)], at)];
        freed_then = Plus(freed_then, bytes);
      }
      most = std::max(most, Plus(alive, inside));
      if (alive != Interval::kNoBound) alive -= freed[at];
    }
    return most;
  }

  const Program& program_;
  const Function& function_;
  std::string reason_;
};

}  // namespace

MemoryBound BoundMemory(const Program& program) {
  return Bounder(program).Run();
}

}  // namespace kiln
