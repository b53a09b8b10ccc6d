#include "vm-worker/load/prepare_program.h"

#include "vm-worker/load/passes.h"

namespace kiln {
namespace {

// Folding and inlining feed each other; models need one or two rounds.
constexpr int kRoundsMax = 8;

}  // namespace

Status PrepareProgram(Program& program) {
  for (int round = 0; round < kRoundsMax; ++round) {
    ASSIGN_OR_RETURN(const bool folded, FoldKnownNodes(program));
    ASSIGN_OR_RETURN(const bool inlined, InlineConstantIfs(program));
    ASSIGN_OR_RETURN(const bool bypassed, RemoveIdentities(program));
    if (!folded && !inlined && !bypassed) break;
  }
  RETURN_IF_ERROR(ConcatBlockScatters(program));
  RETURN_IF_ERROR(EliminateCommonNodes(program));
  RETURN_IF_ERROR(EliminateDeadNodes(program));
  RETURN_IF_ERROR(DropUnused(program));
  return {};
}

}  // namespace kiln
