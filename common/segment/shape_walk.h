// Which nodes a segment may hold: runs the shape rules over a program once, as a segment's own body would see them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "common/ops/infer.h"
#include "common/segment/segment.h"

namespace kiln {

// Integer contents (or truth values) as constants; nullopt for floats and for tensors of more than `max_elements`.
std::optional<KnownValues> ReadKnownValues(const TensorRef& tensor, int64_t max_elements);
std::optional<std::vector<double>> ReadKnownFloats(const TensorRef& tensor, int64_t max_elements);

// Why the node can be part of no segment, by its op and the ranks of its values alone; nothing: it may be, unless a
// size is known too late (kDataDependentShape).
std::optional<SegmentEnd> NeverInSegment(const Function& function, const Node& node);

// Walks nodes in execution order. What is known about contents comes from constants and ShapeVector nodes anywhere, and
// from the nodes since the last Restart.
class ShapeWalk {
 public:
  // `definitions` are the program's, and outlive this.
  ShapeWalk(const Program& program, const SymbolDefinitions& definitions, int function);

  // Forgets what nodes computed: a segment begins.
  void Restart();
  // Why the node cannot be part of a segment; nothing when it can. Advances over it in either case.
  std::optional<SegmentEnd> Step(const Node& node);
  // Whether the last node's output sizes were proven to be the constants that its values claim.
  bool last_is_static() const { return last_is_static_; }
  // Whether the sizes that the program states for a value follow, dim by dim, from what it states of the inputs of the
  // value's node, which was stepped over. Precondition of the conclusion: what it states of those inputs is true.
  bool IsProven(ValueId value) const { return proven_[static_cast<size_t>(value)]; }
  // What the last node's rule contradicts: value, dim, both sizes.
  const std::optional<Error>& last_refuted() const { return last_refuted_; }

  // From here on rules are asked what they need of sizes.
  void AskWhatIsRequired() { asks_required_ = true; }
  // What the last node's rule needs, over symbols(), and why no run of the node succeeds. Empty where what the program
  // states of the node's inputs is not sure.
  const std::vector<Constraint>& last_required() const { return last_required_; }
  const std::optional<Error>& last_failure() const { return last_failure_; }
  // The program's under the same ids, then those that rules made.
  const SymbolTable& symbols() const { return symbols_; }

 private:
  std::optional<SegmentEnd> Infer(const Node& node);
  std::optional<KnownValues> Known(ValueId value) const;
  void HoldClaim(ValueId value, const TensorDesc& inferred, bool inputs_bound);

  const Program& program_;
  const SymbolDefinitions& definitions_;
  const int function_index_;
  const Function& function_;
  SymbolTable symbols_;                            // a copy: rules add fresh symbols
  std::vector<std::optional<KnownValues>> known_;  // per value, of this run
  std::vector<ValueId> since_restart_;
  std::vector<const Node*> maker_;          // Constant and ShapeVector nodes, per value
  std::vector<bool> proven_;                // per value
  std::vector<std::pair<Dim, Dim>> shown_;  // symbols that outputs of the last node define, and what the rule gives
  bool last_is_static_ = false;
  std::optional<Error> last_refuted_;
  bool asks_required_ = false;
  std::vector<Constraint> last_required_;
  std::optional<Error> last_failure_;
};

}  // namespace kiln
