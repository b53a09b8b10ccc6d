#include "common/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace kiln {
namespace {

Result<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "value " + std::to_string(value) + " is odd");
  return std::make_unique<int>(value / 2);
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(value));
  ASSIGN_OR_RETURN(half, Half(*half));
  return *half;
}

TEST(Result, MacrosPassMoveOnlyValuesAndErrorsOn) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).error().message, "value 3 is odd");
  EXPECT_EQ(ToString(Quarter(7).error()), "invalid_argument: value 7 is odd");
}

TEST(ErrorCode, EveryNumberOutsideTheTableIsInternal) {
  EXPECT_EQ(ErrorCodeFromWire(0), ErrorCode::kInternal);
  EXPECT_EQ(ErrorCodeFromWire(255), ErrorCode::kInternal);
  EXPECT_EQ(ErrorCodeFromWire(static_cast<uint8_t>(ErrorCode::kBusy)), ErrorCode::kBusy);
}

}  // namespace
}  // namespace kiln
