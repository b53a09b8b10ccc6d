// Builds the one function of an imported Program, node by node, in execution order. Every node is inferred when it is
// emitted; a node over constants becomes a constant and integer arithmetic over dims becomes a ShapeVector, so that
// what follows is imported with the best shapes that are known.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "vm-worker/load/value_facts.h"

namespace kiln::onnx {

using ValueList = std::vector<ValueId>;

// How tensors hold a sequence whose length only running tells: run_time_sequence.h.
struct SequenceForm {
  DType dtype = DType::kF32;
  bool seen = false;         // whether an element was; else nothing is known of them
  std::vector<Dim> element;  // dims that all elements have
  int open = -1;             // the one axis along which elements differ (`element` has 0 there), or -1
  bool flat = false;         // they differ along more: of `element` only the rank means something

  bool is_joined() const { return open >= 0; }
  bool has_sizes() const { return is_joined() || flat; }
  bool operator==(const SequenceForm&) const = default;
};
struct RunTimeSequence {
  SequenceForm form;
  ValueId data = kNoValue;
  ValueId sizes = kNoValue;   // where the form has sizes
  ValueId shapes = kNoValue;  // where it is flat
};

// A sequence of tensors: known element by element, or held by tensors. Its handle is a ValueId below kNoValue.
struct ImportedSequence {
  ValueList elements;
  DType dtype = DType::kF32;
  std::optional<RunTimeSequence> run_time = std::nullopt;  // then there are no elements
};
inline bool IsSequence(ValueId value) {
  return value < kNoValue;
}

class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string_view name);

  Program& program() { return program_; }
  SymbolTable& symbols() { return program_.symbols; }
  const SymbolTable& symbols() const { return program_.symbols; }
  const TensorDesc& Desc(ValueId value) const { return function().values[static_cast<size_t>(value)].desc; }
  void Rename(ValueId value, std::string_view name) { function().values[static_cast<size_t>(value)].name = name; }
  const std::string& Name(ValueId value) const { return function().values[static_cast<size_t>(value)].name; }

  // --- what is known ---
  const Tensor* ConstantTensor(ValueId value) const;  // nullptr: not a constant
  const std::optional<KnownValues>& Known(ValueId value) const { return facts_.known[static_cast<size_t>(value)]; }
  // Known contents of which every element is a constant.
  std::optional<std::vector<int64_t>> KnownInts(ValueId value) const;

  // --- sequences ---
  ValueId AddSequence(ImportedSequence sequence);
  // Precondition: IsSequence(handle).
  const ImportedSequence& Sequence(ValueId handle) const;

  // --- nodes ---
  // One node; returns its outputs. Adds the node to the innermost open region. A node that cannot be right for any
  // sizes is an error where every run comes to it; elsewhere it is added all the same, and fails where it runs.
  Result<ValueList> Emit(TensorOp op, ValueList inputs, Attributes attributes = {}, int outputs = 1);
  Result<ValueId> EmitOne(TensorOp op, ValueList inputs, Attributes attributes = {});
  // A node with regions, whose output descs the caller gives.
  ValueList EmitControl(TensorOp op, ValueList inputs, Attributes attributes, std::vector<RegionId> regions,
                        std::vector<TensorDesc> outputs);
  ValueId EmitConstant(Tensor tensor, std::string_view name = {});
  ValueId EmitInts(std::span<const int64_t> values);  // 1-D int64
  ValueId EmitInt(int64_t value);                     // rank 0
  ValueId EmitScalar(double value, DType dtype);      // rank 0, any dtype
  ConstantId AddConstant(Tensor tensor, std::string_view name);
  // Name of the source node, given to the nodes and values that follow.
  void SetNodeName(std::string_view name) { node_name_ = name; }
  const std::string& node_name() const { return node_name_; }
  // Whether every run comes to the nodes that follow, and needs them.
  void SetEveryRun(bool every_run) { every_run_ = every_run; }
  bool every_run() const { return every_run_; }
  // Who says what a symbol may be, as the user wrote it: "--dim k=1..3"; "" where nobody does.
  void SetRangeSource(std::string_view symbol, std::string text) {
    range_sources_.insert_or_assign(std::string(symbol), std::move(text));
  }
  std::string RangeSource(const std::string& symbol) const;

  // --- regions ---
  RegionId OpenRegion();
  ValueId AddRegionInput(std::string_view name, TensorDesc desc);
  // Outputs must be visible; one that the region does not define itself is passed through an Identity.
  Result<ValueList> CloseRegion(ValueList outputs);
  bool DefinedHere(ValueId value) const { return region_of_[static_cast<size_t>(value)] == open_.back(); }
  bool IsRegionInput(ValueId value) const;

  // The last node of the innermost open region. Precondition: there is one.
  const Node& last_node() const { return function().regions[static_cast<size_t>(open_.back())].nodes.back(); }

  // State of the builder, to import a body again under other descs. Regions opened since are closed and gone.
  struct Snapshot {
    size_t values, regions, constants, nodes, open;
    SymbolTable symbols;
  };
  Snapshot Save() const;
  void Restore(Snapshot snapshot);
  ValueId value_count() const { return static_cast<ValueId>(function().values.size()); }
  // Nodes emitted so far, the discarded ones included: the bound on import work.
  size_t emitted_nodes() const { return emitted_nodes_; }

  Program Take() { return std::move(program_); }

 private:
  Function& function() { return program_.functions.front(); }
  const Function& function() const { return program_.functions.front(); }
  Region& region() { return function().regions[static_cast<size_t>(open_.back())]; }
  ValueId NewValue(std::string_view name, TensorDesc desc);
  ValueList TryFold(const Node& node, const NodeFacts& facts);
  // Whether tensors of these descs can be: one that cannot fails where it is made.
  bool ArePossible(const std::vector<TensorDesc>& descs) const;
  // Takes back sizes and contents.
  void LeaveUnsaid(NodeFacts& facts);
  // What is said of a node whose rule failed, or the error with the sources of the ranges that have a part in it.
  Result<NodeFacts> AfterFailure(const Node& node, Error error);

  Program program_;
  ValueFacts facts_;
  std::deque<ImportedSequence> sequences_;  // handle kNoValue - 1 - i; references stay valid
  std::vector<RegionId> region_of_;         // per value: where it is defined
  std::vector<RegionId> open_;
  std::string node_name_;
  bool every_run_ = true;
  std::unordered_map<std::string, std::string> range_sources_;
  size_t emitted_nodes_ = 0;
};

}  // namespace kiln::onnx
