// Loop and Scan. A frame carries the state from trip to trip; scanned outputs grow along a leading dim and are put into
// their final layout at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "vm-worker/interp/body_shapes.h"
#include "vm-worker/interp/machine.h"

namespace kiln {
namespace {

bool IsScan(const Node& node) {
  return node.op == TensorOp::kScan;
}

size_t StateCount(const Node& node) {
  return IsScan(node) ? node.inputs.size() - static_cast<size_t>(node.attributes.Int("num_scan_inputs", 0))
                      : node.inputs.size() - 2;
}

// Entry `index` of a list attribute with a default.
int64_t Entry(const Node& node, std::string_view name, size_t index) {
  const std::span<const int64_t> list = node.attributes.Ints(name);
  return index < list.size() ? list[index] : 0;
}

Result<int> NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("axis {} of a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace

Result<bool> Machine::LoopBegin(std::span<const uint32_t> inputs, uint32_t node) {
  if (loop_depth_ == state_.loops.size()) state_.loops.emplace_back();
  LoopFrame& frame = state_.loops[loop_depth_++];
  const Node& at = NodeOf(node);
  const size_t states = StateCount(at), first_state = IsScan(at) ? 0 : 2;
  frame.trip = 0;
  frame.trips = std::numeric_limits<int64_t>::max();
  frame.condition = true;
  frame.state.assign(states, Register{});
  frame.scanned.clear();
  frame.outputs.assign(at.outputs.size() - states, Accumulator{});
  for (size_t i = 0; i < states; ++i) Copy(At(inputs[first_state + i]), &frame.state[i]);
  if (IsScan(at)) {
    RETURN_IF_ERROR(ScanBegin(inputs, node, &frame));
  } else {
    if (inputs[0] != kNoRegister) {
      const TensorRef& trips = At(inputs[0]).ref;
      if (trips.dtype != DType::kI64 || trips.elements() != 1)
        return FailAt(node, {ErrorCode::kShapeMismatch,
                             fmt::format("the trip count is {}{}; one i64 is needed", DTypeName(trips.dtype),
                                         trips.dims.ToString()),
                             {}});
      frame.trips = *trips.as<const int64_t>();
    }
    if (inputs[1] != kNoRegister) {
      ASSIGN_OR_RETURN(frame.condition, ReadCondition(At(inputs[1])));
    }
  }
  return frame.trips > 0 && frame.condition;
}

Status Machine::ScanBegin(std::span<const uint32_t> inputs, uint32_t node, LoopFrame* frame) {
  const Node& at = NodeOf(node);
  const size_t states = frame->state.size();
  for (size_t i = states; i < inputs.size(); ++i) {
    Copy(At(inputs[i]), &frame->scanned.emplace_back());
    const TensorRef& scanned = frame->scanned.back().ref;
    auto axis = NormalAxis(Entry(at, "scan_input_axes", i - states), scanned.rank());
    if (!axis) return FailAt(node, axis.error());
    const int64_t length = scanned.dims[*axis];
    if (i > states && length != frame->trips)
      return FailAt(node,
                    {ErrorCode::kShapeMismatch,
                     fmt::format("scan input {} has length {}; the first has {}", i - states, length, frame->trips),
                     {}});
    frame->trips = length;
  }
  return {};
}

// The slice of a scanned input for the current trip, a view.
Result<Register> Machine::Slice(const LoopFrame& frame, size_t input, const Node& node) {
  Register slice;
  Copy(frame.scanned[input], &slice);
  const TensorRef whole = slice.ref;
  ASSIGN_OR_RETURN(const int axis, NormalAxis(Entry(node, "scan_input_axes", input), whole.rank()));
  const int64_t index = Entry(node, "scan_input_directions", input) ? frame.trips - 1 - frame.trip : frame.trip;
  slice.ref.dims = Dims();
  slice.ref.strides = Dims();
  for (int i = 0; i < whole.rank(); ++i) {
    if (i == axis) continue;
    slice.ref.dims.push_back(whole.dims[i]);
    slice.ref.strides.push_back(whole.strides[i]);
  }
  slice.ref.data = whole.as<char>() + index * whole.strides[axis] * DTypeBytes(whole.dtype);
  return slice;
}

Status Machine::LoopEnter(std::span<const uint32_t> inputs, uint32_t node) {
  LoopFrame& frame = state_.loops[loop_depth_ - 1];
  const Node& at = NodeOf(node);
  const size_t first_state = IsScan(at) ? 0 : 2;
  if (!IsScan(at)) {
    ASSIGN_OR_RETURN(const Register counter, NewTensor(DType::kI64, Dims{}));
    *counter.ref.as<int64_t>() = frame.trip;
    Set(inputs[0], counter.ref, counter.block);
    ASSIGN_OR_RETURN(const Register condition, NewTensor(DType::kBool, Dims{}));
    *condition.ref.as<bool>() = frame.condition;
    Set(inputs[1], condition.ref, condition.block);
  }
  for (size_t i = 0; i < frame.state.size(); ++i) {
    Set(inputs[first_state + i], frame.state[i].ref, frame.state[i].block);  // the register takes over the reference
    frame.state[i].block = kNoBlock;
  }
  for (size_t i = 0; i < frame.scanned.size(); ++i) {
    auto slice = Slice(frame, i, at);
    if (!slice) return FailAt(node, slice.error());
    Set(inputs[frame.state.size() + i], slice->ref, slice->block);
  }
  return {};
}

Status Machine::LoopYield(std::span<const uint32_t> outputs, uint32_t node) {
  LoopFrame& frame = state_.loops[loop_depth_ - 1];
  size_t next = 0;
  if (!IsScan(NodeOf(node))) {
    auto condition = ReadCondition(At(outputs[next++]));
    if (!condition) return FailAt(node, condition.error());
    frame.condition = *condition;
  }
  for (Register& held : frame.state) Copy(At(outputs[next++]), &held);
  for (Accumulator& accumulator : frame.outputs)
    RETURN_IF_ERROR(Append(&accumulator, At(outputs[next++]).ref, frame.trips, node));
  return {};
}

Status Machine::Append(Accumulator* accumulator, const TensorRef& value, int64_t trips, uint32_t node) {
  constexpr int64_t kFirstCapacity = 16;
  if (accumulator->count == 0) {
    accumulator->dtype = value.dtype;
    accumulator->element = value.dims;
  } else if (!(accumulator->element == value.dims)) {
    return FailAt(node, {ErrorCode::kShapeMismatch,
                         fmt::format("trip {} gives {} to a scanned output; earlier ones gave {}", accumulator->count,
                                     value.dims.ToString(), accumulator->element.ToString()),
                         {}});
  }
  const int64_t element_bytes = value.bytes();
  if (accumulator->count == accumulator->capacity) {
    const int64_t capacity = std::min(trips, std::max(kFirstCapacity, 2 * accumulator->capacity));
    if (value.rank() == limits::kRankMax)
      return FailAt(
          node, {ErrorCode::kLimitExceeded, fmt::format("a scanned output would pass rank {}", limits::kRankMax), {}});
    Dims whole{capacity};
    for (int64_t dim : value.dims) whole.push_back(dim);
    auto grown = NewTensor(value.dtype, whole);
    if (!grown) return FailAt(node, grown.error());
    if (accumulator->block != kNoBlock) {
      std::memcpy(grown->ref.data, arena_.data(accumulator->block),
                  static_cast<size_t>(accumulator->count * element_bytes));
      arena_.Release(accumulator->block);
    }
    accumulator->block = grown->block;
    accumulator->capacity = capacity;
  }
  char* place = static_cast<char*>(arena_.data(accumulator->block)) + accumulator->count * element_bytes;
  CopyElements(value, MakeRef(value.dtype, value.dims, place));
  ++accumulator->count;
  return {};
}

Result<bool> Machine::LoopNext(uint32_t node) {
  LoopFrame& frame = state_.loops[loop_depth_ - 1];
  if (++frame.trip >= frame.trips || !frame.condition) return false;
  if (options_.deadline_ns != 0 && context_.options.clock->NowNs() > options_.deadline_ns)
    return FailAt(node, {ErrorCode::kDeadlineExceeded,
                         fmt::format("the loop was still running after {} trips when the deadline passed", frame.trip),
                         {}});
  return true;
}

// No trip: the sizes of an element are what the shape rules of the body's nodes say of the state as it is, else what
// the program says, 0 where it says nothing.
Status Machine::SizeEmptyScans(LoopFrame* frame, uint32_t node) {
  const Node& at = NodeOf(node);
  const Function& function = program_.functions[static_cast<size_t>(code_.nodes[node].function)];
  const Region& body = function.regions[static_cast<size_t>(at.regions[0])];
  std::vector<TensorRef> inputs;
  if (!IsScan(at)) inputs = {MakeRef(DType::kI64, Dims{}, nullptr), MakeRef(DType::kBool, Dims{}, nullptr)};
  for (const Register& state : frame->state) inputs.push_back(state.ref);
  for (size_t i = 0; i < frame->scanned.size(); ++i) {
    const TensorRef& whole = frame->scanned[i].ref;
    ASSIGN_OR_RETURN(const int axis, NormalAxis(Entry(at, "scan_input_axes", i), whole.rank()));
    Dims dims;
    for (int d = 0; d < whole.rank(); ++d)
      if (d != axis) dims.push_back(whole.dims[d]);
    inputs.push_back(MakeRef(whole.dtype, dims, nullptr));
  }
  const std::vector<std::optional<Dims>> told = BodyOutputDims(program_, function, body, inputs, state_.frame);
  const size_t first = frame->state.size() + (IsScan(at) ? 0 : 1);
  for (size_t i = 0; i < frame->outputs.size(); ++i) {
    Accumulator& accumulator = frame->outputs[i];
    const TensorDesc& desc = function.values[static_cast<size_t>(body.outputs[first + i])].desc;
    accumulator.dtype = desc.dtype;
    if (told[first + i]) accumulator.element = *told[first + i];
  }
  return {};
}

// A scanned output in its final layout: the trips along the node's axis, in its direction.
Result<Register> Machine::FinishScan(Accumulator* accumulator, size_t index, uint32_t node) {
  const Node& at = NodeOf(node);
  const Dims& element = accumulator->element;
  if (element.rank() == limits::kRankMax)
    return Fail(ErrorCode::kLimitExceeded, fmt::format("a scanned output would pass rank {}", limits::kRankMax));
  Dims dims{accumulator->count};
  for (int64_t dim : element) dims.push_back(dim);
  ASSIGN_OR_RETURN(const int axis, NormalAxis(IsScan(at) ? Entry(at, "scan_output_axes", index) : 0, dims.rank()));
  const bool reversed = IsScan(at) && Entry(at, "scan_output_directions", index) != 0;
  if (accumulator->block == kNoBlock || axis != 0 || reversed) {
    Dims final_dims, from_strides;
    const Dims strides = ContiguousStrides(dims);
    for (int i = 0, source = 1; i < dims.rank(); ++i) {
      const int from = i == axis ? 0 : source++;
      final_dims.push_back(dims[from]);
      from_strides.push_back(from == 0 && reversed ? -strides[0] : strides[from]);
    }
    ASSIGN_OR_RETURN(const Register made, NewTensor(accumulator->dtype, final_dims));
    if (accumulator->block != kNoBlock) {
      TensorRef from{accumulator->dtype, final_dims, from_strides, arena_.data(accumulator->block)};
      if (reversed) from.data = from.as<char>() + (accumulator->count - 1) * strides[0] * DTypeBytes(from.dtype);
      CopyElements(from, made.ref);
      arena_.Release(accumulator->block);
    }
    return made;
  }
  return Register{MakeRef(accumulator->dtype, dims, arena_.data(accumulator->block)), accumulator->block};
}

Status Machine::LoopEnd(std::span<const uint32_t> outputs, uint32_t node) {
  LoopFrame& frame = state_.loops[--loop_depth_];
  const size_t states = frame.state.size();
  if (!frame.outputs.empty() && frame.outputs.front().count == 0) {
    if (Status sized = SizeEmptyScans(&frame, node); !sized) return FailAt(node, sized.error());
  }
  for (size_t i = 0; i < states; ++i) {
    if (outputs[i] == kNoRegister) {
      ReleaseRegister(&frame.state[i]);
    } else {
      Set(outputs[i], frame.state[i].ref, frame.state[i].block);
    }
  }
  for (size_t i = 0; i < frame.outputs.size(); ++i) {
    auto whole = FinishScan(&frame.outputs[i], i, node);
    if (!whole) return FailAt(node, whole.error());
    if (outputs[states + i] == kNoRegister) {
      ReleaseRegister(&*whole);
    } else {
      Set(outputs[states + i], whole->ref, whole->block);
    }
  }
  for (Register& held : frame.scanned) ReleaseRegister(&held);
  return {};
}

}  // namespace kiln
