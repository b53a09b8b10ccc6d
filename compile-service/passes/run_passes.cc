#include "compile-service/passes/passes.h"

namespace kiln::passes {
namespace {

struct Pass {
  const char* name;
  Result<bool> (*run)(ir::Graph&);
  bool in_strict;
};

constexpr Pass kPasses[] = {
    {"fold known", FoldKnown, true},
    {"remove dead", RemoveDead, true},
    {"widen halves", WidenHalves, true},
    {"flip transposed", FlipTransposed, true},
    {"decompose rows", DecomposeRows, true},
    {"decompose", Decompose, true},
    {"pools", Pools, true},
    {"separate resizes", SeparateResizes, true},
    {"repeated pads", RepeatedPads, true},
    {"same pads", SamePads, true},
    {"transposed convolutions", TransposedConvolutions, true},
    {"stuffed transposes", StuffedTransposes, true},
    {"remove identities", RemoveIdentities, true},
    {"share common", ShareCommon, true},
    {"sink reshapes", SinkReshapes, true},
    {"cheapen divisions", CheapenDivisions, false},
    {"fold affine", FoldAffine, false},
    {"split depth", SplitDepth, true},
    {"share common", ShareCommon, true},
    {"remove dead", RemoveDead, true},
};

}  // namespace

Status RunPasses(ir::Graph& graph, NumericMode mode) {
  for (const Pass& pass : kPasses) {
    if (mode == NumericMode::kStrict && !pass.in_strict) continue;
    if (Result<bool> changed = pass.run(graph); !changed) return FailIn(pass.name, changed.error());
    if (Status status = ir::VerifyGraph(graph); !status)
      return FailIn(std::string("after ") + pass.name, status.error());
  }
  return {};
}

}  // namespace kiln::passes
