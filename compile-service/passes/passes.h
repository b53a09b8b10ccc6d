// Graph passes: each `Result<bool> Name(Graph&)`, true when something changed; one file per pass. RunPasses is the
// list.
#pragma once

#include "common/artifact/plan.h"
#include "common/base/result.h"
#include "compile-service/ir/graph.h"

namespace kiln::passes {

// Values whose integer contents are known constants become immediates.
Result<bool> FoldKnown(ir::Graph& graph);
// Identity, casts to the same dtype, multiplication by one, reshapes to the same dims.
Result<bool> RemoveIdentities(ir::Graph& graph);
// Transposed convolutions of stride 1 become convolutions.
Result<bool> FlipTransposed(ir::Graph& graph);
// Rewrites Softmax, normalisations and composed reductions into reductions and element-wise ops.
Result<bool> DecomposeRows(ir::Graph& graph);
// Rewrites other composite ops into views, element-wise ops and contractions (Gemm, Split, Tile…).
Result<bool> Decompose(ir::Graph& graph);
// Pooling over three dims, of powers, or whose averages count pads but not all of a window, in terms of other pooling.
Result<bool> Pools(ir::Graph& graph);
// Resize as one node per axis that it changes.
Result<bool> SeparateResizes(ir::Graph& graph);
// Pads in mode reflect, edge and wrap as concatenations of views.
Result<bool> RepeatedPads(ir::Graph& graph);
// Padding "SAME" whose part in front depends on sizes as concatenations around the image.
Result<bool> SamePads(ir::Graph& graph);
// ConvTranspose as a convolution that makes the outputs of all phases of its stride, moved apart by views.
Result<bool> TransposedConvolutions(ir::Graph& graph);
// The other forms of ConvTranspose as convolutions over x with zeros between its elements.
Result<bool> StuffedTransposes(ir::Graph& graph);
// Convolutions over three dims as sums of convolutions over two.
Result<bool> SplitDepth(ir::Graph& graph);
// Element-wise work on a reshaped tensor moves in front of the reshape, to where the tensor is made.
Result<bool> SinkReshapes(ir::Graph& graph);
// Division by something smaller than the result becomes a multiplication by its reciprocal (not in strict mode).
Result<bool> CheapenDivisions(ir::Graph& graph);
// Scales and shifts by weights after a convolution or product move into its weights and bias (not in strict mode).
Result<bool> FoldAffine(ir::Graph& graph);
// Arithmetic on f16 and bf16 becomes f32 arithmetic between casts.
Result<bool> WidenHalves(ir::Graph& graph);
// Equal nodes and equal scalars once.
Result<bool> ShareCommon(ir::Graph& graph);
// Nodes nobody reads.
Result<bool> RemoveDead(ir::Graph& graph);

// The list, in order, with the verifier after every pass.
Status RunPasses(ir::Graph& graph, NumericMode mode);

}  // namespace kiln::passes
