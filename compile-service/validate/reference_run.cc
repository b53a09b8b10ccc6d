#include "compile-service/validate/reference_run.h"

#include <algorithm>

#include "common/ops/empty_call.h"
#include "common/ops/reference_kernel.h"
#include "common/segment/shape_rule.h"
#include "common/segment/shape_walk.h"

namespace kiln {
namespace {

// Memory that counts itself.
class Block {
 public:
  Block(int64_t bytes, int64_t& alive) : buffer_(Buffer::Allocate(static_cast<size_t>(bytes))), alive_(alive) {
    alive_ += bytes;
  }
  ~Block() { alive_ -= static_cast<int64_t>(buffer_->size()); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  char* data() const { return static_cast<char*>(buffer_->data()); }
  bool Holds(const void* address) const {
    const auto* at = static_cast<const char*>(address);
    return at >= data() && at <= data() + buffer_->size();
  }

 private:
  std::shared_ptr<Buffer> buffer_;
  int64_t& alive_;
};

struct Held {
  TensorRef ref;
  std::shared_ptr<const void> memory;
};

// What kernels take for themselves during one call.
class CallMemory final : public KernelMemory {
 public:
  CallMemory(int64_t& alive, int64_t bytes_max) : alive_(alive), bytes_max_(bytes_max) {}
  void* AllocateOutput(size_t bytes) override { return AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override {
    const std::shared_ptr<Block> block = Take(bytes);
    return block == nullptr ? nullptr : block->data();
  }
  std::shared_ptr<Block> Take(size_t bytes) {
    if (bytes > static_cast<size_t>(bytes_max_) || alive_ > bytes_max_ - static_cast<int64_t>(bytes)) return nullptr;
    blocks_.push_back(std::make_shared<Block>(static_cast<int64_t>(bytes), alive_));
    return blocks_.back();
  }
  std::shared_ptr<const void> BlockOf(const void* address) const {
    const auto found = std::ranges::find_if(blocks_, [&](const auto& block) { return block->Holds(address); });
    return found == blocks_.end() ? nullptr : *found;
  }

 private:
  int64_t& alive_;
  const int64_t bytes_max_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

class Run {
 public:
  Run(const Program& program, std::vector<int64_t> frame, std::span<const SymbolSource> sources, int64_t bytes_max)
      : program_(program),
        function_(program.entry()),
        frame_(std::move(frame)),
        sources_(sources),
        bytes_max_(bytes_max),
        values_(function_.values.size()),
        last_use_(function_.values.size(), 0) {}

  Result<std::vector<Tensor>> Go(std::span<const TensorRef> inputs) {
    const Region& body = function_.regions.front();
    if (inputs.size() != body.inputs.size())
      return Fail(ErrorCode::kInvalidArgument, "the program takes " + std::to_string(body.inputs.size()) + " inputs, " +
                                                   std::to_string(inputs.size()) + " were given");
    for (size_t i = 0; i < inputs.size(); ++i) At(body.inputs[i]).ref = inputs[i];
    FindLastUses(body);
    for (size_t n = 0; n < body.nodes.size(); ++n) {
      const Node& node = body.nodes[n];
      if (Status status = Step(node); !status.has_value()) return FailIn(OpInfo(node.op).name, status.error());
      for (const ValueId input : node.inputs)
        if (input != kNoValue && last_use_[static_cast<size_t>(input)] == n) At(input) = {};
    }
    std::vector<Tensor> outputs;
    for (const ValueId output : body.outputs) outputs.push_back(MakeContiguous(At(output).ref));
    return outputs;
  }

 private:
  Held& At(ValueId value) { return values_[static_cast<size_t>(value)]; }

  void FindLastUses(const Region& body) {
    for (size_t n = 0; n < body.nodes.size(); ++n)
      for (const ValueId input : body.nodes[n].inputs)
        if (input != kNoValue) last_use_[static_cast<size_t>(input)] = n;
    for (const auto* kept : {&body.inputs, &body.outputs})
      for (const ValueId value : *kept) last_use_[static_cast<size_t>(value)] = body.nodes.size();
  }

  Status Step(const Node& node) {
    switch (OpInfo(node.op).effects) {
      case OpEffects::kPure:
      case OpEffects::kDecision:
      case OpEffects::kDataShape:
        break;
      case OpEffects::kControl:
      case OpEffects::kRandom:
        return Fail(ErrorCode::kUnsupported, "it is no part of a segment");
    }
    if (node.op == TensorOp::kConstant) {
      const ConstantId id = node.attributes.Constant("value");
      At(node.outputs[0]) = {program_.constants[static_cast<size_t>(id)].tensor.ref, nullptr};
    } else if (node.op == TensorOp::kShapeVector) {
      RETURN_IF_ERROR(WriteShape(node));
    } else {
      RETURN_IF_ERROR(Compute(node));
    }
    for (const ValueId output : node.outputs)
      if (output != kNoValue) RETURN_IF_ERROR(Bind(output));
    return {};
  }

  Status WriteShape(const Node& node) {
    const std::span<const Dim> dims = node.attributes.Dims("dims");
    const Dims shape = node.attributes.Int("scalar", 0) != 0 ? Dims{} : Dims{static_cast<int64_t>(dims.size())};
    ASSIGN_OR_RETURN(Held made, Make(DType::kI64, shape));
    for (size_t i = 0; i < dims.size(); ++i) {
      ASSIGN_OR_RETURN(const std::optional<int64_t> value, EvaluateInFrame(program_.symbols, dims[i], frame_));
      if (!value) return Fail(ErrorCode::kInvalidArgument, "a size has no value yet");
      made.ref.as<int64_t>()[i] = *value;
    }
    At(node.outputs[0]) = std::move(made);
    return {};
  }

  Result<Held> Make(DType dtype, const Dims& dims) {
    ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
    CallMemory memory(alive_, bytes_max_);
    const std::shared_ptr<Block> block = memory.Take(static_cast<size_t>(elements * DTypeBytes(dtype)));
    if (block == nullptr)
      return Fail(ErrorCode::kResourceExhausted,
                  "the values alive at once need more than " + std::to_string(bytes_max_ >> 20) + " MiB");
    return Held{MakeRef(dtype, dims, block->data()), block};
  }

  Status RunRule(const Node& node) {
    std::vector<const TensorRef*> refs;
    for (const ValueId input : node.inputs) refs.push_back(input == kNoValue ? nullptr : &At(input).ref);
    return rule_.RunOnContents({program_, node}, refs);
  }

  // Also of views: elements are copied to where they are read in order.
  Status Compute(const Node& node) {
    RETURN_IF_ERROR(RunRule(node));
    std::vector<TensorRef> inputs, outputs(node.outputs.size());
    std::vector<std::shared_ptr<const void>> memories(node.outputs.size());
    for (const ValueId input : node.inputs) inputs.push_back(input == kNoValue ? TensorRef{} : At(input).ref);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      outputs[i].dtype = rule_.outputs()[i].dtype;
      if (node.outputs[i] == kNoValue) continue;
      const std::optional<Dims> dims = rule_.OutputDims(i);
      if (!dims) continue;  // only the kernel can tell
      ASSIGN_OR_RETURN(const Held made, Make(outputs[i].dtype, *dims));
      outputs[i] = made.ref;
      memories[i] = made.memory;
    }
    CallMemory memory(alive_, bytes_max_);
    KernelCall call{.op = node.op,
                    .attributes = &node.attributes,
                    .constants = program_.constants,
                    .inputs = inputs,
                    .outputs = outputs,
                    .memory = &memory};
    RETURN_IF_ERROR(OpInfo(node.op).family == OpFamily::kView ? CopyViews(call) : Call(node, call));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      if (memories[i] == nullptr) memories[i] = memory.BlockOf(outputs[i].data);
      if (memories[i] == nullptr) return Fail(ErrorCode::kInternal, "an output has no memory");
      At(node.outputs[i]) = {outputs[i], memories[i]};
    }
    return {};
  }

  Status CopyViews(KernelCall& call) const {
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const TensorRef to = call.outputs[i];
      if (to.data == nullptr) continue;
      ASSIGN_OR_RETURN(const std::optional<TensorRef> view, MakeView(call, static_cast<int>(i), to.dims));
      if (!view) return Fail(ErrorCode::kInternal, "contiguous elements have no view");
      CopyElements(*view, to);
    }
    return {};
  }

  Status Call(const Node& node, KernelCall& call) const {
    const size_t typed = node.op == TensorOp::kWhere ? 1 : 0;
    if (call.inputs.size() <= typed) return Fail(ErrorCode::kUnsupported, "it has no inputs");
    ASSIGN_OR_RETURN(const ReferenceKernel kernel, FindReferenceKernel(node.op, call.inputs[typed].dtype));
    const std::shared_ptr<const void> prepared = kernel.prepare ? kernel.prepare(node.attributes) : nullptr;
    call.prepared = prepared.get();
    return IsEmptyCall(call) ? Status() : kernel.run(call);
  }

  // What the value's sizes define, and whether they are those that the program states.
  Status Bind(ValueId value) {
    const Dims& dims = At(value).ref.dims;
    for (size_t s = 0; s < sources_.size(); ++s)
      if (sources_[s].kind == SymbolSource::Kind::kValueDim && sources_[s].index == value &&
          sources_[s].dim < dims.rank())
        frame_[s] = dims[sources_[s].dim];
    const TensorDesc& desc = function_.values[static_cast<size_t>(value)].desc;
    if (desc.dtype != At(value).ref.dtype || (desc.has_rank() && desc.rank() != dims.rank()))
      return Fail(ErrorCode::kShapeMismatch, "value " + std::to_string(value) + " is not what the program states");
    for (int d = 0; desc.has_rank() && d < dims.rank(); ++d) {
      ASSIGN_OR_RETURN(const std::optional<int64_t> stated,
                       EvaluateInFrame(program_.symbols, (*desc.dims)[static_cast<size_t>(d)], frame_));
      if (stated && *stated != dims[d])
        return Fail(ErrorCode::kShapeMismatch, "dim " + std::to_string(d) + " of value " + std::to_string(value) +
                                                   " is " + std::to_string(dims[d]) + "; the program states " +
                                                   std::to_string(*stated));
    }
    return {};
  }

  const Program& program_;
  const Function& function_;
  std::vector<int64_t> frame_;
  const std::span<const SymbolSource> sources_;
  const int64_t bytes_max_;
  int64_t alive_ = 0;  // before what counts in it
  std::vector<Held> values_;
  std::vector<size_t> last_use_;  // node
  ShapeRule rule_;
};

}  // namespace

Result<std::vector<Tensor>> RunByReference(const Program& program, std::span<const TensorRef> inputs,
                                           std::vector<int64_t> frame, std::span<const SymbolSource> sources,
                                           int64_t bytes_max) {
  return Run(program, std::move(frame), sources, bytes_max).Go(inputs);
}

}  // namespace kiln
