// GroupBody: the scalar program of a fused group, with the loads and stores it needs.
#pragma once

#include <map>
#include <vector>

#include "compile-service/lower/fuse.h"
#include "compile-service/lower/plan_builder.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

class GroupBody {
 public:
  // `space`: the iteration space that operands broadcast to.
  GroupBody(PlanBuilder& builder, const Group& group, std::vector<Dim> space);

  ScalarBuilder& scalars() { return scalars_; }
  // Scalar node of a value: what was defined for it, a constant, or a load.
  Result<int32_t> Scalar(ir::GraphValueId id);
  void Define(ir::GraphValueId id, int32_t scalar) { scalar_of_[id] = scalar; }
  // An element-wise node of the group.
  Status AddNode(const ir::GraphNode& node);

  // Values of the group that something outside reads, in order.
  const std::vector<ir::GraphValueId>& escaping() const { return escaping_; }
  // An access for storing or loading; returns its index.
  int32_t AddOperand(Operand operand);
  std::vector<Operand>& operands() { return operands_; }
  // Scalar node of an element's place along a dim of the space. Loop nests only: its Coordinate names the dim until the
  // nest's loops are known.
  int32_t Position(size_t dim);
  const std::vector<size_t>& positions() const { return positions_; }  // dims that were asked for

  // Memory order that a full-size operand has; row-major when there is none.
  Result<Order> PreferredOrder();
  // Allocates every escaping value in `order` and adds its store. Returns (access, scalar node) pairs.
  Result<std::vector<ir::Store>> StoreEscaping(const Order& order);

  // Specs name pointers by position; equal places share one.
  int32_t Pointer(const Operand& operand);
  std::vector<int32_t> pointers() const { return pointers_; }
  Dim Cost();  // an operation per node and element, and the traffic of the operands
  StepText Text(const std::string& head = {}) const;

 private:
  PlanBuilder& builder_;
  const Group& group_;
  std::vector<Dim> space_;
  ScalarBuilder scalars_;
  std::map<ir::GraphValueId, int32_t> scalar_of_;
  std::map<ir::GraphValueId, int32_t> load_of_;
  std::vector<Operand> operands_;
  std::vector<size_t> positions_;
  std::vector<int32_t> pointers_;
  std::vector<ir::GraphValueId> escaping_;
};

}  // namespace kiln::lower
