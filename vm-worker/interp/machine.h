// One run of a program: the state that lives for a context, and the loop over the compact code. Private to this folder.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "vm-worker/interp/arena.h"
#include "vm-worker/interp/check_shapes.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/interp/memo.h"

namespace kiln {

// What a register holds: a tensor, and the arena block it lies in (kNoBlock: an input or a constant).
struct Register {
  TensorRef ref;
  BlockId block = kNoBlock;
};

// A scanned output that grows along a leading dim.
struct Accumulator {
  DType dtype = DType::kF32;
  Dims element;
  BlockId block = kNoBlock;
  int64_t count = 0;
  int64_t capacity = 0;
};

struct LoopFrame {
  int64_t trips = 0;
  int64_t trip = 0;
  bool condition = true;
  std::vector<Register> state;    // values of the next trip
  std::vector<Register> scanned;  // Scan's inputs, whole
  std::vector<Accumulator> outputs;
};

// Per program of a context.
struct ProgramState {
  ProgramState(Memo* memo, const LoadedProgram& program, const RandomBits& random);
  uint64_t last_used = 0;
  std::vector<Register> registers;
  std::vector<int64_t> frame;    // value per symbol, -1 while unbound
  std::vector<LoopFrame> loops;  // used from the front; frames keep their storage
  ProgramMemo memo;
  std::unordered_map<uint32_t, LastShapes> shapes;  // per node that ran outside of static forms
  std::vector<RandomDraw> draws;                    // per node that draws random numbers: its next call
};

// Memory for kernels and hooks; outputs are blocks that whoever called takes over with Claim.
class RunMemory final : public KernelMemory {
 public:
  explicit RunMemory(Arena* arena) : arena_(*arena) {}
  void* AllocateOutput(size_t bytes) override;
  void* AllocateScratch(size_t bytes) override;
  // The output block that holds `data`, with its reference; kNoBlock when none does.
  BlockId Claim(const void* data);
  // Ends scratch and unclaimed outputs.
  void End();
  // As End, when the arena's blocks have ended or are about to.
  void Forget() {
    outputs_.clear();
    scratch_.clear();
  }

 private:
  void* Take(size_t bytes, std::vector<BlockId>* list);
  Arena& arena_;
  std::vector<BlockId> outputs_;
  std::vector<BlockId> scratch_;
};

// Per context; storage that runs reuse.
struct VmState {
  explicit VmState(const VmOptions& options)
      : options(options),
        arena(options.arena_limit_bytes, options.budget),
        memory(&arena),
        memo(options.memo_bytes, options.memo_entries) {}
  ProgramState& StateOf(const LoadedProgram& program);

  VmOptions options;
  Arena arena;
  RunMemory memory;
  Memo memo;
  std::vector<std::pair<uint64_t, std::unique_ptr<ProgramState>>> programs;  // by serial; after `memo`: they end first
  uint64_t runs = 0;
  std::vector<Register> outputs;  // of the run
  std::vector<TensorRef> output_refs;
  ShapeRule rule;
  std::vector<const TensorRef*> refs;
  std::vector<bool> refs_read;    // by the rule that runs
  std::vector<TensorRef> inputs;  // operands of the current kernel
  std::vector<TensorRef> results;
  std::vector<Register> moving;
  // Entry of the current segment.
  Signature signature;
  std::vector<TensorRef> segment_inputs;
  std::vector<int64_t> parameters;
  std::vector<TensorRef> segment_outputs;
};

// Checks the inputs of a call and binds the symbols that they show.
Status BindInputs(const LoadedProgram& loaded, std::span<const TensorRef> inputs, std::span<const int64_t> given,
                  std::span<int64_t> frame);

class Machine final : SegmentMemory {
 public:
  Machine(VmState& context, ProgramState& state, const LoadedProgram& program, std::span<const TensorRef> inputs,
          const RunOptions& options)
      : context_(context),
        state_(state),
        loaded_(program),
        program_(program.program()),
        code_(program.code()),
        inputs_(inputs),
        options_(options),
        arena_(context.arena) {}

  // Leaves the outputs in the context.
  Status Run();

 private:
  // Reads an instruction's operands in format order.
  class Operands {
   public:
    explicit Operands(const uint32_t* words) : at_(words + 1) {}
    uint32_t Word() { return *at_++; }
    std::span<const uint32_t> List() {
      const uint32_t count = *at_++;
      at_ += count;
      return {at_ - count, count};
    }

   private:
    const uint32_t* at_;
  };

  // --- registers (machine.cc) ---
  Register& At(uint32_t index) { return state_.registers[index]; }
  void Clear(uint32_t index);
  void Set(uint32_t index, const TensorRef& ref, BlockId block);  // takes over one reference
  void Copy(const Register& from, Register* to);                  // adds one
  void ReleaseRegister(Register* held);
  Result<Register> NewTensor(DType dtype, const Dims& dims);
  const Node& NodeOf(uint32_t index) const { return code_.nodes[index].In(program_); }
  std::unexpected<Error> FailAt(uint32_t node, const Error& error) const;

  Status Step(uint32_t* pc, bool* done);
  // DeadlineExceeded once the deadline has passed.
  Status CheckDeadline() const;
  // The same every kStepsPerLook calls: the clock costs as much as a small step.
  Status CountStep() {
    if (options_.deadline_ns == 0 || ++steps_ % kStepsPerLook != 0) [[likely]]
      return {};
    return CheckDeadline();
  }
  Status StepNode(Opcode opcode, Operands operands);
  Status StepControl(Opcode opcode, Operands operands, uint32_t* pc);
  Result<bool> ReadCondition(const Register& held) const;

  // --- one node, shapes from the tensors (variant.cc) ---
  Status ShapeVariant(uint32_t target, uint32_t node);
  Result<const std::vector<LastShapes::Output>*> RunShapeRule(std::span<const uint32_t> inputs, uint32_t node);
  Status AllocStatic(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node);
  Status AllocDynamic(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node);
  Status Compute(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node);
  std::optional<RandomDraw> NextDraw(uint32_t node);
  Status TakeResults(std::span<const uint32_t> outputs, uint32_t node);
  Status Views(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs, uint32_t node);
  Status CheckOutput(uint32_t node, size_t output, DType dtype, const Dims& dims) const;
  std::span<const TensorRef> GatherInputs(std::span<const uint32_t> inputs);
  Result<TensorRef> ContiguousScratch(const TensorRef& from);

  // --- segments (segments.cc) ---
  Status EnterSegment(uint32_t segment, std::span<const uint32_t> inputs);
  Result<bool> ProfilePoint(uint32_t segment, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);
  Result<bool> RunMemoised(uint32_t segment, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);
  Status RunSteps(StaticForm& form, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);
  Result<BlockId> PlaceTensors(StaticForm& form, size_t inputs);
  static uint32_t FirstNode(const StaticForm& form);
  Status KeepOutputs(StaticForm& form, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);
  void Leave(uint32_t segment, std::span<const uint32_t> outputs);
  SegmentEntry EntryOf(uint32_t segment);
  void* AllocateOutput(size_t index, size_t bytes) override;
  void* AllocateScratch(size_t bytes) override;

  // --- loops (loops.cc) ---
  Result<bool> LoopBegin(std::span<const uint32_t> inputs, uint32_t node);  // whether there is a first trip
  Status LoopEnter(std::span<const uint32_t> inputs, uint32_t node);
  Status LoopYield(std::span<const uint32_t> outputs, uint32_t node);
  Result<bool> LoopNext(uint32_t node);  // whether another trip follows
  Status LoopEnd(std::span<const uint32_t> outputs, uint32_t node);
  Status ScanBegin(std::span<const uint32_t> inputs, uint32_t node, LoopFrame* frame);
  Result<Register> Slice(const LoopFrame& frame, size_t input, const Node& node);
  Status Append(Accumulator* accumulator, const TensorRef& value, int64_t trips, uint32_t node);
  Status SizeEmptyScans(LoopFrame* frame, uint32_t node);
  Result<Register> FinishScan(Accumulator* accumulator, size_t index, uint32_t node);

  VmState& context_;
  ProgramState& state_;
  const LoadedProgram& loaded_;
  const Program& program_;
  const CompactProgram& code_;
  std::span<const TensorRef> inputs_;
  const RunOptions& options_;
  Arena& arena_;
  size_t loop_depth_ = 0;
  static constexpr uint32_t kStepsPerLook = 4;
  uint32_t steps_ = 0;
  bool telling_ = false;  // Leave is due for the current segment
  int64_t entered_ns_ = 0;
};

}  // namespace kiln
