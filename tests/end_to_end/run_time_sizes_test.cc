// Operands whose size only a call tells: one element that serves all, or as many as what they belong to; inputs shorter
// than what is repeated of them. Kernels compute all of it, and answer what the interpreter answers.
#include <gtest/gtest.h>

#include "cli/onnx_test/interpreter_runner.h"
#include "common/numeric/difference.h"
#include "tests/end_to_end/compiled_services.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln {
namespace {

using onnx::IntAttribute;
using onnx::IntTensor;
using onnx::Tensor32;
using onnx::TestModel;
using onnx::TextAttribute;

Tensor Filled(const Dims& dims, int64_t seed) {
  Tensor tensor = Tensor::Allocate(DType::kF32, dims);
  for (float& value : tensor.values<float>())
    value = static_cast<float>((seed = (seed * 37 + 11) % 1009) - 500) * 0.0078125f;
  return tensor;
}

class RunTimeSizes : public testing::CompiledServicesTest {
 protected:
  // Runs every call, one after the other, in one loaded program per mode.
  static void ExpectKernelsAnswer(const TestModel& model, const std::vector<std::vector<Dims>>& calls) {
    const auto imported = model.Import();
    ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
    const uint32_t by_reference = services_->coverage().reference_nodes;
    {
      const auto interpreted = onnx_test::InterpretedMode().load(imported->program);
      const auto compiled = services_->Mode(cli::StrictTier::kGeneric).load(imported->program);
      ASSERT_TRUE(interpreted.has_value() && compiled.has_value());
      for (const std::vector<Dims>& call : calls) {
        std::vector<Tensor> data;
        std::vector<TensorRef> inputs;
        std::string text;
        for (const Dims& dims : call) data.push_back(Filled(dims, static_cast<int64_t>(data.size()) + 1));
        for (const Tensor& tensor : data) {
          inputs.push_back(tensor.ref);
          text += " " + tensor.dims().ToString();
        }
        SCOPED_TRACE("sizes" + text);
        const auto expected = (*interpreted)->Run(inputs);
        const auto got = (*compiled)->Run(inputs);
        ASSERT_TRUE(expected.has_value()) << ToString(expected.error());
        ASSERT_TRUE(got.has_value()) << ToString(got.error());
        const ErrorBound bound{.scope = ErrorScope::kElement, .relative = 1e-5, .tiny = 1e-6};
        const auto difference = FirstDifference((*expected)[0].ref, (*got)[0].ref, bound);
        EXPECT_FALSE(difference.has_value()) << *difference;
      }
    }
    EXPECT_EQ(services_->coverage().reference_nodes, by_reference) << "nodes were left to reference steps";
  }
};

TEST_F(RunTimeSizes, ASlopeServesAllOrIsPerElement) {
  TestModel model(16);
  model.Input(Tensor32("x", {"n", "c", "w"})).Input(Tensor32("s", {"sc", "sw"}));
  model.Node("PRelu", {"x", "s"}, {"y"}).Output("y");
  ExpectKernelsAnswer(model, {{{2, 3, 5}, {1, 1}},
                              {{2, 3, 5}, {3, 1}},
                              {{2, 3, 5}, {1, 5}},
                              {{4, 3, 5}, {3, 5}},
                              {{2, 1, 1}, {1, 1}},
                              {{2, 1, 4}, {1, 4}},
                              {{0, 3, 5}, {3, 1}}});
}

TEST_F(RunTimeSizes, AScaleServesAllOrIsPerElement) {
  for (const char* op : {"LayerNormalization", "RMSNormalization"}) {
    SCOPED_TRACE(op);
    TestModel model(23);
    model.Input(Tensor32("x", {"n", "w"})).Input(Tensor32("s", {"sw"}));
    if (std::string_view(op) == "LayerNormalization") model.Input(Tensor32("b", {"bw"}));
    onnx::NodeProto& node = onnx::AddNode(*model.graph().mutable_node(), op, {"x", "s"}, {"y"});
    std::vector<std::vector<Dims>> calls = {{{3, 7}, {1}}, {{3, 7}, {7}}, {{5, 1}, {1}}, {{2, 40}, {40}}};
    if (std::string_view(op) == "LayerNormalization") {
      node.add_input("b");
      for (size_t i = 0; i < calls.size(); ++i) calls[i].push_back(i % 2 == 0 ? calls[i][1] : Dims{1});
    }
    model.Output("y");
    ExpectKernelsAnswer(model, calls);
  }
}

TEST_F(RunTimeSizes, TheAddendOfAProductServesAllOrIsPerElement) {
  TestModel model(13);
  model.Input(Tensor32("a", {"m", "k"})).Input(Tensor32("b", {"k", "n"})).Input(Tensor32("c", {"cm", "cn"}));
  model.Node("Gemm", {"a", "b", "c"}, {"y"}).Output("y");
  ExpectKernelsAnswer(
      model, {{{3, 4}, {4, 5}, {1, 1}}, {{3, 4}, {4, 5}, {3, 1}}, {{3, 4}, {4, 5}, {1, 5}}, {{3, 4}, {4, 5}, {3, 5}}});
}

// Sizes below, at and above the pads, so that the input is repeated up to several times.
TEST_F(RunTimeSizes, PadsWrapAroundInputsOfAnyLength) {
  TestModel model(19);
  model.Input(Tensor32("x", {"n", "h", "w"})).Initializer(IntTensor("p", {6}, {0, 5, 2, 0, 4, 3}));
  model.Node("Pad", {"x", "p"}, {"y"}, {TextAttribute("mode", "wrap")}).Output("y");
  std::vector<std::vector<Dims>> calls;
  for (const int64_t h : {1, 2, 3, 4, 5, 6, 11})
    for (const int64_t w : {1, 2, 3, 17}) calls.push_back({{2, h, w}});
  ExpectKernelsAnswer(model, calls);
}

TEST_F(RunTimeSizes, PadsWrapAroundOneAxisAndFuse) {
  TestModel model(19);
  model.Input(Tensor32("x", {"n", "w"}))
      .Initializer(IntTensor("p", {2}, {7, 9}))
      .Initializer(IntTensor("a", {1}, {-1}));
  model.Node("Relu", {"x"}, {"r"}).Node("Pad", {"r", "p", "", "a"}, {"q"}, {TextAttribute("mode", "wrap")});
  model.Node("Mul", {"q", "q"}, {"y"}).Output("y");
  ExpectKernelsAnswer(model, {{{1, 1}}, {{3, 2}}, {{3, 5}}, {{2, 8}}, {{2, 9}}, {{2, 30}}, {{0, 3}}});
}

}  // namespace
}  // namespace kiln
