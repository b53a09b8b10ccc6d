#include "compile-service/ir/nest_stages.h"

#include <string>

#include "compile-service/ir/scalar_check.h"

namespace kiln::ir {
namespace {

// Its own LoadAt alone touches the memory that a scatter stores to.
Status CheckScatter(const LoopNestSpec& nest, size_t at) {
  const Stage& stage = nest.stages[at];
  if (stage.stores.size() != 1) return InvalidSpec("a scatter has one store");
  const ScalarNode& place = nest.body[static_cast<size_t>(stage.node)];
  if (place.op != ScalarOp::kLoadAt || place.index != stage.stores.front().access)
    return InvalidSpec("the place of a scatter is a LoadAt of the access that it stores to");
  const int32_t stored = nest.accesses[static_cast<size_t>(place.index)].pointer;
  for (const ScalarNode& node : nest.body)  // other LoadAt nodes read no memory that is stored to
    if (node.op == ScalarOp::kLoad && nest.accesses[static_cast<size_t>(node.index)].pointer == stored)
      return InvalidSpec("loads what stage " + std::to_string(at) + " scatters to");
  for (size_t other = 0; other < nest.stages.size(); ++other) {
    if (other == at) continue;
    for (const Store& store : nest.stages[other].stores)
      if (store.access >= 0 && static_cast<size_t>(store.access) < nest.accesses.size() &&
          nest.accesses[static_cast<size_t>(store.access)].pointer == stored)
        return InvalidSpec("two stages store to what one scatters to");
  }
  return {};
}

Status CheckOrdered(const LoopNestSpec& nest, size_t at) {
  const Stage& stage = nest.stages[at];
  if (nest.reduce_inner) return InvalidSpec("positions of an inner dim that is reduced have no order");
  if (stage.domain != Stage::Domain::kFull) return InvalidSpec("a scatter or scan stores over the full domain");
  if (stage.node < 0 || static_cast<size_t>(stage.node) >= nest.body.size())
    return InvalidSpec("names node " + std::to_string(stage.node));
  if (stage.combine < Combine::kSum || stage.combine > Combine::kProduct) return InvalidSpec("unknown way to combine");
  if (stage.kind == Stage::Kind::kScatter) return CheckScatter(nest, at);
  if (nest.body[static_cast<size_t>(stage.node)].type == DType::kBool) return InvalidSpec("cannot scan a bool");
  return {};
}

// Results must be a scan's own, or come from reductions before the stage.
Status CheckReads(const LoopNestSpec& nest, size_t at) {
  const std::vector<bool> reached = ReachableNodes(nest.body, RootsOf(nest, nest.stages[at]));
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const ScalarNode& node = nest.body[i];
    if (!reached[i]) continue;
    if (node.op == ScalarOp::kStageResult) {
      const auto from = static_cast<size_t>(node.index);
      const bool scan = nest.stages[from].kind == Stage::Kind::kScan;
      if (scan ? from != at : from >= at)
        return InvalidSpec("reads the result of stage " + std::to_string(node.index) + ", which it may not");
    }
    if (node.op != ScalarOp::kLoadAt) continue;
    for (size_t other = 0; other < nest.stages.size(); ++other)
      if (other != at && nest.stages[other].kind == Stage::Kind::kScatter &&
          nest.stages[other].node == static_cast<int32_t>(i))
        return InvalidSpec("reads what stage " + std::to_string(other) + " scatters to");
  }
  return {};
}

}  // namespace

std::vector<int32_t> RootsOf(const LoopNestSpec& nest, const Stage& stage) {
  std::vector<int32_t> roots;
  for (const Store& store : stage.stores) roots.push_back(store.node);
  switch (stage.kind) {
    case Stage::Kind::kStore:
      break;
    case Stage::Kind::kScatter:
      roots.push_back(nest.body[static_cast<size_t>(stage.node)].a);
      break;
    case Stage::Kind::kReduce:
    case Stage::Kind::kScan:
      roots.push_back(stage.node);
      break;
  }
  return roots;
}

std::vector<bool> ReachableNodes(const ScalarProgram& program, std::span<const int32_t> roots) {
  std::vector<bool> reachable(program.size(), false);
  for (int32_t root : roots) reachable[static_cast<size_t>(root)] = true;
  for (size_t i = program.size(); i-- > 0;) {
    if (!reachable[i]) continue;
    for (int32_t operand : {program[i].a, program[i].b, program[i].c})
      if (operand >= 0) reachable[static_cast<size_t>(operand)] = true;
  }
  return reachable;
}

Status CheckNestStage(const LoopNestSpec& nest, size_t at) {
  const Stage& stage = nest.stages[at];
  if (stage.kind == Stage::Kind::kScatter || stage.kind == Stage::Kind::kScan) RETURN_IF_ERROR(CheckOrdered(nest, at));
  return CheckReads(nest, at);
}

}  // namespace kiln::ir
