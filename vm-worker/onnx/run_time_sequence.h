// Sequences whose length only running tells, as tensors of a Program. A sequence has one of three forms:
//
// - stacked: all elements have the same dims as far as import can tell. `data` is [length, dims…]. SequenceInsert is a
//   Concat, SequenceAt a Gather, ConcatFromSequence a Transpose and a Reshape, SplitToSequence of single rows a view.
// - joined: elements differ along one axis, the open one. `data` is their concatenation along it, with that axis moved
//   to the front, and `sizes` is i64[length], the elements' sizes along it. SequenceAt is a Slice; ConcatFromSequence
//   along the open axis is the data itself; stacking is a Gather after a check that all sizes are equal.
// - flat: elements share but their rank. `data` is all their elements, one after another, `sizes` how many each has,
// and
//   `shapes` is i64[length, rank]. SequenceAt is a Slice and a Reshape; ConcatFromSequence a Reshape, for another axis
//   than the first after a Gather that brings the elements into the order of the result.
//
// A dim counts as the same where its expression is the same and means something outside the loop or branch that makes
// the element. A form follows from the elements that are inserted: that of an empty sequence is open until one is (no
// tensors hold it), and two forms are joined into the least one that holds both. A loop's body is imported until the
// forms of its states hold from trip to trip (sequence_loop.cc), as it is for the shapes of tensors.
//
// What no form holds is refused when the model is loaded: elements of unknown or different rank. Sequences known
// element by element (sequences.cc) have no such limits.
//
// Errors of a run are those of the ops that follow, which name the node and the values: a position outside a sequence
// is an index outside an axis, the first element of an empty sequence is index 0 of an axis of size 0, sizes that do
// not fit are a Reshape that does not, or, of a flat sequence, a Concat that does not.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "vm-worker/onnx/program_builder.h"

namespace kiln::onnx {

// --- forms ---
// The least form of a sequence, seen from where symbols from `outer_symbols` on mean nothing.
Result<SequenceForm> FormOf(const ProgramBuilder& b, const ImportedSequence& sequence, size_t outer_symbols = SIZE_MAX);
Result<SequenceForm> Join(const SequenceForm& a, const SequenceForm& b);
// A form that outlives ProgramBuilder::Restore: it names dims as code. Precondition of Of: its symbols outlive it too.
class KeptForm {
 public:
  KeptForm(const SymbolTable& symbols, const SequenceForm& form);
  Result<SequenceForm> Of(SymbolTable& symbols) const;

 private:
  SequenceForm form_;
  std::vector<std::vector<int64_t>> codes_;
};

// --- parts: the tensors that hold a sequence in a form, data, sizes and shapes; none where no element was seen ---
std::vector<TensorDesc> PartDescs(SymbolTable& symbols, const SequenceForm& form);
// Emits what brings a sequence into a form that holds it.
Result<ValueList> PartsIn(ProgramBuilder& b, const ImportedSequence& sequence, const SequenceForm& form);
// A handle.
ValueId FromParts(ProgramBuilder& b, const SequenceForm& form, std::span<const ValueId> parts);

// --- operators. Sequences may also be known element by element; results are handles. `position` is a tensor ---
Result<ValueId> RunTimeAt(ProgramBuilder& b, const ImportedSequence& sequence, ValueId position);
// At the end where `position` is kNoValue.
Result<ValueId> RunTimeInsert(ProgramBuilder& b, const ImportedSequence& sequence, ValueId value, ValueId position);
// The last element where `position` is kNoValue.
Result<ValueId> RunTimeErase(ProgramBuilder& b, const ImportedSequence& sequence, ValueId position);
// A scalar. Precondition: sequence.run_time, as for the next one.
Result<ValueId> RunTimeLength(ProgramBuilder& b, const ImportedSequence& sequence);
Result<ValueId> RunTimeConcat(ProgramBuilder& b, const ImportedSequence& sequence, int64_t axis, bool new_axis);
// Pieces of `value` along `axis`: single rows where `split` is kNoValue (without the axis unless `keepdims`), pieces of
// one size where it is a scalar, else one piece per entry.
Result<ValueId> RunTimeSplit(ProgramBuilder& b, ValueId value, int64_t axis, ValueId split, bool keepdims);

}  // namespace kiln::onnx
