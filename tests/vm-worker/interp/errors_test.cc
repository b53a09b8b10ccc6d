// Bad input: the error names input, dimension and constraint, and the context goes on.
#include <gmock/gmock.h>

#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kProgram = R"(program "p" {
  symbol n in [2, 64] divisor 2
  symbol k in [0, 64]
  constraint k <= n
  func main(%image: f32[n, 3], %pick: i64[k]) -> (%y) {
    %a : f32[n, 3] = Relu(%image)
    %y : f32[k, 3] = Gather(%a, %pick) "take rows"
  }
})";

class ErrorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    program_ = LoadText(kProgram);
    ASSERT_TRUE(program_);
  }
  // The message for inputs that must be refused; a good call before and after gives the same answer.
  std::string Refused(const std::vector<TensorRef>& inputs, ErrorCode code) {
    ExpectGood();
    std::string message;
    for (bool static_forms : {true, false}) {
      const auto outputs = context_.Run(*program_, inputs, {.static_forms = static_forms});
      EXPECT_FALSE(outputs.has_value());
      if (outputs) return "";
      EXPECT_EQ(outputs.error().code, code) << outputs.error().message;
      message = outputs.error().message;
      ExpectGood();
    }
    return message;
  }
  void ExpectGood() {
    const auto outputs = context_.Run(*program_, std::vector{image_.ref, pick_.ref});
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    EXPECT_EQ(Values((*outputs)[0].ref), (std::vector<float>{9, 10, 11, 0, 1, 2}));
  }

  std::shared_ptr<const LoadedProgram> program_;
  VmContext context_;
  Tensor image_ = Iota({4, 3});
  Tensor pick_ = Ints({2}, {3, 0});
};

TEST_F(ErrorsTest, ACountOfInputs) {
  EXPECT_THAT(Refused({image_.ref}, ErrorCode::kInvalidArgument),
              HasSubstr("1 inputs were given; the program takes 2"));
}
TEST_F(ErrorsTest, SizesThatTheProgramStatesWrongly) {
  for (const char* node : {"CumSum(%x, %axis)", "Identity(%x)", "Relu(%x)"}) {
    const auto program = LoadText(std::string(R"(program "p" {
      symbol n in [0, 64]
      constant zero : i64[] = [0]
      func main(%x: f32[n, 3]) -> (%y) {
        %axis : i64[] = Constant() {value = @zero}
        %y : f32[4, 3] = )") + node +
                                  " } }");
    ASSERT_TRUE(program);
    const Tensor x = Iota({2, 3});
    for (bool static_forms : {false, true, true}) {
      const auto outputs = context_.Run(*program, std::vector{x.ref}, {.static_forms = static_forms});
      ASSERT_FALSE(outputs.has_value()) << node;
      EXPECT_THAT(outputs.error().message, HasSubstr("the program says f32[4, 3]"));
    }
  }
}
// What no legal size makes true is refused before anything runs.
TEST(Errors, SizesThatNoInputGivesAreRefusedAtLoad) {
  struct Case {
    const char* node;
    const char* part;
  };
  for (const Case& c : {
           Case{"%y : f32[3*n, 3] = Relu(%x)",
                "node Relu: value \"y\" is stated as f32[3*n, 3]; the op gives n for dim 0, never 3*n"},
           Case{"%y : f32[n + 1, 3] = Abs(%x) \"sizes up\"", "node Abs \"sizes up\": value \"y\""},
           Case{"%y : f32[n, 4] = Identity(%x)", "the op gives 3 for dim 1, never 4"},
           Case{"%y : f32[n, 3] = Transpose(%x) {perm = [1, 0]} %z : f32[n] = Flatten(%x)", "the op gives f32[n, 3]"},
           Case{"%y : f32[n, n, 3] = Relu(%x)", "the op gives f32[n, 3]"},
           Case{"%y : f32[100, 3] = Relu(%x)", "the op gives n for dim 0, never 100"},
       }) {
    auto program = ParseProgram(std::string(R"(program "p" {
      symbol n in [1, 64]
      func main(%x: f32[n, 3]) -> (%y) { )") +
                                c.node + " } }");
    ASSERT_TRUE(program.has_value()) << c.node << ToString(program.error());
    const auto loaded = LoadedProgram::Load(std::move(*program), {.verify_code = true});
    ASSERT_FALSE(loaded.has_value()) << c.node;
    EXPECT_EQ(loaded.error().code, ErrorCode::kShapeMismatch);
    EXPECT_THAT(loaded.error().message, HasSubstr("function \"main\""));
    EXPECT_THAT(loaded.error().message, HasSubstr(c.part)) << c.node;
  }
}
// A branch that no run takes may contradict itself: only a run that comes to it fails.
TEST(Errors, AContradictionInABranchThatIsNotTaken) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [1, 64]
    func main(%x: f32[n], %go: bool[]) -> (%y) {
      %y : f32[*] = If(%go) then() -> (%a) { %a : f32[2*n] = Relu(%x) } else() -> (%b) { %b : f32[n] = Neg(%x) }
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor x = Iota({2});
  Tensor go = Tensor::Allocate(DType::kBool, {});
  *go.ref.as<uint8_t>() = 0;
  EXPECT_TRUE(RunEveryWay(context, *program, std::vector{x.ref, go.ref}).has_value());
  *go.ref.as<uint8_t>() = 1;
  const auto taken = RunEveryWay(context, *program, std::vector{x.ref, go.ref});
  ASSERT_FALSE(taken.has_value());
  EXPECT_THAT(taken.error().message, HasSubstr("dim 0 of value \"a\" is 2; 2*n is 4 here"));
}
// Kernels are chosen by the stated dtype: a wrong one would have them read beyond the tensor.
TEST_F(ErrorsTest, ADTypeThatTheProgramStatesWrongly) {
  for (const char* dims : {"n", "2"}) {
    const auto program = LoadText(std::string(R"(program "p" {
      symbol n in [0, 64]
      constant s : f32[] = [1.0]
      func main(%x: f32[)") + dims +
                                  R"(]) -> (%z) {
        %s : f32[] = Constant() {value = @s}
        %y : f64[)" + dims + R"(] = QuantizeLinear(%x, %s)
        %z : f64[)" + dims + R"(] = Neg(%y)
      }
    })");
    ASSERT_TRUE(program);
    const Tensor x = Iota({2});
    for (bool static_forms : {false, true, true}) {
      const auto outputs = context_.Run(*program, std::vector{x.ref}, {.static_forms = static_forms});
      ASSERT_FALSE(outputs.has_value());
      EXPECT_THAT(outputs.error().message, HasSubstr("is u8[2]; the program says f64["));
    }
  }
}
TEST_F(ErrorsTest, ADType) {
  EXPECT_THAT(Refused({image_.ref, image_.ref}, ErrorCode::kShapeMismatch),
              HasSubstr("input \"pick\" is f32; i64 is needed"));
}
TEST_F(ErrorsTest, ARank) {
  EXPECT_THAT(Refused({Iota({4}).ref, pick_.ref}, ErrorCode::kShapeMismatch), HasSubstr("input \"image\" has rank 1"));
}
TEST_F(ErrorsTest, AConstantDim) {
  EXPECT_THAT(Refused({Iota({4, 5}).ref, pick_.ref}, ErrorCode::kShapeMismatch),
              HasSubstr("dim 1 of input \"image\" is 5; 3 is needed"));
}
TEST_F(ErrorsTest, ARange) {
  EXPECT_THAT(Refused({Iota({66, 3}).ref, pick_.ref}, ErrorCode::kShapeMismatch),
              HasSubstr("dim 0 of input \"image\" is 66; n is at most 64"));
  EXPECT_THAT(Refused({Iota({0, 3}).ref, pick_.ref}, ErrorCode::kShapeMismatch), HasSubstr("n is at least 2"));
}
TEST_F(ErrorsTest, ADivisor) {
  EXPECT_THAT(Refused({Iota({5, 3}).ref, pick_.ref}, ErrorCode::kShapeMismatch),
              HasSubstr("dim 0 of input \"image\" is 5; n is a multiple of 2"));
}
TEST_F(ErrorsTest, AConstraint) {
  EXPECT_THAT(
      Refused({Iota({2, 3}).ref, Ints({4}, {0, 0, 0, 0}).ref}, ErrorCode::kShapeMismatch),
      HasSubstr("constraint k <= n does not hold: k is 4, dim 0 of input \"pick\"; n is 2, dim 0 of input \"image\""));
}
TEST_F(ErrorsTest, AnIndexInTheData) {
  EXPECT_THAT(Refused({image_.ref, Ints({2}, {0, 4}).ref}, ErrorCode::kOutOfRange), HasSubstr("take rows"));
}
TEST_F(ErrorsTest, NoData) {
  TensorRef without = image_.ref;
  without.data = nullptr;
  EXPECT_THAT(Refused({without, pick_.ref}, ErrorCode::kInvalidArgument), HasSubstr("input \"image\" has no data"));
}

TEST(Errors, MemoryPastTheLimitIsRefused) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 1099511627776]
    func main(%x: f32[n]) -> (%y) {
      %y : f32[n] = Neg(%x)
    }
  })");
  VmContext context(VmOptions{.arena_limit_bytes = 1 << 20});
  const Tensor one = Iota({1});
  const TensorRef wide{DType::kF32, {int64_t{1} << 34}, {0}, one.ref.data};
  for (bool static_forms : {true, false}) {
    const auto outputs = context.Run(*program, std::vector{wide}, {.static_forms = static_forms});
    ASSERT_FALSE(outputs.has_value());
    EXPECT_EQ(outputs.error().code, ErrorCode::kResourceExhausted);
    EXPECT_TRUE(context.Run(*program, std::vector{Iota({1000}).ref}, {.static_forms = static_forms}));
  }
}

TEST(Errors, AProgramOfTooManySegmentsIsRefusedAtLoad) {
  Program program;
  program.functions.resize(1);
  Function& function = program.functions[0];
  function.name = "main";
  function.values.push_back({"x", StaticDesc(DType::kF32, {4})});
  function.regions.resize(1);
  function.regions[0].inputs = {0};
  for (int i = 0; i < 60000; ++i) {
    function.values.push_back(
        {"", {.dtype = DType::kI64, .dims = std::vector{Dim::Const(1), program.symbols.FreshSymbol()}}});
    function.regions[0].nodes.push_back({.op = TensorOp::kNonZero, .inputs = {0}, .outputs = {i + 1}});
  }
  function.regions[0].outputs = {1};
  const auto loaded = LoadedProgram::Load(std::move(program));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, ErrorCode::kLimitExceeded) << loaded.error().message;
}

TEST(Errors, DimsThatDisagreeBetweenInputs) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    func main(%a: f32[n], %b: f32[n]) -> (%y) {
      %y : f32[n] = Add(%a, %b)
    }
  })");
  VmContext context;
  const auto outputs = context.Run(*program, std::vector{Iota({3}).ref, Iota({4}).ref});
  ASSERT_FALSE(outputs.has_value());
  EXPECT_THAT(outputs.error().message, HasSubstr("dim 0 of input \"b\" is 4; n is 3 by an earlier input"));
}

}  // namespace
}  // namespace kiln
