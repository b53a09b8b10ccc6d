#include "common/bytecode/emit.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/bytecode/emit_liveness.h"

namespace kiln {
namespace {

Opcode ViewOpcode(TensorOp op) {
  // Only which mnemonic a view gets; all of them run alike.
  if (op == TensorOp::kReshape || op == TensorOp::kFlatten || op == TensorOp::kSqueeze) return Opcode::kReshapeView;
  if (op == TensorOp::kTranspose) return Opcode::kTransposeView;
  if (op == TensorOp::kSlice || op == TensorOp::kSplit) return Opcode::kSliceView;
  if (op == TensorOp::kExpand) return Opcode::kBroadcastTo;
  if (op == TensorOp::kUnsqueeze) return Opcode::kExpandView;
  return Opcode::kView;
}

// Emits one function.
class Emitter {
 public:
  Emitter(const Program& program, int function, std::span<const SegmentRange> segments, const ShapeFacts& facts,
          const SymbolDefinitions& definitions, CompactProgram* out)
      : program_(program),
        function_(program.functions[static_cast<size_t>(function)]),
        function_index_(function),
        facts_(facts),
        definitions_(definitions),
        live_(FindLiveness(function_)),
        out_(*out),
        code_(out),
        register_of_(function_.values.size(), kNoRegister) {
    for (size_t i = 0; i < segments.size(); ++i)
      if (segments[i].function == function)
        segment_at_.emplace(std::pair(segments[i].region, segments[i].first_node),
                            std::pair(static_cast<uint32_t>(i), &segments[i]));
  }

  void Run() {
    out_.entries.push_back(code_.here());
    const Region& body = function_.regions[0];
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      const ValueId input = body.inputs[i];
      if (live_.last_use[static_cast<size_t>(input)] == Liveness::kUnused) continue;
      code_.Begin(Opcode::kLoad).Word(Define(input)).Word(static_cast<uint32_t>(i)).End();
    }
    RegionNodes(0);
    Scope scope;
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      const uint32_t from = Read(body.outputs[i], &scope);  // may emit instructions of its own
      code_.Begin(Opcode::kStore).Word(from).Word(static_cast<uint32_t>(i)).End();
    }
    FreeScope(&scope);
    FreeRegionOutputs(0);
    code_.Begin(Opcode::kRet).End();
  }

 private:
  // Values made again for one segment or one node, and their registers.
  using Scope = std::map<ValueId, uint32_t>;

  // --- registers ---
  uint32_t TakeRegister() {
    if (!free_.empty()) {
      std::pop_heap(free_.begin(), free_.end(), std::greater<>());
      const uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    const uint32_t index = next_++;
    out_.register_count = std::max(out_.register_count, next_);
    return index;
  }
  uint32_t Define(ValueId value) {
    if (value == kNoValue) return kNoRegister;
    uint32_t& index = register_of_[static_cast<size_t>(value)];
    if (index == kNoRegister) index = TakeRegister();
    return index;
  }
  void FreeRegister(uint32_t index) {
    code_.Begin(Opcode::kFree).Word(index).End();
    free_.push_back(index);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
  void Free(ValueId value) {
    uint32_t& index = register_of_[static_cast<size_t>(value)];
    if (index == kNoRegister) return;
    FreeRegister(index);
    index = kNoRegister;
  }
  void FreeScope(Scope* scope) {
    for (const auto& [value, index] : *scope) FreeRegister(index);
    scope->clear();
  }

  uint32_t NodeIndex(RegionId region, int node) {
    out_.nodes.push_back({function_index_, region, node});
    return static_cast<uint32_t>(out_.nodes.size() - 1);
  }

  // --- values ---
  uint32_t Read(ValueId value, Scope* scope) {
    if (value == kNoValue) return kNoRegister;
    const Liveness::Definition& from = live_.definition[static_cast<size_t>(value)];
    if (from.node >= 0) {
      const Node& node = NodeAt(from.region, from.node);
      if (IsRematerialised(node.op)) {
        if (auto found = scope->find(value); found != scope->end()) return found->second;
        const uint32_t index = TakeRegister();
        scope->emplace(value, index);
        if (node.op == TensorOp::kConstant)
          code_.Begin(Opcode::kConstant)
              .Word(index)
              .Word(static_cast<uint32_t>(node.attributes.Constant("value")))
              .End();
        else
          code_.Begin(Opcode::kShapeVariant).Word(index).Word(NodeIndex(from.region, from.node)).End();
        return index;
      }
    }
    return register_of_[static_cast<size_t>(value)];
  }
  std::vector<uint32_t> ReadAll(std::span<const ValueId> values, Scope* scope) {
    std::vector<uint32_t> registers;
    for (ValueId value : values) registers.push_back(Read(value, scope));
    return registers;
  }
  std::vector<uint32_t> DefineAll(std::span<const ValueId> values) {
    std::vector<uint32_t> registers;
    for (ValueId value : values) registers.push_back(Define(value));
    return registers;
  }
  void BindShape(ValueId value, bool check_always) {
    if (value == kNoValue || !function_.values[static_cast<size_t>(value)].desc.has_rank()) return;
    if (!check_always && !definitions_.Defines(function_index_, value)) return;
    const uint32_t index = register_of_[static_cast<size_t>(value)];
    if (index == kNoRegister) return;
    const auto of_value = [&](const auto& table) {
      return table[static_cast<size_t>(function_index_)][static_cast<size_t>(value)];
    };
    out_.bindings.push_back({function_index_, value, of_value(definitions_.defines), of_value(definitions_.unbound),
                             of_value(definitions_.constraints)});
    code_.Begin(Opcode::kBindShape).Word(index).Word(static_cast<uint32_t>(out_.bindings.size() - 1)).End();
  }
  size_t EmitJump() {
    code_.Begin(Opcode::kJump);
    const size_t target = code_.Target();
    code_.End();
    return target;
  }
  const Node& NodeAt(RegionId region, int node) const {
    return function_.regions[static_cast<size_t>(region)].nodes[static_cast<size_t>(node)];
  }

  // --- regions and segments ---
  void RegionNodes(RegionId id) {
    const int count = static_cast<int>(function_.regions[static_cast<size_t>(id)].nodes.size());
    for (int i = 0; i < count;) {
      if (auto found = segment_at_.find({id, i}); found != segment_at_.end()) {
        const auto& [index, range] = found->second;
        EmitSegment(index, *range);
        i = range->end_node;
      } else {
        EmitSingle(id, i++);
      }
    }
  }

  void EmitSegment(uint32_t index, const SegmentRange& range) {
    CompactSegment& segment = out_.segments[index];
    Scope scope;
    const std::vector<uint32_t> inputs = ReadAll(range.inputs, &scope);
    const std::vector<uint32_t> outputs = DefineAll(range.outputs);
    segment.entry = code_.here();
    code_.Begin(Opcode::kProfilePoint).Word(index).List(inputs).List(outputs);
    const size_t taken = code_.Target();
    code_.End();
    code_.Begin(Opcode::kJumpIfShapeUnmatched).Word(index).List(inputs).List(outputs);
    const size_t unmatched = code_.Target();
    code_.End();
    const size_t matched = EmitJump();
    code_.Patch(unmatched);
    segment.variant = code_.here();
    EmitVariant(range, &scope);
    code_.Begin(Opcode::kProfileLeave).Word(index).List(outputs).End();
    segment.end = code_.here();
    std::vector<ValueId> unproven;
    for (ValueId output : range.outputs)
      if (facts_.is_unproven(function_index_, output) && !definitions_.Defines(function_index_, output))
        unproven.push_back(output);
    if (unproven.empty()) {
      code_.Patch(taken);
      code_.Patch(matched);
      for (ValueId output : range.outputs) BindShape(output, false);
    } else {
      const size_t computed = EmitJump();
      code_.Patch(taken);
      EmitAfterPlan(range, unproven);
      const size_t past = EmitJump();
      code_.Patch(computed);
      code_.Patch(matched);
      for (ValueId output : range.outputs) BindShape(output, false);
      code_.Patch(past);
    }
    for (ValueId output : range.outputs)
      if (live_.last_use[static_cast<size_t>(output)] == Liveness::kUnused) Free(output);
    for (int i = range.first_node; i < range.end_node; ++i) FreeDying(range.region, i);
  }

  // Where a plan goes on: what it made is held to the sizes that nothing proves. The variant form has done so where the
  // nodes are, the static form when it was made. Symbols that only the inside of the segment shows say nothing here.
  void EmitAfterPlan(const SegmentRange& range, std::span<const ValueId> unproven) {
    const std::set<ValueId> leaves(range.outputs.begin(), range.outputs.end());
    std::set<SymbolId> inside;
    for (int i = range.first_node; i < range.end_node; ++i)
      for (ValueId output : NodeAt(range.region, i).outputs)
        if (output != kNoValue && !leaves.contains(output)) AddDefined(output, &inside);
    for (ValueId output : range.outputs) BindShape(output, false);
    for (ValueId output : unproven) {
      BindShape(output, true);
      ShapeBinding& binding = out_.bindings.back();
      const std::vector<Dim>& dims = *function_.values[static_cast<size_t>(output)].desc.dims;
      binding.unbound.resize(dims.size());
      for (size_t d = 0; d < dims.size(); ++d)
        for (SymbolId id : program_.symbols.SymbolsOf(dims[d]))
          if (inside.contains(id)) binding.unbound[d] = true;
    }
  }

  void AddDefined(ValueId value, std::set<SymbolId>* symbols) const {
    const std::vector<bool>& defines =
        definitions_.defines[static_cast<size_t>(function_index_)][static_cast<size_t>(value)];
    for (size_t i = 0; i < defines.size(); ++i)
      if (defines[i]) symbols->insert((*function_.values[static_cast<size_t>(value)].desc.dims)[i].symbol());
  }

  // The segment's nodes one by one. Values that enter or leave the segment stay; everything else is free again at the
  // end.
  void EmitVariant(const SegmentRange& range, Scope* scope) {
    const std::set<ValueId> leaves(range.outputs.begin(), range.outputs.end());
    const std::map<ValueId, int> last_in_scope = LastUses(range);
    for (int i = range.first_node; i < range.end_node; ++i) {
      const Node& node = NodeAt(range.region, i);
      if (IsRematerialised(node.op)) continue;
      EmitPure(range.region, i, scope);
      for (ValueId output : node.outputs)
        if (output != kNoValue && live_.last_use[static_cast<size_t>(output)] == Liveness::kUnused &&
            !leaves.contains(output))
          Free(output);
      for (ValueId input : node.inputs) {
        if (input == kNoValue || last_in_scope.at(input) != i) continue;
        if (auto made = scope->find(input); made != scope->end()) {
          FreeRegister(made->second);
          scope->erase(made);
        } else if (DefinedIn(input, range) && !leaves.contains(input)) {
          Free(input);
        }
      }
    }
  }

  bool DefinedIn(ValueId value, const SegmentRange& range) const {
    const Liveness::Definition& from = live_.definition[static_cast<size_t>(value)];
    return from.region == range.region && from.node >= range.first_node && from.node < range.end_node;
  }
  std::map<ValueId, int> LastUses(const SegmentRange& range) const {
    std::map<ValueId, int> last;
    for (int i = range.first_node; i < range.end_node; ++i)
      for (ValueId input : NodeAt(range.region, i).inputs) last[input] = i;
    return last;
  }

  // A node without regions; constants that it needs go into `scope`.
  void EmitPure(RegionId region, int index, Scope* scope) {
    const Node& node = NodeAt(region, index);
    const std::vector<uint32_t> inputs = ReadAll(node.inputs, scope);
    const std::vector<uint32_t> outputs = DefineAll(node.outputs);
    const uint32_t where = NodeIndex(region, index);
    if (OpInfo(node.op).family == OpFamily::kView) {
      code_.Begin(ViewOpcode(node.op)).List(inputs).List(outputs).Word(where).End();
    } else {
      const bool is_static = facts_.is_static({function_index_, region, index});
      code_.Begin(is_static ? Opcode::kAllocStatic : Opcode::kAllocDynamic)
          .List(inputs)
          .List(outputs)
          .Word(where)
          .End();
      code_.Begin(node.op == TensorOp::kCallFunc ? Opcode::kCallFunc : Opcode::kCompute)
          .List(inputs)
          .List(outputs)
          .Word(where)
          .End();
    }
    for (ValueId output : node.outputs)
      if (output != kNoValue) BindShape(output, facts_.is_unproven(function_index_, output));
  }

  // A node outside segments.
  void EmitSingle(RegionId region, int index) {
    const Node& node = NodeAt(region, index);
    if (IsRematerialised(node.op)) return;
    Scope scope;
    if (node.op == TensorOp::kIf) {
      EmitIf(region, index, &scope);
    } else if (node.op == TensorOp::kLoop || node.op == TensorOp::kScan) {
      EmitLoop(region, index, &scope);
    } else {
      EmitPure(region, index, &scope);
    }
    FreeScope(&scope);
    for (ValueId output : node.outputs)
      if (output != kNoValue && live_.last_use[static_cast<size_t>(output)] == Liveness::kUnused) Free(output);
    FreeDying(region, index);
  }

  // Every value of `region` whose last use is the node or lies in its regions.
  void FreeDying(RegionId region, int index) {
    for (ValueId value : live_.dying[static_cast<size_t>(region)][static_cast<size_t>(index)]) Free(value);
  }
  void FreeRegionOutputs(RegionId region) {
    for (ValueId value : function_.regions[static_cast<size_t>(region)].outputs)
      if (live_.definition[static_cast<size_t>(value)].region == region) Free(value);
  }

  void EmitIf(RegionId region, int index, Scope* scope) {
    const Node& node = NodeAt(region, index);
    const uint32_t condition = Read(node.inputs[0], scope);
    const std::vector<uint32_t> outputs = DefineAll(node.outputs);
    code_.Begin(Opcode::kJumpIf).Word(condition);
    const size_t to_then = code_.Target();
    code_.End();
    EmitBranch(node.regions[1], outputs);
    const size_t to_end = EmitJump();
    code_.Patch(to_then);
    EmitBranch(node.regions[0], outputs);
    code_.Patch(to_end);
    for (ValueId output : node.outputs) BindShape(output, true);
  }

  void EmitBranch(RegionId id, std::span<const uint32_t> outputs) {
    RegionNodes(id);
    const Region& branch = function_.regions[static_cast<size_t>(id)];
    Scope scope;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNoRegister) continue;
      const uint32_t from = Read(branch.outputs[i], &scope);  // may emit instructions of its own
      code_.Begin(Opcode::kMove).Word(from).Word(outputs[i]).End();
    }
    FreeScope(&scope);
    FreeRegionOutputs(id);
  }

  void EmitLoop(RegionId region, int index, Scope* scope) {
    const Node& node = NodeAt(region, index);
    const RegionId body_id = node.regions[0];
    const Region& body = function_.regions[static_cast<size_t>(body_id)];
    const uint32_t where = NodeIndex(region, index);
    const std::vector<uint32_t> inputs = ReadAll(node.inputs, scope);
    code_.Begin(Opcode::kLoopBegin).List(inputs).Word(where);
    const size_t exit = code_.Target();
    code_.End();
    const uint32_t top = code_.here();
    code_.Begin(Opcode::kLoopEnter).List(DefineAll(body.inputs)).Word(where).End();
    for (ValueId input : body.inputs) BindShape(input, true);
    for (ValueId input : body.inputs)
      if (live_.last_use[static_cast<size_t>(input)] == Liveness::kUnused) Free(input);
    RegionNodes(body_id);
    Scope outputs;
    const std::vector<uint32_t> results = ReadAll(body.outputs, &outputs);
    code_.Begin(Opcode::kLoopYield).List(results).Word(where).End();
    FreeScope(&outputs);
    FreeRegionOutputs(body_id);
    code_.Begin(Opcode::kLoopNext).Word(where);
    const size_t again = code_.Target();
    code_.End();
    code_.Patch(again, top);
    code_.Patch(exit);
    code_.Begin(Opcode::kLoopEnd).List(DefineAll(node.outputs)).Word(where).End();
    for (ValueId output : node.outputs) BindShape(output, true);
  }

  const Program& program_;
  const Function& function_;
  const int function_index_;
  std::map<std::pair<RegionId, int>, std::pair<uint32_t, const SegmentRange*>> segment_at_;  // by first node
  const ShapeFacts& facts_;
  const SymbolDefinitions& definitions_;
  const Liveness live_;
  CompactProgram& out_;
  CompactWriter code_;
  std::vector<uint32_t> register_of_;  // per value, kNoRegister while it does not exist
  std::vector<uint32_t> free_;         // min-heap
  uint32_t next_ = 0;
};

}  // namespace

bool IsRematerialised(TensorOp op) {
  return op == TensorOp::kConstant || op == TensorOp::kShapeVector;
}

CompactProgram EmitCompact(const Program& program, const SymbolDefinitions& definitions,
                           std::span<const SegmentRange> segments, const ShapeFacts& facts) {
  CompactProgram out;
  out.segments.resize(segments.size());
  for (size_t f = 0; f < program.functions.size(); ++f)
    Emitter(program, static_cast<int>(f), segments, facts, definitions, &out).Run();
  return out;
}

}  // namespace kiln
