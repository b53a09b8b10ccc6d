// Nodes whose shape rule fails for every size that is known to be possible: what still holds of them, and why they
// fail.
#pragma once

#include <optional>
#include <vector>

#include "vm-worker/load/value_facts.h"

namespace kiln {

// What is said of the outputs of a node whose rule failed with `why`: dtypes, and ranks where inputs of the same ranks
// with other sizes give them; every dim is a fresh symbol, and no contents are known. The node fails where it runs,
// before anyone reads an output. nullopt: the rule fails whatever the sizes and contents are (and, where shapes do not
// fit, whatever the ranks are): the node does not follow its operator.
std::optional<NodeFacts> FactsOfFailingNode(Program& program, const Function& function, const Node& node,
                                            const ValueFacts& facts, const Error& why);

// Symbols, of those in the inputs' dims and contents, whose range and divisor have a part in the failure: without them
// the rule would not fail, or not with `why`. Ascending.
std::vector<SymbolId> SymbolsAtFault(const Program& program, const Function& function, const Node& node,
                                     const ValueFacts& facts, const Error& why);

}  // namespace kiln
