// What every run of a program asks of the sizes of its inputs: what the rules of nodes that no run passes by need, over
// symbols that inputs show. It follows from the program, so it is no part of any form of it, nor of its segments: it is
// found where a program is loaded, and checked where a run enters.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/bytecode/symbol_definitions.h"

namespace kiln {

struct EntryRequirement {
  Constraint constraint;
  std::string node;  // that asks for it: "MatMul "fc""
};

struct EntryRequirements {
  SymbolTable symbols;  // the program's, under the same ids; it holds the constraints of `rows` too
  std::vector<EntryRequirement> rows;
};

// Who says what a symbol may be, for messages: "--dim k=1..3"; "" where nobody does.
using RangeSource = std::function<std::string(const std::string& symbol)>;

// Nodes of the entry's body count whose outputs lead to its outputs; what lies in branches and loops does not. Fails
// where no call can succeed: with what the rule of a node says, or with ShapeMismatch where no sizes within the
// symbols' ranges satisfy what is asked for; names node, constraint, and per symbol input, dim and range. Precondition:
// the program verifies.
Result<EntryRequirements> FindEntryRequirements(const Program& program, const SymbolDefinitions& definitions,
                                                const RangeSource& source = {});

// Whether they hold; `frame` has the values of symbols that inputs show. The error names the constraint, the node, and
// per symbol value, input and dim. Makes no allocation where they hold.
Status CheckEntryRequirements(const Program& program, const EntryRequirements& requirements,
                              std::span<const int64_t> frame);

// "n is 4, dim 0 of input "x"; m is 3" for every symbol of the constraint. `symbols` has the ids of the program's.
std::string ValuesText(const Program& program, const SymbolTable& symbols, const Constraint& constraint,
                       std::span<const int64_t> frame);

}  // namespace kiln
