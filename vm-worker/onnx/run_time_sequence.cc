#include "vm-worker/onnx/run_time_sequence.h"

#include <algorithm>

#include "vm-worker/onnx/flat_sequence.h"
#include "vm-worker/onnx/loop_state.h"

namespace kiln::onnx {
namespace {

std::unexpected<Error> Unsupported(const std::string& what) {
  return Fail(ErrorCode::kUnsupported, what + "; a sequence whose length only running tells holds tensors of one rank");
}

using Steps = SequenceSteps;

Status RequireRanks(const ProgramBuilder& b, const ImportedSequence& sequence) {
  for (ValueId element : sequence.elements) {
    if (!b.Desc(element).has_rank()) return Unsupported("an element's rank is not known when the model is loaded");
    if (b.Desc(element).rank() >= limits::kRankMax) return Unsupported("an element has too high a rank");
  }
  return {};
}

// The dims of `data` behind its leading one.
std::vector<Dim> RestOf(const SequenceForm& form) {
  std::vector<Dim> rest = form.element;
  if (form.is_joined()) rest.erase(rest.begin() + form.open);
  return rest;
}

// What holds elements of which the rank alone is the same.
SequenceForm Flat(SequenceForm form) {
  form.element.assign(form.element.size(), Dim::Const(0));
  form.open = -1;
  form.flat = true;
  return form;
}

ValueList EmptyParts(ProgramBuilder& b, Steps& steps, const SequenceForm& form) {
  if (form.flat) {
    const Dims none{0}, no_shapes{0, static_cast<int64_t>(form.element.size())};
    return {b.EmitConstant(Tensor::Allocate(form.dtype, none)), steps.Ints({}),
            b.EmitConstant(Tensor::Allocate(DType::kI64, no_shapes))};
  }
  std::vector<Dim> dims = RestOf(form);
  dims.insert(dims.begin(), Dim::Const(0));
  ValueList parts = {steps.Do(TensorOp::kExpand, {b.EmitScalar(0, form.dtype), steps.Vector(std::move(dims))})};
  if (form.is_joined()) parts.push_back(steps.Ints({}));
  return parts;
}

ValueList PartsOfElements(Steps& steps, const ValueList& elements, const SequenceForm& form) {
  if (form.flat) return FlatOfElements(steps, elements);
  ValueList data, sizes;
  for (ValueId element : elements) {
    data.push_back(form.is_joined() ? steps.Front(element, form.open) : steps.Unsqueeze(element, {0}));
    if (form.is_joined()) sizes.push_back(steps.DimVector(element, form.open));
  }
  ValueList parts = {data.size() == 1 ? data[0] : steps.Concat(std::move(data), 0)};
  if (form.is_joined()) parts.push_back(sizes.size() == 1 ? sizes[0] : steps.Concat(std::move(sizes), 0));
  return parts;
}

// A stacked sequence in a joined form.
ValueList JoinedOfStacked(ProgramBuilder& b, Steps& steps, const RunTimeSequence& sequence, const SequenceForm& form) {
  const std::vector<Dim> dims = steps.DimsOf(sequence.data);  // length, dims
  const Dim size = dims[static_cast<size_t>(form.open) + 1];
  std::vector<int64_t> perm = {0};
  for (int64_t d : ToFront(static_cast<int>(dims.size()) - 1, form.open)) perm.push_back(d + 1);
  std::vector<Dim> joined = {b.symbols().Mul(dims[0], size)};
  for (size_t d = 1; d < dims.size(); ++d) {
    if (static_cast<int>(d) - 1 != form.open) joined.push_back(dims[d]);
  }
  const ValueId data = steps.ReshapeTo(steps.Transpose(sequence.data, perm), steps.Vector(joined));
  return {data, steps.Do(TensorOp::kExpand, {steps.Vector({size}), steps.Vector({dims[0]})})};
}

}  // namespace

Result<SequenceForm> FormOf(const ProgramBuilder& b, const ImportedSequence& sequence, size_t outer_symbols) {
  const SymbolTable& symbols = b.symbols();
  const auto seen = [&](SequenceForm form) -> Result<SequenceForm> {
    for (size_t d = 0; !form.flat && d < form.element.size(); ++d) {
      if (static_cast<int>(d) == form.open || VisibleOutside(symbols, form.element[d], outer_symbols)) continue;
      if (form.is_joined()) return Flat(form);
      form.open = static_cast<int>(d);
      form.element[d] = Dim::Const(0);
    }
    return form;
  };
  if (sequence.run_time) return seen(sequence.run_time->form);
  RETURN_IF_ERROR(RequireRanks(b, sequence));
  SequenceForm form{.dtype = sequence.dtype};
  for (ValueId element : sequence.elements) {
    ASSIGN_OR_RETURN(const SequenceForm one,
                     seen({.dtype = sequence.dtype, .seen = true, .element = *b.Desc(element).dims}));
    ASSIGN_OR_RETURN(form, Join(form, one));
  }
  return form;
}

Result<SequenceForm> Join(const SequenceForm& a, const SequenceForm& b) {
  if (a.dtype != b.dtype) {
    return Fail(ErrorCode::kShapeMismatch, "a sequence of " + std::string(DTypeName(a.dtype)) +
                                               " is given tensors of " + std::string(DTypeName(b.dtype)));
  }
  if (!a.seen) return b;
  if (!b.seen) return a;
  if (a.element.size() != b.element.size()) {
    return Unsupported("elements have ranks " + std::to_string(a.element.size()) + " and " +
                       std::to_string(b.element.size()));
  }
  if (a.flat || b.flat) return Flat(a);
  SequenceForm joined = a;
  for (size_t d = 0; d < a.element.size(); ++d) {
    const int axis = static_cast<int>(d);
    if (axis != a.open && axis != b.open && a.element[d] == b.element[d]) continue;
    if (joined.is_joined() && joined.open != axis) return Flat(a);
    joined.open = axis;
    joined.element[d] = Dim::Const(0);
  }
  return joined;
}

KeptForm::KeptForm(const SymbolTable& symbols, const SequenceForm& form) : form_(form) {
  for (Dim dim : form.element) codes_.push_back(symbols.Encode(dim));
}

Result<SequenceForm> KeptForm::Of(SymbolTable& symbols) const {
  SequenceForm form = form_;
  for (size_t d = 0; d < codes_.size(); ++d) {
    ASSIGN_OR_RETURN(form.element[d], symbols.Decode(codes_[d]));
  }
  return form;
}

std::vector<TensorDesc> PartDescs(SymbolTable& symbols, const SequenceForm& form) {
  if (!form.seen) return {};
  if (form.flat) {
    const Dim length = symbols.FreshSymbol(), rank = Dim::Const(static_cast<int64_t>(form.element.size()));
    return {{.dtype = form.dtype, .dims = std::vector<Dim>{symbols.FreshSymbol()}},
            {.dtype = DType::kI64, .dims = std::vector<Dim>{length}},
            {.dtype = DType::kI64, .dims = std::vector<Dim>{length, rank}}};
  }
  TensorDesc data{.dtype = form.dtype, .dims = RestOf(form)};
  data.dims->insert(data.dims->begin(), symbols.FreshSymbol());
  std::vector<TensorDesc> descs = {std::move(data)};
  if (form.is_joined()) descs.push_back({.dtype = DType::kI64, .dims = std::vector<Dim>{symbols.FreshSymbol()}});
  return descs;
}

Result<ValueList> PartsIn(ProgramBuilder& b, const ImportedSequence& sequence, const SequenceForm& form) {
  if (!form.seen) return ValueList{};
  Steps steps(b);
  if (!sequence.run_time) {
    return steps.Done(sequence.elements.empty() ? EmptyParts(b, steps, form)
                                                : PartsOfElements(steps, sequence.elements, form));
  }
  const RunTimeSequence& held = *sequence.run_time;
  if (held.form.flat) return ValueList{held.data, held.sizes, held.shapes};
  if (form.flat) return steps.Done(FlatOf(steps, held));
  if (held.form.open == form.open) {
    return form.is_joined() ? ValueList{held.data, held.sizes} : ValueList{held.data};
  }
  return steps.Done(JoinedOfStacked(b, steps, held, form));
}

namespace {

RunTimeSequence HeldBy(const SequenceForm& form, std::span<const ValueId> parts) {
  return {form, parts[0], form.has_sizes() ? parts[1] : kNoValue, form.flat ? parts[2] : kNoValue};
}

}  // namespace

ValueId FromParts(ProgramBuilder& b, const SequenceForm& form, std::span<const ValueId> parts) {
  ImportedSequence sequence{.elements = {}, .dtype = form.dtype};
  if (form.seen) sequence.run_time = HeldBy(form, parts);
  return b.AddSequence(std::move(sequence));
}

namespace {

// A sequence as it is held, or how it would be.
Result<RunTimeSequence> Held(ProgramBuilder& b, const ImportedSequence& sequence) {
  if (sequence.run_time) return *sequence.run_time;
  if (sequence.elements.empty()) return Fail(ErrorCode::kOutOfRange, "the sequence is empty");
  ASSIGN_OR_RETURN(const SequenceForm form, FormOf(b, sequence));
  ASSIGN_OR_RETURN(const ValueList parts, PartsIn(b, sequence, form));
  return HeldBy(form, parts);
}

ValueId LengthOf(Steps& steps, const RunTimeSequence& held) {
  return steps.ScalarDim(held.form.has_sizes() ? held.sizes : held.data, 0);
}

Result<ValueId> Handle(ProgramBuilder& b, Steps& steps, const SequenceForm& form, ValueList parts) {
  ASSIGN_OR_RETURN(parts, steps.Done(std::move(parts)));
  return FromParts(b, form, parts);
}

// A joined sequence whose elements turn out to have one size, stacked. Fails where they do not.
RunTimeSequence Stacked(Steps& steps, const RunTimeSequence& held) {
  const ValueId sizes = steps.NotEmpty(held.sizes);
  const ValueId most = steps.Reduce(TensorOp::kReduceMax, sizes, {0}, true);
  const ValueId shape = steps.Concat({steps.DimVector(sizes, 0), most}, 0);
  const ValueId rows = steps.ReshapeTo(steps.Count(steps.ScalarDim(held.data, 0)), shape);
  const ValueId stacked = steps.Gather(held.data, rows);  // length, size, the others
  std::vector<int64_t> perm = {0};
  if (stacked != kNoValue) {
    for (int64_t d : FromFront(steps.RankOf(stacked) - 1, held.form.open)) perm.push_back(d + 1);
  }
  return {.form = held.form, .data = steps.Transpose(stacked, perm)};
}

// Where the element in front of which a new one comes begins, of a position that was checked against length + 1.
ValueId StartOf(Steps& steps, const RunTimeSequence& held, ValueId position) {
  if (!held.form.has_sizes()) return position;
  return steps.Gather(steps.Concat({steps.Offsets(held.sizes), steps.Total(held.sizes)}, 0), position);
}

// A position of SequenceInsert, counted from the front: 0 to length. Fails outside -length to length.
ValueId InsertPosition(Steps& steps, ValueId position, ValueId length) {
  const ValueId zero = steps.Ints({0}), one = steps.Ints({1});
  const ValueId lowest = steps.Sub(zero, length);
  // Entries of 0 to length, so that a Gather knows one more negative position than there is: it is moved past it.
  const ValueId from_front =
      steps.Where(steps.Do(TensorOp::kLess, {position, zero}), steps.Add(position, length), position);
  const ValueId entry =
      steps.Where(steps.Do(TensorOp::kLess, {position, lowest}), steps.Sub(position, one), from_front);
  return steps.Checked(entry, steps.Squeeze(steps.Add(length, one), {0}));
}

}  // namespace

Result<ValueId> RunTimeAt(ProgramBuilder& b, const ImportedSequence& sequence, ValueId position) {
  ASSIGN_OR_RETURN(const RunTimeSequence held, Held(b, sequence));
  Steps steps(b);
  const ValueId at = steps.Position(position);
  if (!held.form.has_sizes()) return steps.Finish(steps.Gather(held.data, steps.Scalar64(at)));
  const ValueId start = steps.Gather(steps.Offsets(held.sizes), at);
  const ValueId end = steps.Add(start, steps.Gather(held.sizes, at));
  const ValueId rows = steps.Rows(held.data, start, end);
  if (!held.form.flat) return steps.Finish(steps.Back(rows, held.form.open));
  const ValueId shape = steps.Squeeze(steps.Gather(held.shapes, at), {0});
  return steps.Finish(steps.ReshapeTo(rows, shape));
}

Result<ValueId> RunTimeInsert(ProgramBuilder& b, const ImportedSequence& sequence, ValueId value, ValueId position) {
  const ImportedSequence added{.elements = {value}, .dtype = b.Desc(value).dtype};
  ASSIGN_OR_RETURN(const SequenceForm before, FormOf(b, sequence));
  ASSIGN_OR_RETURN(const SequenceForm one, FormOf(b, added));
  ASSIGN_OR_RETURN(const SequenceForm form, Join(before, one));
  ASSIGN_OR_RETURN(const ValueList old_parts, PartsIn(b, sequence, form));
  ASSIGN_OR_RETURN(const ValueList new_parts, PartsIn(b, added, form));
  Steps steps(b);
  ValueList parts;
  if (position == kNoValue) {
    for (size_t i = 0; i < old_parts.size(); ++i) parts.push_back(steps.Concat({old_parts[i], new_parts[i]}, 0));
    return Handle(b, steps, form, std::move(parts));
  }
  if (const auto known = b.KnownInts(position); known && *known == std::vector<int64_t>{0}) {
    for (size_t i = 0; i < old_parts.size(); ++i) parts.push_back(steps.Concat({new_parts[i], old_parts[i]}, 0));
    return Handle(b, steps, form, std::move(parts));
  }
  const RunTimeSequence held = HeldBy(form, old_parts);
  const ValueId at = InsertPosition(steps, steps.Position(position), steps.Unsqueeze(LengthOf(steps, held), {0}));
  for (size_t i = 0; i < old_parts.size(); ++i) {
    const ValueId start = i == 0 ? StartOf(steps, held, at) : at;
    parts.push_back(steps.Concat({steps.Rows(old_parts[i], steps.Ints({0}), start), new_parts[i],
                                  steps.Rows(old_parts[i], start, steps.Ints({kToTheEnd}))},
                                 0));
  }
  return Handle(b, steps, form, std::move(parts));
}

Result<ValueId> RunTimeErase(ProgramBuilder& b, const ImportedSequence& sequence, ValueId position) {
  ASSIGN_OR_RETURN(const RunTimeSequence held, Held(b, sequence));
  Steps steps(b);
  const ValueId wanted = position == kNoValue ? steps.Ints({-1}) : steps.Position(position);
  const ValueId at = steps.Checked(wanted, LengthOf(steps, held));
  const auto without = [&](ValueId part, ValueId start, ValueId end) {
    return steps.Concat({steps.Rows(part, steps.Ints({0}), start), steps.Rows(part, end, steps.Ints({kToTheEnd}))}, 0);
  };
  const ValueId next = steps.Add(at, steps.Ints({1}));
  if (!held.form.has_sizes()) return Handle(b, steps, held.form, {without(held.data, at, next)});
  const ValueId start = steps.Gather(steps.Offsets(held.sizes), at);
  const ValueId end = steps.Add(start, steps.Gather(held.sizes, at));
  ValueList parts = {without(held.data, start, end), without(held.sizes, at, next)};
  if (held.form.flat) parts.push_back(without(held.shapes, at, next));
  return Handle(b, steps, held.form, std::move(parts));
}

Result<ValueId> RunTimeLength(ProgramBuilder& b, const ImportedSequence& sequence) {
  Steps steps(b);
  return steps.Finish(LengthOf(steps, *sequence.run_time));
}

Result<ValueId> RunTimeConcat(ProgramBuilder& b, const ImportedSequence& sequence, int64_t axis, bool new_axis) {
  const RunTimeSequence& held = *sequence.run_time;
  const int rank = static_cast<int>(held.form.element.size());
  const int axes = new_axis ? rank + 1 : rank;
  if (axis < -axes || axis >= axes) {
    return Fail(ErrorCode::kShapeMismatch, "axis " + std::to_string(axis) + " is outside rank " + std::to_string(axes));
  }
  if (axis < 0) axis += axes;
  Steps steps(b);
  if (held.form.flat) {
    const ValueId whole = new_axis ? StackedOfFlat(steps, held) : JoinedOfFlat(steps, held, axis);
    return steps.Finish(steps.Back(whole, axis));
  }
  if (held.form.is_joined() && !new_axis && axis == held.form.open) {
    // Empty elements are no error, no element is.
    return steps.Finish(steps.Back(steps.NotEmpty(held.data, held.sizes), axis));
  }
  const ValueId data = held.form.is_joined() ? Stacked(steps, held).data : steps.NotEmpty(held.data);
  const ValueId placed = steps.Back(data, axis);
  if (new_axis) return steps.Finish(placed);
  std::vector<Dim> dims = steps.DimsOf(placed);
  if (dims.empty()) return steps.Finish(placed);
  const auto merged = dims.begin() + axis;
  *merged = b.symbols().Mul(*merged, *(merged + 1));
  dims.erase(merged + 1);
  return steps.Finish(steps.ReshapeTo(placed, steps.Vector(std::move(dims))));
}

namespace {

// Sizes of the pieces of one size, the last one being what is left.
ValueId EvenSizes(Steps& steps, ValueId whole, ValueId split) {
  const ValueId zero = steps.Ints({0}), one = steps.Ints({1});
  // A size below 1 is an index into nothing.
  const ValueId none_or_one = steps.Do(TensorOp::kMin, {steps.Do(TensorOp::kMax, {split, zero}), one});
  const ValueId index = steps.Do(TensorOp::kMin, {split, zero});
  const ValueId given = steps.Add(split, steps.Checked(index, steps.Scalar64(none_or_one)));
  const ValueId size = steps.Do(TensorOp::kMin, {given, steps.Do(TensorOp::kMax, {whole, one})});
  const ValueId count = steps.Div(steps.Add(whole, steps.Sub(size, one)), size);
  const ValueId starts = steps.Mul(steps.Count(steps.Scalar64(count)), size);
  return steps.Do(TensorOp::kMin, {steps.Sub(whole, starts), size});
}

// `rows` where the sizes are not negative and add up to its first dim: a Reshape of as many numbers that does not fit
// fails.
ValueId Covered(Steps& steps, ValueId rows, ValueId sizes) {
  // Sizes that cannot be right are cut, so that no sum overflows.
  const ValueId too_large = steps.Add(steps.DimVector(rows, 0), steps.Ints({1}));
  const ValueId small = steps.Do(TensorOp::kMax, {steps.Do(TensorOp::kMin, {sizes, too_large}), steps.Ints({-1})});
  ValueId numbers = steps.Count(steps.ScalarDim(rows, 0));
  for (ValueId vector : {small, steps.Do(TensorOp::kAbs, {small})}) {
    const ValueId total =
        steps.Do(TensorOp::kMax, {steps.Reduce(TensorOp::kReduceSum, vector, {0}, true), steps.Ints({0})});
    numbers = steps.ReshapeTo(numbers, total);
  }
  const ValueId zero = steps.Reduce(TensorOp::kReduceMin, steps.Concat({numbers, steps.Ints({0})}, 0), {0}, true);
  return steps.Rows(rows, zero, steps.Ints({kToTheEnd}));
}

}  // namespace

Result<ValueId> RunTimeSplit(ProgramBuilder& b, ValueId value, int64_t axis, ValueId split, bool keepdims) {
  Steps steps(b);
  SequenceForm form{.dtype = b.Desc(value).dtype, .seen = true, .element = *b.Desc(value).dims};
  const auto place = form.element.begin() + axis;
  const ValueId rows = steps.Front(value, axis);
  if (split == kNoValue && !keepdims) {
    form.element.erase(place);
    return Handle(b, steps, form, {rows});
  }
  const auto known = split == kNoValue ? std::optional(std::vector<int64_t>{1}) : b.KnownInts(split);
  const bool even = split == kNoValue || b.Desc(split).rank() == 0;
  if (even && known && *known == std::vector<int64_t>{1}) {
    *place = Dim::Const(1);
    return Handle(b, steps, form, {steps.Unsqueeze(rows, {axis + 1})});
  }
  form.open = static_cast<int>(axis);
  *place = Dim::Const(0);
  const ValueId sizes = steps.Cast(split, DType::kI64);
  if (!even) return Handle(b, steps, form, {Covered(steps, rows, sizes), sizes});
  return Handle(b, steps, form, {rows, EvenSizes(steps, steps.DimVector(rows, 0), steps.Position(split))});
}

}  // namespace kiln::onnx
