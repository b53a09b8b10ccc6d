#include "vm-worker/interp/static_form.h"

#include <algorithm>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "common/segment/shape_walk.h"
#include "vm-worker/interp/arena.h"
#include "vm-worker/interp/step_packing.h"

namespace kiln {
namespace {

// Views are computed on addresses that are never read.
char* const kNowhere = reinterpret_cast<char*>(uintptr_t{1} << 44);

Status NoKernel(KernelCall&) {
  return {};
}

Status CopyKernel(KernelCall& call) {
  CopyElements(call.inputs[0], call.outputs[0]);
  return {};
}

// Bytes that tensors lie in.
struct Storage {
  enum class Kind : uint8_t { kInput, kComputed, kFixed };
  Kind kind;
  uint32_t index = 0;  // input, or block of `escaping` once placed
  size_t bytes = 0;
  int first_step = -1;
  int last_step = -1;
  bool escapes = false;
  size_t offset = 0;  // among the temporaries
};

struct Resolved {
  uint32_t storage;
  int64_t offset = 0;  // bytes from the storage's start to element 0
  std::optional<KnownValues> known;
};

class Resolver {
 public:
  Resolver(const LoadedProgram& program, int segment, std::span<int64_t> frame, ShapeRule* rule)
      : loaded_(program),
        program_(program.program()),
        code_(program.code()),
        place_(code_.segments[static_cast<size_t>(segment)]),
        frame_(frame),
        rule_(*rule),
        form_(std::make_unique<StaticForm>()),
        tensor_of_(code_.register_count, kNoOperand) {
    form_->segment = static_cast<uint32_t>(segment);
  }

  Result<std::unique_ptr<StaticForm>> Run(std::span<const TensorRef> inputs) {
    form_->inputs = static_cast<uint32_t>(inputs.size());
    CompactInstruction instruction;
    RETURN_IF_ERROR(DecodeInstruction(code_, place_.entry, &instruction));
    const std::span<const uint32_t> registers = instruction.operands[1].list;
    const std::vector<uint32_t> outputs(instruction.operands[2].list.begin(), instruction.operands[2].list.end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      storages_.push_back({Storage::Kind::kInput, static_cast<uint32_t>(i)});
      tensor_of_[registers[i]] = AddTensor(inputs[i], static_cast<uint32_t>(storages_.size() - 1), 0);
    }
    for (uint32_t pc = place_.variant; pc < place_.end && resolvable_; pc = instruction.next) {
      RETURN_IF_ERROR(DecodeInstruction(code_, pc, &instruction));
      RETURN_IF_ERROR(Resolve(instruction));
    }
    if (!resolvable_) return std::unique_ptr<StaticForm>();
    Finish(outputs);
    return std::move(form_);
  }

 private:
  Status Resolve(const CompactInstruction& instruction) {
    const std::vector<CompactOperand>& operands = instruction.operands;
    switch (instruction.opcode) {
      case Opcode::kConstant:
        tensor_of_[operands[0].word] = AddFixed(program_.constants[operands[1].word].tensor.ref);
        return {};
      case Opcode::kShapeVariant:
        return ShapeVector(operands[0].word, operands[1].word);
      case Opcode::kBindShape:
        return BindShape(program_, code_.bindings[operands[1].word], form_->tensors[tensor_of_[operands[0].word]].dims,
                         frame_);
      case Opcode::kAllocStatic:
      case Opcode::kAllocDynamic:
        return Allocate(operands[0].list, operands[1].list, operands[2].word);
      case Opcode::kCompute:
        return Compute(operands[0].list, operands[1].list, operands[2].word);
      case Opcode::kBroadcastTo:
      case Opcode::kReshapeView:
      case Opcode::kTransposeView:
      case Opcode::kSliceView:
      case Opcode::kExpandView:
      case Opcode::kView:
        return Views(operands[0].list, operands[1].list, operands[2].word);
      case Opcode::kFree:
      case Opcode::kProfileLeave:
        return {};
      case Opcode::kCallFunc:
      case Opcode::kLoad:
      case Opcode::kStore:
      case Opcode::kMove:
      case Opcode::kJump:
      case Opcode::kJumpIf:
      case Opcode::kJumpIfShapeUnmatched:
      case Opcode::kLoopBegin:
      case Opcode::kLoopEnter:
      case Opcode::kLoopYield:
      case Opcode::kLoopNext:
      case Opcode::kLoopEnd:
      case Opcode::kRet:
      case Opcode::kProfilePoint:
        resolvable_ = false;
        return {};
    }
    return {};
  }

  // --- tensors ---
  uint32_t AddTensor(TensorRef ref, uint32_t storage, int64_t offset) {
    form_->tensors.push_back(ref);
    resolved_.push_back({storage, offset, std::nullopt});
    return static_cast<uint32_t>(form_->tensors.size() - 1);
  }
  uint32_t AddFixed(const TensorRef& ref) {
    storages_.push_back({Storage::Kind::kFixed});
    return AddTensor(ref, static_cast<uint32_t>(storages_.size() - 1), 0);
  }
  uint32_t AddLiteral(Tensor tensor) {
    form_->literals.push_back(std::move(tensor));
    return AddFixed(form_->literals.back().ref);
  }
  uint32_t AddComputed(DType dtype, const Dims& dims) {
    storages_.push_back({Storage::Kind::kComputed});
    Storage& storage = storages_.back();
    const size_t bytes = static_cast<size_t>(NumElements(dims) * DTypeBytes(dtype));
    storage.bytes = (std::max<size_t>(bytes, 1) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    return AddTensor(MakeRef(dtype, dims, nullptr), static_cast<uint32_t>(storages_.size() - 1), 0);
  }
  bool IsFixed(uint32_t tensor) const { return storages_[resolved_[tensor].storage].kind == Storage::Kind::kFixed; }

  // Rules compute contents as mathematical integers; a kernel's may wrap. Only what its dtype holds exactly is taken.
  static bool Fits(DType dtype, const KnownValues& known) {
    return DispatchDType(dtype, [&]<class T>() {
      if constexpr (!std::is_integral_v<T>) {
        return false;
      } else {
        return std::ranges::all_of(known, [](Dim dim) {
          if (!dim.is_const() || dim.value() == std::numeric_limits<int64_t>::max() ||
              dim.value() == std::numeric_limits<int64_t>::min())
            return false;
          return std::in_range<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>(dim.value());
        });
      }
    });
  }

  // Integer tensor of contents that are all constants.
  static std::optional<Tensor> MakeLiteral(DType dtype, const Dims& dims, const KnownValues& known) {
    if (known.size() != static_cast<size_t>(NumElements(dims))) return std::nullopt;
    if (!Fits(dtype, known)) return std::nullopt;
    Tensor tensor = Tensor::Allocate(dtype, dims);
    DispatchDType(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>)
        for (size_t i = 0; i < known.size(); ++i) tensor.ref.as<T>()[i] = static_cast<T>(known[i].value());
    });
    return tensor;
  }

  Status ShapeVector(uint32_t target, uint32_t node_index) {
    const Node& node = code_.nodes[node_index].In(program_);
    const std::span<const Dim> dims = node.attributes.Dims("dims");
    const Dims shape = node.attributes.Int("scalar", 0) ? Dims{} : Dims{static_cast<int64_t>(dims.size())};
    Tensor tensor = Tensor::Allocate(DType::kI64, shape);
    for (size_t i = 0; i < dims.size(); ++i) {
      ASSIGN_OR_RETURN(const std::optional<int64_t> value, EvaluateInFrame(program_.symbols, dims[i], frame_));
      if (!value) {
        resolvable_ = false;
        return {};
      }
      tensor.ref.as<int64_t>()[i] = *value;
    }
    tensor_of_[target] = AddLiteral(std::move(tensor));
    return {};
  }

  // --- shape rule over tensors that exist only as shapes ---
  Status RunRule(std::span<const uint32_t> inputs, const Node& node) {
    refs_.clear();
    for (uint32_t index : inputs) refs_.push_back(index == kNoRegister ? nullptr : &form_->tensors[tensor_of_[index]]);
    auto known = [this, inputs](int i) -> std::optional<KnownValues> {
      const uint32_t index = inputs[static_cast<size_t>(i)];
      if (index == kNoRegister) return std::nullopt;
      const uint32_t tensor = tensor_of_[index];
      if (resolved_[tensor].known) return resolved_[tensor].known;
      return IsFixed(tensor) ? ReadKnownValues(form_->tensors[tensor], limits::kShapeContentsMax) : std::nullopt;
    };
    auto known_floats = [this, inputs](int i) -> std::optional<std::vector<double>> {
      const uint32_t index = inputs[static_cast<size_t>(i)];
      if (index == kNoRegister || !IsFixed(tensor_of_[index])) return std::nullopt;
      return ReadKnownFloats(form_->tensors[tensor_of_[index]], limits::kShapeContentsMax);
    };
    return Named(node, rule_.Run({program_, node}, refs_, known, known_floats, true));
  }

  static Status Named(const Node& node, Status status) {
    if (status) return status;
    return FailIn("node " + std::string(OpInfo(node.op).name) + (node.name.empty() ? "" : " \"" + node.name + "\""),
                  status.error());
  }
  Status CheckOutput(uint32_t node, size_t output, const Dims& dims) const {
    return Named(code_.nodes[node].In(program_),
                 CheckClaim(program_, code_.nodes[node], output, rule_.outputs()[output].dtype, dims));
  }

  Status Allocate(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node_index) {
    const Node& node = code_.nodes[node_index].In(program_);
    RETURN_IF_ERROR(RunRule(inputs, node));
    folded_ = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNoRegister) continue;
      const std::optional<Dims> dims = rule_.OutputDims(i);
      if (!dims) {
        resolvable_ = false;
        return {};
      }
      RETURN_IF_ERROR(CheckOutput(node_index, i, *dims));
      const DType dtype = rule_.outputs()[i].dtype;
      if (const auto elements = CheckedElements(*dims, dtype); !elements)
        return Named(node, std::unexpected(elements.error()));
      std::optional<KnownValues>* known = rule_.known_output(i);
      std::optional<Tensor> literal;
      if (known && *known) literal = MakeLiteral(dtype, *dims, **known);
      folded_ &= literal.has_value();
      tensor_of_[outputs[i]] = literal ? AddLiteral(std::move(*literal)) : AddComputed(dtype, *dims);
    }
    return {};
  }

  // A contiguous tensor with the elements of `tensor`.
  uint32_t Contiguous(uint32_t tensor) {
    if (form_->tensors[tensor].IsContiguous()) return tensor;
    auto [place, first] = contiguous_.emplace(tensor, kNoOperand);
    if (!first) return place->second;
    if (IsFixed(tensor)) return place->second = AddLiteral(MakeContiguous(form_->tensors[tensor]));
    const uint32_t copy = AddComputed(form_->tensors[tensor].dtype, form_->tensors[tensor].dims);
    AddStep({CopyKernel, nullptr, nullptr, TensorOp::kIdentity, 1, 1, 0, kCopyNode}, {tensor, copy});
    return place->second = copy;
  }

  void AddStep(StaticForm::Step step, std::initializer_list<uint32_t> operands) {
    AddStep(step, std::span(operands.begin(), operands.size()));
  }
  void AddStep(StaticForm::Step step, std::span<const uint32_t> operands) {
    const int index = static_cast<int>(form_->steps.size());
    for (uint32_t tensor : operands) {
      if (tensor == kNoOperand) continue;
      Storage& storage = storages_[resolved_[tensor].storage];
      if (storage.first_step < 0) storage.first_step = index;
      storage.last_step = index;
    }
    step.first_operand = static_cast<uint32_t>(form_->operands.size());
    form_->operands.insert(form_->operands.end(), operands.begin(), operands.end());
    form_->steps.push_back(step);
  }

  Status Compute(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node_index) {
    if (std::exchange(folded_, false)) return {};  // every output follows from shapes
    const NodeKernel& kernel = loaded_.kernel(node_index);
    const Node& node = code_.nodes[node_index].In(program_);
    operands_.clear();
    for (uint32_t index : inputs) {
      if (index == kNoRegister) {
        operands_.push_back(kNoOperand);
      } else {
        operands_.push_back(kernel.kernel.strided_inputs ? tensor_of_[index] : Contiguous(tensor_of_[index]));
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      uint32_t tensor = outputs[i] == kNoRegister ? kNoOperand : tensor_of_[outputs[i]];
      // One output may be a literal while another is not: the kernel writes its own copy.
      if (tensor != kNoOperand && IsFixed(tensor))
        tensor = tensor_of_[outputs[i]] = AddComputed(form_->tensors[tensor].dtype, form_->tensors[tensor].dims);
      operands_.push_back(tensor);
    }
    const bool is_empty = HasOnlyEmptyOutputs(std::span(operands_).subspan(inputs.size()));
    AddStep({is_empty ? NoKernel : kernel.kernel.run, &node.attributes, kernel.prepared.get(), node.op,
             static_cast<uint16_t>(inputs.size()), static_cast<uint16_t>(outputs.size()), 0, node_index},
            operands_);
    return {};
  }

  // See IsEmptyCall: all sizes are known here.
  bool HasOnlyEmptyOutputs(std::span<const uint32_t> tensors) const {
    bool any = false;
    for (const uint32_t tensor : tensors) {
      if (tensor == kNoOperand) continue;
      if (form_->tensors[tensor].elements() > 0) return false;
      any = true;
    }
    return any;
  }

  // --- views ---
  Status Views(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node_index) {
    const Node& node = code_.nodes[node_index].In(program_);
    RETURN_IF_ERROR(RunRule(inputs, node));
    std::vector<std::optional<Dims>> dims;
    std::vector<std::optional<KnownValues>> known(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      dims.push_back(rule_.OutputDims(i));
      if (rule_.known_output(i) && *rule_.known_output(i) && Fits(rule_.outputs()[i].dtype, **rule_.known_output(i)))
        known[i] = *rule_.known_output(i);
      if (outputs[i] != kNoRegister && !dims[i]) resolvable_ = false;
    }
    std::vector<TensorRef> refs;
    std::vector<Tensor> contents;
    for (size_t i = 0; i < inputs.size() && resolvable_; ++i) {
      if (inputs[i] == kNoRegister) {
        refs.emplace_back();
        continue;
      }
      const uint32_t tensor = tensor_of_[inputs[i]];
      refs.push_back(form_->tensors[tensor]);
      if (i == 0 || IsFixed(tensor)) continue;
      std::optional<Tensor> literal;
      if (resolved_[tensor].known) literal = MakeLiteral(refs.back().dtype, refs.back().dims, *resolved_[tensor].known);
      if (!literal) {
        resolvable_ = false;
        return {};
      }
      contents.push_back(std::move(*literal));
      refs.back() = contents.back().ref;
    }
    for (size_t i = 0; i < outputs.size() && resolvable_; ++i) {
      if (outputs[i] == kNoRegister) continue;
      RETURN_IF_ERROR(CheckOutput(node_index, i, *dims[i]));
      RETURN_IF_ERROR(OneView(node, refs, tensor_of_[inputs[0]], static_cast<int>(i), *dims[i], outputs[i]));
      resolved_[tensor_of_[outputs[i]]].known = std::move(known[i]);
    }
    return {};
  }

  Status OneView(const Node& node, std::span<TensorRef> refs, uint32_t source, int output, const Dims& dims,
                 uint32_t target) {
    std::vector<TensorRef> parts(node.outputs.size());  // Split asks how many there are
    for (int attempt = 0; attempt < 2; ++attempt) {
      const bool fixed = IsFixed(source);
      refs[0] = form_->tensors[source];
      if (!fixed) refs[0].data = kNowhere;
      KernelCall call{.op = node.op,
                      .attributes = &node.attributes,
                      .constants = program_.constants,
                      .inputs = refs,
                      .outputs = parts,
                      .memory = nullptr};
      ASSIGN_OR_RETURN(const std::optional<TensorRef> view, MakeView(call, output, dims));
      if (view) {
        const Resolved from = resolved_[source];
        const int64_t offset = fixed ? 0 : from.offset + (static_cast<char*>(view->data) - kNowhere);
        tensor_of_[target] = AddTensor(*view, from.storage, offset);
        return {};
      }
      source = Contiguous(source);
    }
    return Fail(ErrorCode::kInternal, "a contiguous tensor has no view for " + std::string(OpInfo(node.op).name));
  }

  // --- placement ---
  void Finish(std::span<const uint32_t> outputs) {
    for (uint32_t index : outputs) {
      Storage& storage = storages_[resolved_[tensor_of_[index]].storage];
      if (storage.kind != Storage::Kind::kComputed || storage.escapes) continue;
      storage.escapes = true;
      storage.index = static_cast<uint32_t>(form_->escaping.size());
      form_->escaping.push_back(storage.bytes);
    }
    PackTemporaries();
    for (uint32_t i = 0; i < form_->tensors.size(); ++i) {
      const Storage& storage = storages_[resolved_[i].storage];
      const int32_t base = BaseOf(storage);
      if (base < 0) continue;
      const bool temporary = storage.kind == Storage::Kind::kComputed && !storage.escapes;
      form_->patches.push_back(
          {i, static_cast<uint32_t>(base), resolved_[i].offset + static_cast<int64_t>(temporary ? storage.offset : 0)});
    }
    for (uint32_t index : outputs) {
      const uint32_t tensor = tensor_of_[index];
      form_->outputs.push_back({tensor, BaseOf(storages_[resolved_[tensor].storage])});
    }
    form_->bases.assign(1 + form_->inputs + form_->escaping.size(), nullptr);
  }

  int32_t BaseOf(const Storage& storage) const {
    switch (storage.kind) {
      case Storage::Kind::kFixed:
        return -1;
      case Storage::Kind::kInput:
        return static_cast<int32_t>(1 + storage.index);
      case Storage::Kind::kComputed:
        break;
    }
    return storage.escapes ? static_cast<int32_t>(1 + form_->inputs + storage.index)
                           : static_cast<int32_t>(StaticForm::kTemporaries);
  }

  void PackTemporaries() {
    std::vector<uint32_t> temporaries;
    std::vector<ArenaBlock> blocks;
    for (uint32_t i = 0; i < storages_.size(); ++i) {
      const Storage& storage = storages_[i];
      if (storage.kind != Storage::Kind::kComputed || storage.escapes || storage.first_step < 0) continue;
      temporaries.push_back(i);
      blocks.push_back({static_cast<int64_t>(storage.bytes), storage.first_step, storage.last_step});
    }
    const StepPacking packing = PackInStepOrder(blocks, form_->steps.size());
    for (size_t k = 0; k < temporaries.size(); ++k) storages_[temporaries[k]].offset = packing.offsets[k];
    form_->temporary_bytes = packing.bytes;
    form_->alive_bytes = packing.alive_bytes;
  }

  const LoadedProgram& loaded_;
  const Program& program_;
  const CompactProgram& code_;
  const CompactSegment& place_;
  std::span<int64_t> frame_;
  ShapeRule& rule_;
  std::unique_ptr<StaticForm> form_;
  std::vector<uint32_t> tensor_of_;  // per register
  std::vector<Resolved> resolved_;   // per tensor
  std::vector<Storage> storages_;
  std::map<uint32_t, uint32_t> contiguous_;
  std::vector<const TensorRef*> refs_;
  std::vector<uint32_t> operands_;
  bool folded_ = false;
  bool resolvable_ = true;
};

}  // namespace

size_t StaticForm::bytes() const {
  size_t total = sizeof(StaticForm) + steps.capacity() * sizeof(Step) + operands.capacity() * sizeof(uint32_t) +
                 tensors.capacity() * sizeof(TensorRef) + patches.capacity() * sizeof(Patch) +
                 outputs.capacity() * sizeof(Output) + bases.capacity() * sizeof(char*) +
                 escaping.capacity() * sizeof(size_t);
  for (const Tensor& literal : literals)
    total += sizeof(Tensor) + static_cast<size_t>(literal.ref.bytes()) + kArenaAlignment;
  return total;
}

bool StaticForm::IsLiteral(uint32_t tensor) const {
  const char* data = static_cast<const char*>(tensors[tensor].data);
  return std::ranges::any_of(literals, [data](const Tensor& literal) {
    const char* begin = static_cast<const char*>(literal.buffer->data());
    return data >= begin && data <= begin + literal.buffer->size();
  });
}

Result<std::unique_ptr<StaticForm>> ResolveSegment(const LoadedProgram& program, int segment,
                                                   std::span<const TensorRef> inputs, std::span<int64_t> frame,
                                                   ShapeRule* rule) {
  return Resolver(program, segment, frame, rule).Run(inputs);
}

}  // namespace kiln
