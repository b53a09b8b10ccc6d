// Quotients and remainders of integers are generated. A 0 among known divisors is left to the op, which reports it; one
// that a call gives ends the plan before its kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::testing {
namespace {

std::string Divided(const std::string& type, const std::string& node, const std::string& divisors) {
  const std::string constant = type + "[" + std::to_string(1 + std::count(divisors.begin(), divisors.end(), ',')) + "]";
  return "program \"p\" { symbol n symbol m\n constant d : " + constant + " = [" + divisors +
         "]\n func main(%x: " + type + "[n, m, 4], %f: " + type + "[n, m, 4]) -> (%y) {\n %d : " + constant +
         " = Constant() {value = @d}\n %q : " + type + "[*] = " + node + "\n %y : " + type + "[*] = Add(%q, %f) } }";
}

TEST(IntegerDivision, ByKnownNumbersIsGenerated) {
  for (const std::string type : {"i32", "i64"})
    for (const std::string node : {"Div(%x, %d)", "Mod(%x, %d)", "Mod(%x, %d) {fmod = 1}"})
      for (const std::string divisors : {"3", "-3", "1", "-1", "2, -1, -7, 1"})
        CheckBits(Divided(type, node, divisors), {{3, 5}, {1, 1}, {0, 2}, {7, 9}});
}

TEST(IntegerDivision, ByZeroIsLeftToTheOp) {
  const auto reference = [](const std::string& text) {
    const Segment segment = SegmentOf(text);
    const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {2, 9}, {}});
    EXPECT_TRUE(lowered.has_value());
    return lowered.has_value() ? lowered->coverage.reference_nodes : 0;
  };
  EXPECT_GT(reference(Divided("i64", "Div(%x, %d)", "2, 0, 3, 1")), 0u);
  EXPECT_GT(reference(Divided("i32", "Mod(%x, %d)", "0")), 0u);
  EXPECT_EQ(reference(Divided("i64", "Div(%x, %d)", "2")), 0u);
}

int Checks(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.steps, [](const PlanStep& step) {
    const auto* reference = std::get_if<ReferenceStep>(&step.step);
    return reference != nullptr && reference->op == TensorOp::kCheckDivisors;
  }));
}

template <class T>
class DivisionOfACall {
 public:
  explicit DivisionOfACall(const std::string& node) {
    const std::string type(DTypeName(kType));
    segment_ =
        SegmentOf("program \"p\" { symbol n\n func main(%x: " + type + "[n, 4], %d: " + type +
                  "[4]) -> (%y) {\n %q : " + type + "[n, 4] = " + node + "\n %y : " + type + "[n, 4] = Neg(%q) } }");
    auto lowered = lower::LowerSegment({segment_, target_, NumericMode::kDefault, {2}, {}});
    EXPECT_TRUE(lowered.has_value()) << ToString(lowered.error());
    lowered_ = std::move(*lowered);
    EXPECT_EQ(lowered_.coverage.reference_nodes, 0) << Describe(lowered_);
    EXPECT_EQ(Checks(lowered_.plan), 1) << Describe(lowered_);
  }

  Result<std::vector<Tensor>> Run(const std::vector<T>& x, const std::vector<T>& d, bool by_plan) {
    const auto rows = static_cast<int64_t>(x.size() / 4);
    const Tensor inputs[] = {Tensor::Of<T>(kType, Dims{rows, 4}, std::span(x)),
                             Tensor::Of<T>(kType, Dims{4}, std::span(d))};
    const TensorRef refs[] = {inputs[0].ref, inputs[1].ref};
    if (by_plan)
      return RunLowered(lowered_, std::vector<int64_t>{rows}, refs, {}, InfoOf(target_).f32_lanes(), runner_.runner());
    const auto body = LoadSegmentBody(segment_);
    VmContext context;
    return RunSegment(context, **body, segment_, refs, {}, {});
  }

 private:
  static constexpr DType kType = sizeof(T) == 4 ? DType::kI32 : DType::kI64;
  const Target target_ = HostTargets().back();
  Segment segment_;
  lower::LoweredSegment lowered_;
  CompiledRunner runner_{target_};
};

template <class T>
void CheckDivisionOfACall() {
  constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  const std::vector<T> x = {kLeast, kLeast, kMost, -7, 7, 0, kLeast, kMost, -1, kLeast + 1, 5, kMost};
  for (const std::string node : {"Div(%x, %d)", "Mod(%x, %d)", "Mod(%x, %d) {fmod = 1}"}) {
    SCOPED_TRACE(node);
    DivisionOfACall<T> division(node);
    for (const std::vector<T>& d : {std::vector<T>{-1, 1, 3, -3}, {kLeast, kMost, -1, 2}, {2, -2, kLeast, -1}}) {
      const auto plan = division.Run(x, d, true), interpreter = division.Run(x, d, false);
      ASSERT_TRUE(plan.has_value()) << ToString(plan.error());
      ASSERT_TRUE(interpreter.has_value());
      const Tensor &got = (*plan)[0], &want = (*interpreter)[0];
      ASSERT_EQ(got.dims(), want.dims());
      EXPECT_EQ(std::memcmp(got.ref.data, want.ref.data, static_cast<size_t>(want.ref.bytes())), 0);
    }
    // Nothing is divided by a zero.
    for (const bool by_plan : {true, false}) EXPECT_TRUE(division.Run({}, {1, 2, 0, 3}, by_plan).has_value());
    const auto plan = division.Run(x, {1, 2, 0, 3}, true), interpreter = division.Run(x, {1, 2, 0, 3}, false);
    ASSERT_FALSE(plan.has_value());
    ASSERT_FALSE(interpreter.has_value());
    for (const Error& error : {plan.error(), interpreter.error()})
      EXPECT_NE(error.message.find("integer division by zero"), std::string::npos) << error.message;
  }
}

TEST(IntegerDivision, ByNumbersOfTheCallIsGeneratedBehindACheck) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  CheckDivisionOfACall<int32_t>();
  CheckDivisionOfACall<int64_t>();
}

// A divisor that another node of the same shape computes is memory before it is looked at; a dividend need not be. One
// check is enough for one divisor.
TEST(IntegerDivision, ComputedDivisorsAreStoredFirst) {
  const lower::LoweredSegment lowered = CheckBits(R"(program "p" { symbol n
      constant one : i64[1] = [1]
      func main(%x: i64[n], %z: i64[n]) -> (%y) {
        %one : i64[1] = Constant() {value = @one}
        %s : i64[n] = Mul(%z, %z)
        %d : i64[n] = Add(%s, %one)
        %p : i64[n] = Neg(%x)
        %q : i64[n] = Div(%p, %d)
        %r : i64[n] = Mod(%q, %d)
        %y : i64[n] = Sub(%q, %r) } })",
                                                  {{5}, {33}, {0}});
  EXPECT_EQ(Checks(lowered.plan), 1) << Describe(lowered);
  EXPECT_EQ(lowered.specs.size(), 2u) << Describe(lowered);
}

}  // namespace
}  // namespace kiln::testing
