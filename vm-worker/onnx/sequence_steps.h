// Steps over the tensors that hold a sequence.
#pragma once

#include <vector>

#include "vm-worker/onnx/chain.h"

namespace kiln::onnx {

inline constexpr int64_t kToTheEnd = INT64_MAX;

// perm that moves `axis` to the front, and back.
std::vector<int64_t> ToFront(int rank, int64_t axis);
std::vector<int64_t> FromFront(int rank, int64_t axis);

class SequenceSteps : public Chain {
 public:
  using Dim = kiln::Dim;
  explicit SequenceSteps(ProgramBuilder& b) : Chain(b), b_(b) {}

  ProgramBuilder& builder() { return b_; }
  ValueId Vector(std::vector<Dim> dims) { return Do(TensorOp::kShapeVector, {}, "dims", std::move(dims)); }
  ValueId Gather(ValueId value, ValueId index) { return Do(TensorOp::kGather, {value, index}, "axis", int64_t{0}); }
  // Rows of axis 0 from `start` up to `end`, both vectors of one entry.
  ValueId Rows(ValueId value, ValueId start, ValueId end) {
    return Do(TensorOp::kSlice, {value, start, end, Ints({0})});
  }
  ValueId Front(ValueId value, int64_t axis) {
    return axis == 0 || RankOf(value) <= axis ? value : Transpose(value, ToFront(RankOf(value), axis));
  }
  ValueId Back(ValueId value, int64_t axis) {
    return axis == 0 || RankOf(value) <= axis ? value : Transpose(value, FromFront(RankOf(value), axis));
  }
  // A position as i64[1].
  ValueId Position(ValueId value) { return Cast(Reshape(value, {1}), DType::kI64); }
  ValueId Scalar64(ValueId vector) { return Squeeze(vector, {0}); }
  // `position` counted from the front. Fails where it lies outside `length` entries.
  ValueId Checked(ValueId position, ValueId length) { return Gather(Count(length), position); }
  // A zero (i64[1]). Fails where the vector or tensor is empty along axis 0.
  ValueId ZeroIfAny(ValueId value) { return Checked(Ints({0}), ScalarDim(value, 0)); }
  // The value. Fails where `counted`, or else the value itself, is empty along axis 0.
  ValueId NotEmpty(ValueId value, ValueId counted = kNoValue);
  // Where each part of a row of parts begins.
  ValueId Offsets(ValueId sizes);
  // i64[1]
  ValueId Total(ValueId sizes) { return Reduce(TensorOp::kReduceSum, sizes, {0}, true); }
  // What a step makes has a rank, unless the step fails where it runs: then nothing that follows is reached.
  int RankOf(ValueId value) const { return static_cast<int>(DimsOf(value).size()); }
  std::vector<Dim> DimsOf(ValueId value) const {
    return value == kNoValue ? std::vector<Dim>() : b_.Desc(value).dims.value_or(std::vector<Dim>());
  }
  Result<ValueId> Finish(ValueId value);
  ValueId DimVector(ValueId value, int64_t axis) { return Chain::Dim(value, axis); }

 private:
  ProgramBuilder& b_;
};

}  // namespace kiln::onnx
