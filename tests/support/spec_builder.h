// Short ways to write kernel specs in tests.
#pragma once

#include <utility>
#include <vector>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::testing {

class ProgramBuilder {
 public:
  int32_t Load(int32_t access, DType type = DType::kF32) {
    return Add({ir::ScalarOp::kLoad, type, -1, -1, -1, access});
  }
  int32_t Number(double value, DType type = DType::kF32) {
    ir::ScalarNode node{ir::ScalarOp::kConstant, type};
    node.number = value;
    return Add(node);
  }
  int32_t Integer(int64_t value, DType type = DType::kI64) {
    ir::ScalarNode node{ir::ScalarOp::kConstant, type};
    node.integer = value;
    return Add(node);
  }
  int32_t StageResult(int32_t stage, DType type = DType::kF32) {
    return Add({ir::ScalarOp::kStageResult, type, -1, -1, -1, stage});
  }
  int32_t Accumulator() { return Add({ir::ScalarOp::kAccumulator, DType::kF32}); }
  int32_t Coordinate(int32_t dim) { return Add({ir::ScalarOp::kCoordinate, DType::kI64, -1, -1, -1, dim}); }
  int32_t Argument(int32_t index) { return Add({ir::ScalarOp::kArgument, DType::kI64, -1, -1, -1, index}); }
  int32_t Op(ir::ScalarOp op, int32_t a, int32_t b = -1, int32_t c = -1, DType type = DType::kF32) {
    return Add({op, type, a, b, c});
  }
  int32_t LoadAt(int32_t access, int32_t position, int32_t extent, int32_t stride, DType type = DType::kF32) {
    return Add({ir::ScalarOp::kLoadAt, type, position, extent, stride, access});
  }
  ir::ScalarProgram Take() { return std::move(program_); }
  const ir::ScalarProgram& program() const { return program_; }

 private:
  int32_t Add(const ir::ScalarNode& node) {
    program_.push_back(node);
    return static_cast<int32_t>(program_.size()) - 1;
  }
  ir::ScalarProgram program_;
};

inline ir::Stage ReduceStage(ir::Combine combine, int32_t node) {
  ir::Stage stage{ir::Stage::Kind::kReduce};
  stage.combine = combine;
  stage.node = node;
  return stage;
}

inline ir::Stage StoreStage(ir::Stage::Domain domain, std::vector<ir::Store> stores) {
  ir::Stage stage{ir::Stage::Kind::kStore};
  stage.domain = domain;
  stage.stores = std::move(stores);
  return stage;
}

inline std::vector<ir::SpecInt> Consts(std::initializer_list<int64_t> values) {
  std::vector<ir::SpecInt> result;
  for (int64_t value : values) result.push_back(ir::SpecInt::Const(value));
  return result;
}

}  // namespace kiln::testing
