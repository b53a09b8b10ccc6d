// What the verifier lets an operation of the scalar language have: as many operands as its row says, of the types of
// its format.
#include "compile-service/ir/scalar_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace kiln::ir {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kBool};

// The operation over `operands` constants of one type.
ScalarProgram Applied(ScalarOp op, DType type, int operands, DType operand) {
  ScalarProgram program;
  for (int k = 0; k < operands; ++k) program.push_back({ScalarOp::kConstant, operand});
  program.push_back({op, type, operands > 0 ? 0 : -1, operands > 1 ? 1 : -1, operands > 2 ? 2 : -1});
  return program;
}

Status Check(const ScalarProgram& program) {
  const std::vector<Access> accesses;
  return CheckScalarProgram(program, {.accesses = &accesses});
}

template <class Visit>
void ForEveryOperation(Visit visit) {
  int rows = 0;
  for (int number = 0; number < 256; ++number) {
    const auto op = static_cast<ScalarOp>(number);
    const ScalarOpInfo* info = FindScalarOp(op);
    SCOPED_TRACE(std::string(ScalarOpName(op)) + " " + std::to_string(number));
    EXPECT_EQ(info == nullptr, ScalarOpName(op) == "?");
    if (info == nullptr) {
      EXPECT_FALSE(Check({{op}}));
      continue;
    }
    visit(op, *info);
    ++rows;
  }
  EXPECT_GT(rows, 0);
}

TEST(ScalarCheck, AnOperationHasAsManyOperandsAsItsRowSays) {
  ForEveryOperation([](ScalarOp op, const ScalarOpInfo& info) {
    for (int operands = 0; operands <= 3; ++operands) {
      if (operands == info.operands) continue;
      const Status status = Check(Applied(op, DType::kI64, operands, DType::kI64));
      ASSERT_FALSE(status);
      EXPECT_NE(status.error().message.find("operand "), std::string::npos) << status.error().message;
    }
  });
}

// "type of all operands>type of the node" of every pair that is accepted.
std::string AcceptedTypes(ScalarOp op, int operands) {
  std::string accepted;
  for (const DType operand : kTypes) {
    for (const DType type : kTypes) {
      if (!Check(Applied(op, type, operands, operand))) continue;
      if (!accepted.empty()) accepted += " ";
      accepted += std::string(DTypeName(operand)) + ">" + std::string(DTypeName(type));
    }
  }
  return accepted;
}

TEST(ScalarCheck, TypesAreThoseOfTheFormat) {
  const std::map<ScalarFormat, std::string> expected = {
      {ScalarFormat::kNumbers, "f32>f32 f64>f64 i32>i32 i64>i64"},
      {ScalarFormat::kFloats, "f32>f32 f64>f64"},
      {ScalarFormat::kF32, "f32>f32"},
      {ScalarFormat::kFunction, "f32>f32"},
      {ScalarFormat::kOrder, "f32>bool f64>bool i32>bool i64>bool"},
      {ScalarFormat::kEquality, "f32>bool f64>bool i32>bool i64>bool bool>bool"},
      {ScalarFormat::kTruths, "bool>bool"},
      {ScalarFormat::kFloatTest, "f32>bool f64>bool"},
      {ScalarFormat::kChoice, "bool>bool"},
      {ScalarFormat::kPosition, ""},  // nothing has accesses here
  };
  ForEveryOperation([&](ScalarOp op, const ScalarOpInfo& info) {
    if (info.operands == 0) return;
    const std::string accepted = AcceptedTypes(op, info.operands);
    if (info.format == ScalarFormat::kConversion) {
      EXPECT_EQ(std::ranges::count(accepted, '>'), 25);
    } else {
      ASSERT_TRUE(expected.contains(info.format));
      EXPECT_EQ(accepted, expected.at(info.format));
    }
  });
}

TEST(ScalarCheck, OperandsOfTwoTypesAreRefusedWhereTheFormatHasOne) {
  ForEveryOperation([](ScalarOp op, const ScalarOpInfo& info) {
    if (info.operands < 2 || info.format == ScalarFormat::kChoice || info.format == ScalarFormat::kPosition) return;
    for (const DType type : kTypes) {
      ScalarProgram program = Applied(op, type, info.operands, DType::kF32);
      program[1].type = DType::kF64;
      EXPECT_FALSE(Check(program)) << DTypeName(type);
    }
  });
}

TEST(ScalarCheck, WhatIsChosenFromHasTheTypeOfTheNode) {
  for (const DType type : kTypes) {
    ScalarProgram program = Applied(ScalarOp::kSelect, type, 3, type);
    program[0].type = DType::kBool;
    EXPECT_TRUE(Check(program)) << DTypeName(type);
    for (const size_t operand : {1, 2}) {
      ScalarProgram mixed = program;
      mixed[operand].type = type == DType::kI64 ? DType::kI32 : DType::kI64;
      EXPECT_FALSE(Check(mixed)) << DTypeName(type) << " operand " << operand;
    }
  }
}

TEST(ScalarCheck, LeavesNameWhatIsThere) {
  const std::vector<Access> accesses(2);
  const Surroundings around{.dims = 3, .arguments = 4, .accesses = &accesses, .accumulator = DType::kF32};
  const struct {
    ScalarOp op;
    DType type;
    int32_t count;
  } leaves[] = {{ScalarOp::kLoad, DType::kI32, 2},
                {ScalarOp::kCoordinate, DType::kI64, 3},
                {ScalarOp::kArgument, DType::kI64, 4},
                {ScalarOp::kAccumulator, DType::kF32, 1}};
  for (const auto& leaf : leaves) {
    for (const int32_t index : {-1, 0, leaf.count - 1, leaf.count}) {
      const bool there = index >= 0 && index < leaf.count;
      EXPECT_EQ(CheckScalarProgram({{leaf.op, leaf.type, -1, -1, -1, index}}, around).has_value(), there)
          << ScalarOpName(leaf.op) << " " << index;
    }
    EXPECT_TRUE(IsLeaf(leaf.op));
  }
  EXPECT_FALSE(IsLeaf(ScalarOp::kConstant));
  EXPECT_FALSE(IsLeaf(ScalarOp::kLoadAt));
  EXPECT_FALSE(CheckScalarProgram({{ScalarOp::kCoordinate, DType::kI32}}, around));
  EXPECT_FALSE(CheckScalarProgram({{ScalarOp::kAccumulator, DType::kI32}}, around));
}

}  // namespace
}  // namespace kiln::ir
