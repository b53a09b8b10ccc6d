// The operators that draw random numbers, as models have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx {
namespace {

using testing::HasSubstr;

constexpr int32_t kFloat = 1, kInt32 = 6, kInt64 = 7, kBool = 9, kHalf = 10, kDouble = 11, kBFloat16 = 16;

Result<std::vector<Tensor>> RunModel(const TestModel& model, const std::vector<Tensor>& inputs, uint64_t seed = 1) {
  ASSIGN_OR_RETURN(ImportedModel imported, model.Import());
  ASSIGN_OR_RETURN(const auto program, LoadedProgram::Load(std::move(imported.program), {.verify_code = true}));
  VmOptions options;
  options.random = [seed] { return seed; };
  VmContext context(options);
  std::vector<TensorRef> refs;
  for (const Tensor& input : inputs) refs.push_back(input.ref);
  return context.Run(*program, refs);
}

std::vector<double> Doubles(const TensorRef& ref) {
  std::vector<double> values;
  const Tensor flat = MakeContiguous(ref);
  DispatchDType(ref.dtype, [&]<class T>() {
    for (const T& value : flat.values<T>()) {
      if constexpr (std::is_arithmetic_v<T>) values.push_back(static_cast<double>(value));
      if constexpr (!std::is_arithmetic_v<T>) values.push_back(static_cast<double>(static_cast<float>(value)));
    }
  });
  return values;
}

// Mean and standard deviation.
std::pair<double, double> MomentsOf(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean)};
}

TEST(RandomForms, ShapesAndTypesOfAttributes) {
  for (const int32_t dtype : {kFloat, kHalf, kBFloat16, kDouble}) {
    TestModel model(22);
    model.Node("RandomNormal", {}, {"a"},
               {IntsAttribute("shape", {50, 60}), IntAttribute("dtype", dtype), FloatAttribute("mean", 4),
                FloatAttribute("scale", 0.5)});
    model.Node("RandomUniform", {}, {"b"},
               {IntsAttribute("shape", {50, 60}), IntAttribute("dtype", dtype), FloatAttribute("low", -3),
                FloatAttribute("high", -1)});
    const auto outputs = RunModel(model.Output("a").Output("b"), {});
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    for (const Tensor& output : *outputs) {
      EXPECT_EQ(static_cast<int32_t>(output.dtype()), dtype);
      EXPECT_EQ(output.dims(), (Dims{50, 60}));
    }
    const auto [normal_mean, normal_deviation] = MomentsOf(Doubles((*outputs)[0].ref));
    EXPECT_NEAR(normal_mean, 4, 0.06);
    EXPECT_NEAR(normal_deviation, 0.5, 0.04);
    const auto [uniform_mean, uniform_deviation] = MomentsOf(Doubles((*outputs)[1].ref));
    EXPECT_NEAR(uniform_mean, -2, 0.06);
    EXPECT_NEAR(uniform_deviation, 2 / std::sqrt(12.0), 0.04);
  }
}

TEST(RandomForms, DefaultsAreTheFormats) {
  TestModel model(1);
  model.Node("RandomNormal", {}, {"a"}, {IntsAttribute("shape", {2000})});
  model.Node("RandomUniform", {}, {"b"}, {IntsAttribute("shape", {2000})});
  model.Node("RandomNormal", {}, {"c"}, {IntsAttribute("shape", {})});
  const auto outputs = RunModel(model.Output("a").Output("b").Output("c"), {});
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  for (const Tensor& output : *outputs) EXPECT_EQ(output.dtype(), DType::kF32);
  const auto [mean, deviation] = MomentsOf(Doubles((*outputs)[0].ref));
  EXPECT_NEAR(mean, 0, 0.12);
  EXPECT_NEAR(deviation, 1, 0.08);
  for (const double value : Doubles((*outputs)[1].ref)) EXPECT_TRUE(value >= 0 && value < 1);
  EXPECT_EQ((*outputs)[2].dims(), Dims{});
}

TEST(RandomForms, LikeFormsTakeShapeAndTypeAtRunTime) {
  TestModel model(22);
  model.Input(Tensor32("x", {"n", "m"}, kDouble)).Input(Tensor32("i", {"k"}, kInt64));
  model.Node("RandomNormalLike", {"x"}, {"a"});
  model.Node("RandomUniformLike", {"i"}, {"b"}, {IntAttribute("dtype", kHalf), FloatAttribute("high", 9)});
  // Sizes that only the contents of a tensor tell.
  model.Node("NonZero", {"i"}, {"found"}).Node("RandomNormalLike", {"found"}, {"c"}, {IntAttribute("dtype", kFloat)});
  model.Output("a").Output("b").Output("c");
  for (const int64_t n : {0, 1, 7}) {
    const std::vector<int64_t> numbers = {0, 3, 4, 0};
    const auto outputs = RunModel(
        model, {Tensor::Zeros(DType::kF64, Dims{n, 3}), Tensor::Of<int64_t>(DType::kI64, Dims{4}, std::span(numbers))});
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    EXPECT_EQ((*outputs)[0].dtype(), DType::kF64);
    EXPECT_EQ((*outputs)[0].dims(), (Dims{n, 3}));
    EXPECT_EQ((*outputs)[1].dtype(), DType::kF16);
    EXPECT_EQ((*outputs)[1].dims(), (Dims{4}));
    EXPECT_EQ((*outputs)[2].dims(), (Dims{1, 2}));
  }
}

// Sums of independent draws: within five standard errors.
TEST(RandomForms, BernoulliDrawsByItsProbabilities) {
  constexpr int64_t kEach = 20'000;
  const std::vector<float> shares = {0, 0.001f, 0.3f, 0.75f, 1};
  for (const int32_t given : {kFloat, kHalf, kBFloat16, kDouble})
    for (const int32_t made : {kFloat, kInt64, kBool, kDouble}) {
      TestModel model(22);
      model.Input(Tensor32("x", {"n"}, given)).Node("Bernoulli", {"x"}, {"y"}, {IntAttribute("dtype", made)});
      Tensor x = Tensor::Zeros(*DTypeFromNumber(given), Dims{kEach * 5});
      DispatchDType(x.dtype(), [&]<class T>() {
        for (size_t i = 0; i < 5 * kEach; ++i) x.ref.as<T>()[i] = T(shares[i / kEach]);
      });
      const auto outputs = RunModel(model.Output("y"), {x});
      ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
      EXPECT_EQ(static_cast<int32_t>((*outputs)[0].dtype()), made);
      const std::vector<double> given_shares = Doubles(x.ref), drawn = Doubles((*outputs)[0].ref);
      for (size_t part = 0; part < 5; ++part) {
        double ones = 0;
        for (size_t i = part * kEach; i < (part + 1) * kEach; ++i) {
          EXPECT_TRUE(drawn[i] == 0 || drawn[i] == 1);
          ones += drawn[i];
        }
        const double p = given_shares[part * kEach];
        EXPECT_NEAR(ones, p * kEach, 5 * std::sqrt(p * (1 - p) * kEach)) << p;
      }
    }
}

TEST(RandomForms, BernoulliHasTheTypeOfItsInputByDefault) {
  TestModel model(15);
  model.Input(Tensor32("x", {3}, kDouble)).Node("Bernoulli", {"x"}, {"y"}).Output("y");
  const auto outputs = RunModel(model, {Tensor::Zeros(DType::kF64, Dims{3})});
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  EXPECT_EQ((*outputs)[0].dtype(), DType::kF64);
}

TEST(RandomForms, MultinomialNumbersClasses) {
  for (const int32_t made : {kInt32, kInt64}) {
    TestModel model(7);
    model.Input(Tensor32("x", {"n", "classes"}));
    model.Node("Multinomial", {"x"}, {"y"}, {IntAttribute("dtype", made), IntAttribute("sample_size", 4000)});
    model.Node("Multinomial", {"x"}, {"z"}).Output("y").Output("z");
    const std::vector<float> logs = {std::log(0.7f) + 5, std::log(0.3f) + 5, -INFINITY};
    const auto outputs = RunModel(model, {Tensor::Of<float>(DType::kF32, Dims{1, 3}, std::span(logs))});
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    EXPECT_EQ(static_cast<int32_t>((*outputs)[0].dtype()), made);
    EXPECT_EQ((*outputs)[0].dims(), (Dims{1, 4000}));
    double ones = 0;
    for (const double value : Doubles((*outputs)[0].ref)) {
      EXPECT_LT(value, 2);
      ones += value;
    }
    EXPECT_NEAR(ones, 0.3 * 4000, 5 * std::sqrt(0.21 * 4000));
    EXPECT_EQ((*outputs)[1].dtype(), DType::kI32);
    EXPECT_EQ((*outputs)[1].dims(), (Dims{1, 1}));
  }
}

TEST(RandomForms, SeedsAreKept) {
  const auto draw = [](std::vector<float> seeds, uint64_t of_context) {
    TestModel model(22);
    AddNode(*model.graph().mutable_node(), "RandomNormal", {}, {"y"}, {IntsAttribute("shape", {8})});
    for (const float seed : seeds) *model.graph().mutable_node(0)->add_attribute() = FloatAttribute("seed", seed);
    const auto outputs = RunModel(model.Output("y"), {}, of_context);
    EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
    return outputs.has_value() ? Doubles((*outputs)[0].ref) : std::vector<double>{};
  };
  EXPECT_EQ(draw({2}, 1), draw({2}, 9));
  EXPECT_NE(draw({2}, 1), draw({2.5f}, 1));
  EXPECT_NE(draw({}, 1), draw({}, 9));
}

TEST(RandomForms, ErrorsNameNodeAndAttribute) {
  const auto error = [](const char* op, std::vector<AttributeProto> attributes, int32_t input) {
    TestModel model(22);
    NodeProto& node = AddNode(*model.graph().mutable_node(), op, {}, {"y"});
    node.set_name("node7");
    if (input != 0) {
      model.Input(Tensor32("x", {2, 3}, input));
      node.add_input("x");
    }
    for (const AttributeProto& attribute : attributes) *node.add_attribute() = attribute;
    const auto imported = model.Output("y").Import();
    return imported.has_value() ? std::string("ok") : ToString(imported.error());
  };
  EXPECT_THAT(error("RandomNormal", {}, 0), AllOf(HasSubstr("node7"), HasSubstr("attribute shape")));
  EXPECT_THAT(error("RandomNormal", {IntsAttribute("shape", {2, -1})}, 0), HasSubstr("-1"));
  EXPECT_THAT(error("RandomNormal", {IntsAttribute("shape", {2}), FloatAttribute("scale", -1)}, 0),
              AllOf(HasSubstr("node7"), HasSubstr("`scale`")));
  EXPECT_THAT(error("RandomNormalLike", {}, kInt64),
              AllOf(HasSubstr("node7"), HasSubstr("i64"), HasSubstr("floating")));
  EXPECT_THAT(error("RandomUniformLike", {IntAttribute("dtype", 8)}, kFloat), HasSubstr("node7"));  // strings
  EXPECT_THAT(error("Bernoulli", {}, kInt64), HasSubstr("must be floating-point"));
  EXPECT_THAT(error("Multinomial", {IntAttribute("dtype", kFloat)}, kFloat), HasSubstr("i32 or i64"));
  EXPECT_THAT(error("Multinomial", {IntAttribute("sample_size", -2)}, kFloat), HasSubstr("`sample_size`"));
  EXPECT_THAT(error("Multinomial", {}, kInt64), HasSubstr("floating-point"));
}

}  // namespace
}  // namespace kiln::onnx
