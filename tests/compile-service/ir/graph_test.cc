// The graph's own verifier and questions.
#include "compile-service/ir/graph.h"

#include <gtest/gtest.h>

namespace kiln::ir {
namespace {

Graph OneNode() {
  Graph graph;
  const Dim n = graph.symbols.FreshSymbol();
  const GraphValueId x = graph.AddValue(DType::kF32, {n, Dim::Const(4)});
  graph.value(x).origin = Origin::kInput;
  graph.value(x).index = 0;
  graph.inputs = {x};
  const GraphValueId y = graph.AddValue(DType::kF32, {n, Dim::Const(4)});
  graph.nodes.push_back({TensorOp::kRelu, {}, {x}, {y}, {0}});
  graph.outputs = {y};
  graph.Renumber();
  return graph;
}

TEST(VerifyGraph, AcceptsAGraphInOrder) {
  EXPECT_TRUE(VerifyGraph(OneNode()).has_value());
}

TEST(VerifyGraph, RejectsAReadBeforeItsDefinition) {
  Graph graph = OneNode();
  graph.nodes[0].inputs[0] = graph.nodes[0].outputs[0];
  EXPECT_FALSE(VerifyGraph(graph).has_value());
}

TEST(VerifyGraph, RejectsASecondDefinition) {
  Graph graph = OneNode();
  graph.nodes.push_back(graph.nodes[0]);
  EXPECT_FALSE(VerifyGraph(graph).has_value());
}

TEST(VerifyGraph, RejectsIdsOutOfRange) {
  Graph graph = OneNode();
  graph.outputs[0] = 99;
  EXPECT_FALSE(VerifyGraph(graph).has_value());
  graph = OneNode();
  graph.nodes[0].inputs[0] = 99;
  EXPECT_FALSE(VerifyGraph(graph).has_value());
}

TEST(Graph, ScalarOfReadsBroadcastImmediatesToo) {
  Graph graph;
  EXPECT_EQ(graph.ScalarOf(graph.AddScalar(2.5f)), 2.5f);
  const std::vector<float> equal{3, 3}, different{3, 4};
  EXPECT_EQ(graph.ScalarOf(graph.AddImmediate(Tensor::Of<float>(DType::kF32, Dims{2}, equal))), 3.0f);
  EXPECT_EQ(graph.ScalarOf(graph.AddImmediate(Tensor::Of<float>(DType::kF32, Dims{2}, different))), std::nullopt);
}

TEST(PrintGraph, NamesOpsAndDims) {
  const std::string text = PrintGraph(OneNode());
  EXPECT_NE(text.find("Relu"), std::string::npos) << text;
  EXPECT_NE(text.find("f32["), std::string::npos) << text;
}

}  // namespace
}  // namespace kiln::ir
