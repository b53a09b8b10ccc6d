// Each pass on the smallest graph that shows it.
#include "compile-service/passes/passes.h"

#include <gtest/gtest.h>

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphValueId;
using ir::Origin;

constexpr Dim D(int64_t value) {
  return Dim::Const(value);
}

class PassesTest : public ::testing::Test {
 protected:
  GraphValueId Input(std::vector<Dim> dims) { return Source(Origin::kInput, std::move(dims), &graph_.inputs); }
  GraphValueId Weight(std::vector<Dim> dims) { return Source(Origin::kWeight, std::move(dims), &graph_.weights); }
  GraphValueId Node(TensorOp op, std::vector<GraphValueId> inputs, std::vector<Dim> dims, Attributes attributes = {}) {
    const GraphValueId output = graph_.AddValue(DType::kF32, std::move(dims));
    graph_.nodes.push_back(
        {op, std::move(attributes), std::move(inputs), {output}, {static_cast<int32_t>(graph_.nodes.size())}});
    graph_.Renumber();
    return output;
  }
  int Count(TensorOp op) const {
    int count = 0;  // run-time nodes only
    for (const ir::GraphNode& node : graph_.nodes) count += node.op == op && !graph_.value(node.outputs[0]).prepack;
    return count;
  }
  void Run(Result<bool> (*pass)(Graph&)) {
    const Result<bool> changed = pass(graph_);
    ASSERT_TRUE(changed.has_value()) << ToString(changed.error());
    const Status verified = ir::VerifyGraph(graph_);
    ASSERT_TRUE(verified.has_value()) << ToString(verified.error());
    EXPECT_TRUE(*changed);
  }

  Graph graph_;

 private:
  GraphValueId Source(Origin origin, std::vector<Dim> dims, std::vector<GraphValueId>* list) {
    const GraphValueId id = graph_.AddValue(DType::kF32, std::move(dims));
    graph_.value(id).origin = origin;
    graph_.value(id).index = static_cast<int32_t>(list->size());
    graph_.value(id).prepack = origin == Origin::kWeight;
    list->push_back(id);
    return id;
  }
};

TEST_F(PassesTest, RemoveDeadKeepsOnlyWhatOutputsNeed) {
  const GraphValueId x = Input({D(4)});
  Node(TensorOp::kExp, {x}, {D(4)});
  graph_.outputs = {Node(TensorOp::kNeg, {x}, {D(4)})};
  Run(RemoveDead);
  EXPECT_EQ(graph_.nodes.size(), 1u);
}

TEST_F(PassesTest, ShareCommonMakesEqualNodesOnce) {
  const GraphValueId x = Input({D(4)});
  const GraphValueId a = Node(TensorOp::kExp, {x}, {D(4)}), b = Node(TensorOp::kExp, {x}, {D(4)});
  graph_.outputs = {Node(TensorOp::kSub, {a, b}, {D(4)})};
  Run(ShareCommon);
  EXPECT_EQ(Count(TensorOp::kExp), 1);
}

TEST_F(PassesTest, RemoveIdentitiesDropsMultiplicationByOne) {
  const GraphValueId x = Input({D(4)});
  graph_.outputs = {Node(TensorOp::kMul, {x, graph_.AddScalar(1.0f)}, {D(4)})};
  Run(RemoveIdentities);
  EXPECT_TRUE(graph_.nodes.empty());
  EXPECT_EQ(graph_.outputs[0], x);
}

TEST_F(PassesTest, CheapenDivisionsTakesTheReciprocalOfTheSmallerSide) {
  const GraphValueId x = Input({D(4), D(8)}), rows = Input({D(4), D(1)}), full = Input({D(4), D(8)});
  const GraphValueId a = Node(TensorOp::kDiv, {x, rows}, {D(4), D(8)});
  graph_.outputs = {Node(TensorOp::kDiv, {a, full}, {D(4), D(8)})};
  Run(CheapenDivisions);
  EXPECT_EQ(Count(TensorOp::kDiv), 1);
  EXPECT_EQ(Count(TensorOp::kReciprocal), 1);
}

TEST_F(PassesTest, FoldAffineMovesScaleAndShiftIntoTheConvolution) {
  const GraphValueId x = Input({D(1), D(3), D(8)}), w = Weight({D(5), D(3), D(3)}), s = Weight({D(5), D(1)});
  const GraphValueId conv = Node(TensorOp::kConv, {x, w}, {D(1), D(5), D(6)});
  const GraphValueId scaled = Node(TensorOp::kMul, {conv, s}, {D(1), D(5), D(6)});
  graph_.outputs = {Node(TensorOp::kAdd, {scaled, graph_.AddScalar(0.3f)}, {D(1), D(5), D(6)})};
  Run(FoldAffine);
  Run(RemoveDead);
  EXPECT_EQ(Count(TensorOp::kMul) + Count(TensorOp::kAdd), 0) << ir::PrintGraph(graph_);
  EXPECT_EQ(Count(TensorOp::kConv), 1) << ir::PrintGraph(graph_);
}

TEST_F(PassesTest, FoldAffineLeavesAResultThatOthersReadAlone) {
  const GraphValueId x = Input({D(1), D(3), D(8)}), w = Weight({D(5), D(3), D(3)});
  const GraphValueId conv = Node(TensorOp::kConv, {x, w}, {D(1), D(5), D(6)});
  graph_.outputs = {Node(TensorOp::kMul, {conv, graph_.AddScalar(0.3f)}, {D(1), D(5), D(6)}), conv};
  const Result<bool> changed = FoldAffine(graph_);
  ASSERT_TRUE(changed.has_value());
  EXPECT_FALSE(*changed);
  EXPECT_EQ(Count(TensorOp::kMul), 1);
}

TEST_F(PassesTest, DecomposeLeavesOnlyPlainOps) {
  const GraphValueId x = Input({D(2), D(6)});
  Attributes axis;
  axis.Set("axis", int64_t{-1});
  graph_.outputs = {Node(TensorOp::kSoftmax, {x}, {D(2), D(6)}, axis)};
  Run(DecomposeRows);
  EXPECT_EQ(Count(TensorOp::kSoftmax), 0);
  EXPECT_EQ(Count(TensorOp::kReduceMax) + Count(TensorOp::kReduceSum), 2);
}

}  // namespace
}  // namespace kiln::passes
