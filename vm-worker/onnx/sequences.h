// Sequences of tensors while a model is imported: lists of values of known length, behind handles that stand where a
// ValueId stands. Handles never reach a Program.
#pragma once

#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {

class GraphProto;

// Whether a rewrite accepts handles among its inputs; all others see tensors only.
bool TakesSequences(Rewrite rewrite);

// A Loop among whose states are sequences. Unsupported where trip count or conditions are not known at load.
Result<ValueList> UnrolledLoop(NodeContext& node, GraphProto& body);

}  // namespace kiln::onnx
