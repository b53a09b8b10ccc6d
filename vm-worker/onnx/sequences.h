// Sequences of tensors while a model is imported: lists of values, or what run_time_sequence.h says, behind handles
// that stand where a ValueId stands. Handles never reach a Program.
#pragma once

#include <optional>

#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {

class GraphProto;

// Whether a rewrite accepts handles among its inputs; all others see tensors only.
bool TakesSequences(Rewrite rewrite);

// A Loop among whose states are sequences, as copies of its body; nullopt where trip count or conditions are not known
// at load, or the copies would be too many. Then what it emitted is to be dropped.
Result<std::optional<ValueList>> UnrolledLoop(NodeContext& node, GraphProto& body);

// --- sequence_loop.cc ---
// The same as one Loop, whose states are the tensors that hold the sequences.
Result<ValueList> LoopOverSequences(NodeContext& node, GraphProto& body);
// SequenceMap over a sequence whose length only running tells.
Result<ValueList> MappedAtRunTime(NodeContext& node, GraphProto& body);

}  // namespace kiln::onnx
