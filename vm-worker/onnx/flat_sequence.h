// The flat form of a run-time sequence (run_time_sequence.h): how others come to it, and it to others.
#pragma once

#include "vm-worker/onnx/sequence_steps.h"

namespace kiln::onnx {

// Data, numbers of elements and shapes of tensors of one rank.
ValueList FlatOfElements(SequenceSteps& steps, const ValueList& elements);
// Of a sequence that is stacked or joined.
ValueList FlatOf(SequenceSteps& steps, const RunTimeSequence& held);
// A flat sequence whose elements turn out to differ along `axis` only, as its data would be if they were joined along
// it; and one whose elements turn out to have one shape, as if stacked. Both fail where that is not so, and where there
// are no elements.
ValueId JoinedOfFlat(SequenceSteps& steps, const RunTimeSequence& held, int64_t axis);
ValueId StackedOfFlat(SequenceSteps& steps, const RunTimeSequence& held);

}  // namespace kiln::onnx
