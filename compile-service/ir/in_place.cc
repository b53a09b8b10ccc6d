#include "compile-service/ir/in_place.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "compile-service/ir/nest_stages.h"

namespace kiln::ir {
namespace {

// Stages of a kernel in which a pointer is touched. Kernels without stages have one.
struct Uses {
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  size_t first_load = kNever, last_load = 0, first_store = kNever;
  bool loaded() const { return first_load != kNever; }
  bool stored() const { return first_store != kNever; }
};
using PointerUses = std::map<int32_t, Uses>;

void AddLoads(const ScalarProgram& program, const std::vector<Access>& accesses, const std::vector<int32_t>& roots,
              size_t stage, PointerUses* uses) {
  const std::vector<bool> needed = ReachableNodes(program, roots);
  for (size_t i = 0; i < program.size(); ++i) {
    const ScalarNode& node = program[i];
    if (!needed[i] || node.op != ScalarOp::kLoad) continue;
    Uses& use = (*uses)[accesses[static_cast<size_t>(node.index)].pointer];
    use.first_load = std::min(use.first_load, stage);
    use.last_load = std::max(use.last_load, stage);
  }
}

// What the store to `stored` and every access to `loaded` must have in common; nothing where they cannot have it.
std::optional<InPlaceOperand> SameMap(const std::vector<Access>& accesses, const std::vector<SpecInt>& extents,
                                      int32_t stored, int32_t loaded) {
  const auto written = std::ranges::find(accesses, stored, &Access::pointer);
  InPlaceOperand operand{stored, loaded, {}};
  for (const Access& read : accesses) {
    if (read.pointer != loaded) continue;
    if (DTypeBytes(read.storage) != DTypeBytes(written->storage)) return std::nullopt;
    for (size_t dim = 0; dim < extents.size(); ++dim) {
      const SpecInt from = read.strides[dim], to = written->strides[dim];
      if (from.is_argument != to.is_argument) return std::nullopt;
      if (from.is_argument) {
        if (from != to) operand.equal_arguments.emplace_back(to.value, from.value);
      } else if (from != to || (to == SpecInt::Const(0) && extents[dim] != SpecInt::Const(1))) {
        return std::nullopt;
      }
    }
  }
  return operand;
}

std::vector<InPlaceOperand> Pairs(const std::vector<Access>& accesses, const std::vector<SpecInt>& extents,
                                  const PointerUses& uses) {
  std::vector<InPlaceOperand> pairs;
  for (const auto& [stored, store] : uses) {
    // A result that is loaded before it is stored is an operand itself.
    if (!store.stored() || (store.loaded() && store.first_load <= store.first_store)) continue;
    for (const auto& [loaded, load] : uses) {
      if (loaded == stored || load.stored() || !load.loaded() || load.last_load > store.first_store) continue;
      if (auto pair = SameMap(accesses, extents, stored, loaded)) pairs.push_back(std::move(*pair));
    }
  }
  return pairs;
}

std::vector<InPlaceOperand> PairsOf(const LoopNestSpec& nest) {
  PointerUses uses;
  std::vector<int32_t> partly;  // stored to in fewer points than the loops have
  const bool reduces = std::ranges::any_of(nest.reduce, [](SpecInt e) { return e != SpecInt::Const(1); });
  for (size_t s = 0; s < nest.stages.size(); ++s) {
    const Stage& stage = nest.stages[s];
    for (const Store& store : stage.stores) {
      const int32_t pointer = nest.accesses[static_cast<size_t>(store.access)].pointer;
      Uses& use = uses[pointer];
      use.first_store = std::min(use.first_store, s);
      if (stage.domain == Stage::Domain::kRow || (stage.domain == Stage::Domain::kInner && reduces) ||
          stage.kind == Stage::Kind::kScatter)
        partly.push_back(pointer);
    }
    AddLoads(nest.body, nest.accesses, RootsOf(nest, stage), s, &uses);
  }
  for (int32_t pointer : partly) uses.erase(pointer);
  for (const ScalarNode& node : nest.body)  // read at other points than its own
    if (node.op == ScalarOp::kLoadAt) uses.erase(nest.accesses[static_cast<size_t>(node.index)].pointer);
  std::vector<SpecInt> extents = nest.outer;
  extents.insert(extents.end(), nest.reduce.begin(), nest.reduce.end());
  extents.push_back(nest.inner);
  return Pairs(nest.accesses, extents, uses);
}

// Results and operands of an epilogue; `others` are the pointers that the sums are made of.
std::vector<InPlaceOperand> EpiloguePairs(const std::vector<Access>& accesses, const ScalarProgram& program,
                                          const std::vector<Store>& stores, const std::vector<SpecInt>& extents,
                                          std::initializer_list<int32_t> others) {
  PointerUses uses;
  std::vector<int32_t> roots;
  for (const Store& store : stores) {
    roots.push_back(store.node);
    uses[accesses[static_cast<size_t>(store.access)].pointer].first_store = 0;
  }
  AddLoads(program, accesses, roots, 0, &uses);
  for (int32_t pointer : others) uses.erase(pointer);
  return Pairs(accesses, extents, uses);
}

std::vector<InPlaceOperand> PairsOf(const ContractionSpec& product) {
  std::vector<SpecInt> extents = product.batch;
  extents.insert(extents.end(), {product.m, product.n});
  return EpiloguePairs(product.accesses, product.epilogue, product.stores, extents,
                       {product.a.pointer, product.b.pointer, product.zeros});
}

std::vector<InPlaceOperand> PairsOf(const WindowSpec& window) {
  const WindowGeometry& g = window.geometry;
  return EpiloguePairs(window.accesses, window.epilogue, window.stores,
                       {window.images, g.out_height, g.out_width, window.channels},
                       {window.input.pointer, window.weights ? window.weights->pointer : -1});
}

// Steps over time read what earlier steps left; scores go through all keys of a query.
std::vector<InPlaceOperand> PairsOf(const RecurrentSpec&) {
  return {};
}
std::vector<InPlaceOperand> PairsOf(const AttentionSpec&) {
  return {};
}

}  // namespace

std::vector<InPlaceOperand> InPlaceOperands(const KernelSpec& spec) {
  return std::visit([](const auto& kernel) { return PairsOf(kernel); }, spec.kernel);
}

std::vector<InPlaceOperand> InPlaceAt(const KernelSpec& spec, std::span<const int64_t> dims, size_t first) {
  std::vector<InPlaceOperand> taken, pairs = InPlaceOperands(spec);
  if (!pairs.empty()) std::ranges::rotate(pairs, pairs.begin() + static_cast<std::ptrdiff_t>(first % pairs.size()));
  for (InPlaceOperand& pair : pairs) {
    const bool free = std::ranges::none_of(
        taken, [&](const InPlaceOperand& other) { return other.stored == pair.stored || other.loaded == pair.loaded; });
    const bool equal = std::ranges::all_of(pair.equal_arguments, [&](const auto& arguments) {
      return dims[static_cast<size_t>(arguments.first)] == dims[static_cast<size_t>(arguments.second)];
    });
    if (free && equal) taken.push_back(std::move(pair));
  }
  return taken;
}

}  // namespace kiln::ir
