// The source's names for what a canonical segment numbers: its nodes, inputs and symbols.
#pragma once

#include <string>
#include <vector>

#include "common/worker_api/explain.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln {

// Of one segment of a loaded program, which it refers to. Immutable after construction.
class SegmentNames {
 public:
  SegmentNames(const LoadedProgram& program, size_t segment);

  // Per node of the segment's body. Constants that the segment carries along have no name of their own.
  const std::vector<ExplainedNode>& nodes() const { return nodes_; }
  std::string Input(size_t input) const;  // "x"
  const std::string& SymbolName(size_t symbol) const { return symbols_[symbol]; }
  // "w: dim 3 of x", "n: dim 0 of y, known once NonZero node \"nz\" has run".
  std::string SymbolSourceText(size_t symbol) const;
  // "n=3, w=320"; symbols known only inside the segment are left out.
  std::string Values(std::span<const int64_t> symbol_values) const;
  // An expression of `from` (a plan's or body's table) over the source's names.
  std::string DimText(const SymbolTable& from, Dim dim) const;
  std::string ConstraintText(const SymbolTable& from, const Constraint& constraint) const;

 private:
  const Node* Maker(int32_t body_value, size_t* output) const;
  std::string NameOf(const SymbolSource& source) const;

  const LoadedProgram& program_;
  const SegmentSite& site_;
  const Segment& segment_;
  std::vector<ExplainedNode> nodes_;
  std::vector<const Node*> sources_;  // per node of the body; nullptr for constants
  std::vector<std::string> symbols_;  // unique
};

}  // namespace kiln
