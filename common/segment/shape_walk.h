// Which nodes a segment may hold: runs the shape rules over a program once, as a segment's own body would see them.
#pragma once

#include <optional>
#include <vector>

#include "common/ops/infer.h"
#include "common/segment/segment.h"

namespace kiln {

// Integer contents (or truth values) as constants; nullopt for floats and for tensors of more than `max_elements`.
std::optional<KnownValues> ReadKnownValues(const TensorRef& tensor, int64_t max_elements);
std::optional<std::vector<double>> ReadKnownFloats(const TensorRef& tensor, int64_t max_elements);

// Walks nodes in execution order. What is known about contents comes from constants and ShapeVector nodes anywhere, and
// from the nodes since the last Restart.
class ShapeWalk {
 public:
  ShapeWalk(const Program& program, int function);

  // Forgets what nodes computed: a segment begins.
  void Restart();
  // Why the node cannot be part of a segment; nothing when it can. Advances over it in either case.
  std::optional<SegmentEnd> Step(const Node& node);
  // Whether the last node's output sizes were proven to be the constants that its values claim.
  bool last_is_static() const { return last_is_static_; }

 private:
  std::optional<SegmentEnd> Infer(const Node& node);
  std::optional<KnownValues> Known(ValueId value) const;

  const Program& program_;
  const Function& function_;
  SymbolTable symbols_;                            // a copy: rules add fresh symbols
  std::vector<std::optional<KnownValues>> known_;  // per value, of this run
  std::vector<ValueId> since_restart_;
  std::vector<const Node*> maker_;  // Constant and ShapeVector nodes, per value
  bool last_is_static_ = false;
};

}  // namespace kiln
