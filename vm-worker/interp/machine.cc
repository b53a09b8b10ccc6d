#include "vm-worker/interp/machine.h"

#include <fmt/format.h>

#include <bit>

#include "common/base/check.h"

namespace kiln {
namespace {

// Of the streams that one seed gives, nodes with an attribute `seed` draw from this one, the others from one each.
constexpr uint32_t kSeededStream = 0, kFirstUnseededStream = 1;

// One sequence per node, of its own seed or of the context's. What a seed gives depends on nothing else in the program.
std::vector<RandomDraw> FirstDraws(const LoadedProgram& program, const RandomBits& random) {
  std::vector<RandomDraw> draws(program.random_nodes());
  if (draws.empty()) return draws;
  const uint64_t seed = random();
  for (uint32_t i = 0; i < program.code().nodes.size(); ++i) {
    const int32_t index = program.kernel(i).random_node;
    if (index < 0) continue;
    const Attributes& attributes = program.code().nodes[i].In(program.program()).attributes;
    draws[static_cast<size_t>(index)].key =
        attributes.Has("seed") ? RandomKey(std::bit_cast<uint64_t>(attributes.Float("seed", 0)), kSeededStream)
                               : RandomKey(seed, kFirstUnseededStream + static_cast<uint32_t>(index));
  }
  return draws;
}

}  // namespace

ProgramState::ProgramState(Memo* memo_of_context, const LoadedProgram& program, const RandomBits& random)
    : registers(program.code().register_count),
      frame(program.program().symbols.symbol_count(), -1),
      memo(memo_of_context, program.segments().size()),
      draws(FirstDraws(program, random)) {}

// --- registers ---

void Machine::ReleaseRegister(Register* held) {
  if (held->block != kNoBlock) arena_.Release(held->block);
  held->block = kNoBlock;
}

void Machine::Clear(uint32_t index) {
  ReleaseRegister(&At(index));
}

void Machine::Set(uint32_t index, const TensorRef& ref, BlockId block) {
  Register& held = At(index);
  const BlockId old = held.block;
  held.ref = ref;
  held.block = block;
  if (old != kNoBlock) arena_.Release(old);
}

void Machine::Copy(const Register& from, Register* to) {
  if (from.block != kNoBlock) arena_.Retain(from.block);
  to->ref = from.ref;
  to->block = from.block;
}

Result<Register> Machine::NewTensor(DType dtype, const Dims& dims) {
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
  ASSIGN_OR_RETURN(const BlockId block, arena_.Allocate(static_cast<size_t>(elements * DTypeBytes(dtype))));
  return Register{MakeRef(dtype, dims, arena_.data(block)), block};
}

std::unexpected<Error> Machine::FailAt(uint32_t node, const Error& error) const {
  const Node& at = NodeOf(node);
  return FailIn(at.name.empty() ? fmt::format("node {}", OpInfo(at.op).name)
                                : fmt::format("node {} \"{}\"", OpInfo(at.op).name, at.name),
                error);
}

Result<bool> Machine::ReadCondition(const Register& held) const {
  if (held.ref.dtype != DType::kBool || held.ref.elements() != 1)
    return Fail(ErrorCode::kShapeMismatch, fmt::format("a condition is {}{}; one bool is needed",
                                                       DTypeName(held.ref.dtype), held.ref.dims.ToString()));
  return *held.ref.as<const uint8_t>() != 0;
}

// --- the loop ---

Status Machine::Run() {
  uint32_t pc = code_.entries[0];
  for (bool done = false; !done;) RETURN_IF_ERROR(Step(&pc, &done));
  return {};
}

Status Machine::CheckDeadline() const {
  if (options_.deadline_ns == 0 || context_.options.clock->NowNs() <= options_.deadline_ns) return {};
  return Fail(ErrorCode::kDeadlineExceeded, "the run was still going on when its deadline passed");
}

Status Machine::Step(uint32_t* pc, bool* done) {
  const uint32_t* words = &code_.code[*pc];
  const auto opcode = static_cast<Opcode>(words[0] & 0xff);
  Operands operands(words);
  *pc += words[0] >> 8;
  switch (opcode) {
    case Opcode::kLoad: {
      const uint32_t target = operands.Word();
      Set(target, inputs_[operands.Word()], kNoBlock);
      // An absent tensor is told by its null pointer, so an empty one needs another.
      if (!At(target).ref.data) At(target).ref.data = &context_;
      return {};
    }
    case Opcode::kStore: {
      const Register& from = At(operands.Word());
      Copy(from, &context_.outputs[operands.Word()]);
      return {};
    }
    case Opcode::kConstant: {
      const uint32_t target = operands.Word();
      Set(target, program_.constants[operands.Word()].tensor.ref, kNoBlock);
      return {};
    }
    case Opcode::kFree:
      Clear(operands.Word());
      return {};
    case Opcode::kMove: {
      Register moved;
      Copy(At(operands.Word()), &moved);
      Set(operands.Word(), moved.ref, moved.block);
      return {};
    }
    case Opcode::kShapeVariant: {
      const uint32_t target = operands.Word();
      return ShapeVariant(target, operands.Word());
    }
    case Opcode::kBindShape: {
      const Register& held = At(operands.Word());
      return BindShape(program_, code_.bindings[operands.Word()], held.ref.dims, state_.frame);
    }
    case Opcode::kAllocStatic:
    case Opcode::kAllocDynamic:
    case Opcode::kCallFunc:
    case Opcode::kCompute:
    case Opcode::kBroadcastTo:
    case Opcode::kReshapeView:
    case Opcode::kTransposeView:
    case Opcode::kSliceView:
    case Opcode::kExpandView:
    case Opcode::kView:
      return StepNode(opcode, operands);
    case Opcode::kRet:
      *done = true;
      return {};
    case Opcode::kJump:
    case Opcode::kJumpIf:
    case Opcode::kJumpIfShapeUnmatched:
    case Opcode::kLoopBegin:
    case Opcode::kLoopEnter:
    case Opcode::kLoopYield:
    case Opcode::kLoopNext:
    case Opcode::kLoopEnd:
    case Opcode::kProfilePoint:
    case Opcode::kProfileLeave:
      return StepControl(opcode, operands, pc);
  }
  return {};
}

// Memory for a node, or the node itself.
Status Machine::StepNode(Opcode opcode, Operands operands) {
  const auto inputs = operands.List(), outputs = operands.List();
  const uint32_t node = operands.Word();
  if (opcode == Opcode::kCompute || opcode == Opcode::kCallFunc) {
    RETURN_IF_ERROR(CountStep());
    return Compute(inputs, outputs, node);
  }
  if (opcode == Opcode::kAllocStatic) return AllocStatic(inputs, outputs, node);
  if (opcode == Opcode::kAllocDynamic) return AllocDynamic(inputs, outputs, node);
  return Views(inputs, outputs, node);
}

Status Machine::StepControl(Opcode opcode, Operands operands, uint32_t* pc) {
  bool jump = false;
  if (opcode == Opcode::kJump) {
    jump = true;
  } else if (opcode == Opcode::kJumpIf) {
    ASSIGN_OR_RETURN(jump, ReadCondition(At(operands.Word())));
  } else if (opcode == Opcode::kProfilePoint) {
    const uint32_t segment = operands.Word();
    const auto inputs = operands.List(), outputs = operands.List();
    if (options_.hook) {
      ASSIGN_OR_RETURN(jump, ProfilePoint(segment, inputs, outputs));
    }
  } else if (opcode == Opcode::kJumpIfShapeUnmatched) {
    const uint32_t segment = operands.Word();
    const auto inputs = operands.List(), outputs = operands.List();
    ASSIGN_OR_RETURN(const bool ran, RunMemoised(segment, inputs, outputs));
    jump = !ran;
  } else if (opcode == Opcode::kProfileLeave) {
    const uint32_t segment = operands.Word();
    if (telling_) Leave(segment, operands.List());
  } else if (opcode == Opcode::kLoopBegin) {
    const auto inputs = operands.List();
    ASSIGN_OR_RETURN(const bool enter, LoopBegin(inputs, operands.Word()));
    jump = !enter;
  } else if (opcode == Opcode::kLoopNext) {
    ASSIGN_OR_RETURN(jump, LoopNext(operands.Word()));
  } else {
    const auto list = operands.List();
    const uint32_t node = operands.Word();
    return opcode == Opcode::kLoopEnter   ? LoopEnter(list, node)
           : opcode == Opcode::kLoopYield ? LoopYield(list, node)
                                          : LoopEnd(list, node);
  }
  if (jump) *pc = operands.Word();
  return {};
}

// --- memory ---

void* RunMemory::Take(size_t bytes, std::vector<BlockId>* list) {
  auto block = arena_.Allocate(bytes);
  if (!block) return nullptr;
  list->push_back(*block);
  return arena_.data(*block);
}
void* RunMemory::AllocateOutput(size_t bytes) {
  return Take(bytes, &outputs_);
}
void* RunMemory::AllocateScratch(size_t bytes) {
  return Take(bytes, &scratch_);
}

BlockId RunMemory::Claim(const void* data) {
  for (BlockId block : outputs_) {
    const char* begin = static_cast<const char*>(arena_.data(block));
    if (data < begin || data >= begin + arena_.size(block)) continue;
    arena_.Retain(block);
    return block;
  }
  return kNoBlock;
}

void RunMemory::End() {
  for (BlockId block : outputs_) arena_.Release(block);
  for (BlockId block : scratch_) arena_.Release(block);
  outputs_.clear();
  scratch_.clear();
}

}  // namespace kiln
