// One node at a time, with shapes from the tensors themselves.
#include <fmt/format.h>

#include "common/ops/empty_call.h"
#include "common/segment/shape_walk.h"
#include "vm-worker/interp/machine.h"

namespace kiln {

Status Machine::ShapeVariant(uint32_t target, uint32_t node) {
  const Node& at = NodeOf(node);
  const std::span<const Dim> dims = at.attributes.Dims("dims");
  const Dims shape = at.attributes.Int("scalar", 0) ? Dims{} : Dims{static_cast<int64_t>(dims.size())};
  ASSIGN_OR_RETURN(const Register made, NewTensor(DType::kI64, shape));
  Set(target, made.ref, made.block);
  for (size_t i = 0; i < dims.size(); ++i) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> value, EvaluateInFrame(program_.symbols, dims[i], state_.frame));
    if (!value)
      return FailAt(node, {ErrorCode::kInvalidArgument,
                           fmt::format("{} has no value yet: no tensor that came before shows it",
                                       program_.symbols.ToString(dims[i])),
                           {}});
    made.ref.as<int64_t>()[i] = *value;
  }
  return {};
}

// Shapes of the node's outputs, valid until it runs again.
Result<const std::vector<LastShapes::Output>*> Machine::RunShapeRule(std::span<const uint32_t> inputs, uint32_t node) {
  std::vector<const TensorRef*>& refs = context_.refs;
  refs.clear();
  for (uint32_t index : inputs) refs.push_back(index == kNoRegister ? nullptr : &At(index).ref);
  LastShapes& last = state_.shapes[node];
  if (last.AreFor(refs)) return &last.outputs();
  context_.refs_read.assign(refs.size(), false);
  auto read = [this](int i) {
    context_.refs_read[static_cast<size_t>(i)] = true;
    return context_.refs[static_cast<size_t>(i)];
  };
  auto known = [&read](int i) -> std::optional<KnownValues> {
    const TensorRef* ref = read(i);
    return ref ? ReadKnownValues(*ref, limits::kShapeContentsMax) : std::nullopt;
  };
  auto known_floats = [&read](int i) -> std::optional<std::vector<double>> {
    const TensorRef* ref = read(i);
    return ref ? ReadKnownFloats(*ref, limits::kShapeContentsMax) : std::nullopt;
  };
  if (Status status = context_.rule.Run({program_, NodeOf(node)}, refs, known, known_floats, false); !status)
    return FailAt(node, status.error());
  last.Remember(context_.rule, refs, context_.refs_read);
  return &last.outputs();
}

Status Machine::CheckOutput(uint32_t node, size_t output, DType dtype, const Dims& dims) const {
  if (Status status = CheckClaim(program_, code_.nodes[node], output, dtype, dims); !status)
    return FailAt(node, status.error());
  return {};
}

Status Machine::AllocStatic(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node) {
  const NodePlace& place = code_.nodes[node];
  const Function& function = program_.functions[static_cast<size_t>(place.function)];
  const Node& at = NodeOf(node);
  auto is = [&](ValueId value, const Dims& dims) {
    const std::vector<Dim>& wanted = *function.values[static_cast<size_t>(value)].desc.dims;
    if (wanted.size() != dims.size()) return false;
    for (int i = 0; i < dims.rank(); ++i)
      if (wanted[static_cast<size_t>(i)].value() != dims[i]) return false;
    return true;
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != kNoRegister && !is(at.inputs[i], At(inputs[i]).ref.dims))
      return FailAt(node,
                    {ErrorCode::kShapeMismatch,
                     fmt::format("input {} is {}; the program says {}", i, At(inputs[i]).ref.dims.ToString(),
                                 ToString(function.values[static_cast<size_t>(at.inputs[i])].desc, program_.symbols)),
                     {}});
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNoRegister) continue;
    const TensorDesc& desc = function.values[static_cast<size_t>(at.outputs[i])].desc;
    Dims dims;
    for (Dim dim : *desc.dims) dims.push_back(dim.value());
    ASSIGN_OR_RETURN(const Register made, NewTensor(desc.dtype, dims));
    Set(outputs[i], made.ref, made.block);
  }
  return {};
}

Status Machine::AllocDynamic(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node) {
  ASSIGN_OR_RETURN(const std::vector<LastShapes::Output>* shapes, RunShapeRule(inputs, node));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNoRegister) continue;
    const auto& [dtype, dims] = (*shapes)[i];
    if (!dims) {
      if (OpInfo(NodeOf(node).op).effects != OpEffects::kDataShape)
        return FailAt(
            node,
            {ErrorCode::kShapeMismatch, fmt::format("the size of output {} cannot be told from the inputs", i), {}});
      Set(outputs[i], TensorRef{.dtype = dtype}, kNoBlock);
      continue;
    }
    RETURN_IF_ERROR(CheckOutput(node, i, dtype, *dims));
    auto made = NewTensor(dtype, *dims);
    if (!made) return FailAt(node, made.error());
    Set(outputs[i], made->ref, made->block);
  }
  return {};
}

std::span<const TensorRef> Machine::GatherInputs(std::span<const uint32_t> inputs) {
  context_.inputs.clear();
  for (uint32_t index : inputs) context_.inputs.push_back(index == kNoRegister ? TensorRef{} : At(index).ref);
  return context_.inputs;
}

Result<TensorRef> Machine::ContiguousScratch(const TensorRef& from) {
  void* data = context_.memory.AllocateScratch(static_cast<size_t>(from.bytes()));
  if (!data) return Fail(ErrorCode::kResourceExhausted, fmt::format("no memory for a copy of {} bytes", from.bytes()));
  const TensorRef copy = MakeRef(from.dtype, from.dims, data);
  CopyElements(from, copy);
  return copy;
}

std::optional<RandomDraw> Machine::NextDraw(uint32_t node) {
  const int32_t index = loaded_.kernel(node).random_node;
  if (index < 0) return std::nullopt;
  RandomDraw& next = state_.draws[static_cast<size_t>(index)];
  const RandomDraw draw = next;
  ++next.call;
  return draw;
}

Status Machine::Compute(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node) {
  const NodeKernel& kernel = loaded_.kernel(node);
  const Node& at = NodeOf(node);
  GatherInputs(inputs);
  Status status;
  if (!kernel.kernel.strided_inputs) {
    for (TensorRef& input : context_.inputs) {
      if (!input.data || input.IsContiguous()) continue;
      auto copy = ContiguousScratch(input);
      if (!copy) {
        context_.memory.End();
        return FailAt(node, copy.error());
      }
      input = *copy;
    }
  }
  context_.results.clear();
  for (uint32_t index : outputs) context_.results.push_back(index == kNoRegister ? TensorRef{} : At(index).ref);
  const std::optional<RandomDraw> draw = NextDraw(node);
  KernelCall call{.op = at.op,
                  .attributes = &at.attributes,
                  .constants = program_.constants,
                  .inputs = context_.inputs,
                  .outputs = context_.results,
                  .memory = &context_.memory,
                  .prepared = kernel.prepared.get(),
                  .random = draw ? &*draw : nullptr};
  status = IsEmptyCall(call) ? Status() : kernel.kernel.run(call);
  if (status) status = TakeResults(outputs, node);
  context_.memory.End();
  if (!status) return FailAt(node, status.error());
  return {};
}

// Tensors for which the kernel took memory itself.
Status Machine::TakeResults(std::span<const uint32_t> outputs, uint32_t node) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNoRegister || At(outputs[i]).ref.data) continue;
    const TensorRef& result = context_.results[i];
    const BlockId block = context_.memory.Claim(result.data);
    if (block == kNoBlock)
      return Fail(ErrorCode::kInternal, fmt::format("the kernel left output {} without memory", i));
    Set(outputs[i], result, block);
    RETURN_IF_ERROR(CheckOutput(node, i, result.dtype, result.dims));
  }
  return {};
}

Status Machine::Views(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node) {
  ASSIGN_OR_RETURN(const std::vector<LastShapes::Output>* shapes, RunShapeRule(inputs, node));
  const Node& at = NodeOf(node);
  GatherInputs(inputs);
  context_.results.assign(outputs.size(), TensorRef{});  // Split asks how many parts there are
  Register source;
  Copy(At(inputs[0]), &source);
  Status status;
  for (size_t i = 0; i < outputs.size() && status; ++i) {
    if (outputs[i] == kNoRegister) continue;
    const auto& [dtype, dims] = (*shapes)[i];
    if (!dims) {
      status = Fail(ErrorCode::kShapeMismatch, fmt::format("the size of output {} cannot be told from the inputs", i));
      break;
    }
    status = CheckOutput(node, i, dtype, *dims);
    for (int attempt = 0; attempt < 2 && status; ++attempt) {
      context_.inputs[0] = source.ref;
      KernelCall call{.op = at.op,
                      .attributes = &at.attributes,
                      .constants = program_.constants,
                      .inputs = context_.inputs,
                      .outputs = context_.results,
                      .memory = &context_.memory};
      auto view = MakeView(call, static_cast<int>(i), *dims);
      if (!view) {
        status = std::unexpected(view.error());
      } else if (view->has_value()) {
        if (source.block != kNoBlock) arena_.Retain(source.block);
        Set(outputs[i], **view, source.block);
        break;
      } else {
        // The strides do not allow a view: of a copy they do.
        auto copy = NewTensor(source.ref.dtype, source.ref.dims);
        if (!copy) {
          status = std::unexpected(copy.error());
          break;
        }
        CopyElements(source.ref, copy->ref);
        ReleaseRegister(&source);
        source = *copy;
      }
    }
  }
  ReleaseRegister(&source);
  if (!status) return FailAt(node, status.error());
  return {};
}

}  // namespace kiln
