#include "common/ops/jumps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/common/ops/op_runner.h"

namespace kiln {
namespace {

// An input moves by kMoved; a result that then moves by more than kJumped has jumped. Between the two is room for what
// is only steep (the square root beside 0).
constexpr double kMoved = 1e-6, kJumped = 0.05;

// The only element of the result; nothing where the op refuses the inputs.
std::optional<double> Apply(const TensorOpInfo& row, const std::vector<double>& inputs) {
  testing::OpCase test_case{row.op, {}, {}, 1, {}};
  if (row.op == TensorOp::kMod) test_case.attributes.Set("fmod", int64_t{1});
  std::vector<Tensor> tensors;
  for (const double value : inputs) tensors.push_back(testing::F32({1}, {static_cast<float>(value)}));
  for (const Tensor& tensor : tensors) test_case.inputs.emplace_back(tensor.ref);
  const auto outputs = testing::RunOp(test_case);
  if (!outputs.has_value() || (*outputs)[0].dtype() != DType::kF32) return std::nullopt;
  return testing::Values((*outputs)[0].ref).at(0);
}

// Halves and wholes are the edges of every op of the table that has edges.
std::vector<double> Edges() {
  std::vector<double> edges;
  for (double edge = -3; edge <= 3; edge += 0.5) edges.push_back(edge);
  return edges;
}

bool IsPole(TensorOp op, const std::vector<double>& inputs) {
  return op == TensorOp::kPow && inputs[0] == 0;  // 0^0 is 1
}

bool JumpsAt(const TensorOpInfo& row, const std::vector<double>& inputs) {
  if (IsPole(row.op, inputs)) return false;
  const std::optional<double> here = Apply(row, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const double moved : {-kMoved, kMoved}) {
      std::vector<double> near = inputs;
      near[i] += moved;
      const std::optional<double> there = Apply(row, near);
      if (here && there && std::isfinite(*here) && std::isfinite(*there) && std::abs(*here - *there) > kJumped)
        return true;
    }
  return false;
}

TEST(OpJumps, AreExactlyWhereElementwiseOpsJump) {
  int tried = 0;
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    // Casts to the tested dtype itself change nothing.
    if (row.family != OpFamily::kElementwise || row.min_inputs > 2 || row.op == TensorOp::kCast) continue;
    const std::vector<double> values(static_cast<size_t>(row.min_inputs), 1.5);
    if (!Apply(row, values)) continue;  // of bools or integers
    ++tried;
    bool jumps = false;
    for (const double a : Edges()) {
      if (row.min_inputs == 1) jumps |= JumpsAt(row, {a});
      if (row.min_inputs == 2)
        for (const double b : Edges()) jumps |= JumpsAt(row, {a, b});
    }
    EXPECT_EQ(jumps, JumpsOf(row.op) == OpJumps::kEverywhere) << row.name;
  }
  EXPECT_GT(tried, 40);
}

TEST(OpJumps, HoldForEveryDecisionOfTheTable) {
  for (int i = 0; i < TensorOpCount(); ++i)
    if (TensorOpRow(i).effects == OpEffects::kDecision) {
      EXPECT_EQ(JumpsOf(TensorOpRow(i).op), OpJumps::kEverywhere) << TensorOpRow(i).name;
    }
}

}  // namespace
}  // namespace kiln
