// Sequences of tensors and optionals. A sequence whose length is known is a list of values while a model is imported:
// what runs are its elements, and a Loop that carries one is unrolled where its trips are known too. What only running
// tells is held by tensors: run_time_sequence.h.
#include "vm-worker/onnx/sequences.h"

#include <algorithm>

#include "common/base/limits.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/run_time_sequence.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::onnx {
namespace {

Result<ValueList> MakeSequence(NodeContext& node, ValueList elements, DType dtype) {
  if (elements.size() > limits::kSequenceLengthMax) {
    return Fail(ErrorCode::kLimitExceeded, "a sequence of " + std::to_string(elements.size()) + " tensors; at most " +
                                               std::to_string(limits::kSequenceLengthMax) + " are supported");
  }
  return ValueList{node.b.AddSequence({std::move(elements), dtype})};
}

Status RequireAny(const ValueList& elements) {
  if (!elements.empty()) return {};
  return Fail(ErrorCode::kOutOfRange,
              "the sequence is empty; where a loop fills it and reads it in a branch, it has to begin with an element");
}

Result<const ImportedSequence*> SequenceIn(const NodeContext& node, size_t i) {
  if (IsSequence(node.In(i))) return &node.b.Sequence(node.In(i));
  return Fail(ErrorCode::kMalformed, "input " + std::to_string(i) + " must be a sequence");
}

Status RequireTensor(const NodeContext& node, size_t i) {
  if (node.Has(i) && !IsSequence(node.In(i))) return {};
  return Fail(ErrorCode::kMalformed, "input " + std::to_string(i) + " must be a tensor");
}

// Input `i`, where it is present, must be a position or sizes.
Status RequireIntegers(const NodeContext& node, size_t i) {
  if (!node.Has(i)) return {};
  RETURN_IF_ERROR(RequireTensor(node, i));
  const DType dtype = node.DTypeOf(node.In(i));
  if (dtype == DType::kI64 || dtype == DType::kI32) return {};
  return Fail(ErrorCode::kShapeMismatch,
              "input " + std::to_string(i) + " must be i64 or i32, not " + std::string(DTypeName(dtype)));
}

// Whether the operator's operands are known: the elements one by one, and the position, input `i`, where there is one.
bool AllKnown(const NodeContext& node, const ImportedSequence& sequence, size_t i) {
  if (sequence.run_time) return false;
  const auto known = node.b.KnownInts(node.In(i));
  return !node.Has(i) || (known && known->size() == 1);
}

// Position input `i`, which is known, in a sequence of `size` elements, or `fallback` when it is absent.
Result<size_t> PositionIn(NodeContext& node, size_t i, size_t size, size_t last, size_t fallback) {
  if (!node.Has(i)) return fallback;
  const int64_t given = (*node.b.KnownInts(node.In(i)))[0];
  const int64_t count = static_cast<int64_t>(size);
  const int64_t position = given < 0 ? given + count : given;
  if (position < 0 || position > static_cast<int64_t>(last)) {
    return Fail(ErrorCode::kOutOfRange,
                "position " + std::to_string(given) + " is outside a sequence of " + std::to_string(size) + " tensors");
  }
  return static_cast<size_t>(position);
}

Result<ValueList> OneOf(Result<ValueId> value) {
  if (!value.has_value()) return std::unexpected(value.error());
  return ValueList{*value};
}

Result<ValueList> Stack(NodeContext& node, const ValueList& elements, int64_t axis) {
  Chain chain(node.b);
  ValueList parts;
  for (ValueId element : elements) parts.push_back(chain.Unsqueeze(element, {axis}));
  return chain.Done({chain.Concat(parts, axis)});
}

}  // namespace

bool TakesSequences(Rewrite rewrite) {
  constexpr Rewrite kTakers[] = {&Alias,
                                 &IfNode,
                                 &LoopNode,
                                 &SequenceAtNode,
                                 &SequenceInsertNode,
                                 &SequenceEraseNode,
                                 &SequenceLengthNode,
                                 &ConcatFromSequenceNode,
                                 &SequenceMapNode,
                                 &OptionalNode,
                                 &OptionalHasElementNode,
                                 &OptionalGetElementNode};
  return std::ranges::find(kTakers, rewrite) != std::end(kTakers);
}

Result<ValueList> SequenceEmptyNode(NodeContext& node) {
  const int64_t number = node.attributes.Int("dtype", 1);
  if (number < 0 || number > INT32_MAX) return Fail(ErrorCode::kMalformed, "element type number out of range");
  ASSIGN_OR_RETURN(const DType dtype, DTypeOfOnnx(static_cast<int32_t>(number)));
  return MakeSequence(node, {}, dtype);
}

Result<ValueList> SequenceConstructNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(std::max<size_t>(1, node.inputs.size())));
  const DType dtype = node.DTypeOf(node.In(0));
  for (ValueId input : node.inputs) {
    if (node.DTypeOf(input) != dtype) return Fail(ErrorCode::kShapeMismatch, "the tensors differ in element type");
  }
  return MakeSequence(node, node.inputs, dtype);
}

Result<ValueList> SequenceAtNode(NodeContext& node) {
  ASSIGN_OR_RETURN(const ImportedSequence* sequence, SequenceIn(node, 0));
  RETURN_IF_ERROR(node.Require(2));
  RETURN_IF_ERROR(RequireIntegers(node, 1));
  if (!AllKnown(node, *sequence, 1)) return OneOf(RunTimeAt(node.b, *sequence, node.In(1)));
  const ValueList& elements = sequence->elements;
  RETURN_IF_ERROR(RequireAny(elements));
  ASSIGN_OR_RETURN(const size_t position, PositionIn(node, 1, elements.size(), elements.size() - 1, 0));
  return ValueList{elements[position]};
}

Result<ValueList> SequenceInsertNode(NodeContext& node) {
  ASSIGN_OR_RETURN(const ImportedSequence* sequence, SequenceIn(node, 0));
  RETURN_IF_ERROR(RequireTensor(node, 1));
  RETURN_IF_ERROR(RequireIntegers(node, 2));
  ValueList elements = sequence->elements;
  const DType dtype = sequence->dtype;
  if (node.DTypeOf(node.In(1)) != dtype) {
    return Fail(ErrorCode::kShapeMismatch, "the tensor is " + std::string(DTypeName(node.DTypeOf(node.In(1)))) +
                                               ", the sequence holds " + std::string(DTypeName(dtype)));
  }
  if (!AllKnown(node, *sequence, 2)) return OneOf(RunTimeInsert(node.b, *sequence, node.In(1), node.In(2)));
  ASSIGN_OR_RETURN(const size_t position, PositionIn(node, 2, elements.size(), elements.size(), elements.size()));
  elements.insert(elements.begin() + static_cast<std::ptrdiff_t>(position), node.In(1));
  return MakeSequence(node, std::move(elements), dtype);
}

Result<ValueList> SequenceEraseNode(NodeContext& node) {
  ASSIGN_OR_RETURN(const ImportedSequence* sequence, SequenceIn(node, 0));
  RETURN_IF_ERROR(RequireIntegers(node, 1));
  if (!AllKnown(node, *sequence, 1)) return OneOf(RunTimeErase(node.b, *sequence, node.In(1)));
  ValueList elements = sequence->elements;
  RETURN_IF_ERROR(RequireAny(elements));
  ASSIGN_OR_RETURN(const size_t position,
                   PositionIn(node, 1, elements.size(), elements.size() - 1, elements.size() - 1));
  elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(position));
  return MakeSequence(node, std::move(elements), sequence->dtype);
}

Result<ValueList> SequenceLengthNode(NodeContext& node) {
  ASSIGN_OR_RETURN(const ImportedSequence* sequence, SequenceIn(node, 0));
  if (sequence->run_time) return OneOf(RunTimeLength(node.b, *sequence));
  return ValueList{node.b.EmitInt(static_cast<int64_t>(sequence->elements.size()))};
}

namespace {

// Sizes of the pieces along `axis`: a length each, or -1 for "run time decides" (then `split` is the operand itself).
// nullopt: their number is not known.
Result<std::optional<std::vector<int64_t>>> PieceSizes(const NodeContext& node, Dim dim) {
  using Sizes = std::optional<std::vector<int64_t>>;
  const auto known = node.Has(1) ? node.b.KnownInts(node.In(1)) : std::optional(std::vector<int64_t>{1});
  if (node.Has(1) && node.RankOf(node.In(1)) == 1) {
    if (known) return Sizes(*known);
    const Dim count = (*node.b.Desc(node.In(1)).dims)[0];
    if (count.is_const() && count.value() >= 0 && count.value() <= static_cast<int64_t>(limits::kSequenceLengthMax)) {
      return Sizes(std::vector<int64_t>(static_cast<size_t>(count.value()), -1));
    }
    return Sizes();
  }
  if (!known || known->size() != 1) return Sizes();
  const int64_t size = (*known)[0];
  if (size < 1) return Fail(ErrorCode::kInvalidArgument, "the size of a piece is " + std::to_string(size));
  if (!dim.is_const() || dim.value() / size >= static_cast<int64_t>(limits::kSequenceLengthMax)) return Sizes();
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < dim.value(); at += size) sizes.push_back(std::min(size, dim.value() - at));
  return Sizes(std::move(sizes));
}

}  // namespace

Result<ValueList> SplitToSequenceNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const TensorDesc desc = node.b.Desc(node.In(0));
  if (!desc.has_rank()) return Fail(ErrorCode::kUnsupported, "the rank must be known when the model is loaded");
  const int64_t rank = desc.rank();
  int64_t axis = node.attributes.Int("axis", 0);
  if (axis < -rank || axis >= rank) {
    return Fail(ErrorCode::kShapeMismatch, "axis " + std::to_string(axis) + " is outside rank " + std::to_string(rank));
  }
  if (axis < 0) axis += rank;
  RETURN_IF_ERROR(RequireIntegers(node, 1));
  if (node.Has(1) && (node.RankOf(node.In(1)) < 0 || node.RankOf(node.In(1)) > 1)) {
    return Fail(ErrorCode::kShapeMismatch, "`split` must be a scalar or a vector");
  }
  ASSIGN_OR_RETURN(const auto sizes, PieceSizes(node, (*desc.dims)[static_cast<size_t>(axis)]));
  const bool keepdims = node.Has(1) || node.attributes.Int("keepdims", 1) != 0;
  if (!sizes) {
    if (rank >= limits::kRankMax) return Fail(ErrorCode::kLimitExceeded, "the tensor has too high a rank");
    return OneOf(RunTimeSplit(node.b, node.In(0), axis, node.In(1), keepdims));
  }
  if (sizes->empty()) return MakeSequence(node, {}, desc.dtype);
  Attributes attributes;
  attributes.Set("axis", axis);
  const ValueId split = (*sizes)[0] < 0 ? node.In(1) : node.b.EmitInts(*sizes);
  ASSIGN_OR_RETURN(ValueList pieces, node.b.Emit(TensorOp::kSplit, {node.In(0), split}, std::move(attributes),
                                                 static_cast<int>(sizes->size())));
  if (!keepdims) {
    Chain chain(node.b);
    for (ValueId& piece : pieces) piece = chain.Squeeze(piece, {axis});
    ASSIGN_OR_RETURN(pieces, chain.Done(std::move(pieces)));
  }
  return MakeSequence(node, std::move(pieces), desc.dtype);
}

Result<ValueList> ConcatFromSequenceNode(NodeContext& node) {
  ASSIGN_OR_RETURN(const ImportedSequence* sequence, SequenceIn(node, 0));
  if (!node.attributes.Has("axis")) return Fail(ErrorCode::kMalformed, "the node lacks its attribute axis");
  const int64_t axis = node.attributes.Int("axis", 0);
  const bool new_axis = node.attributes.Int("new_axis", 0) != 0;
  if (sequence->run_time) return OneOf(RunTimeConcat(node.b, *sequence, axis, new_axis));
  if (sequence->elements.empty()) return Fail(ErrorCode::kShapeMismatch, "the sequence is empty");
  const ValueList elements = sequence->elements;
  if (new_axis) return Stack(node, elements, axis);
  Attributes attributes;
  attributes.Set("axis", axis);
  return node.b.Emit(TensorOp::kConcat, elements, std::move(attributes));
}

// The body runs once per element; further inputs are sequences of the same length, or tensors that every run sees.
Result<ValueList> SequenceMapNode(NodeContext& node) {
  AttributeProto* const attribute = node.attributes.Find("body");
  if (attribute == nullptr) return Fail(ErrorCode::kMalformed, "the node lacks its graph 'body'");
  ASSIGN_OR_RETURN(const ImportedSequence* first, SequenceIn(node, 0));
  const auto is_held = [&](ValueId input) { return IsSequence(input) && node.b.Sequence(input).run_time; };
  if (std::ranges::any_of(node.inputs, is_held)) return MappedAtRunTime(node, *attribute->mutable_g());
  const size_t length = first->elements.size();
  std::vector<ImportedSequence> outputs(static_cast<size_t>(node.outputs));
  for (size_t at = 0; at < length; ++at) {
    ValueList inputs;
    for (ValueId input : node.inputs) {
      if (!IsSequence(input)) {
        inputs.push_back(input);
        continue;
      }
      const ValueList& elements = node.b.Sequence(input).elements;
      if (elements.size() != length) {
        return Fail(ErrorCode::kShapeMismatch, "sequences of " + std::to_string(length) + " and " +
                                                   std::to_string(elements.size()) + " tensors are mapped together");
      }
      inputs.push_back(elements[at]);
    }
    ASSIGN_OR_RETURN(const ValueList results,
                     node.importer.ImportBody(*attribute->mutable_g(), node.scope, inputs, BodyRuns::kWithItsNode));
    if (results.size() < outputs.size()) {
      return Fail(ErrorCode::kMalformed, "the body has " + std::to_string(results.size()) + " outputs, the node " +
                                             std::to_string(outputs.size()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (IsSequence(results[i])) return Fail(ErrorCode::kUnsupported, "a sequence of sequences is not supported");
      outputs[i].dtype = node.DTypeOf(results[i]);
      outputs[i].elements.push_back(results[i]);
    }
  }
  ValueList handles;
  for (ImportedSequence& output : outputs) handles.push_back(node.b.AddSequence(std::move(output)));
  return handles;
}

// An optional that holds something is what it holds.
Result<ValueList> OptionalNode(NodeContext& node) {
  if (!node.Has(0)) return Fail(ErrorCode::kUnsupported, "an empty optional is not supported");
  return ValueList{node.In(0)};
}

Result<ValueList> OptionalGetElementNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  return ValueList{node.In(0)};
}

Result<ValueList> OptionalHasElementNode(NodeContext& node) {
  return ValueList{node.b.EmitScalar(node.Has(0) ? 1 : 0, DType::kBool)};
}

// --- control flow ---

// Loop whose trip count and conditions are known at load: one copy of the body per trip.
Result<std::optional<ValueList>> UnrolledLoop(NodeContext& node, GraphProto& body) {
  const auto trips = node.Has(0) ? node.b.KnownInts(node.In(0)) : std::nullopt;
  const auto condition = node.Has(1) ? node.b.KnownInts(node.In(1)) : std::optional(std::vector<int64_t>{1});
  const std::optional<ValueList> unknown;
  if (!trips || trips->size() != 1 || !condition || condition->size() != 1) return unknown;
  if ((*trips)[0] > static_cast<int64_t>(limits::kSequenceLengthMax)) return unknown;
  ValueList states(node.inputs.begin() + 2, node.inputs.end());
  std::vector<ValueList> stacked;
  bool goes_on = (*condition)[0] != 0;
  for (int64_t trip = 0; trip < (*trips)[0] && goes_on; ++trip) {
    ValueList inputs = {node.b.EmitInt(trip), node.b.EmitScalar(1, DType::kBool)};
    inputs.insert(inputs.end(), states.begin(), states.end());
    ASSIGN_OR_RETURN(const ValueList outputs,
                     node.importer.ImportBody(body, node.scope, inputs, BodyRuns::kWithItsNode));
    if (outputs.size() < 1 + states.size()) return Fail(ErrorCode::kMalformed, "the body has too few outputs");
    if (IsSequence(outputs[0])) return Fail(ErrorCode::kMalformed, "the condition must be a tensor");
    const auto next = node.b.KnownInts(outputs[0]);
    if (!next || next->size() != 1) return unknown;
    goes_on = (*next)[0] != 0;
    std::copy_n(outputs.begin() + 1, states.size(), states.begin());
    stacked.resize(outputs.size() - 1 - states.size());
    for (size_t i = 0; i < stacked.size(); ++i) stacked[i].push_back(outputs[1 + states.size() + i]);
  }
  for (const ValueList& pieces : stacked) {
    if (std::ranges::any_of(pieces, IsSequence)) {
      return Fail(ErrorCode::kUnsupported, "a sequence as scan output is not supported");
    }
    ASSIGN_OR_RETURN(const ValueList whole, Stack(node, pieces, 0));
    states.push_back(whole[0]);
  }
  if (static_cast<size_t>(node.outputs) > states.size()) {
    return Fail(ErrorCode::kUnsupported, "scan outputs of a Loop without trips that carries a sequence");
  }
  return std::optional(std::move(states));
}

}  // namespace kiln::onnx
