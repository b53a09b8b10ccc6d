#include "common/bytecode/program_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "common/bytecode/tensor_text.h"

namespace kiln {
namespace {

constexpr char kSample[] = R"kiln(program "sample \"1\"" {
  symbol n in [1, 4096] divisor 2
  symbol "odd name(x)"
  symbol m
  constraint n <= 128
  constraint 2 divides "odd name(x)"
  constant w0 : f32[2, 3] = [1.0, -0.0, 1e-45, inf, nan, nan(0xffc00001)]
  constant @1 "a b" : i64[2] = [-9223372036854775808, 7]
  constant big : f16[40] = splat 0.099975586
  weight ids : i32[1] = [-5]
  constant bits : u8[20] = hex "000102030405060708090a0b0c0d0e0f10111213"
  constant flags : bool[] = [true]
  immediate large : f32[17] = splat 0.5
  func main(%x: f32[n, 2], %cond: bool[] unaligned, %2 "not plain!": f32[*] strided view) -> (%y, %r) {
    %w : f32[2, 3] = Constant() {value = @w0}
    %y : f32[n, 3] = MatMul(%x, %w) "layer/0"
    %5 : i64[2] = ShapeVector() {dims = dims[2*n, floordiv(m, 8) + 1]}
    %c : f32[n, 3] = Clip(%y, _, _)
    %r : f32[*] = If(%cond) "branch" then() -> (%y) {
    } else() -> (%z) {
      %z : f32[n, 3] = LeakyRelu(%y) {alpha = 0.1}
    }
    %out : f32[n, 3], %14 : i64[*] = Loop(_, %cond, %y) body(%i: i64[], %go: bool[], %s: f32[n, 3]) -> (%go, %s, %i2) {
      %i2 : i64[] = Identity(%i)
    }
  }
}
)kiln";

Program Parse(std::string_view text) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message);
  return program ? *std::move(program) : Program();
}

TEST(ProgramText, PrintsWhatItRead) {
  const Program program = Parse(kSample);
  ASSERT_EQ(program.functions.size(), 1u);
  EXPECT_EQ(PrintProgram(program), kSample);
  const Function& main = program.entry();
  EXPECT_EQ(main.regions.size(), 4u);
  EXPECT_EQ(main.values.size(), 15u);
  EXPECT_EQ(main.regions[0].nodes[1].name, "layer/0");
  EXPECT_EQ(main.values[2].name, "not plain!");
  EXPECT_EQ(main.values[1].desc.alignment, AlignmentClass::kElement);
  EXPECT_FALSE(main.values[2].desc.has_rank());
  EXPECT_TRUE(main.values[2].desc.is_view);
  const Tensor& w0 = program.constants[0].tensor;
  EXPECT_EQ(std::bit_cast<uint32_t>(w0.values<float>()[1]), 0x80000000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(w0.values<float>()[2]), 1u);
  EXPECT_EQ(std::bit_cast<uint32_t>(w0.values<float>()[5]), 0xffc00001u);
  EXPECT_FALSE(program.constants[2].is_immediate);
  EXPECT_FALSE(program.constants[3].is_immediate);
  EXPECT_TRUE(program.constants[6].is_immediate);
}

TEST(ProgramText, IdsInAnyOrderAndEveryAttributeTypeComeBack) {
  constexpr char text[] = R"(program "ids" {
  func f(%1 "b": f32[4]) -> (%a) {
    %3 "b" : f32[4] = Selu(%1) {alpha = nan, gamma = -1e+300}
    %a#0 : f32[4] = Transpose(%3) {perm = ints[]}
    %2 : f32[1, 1, 1] = LSTM(%a, %a, %a, _, _, _, _, _) {activation_alpha = floats[], activation_beta = [0.5, 2.0], activations = ["Tanh", "relu"]}
    %5 : f32[*] = Einsum(%a) {equation = "a\x0ab"}
    () = If(%c) then#2() -> () {
    } else#1() -> () {
    }
  }
})";
  std::string fixed(text);
  fixed.replace(fixed.find("f32[4])"), 7, "f32[4], %c#4: bool[])");
  const Program program = Parse(fixed);
  ASSERT_EQ(program.functions.size(), 1u);
  EXPECT_EQ(PrintProgram(program), fixed + "\n");
  const Function& f = program.entry();
  EXPECT_EQ(f.values[0].name, "a");
  EXPECT_EQ(f.values[3].name, "b");
  const Attributes& lstm = f.regions[0].nodes[2].attributes;
  EXPECT_TRUE(std::holds_alternative<std::vector<double>>(*lstm.Find("activation_alpha")));
  EXPECT_EQ(lstm.Texts("activations")[1], "relu");
  EXPECT_EQ(f.regions[0].nodes[3].attributes.Text("equation", ""), "a\nb");
}

// As exporters name them: some by the id they have, some by another one.
TEST(ProgramText, NamesThatAreNumbersComeBack) {
  constexpr char text[] = R"(program "numbers" {
  constant @0 "0" : f32[1] = [1.0]
  constant @1 "0" : f32[1] = [2.0]
  func main(%0 "0": f32[1], %1 "2": f32[1]) -> (%3) {
    %2 : f32[1] = Constant() {value = @0}
    %3 "3" : f32[1] = Add(%1, %2) "1"
  }
}
)";
  const Program program = Parse(text);
  ASSERT_EQ(program.functions.size(), 1u);
  EXPECT_EQ(PrintProgram(program), text);
  EXPECT_EQ(program.constants[0].name, "0");
  EXPECT_EQ(program.entry().values[0].name, "0");
  EXPECT_EQ(program.entry().values[1].name, "2");
  EXPECT_EQ(program.entry().values[2].name, "");
}

TEST(ProgramText, ErrorsNameLineAndColumn) {
  struct Row {
    const char* text;
    const char* message;
  };
  const Row rows[] = {
      {"", "line 1, column 1: \"program\" is expected"},
      {"program \"p", "line 1, column 9: the closing quote is missing"},
      {"program \"p\" {",
       "line 1, column 14: symbol, constraint, constant, immediate, weight, func or \"}\" is expected"},
      {"program \"p\" {\n  symbol n divisor 0 }", "line 2, column 10: symbol \"n\": divisor 0 is not positive"},
      {"program \"p\" {\n  symbol n\n  symbol n }", "line 3, column 10: a symbol needs a name that no other has"},
      {"program \"p\" {\n  constraint n == 1\n}",
       "line 2, column 14: expression \"n\": line 1, column 1: symbol \"n\" is not declared"},
      {"program \"p\" { constant c : f32[2] = [1.0] }",
       "line 1, column 37: the list does not have the 2 elements of [2]"},
      {"program \"p\" { constant c : f32[2] = hex \"00\" }", "line 1, column 40: 2 hex digits for 8 bytes"},
      {"program \"p\" { constant c : i8[1] = [200] }", "line 1, column 37: \"200\" is no value of i8"},
      {"program \"p\" { constant c : f8[1] = [200] }", "line 1, column 28: \"f8\" is no dtype"},
      {"program \"p\" { constant c : f32[1] = ref 0 }",
       "line 1, column 24: it lies in a weight file, but none is given"},
      {"program \"p\" { func f(%x: f32[2]) -> (%x) { %y : f32[2] = Foo(%x) } }",
       "line 1, column 58: \"Foo\" is no tensor op"},
      {"program \"p\" { func f(%x: f32[2]) -> (%y) { } }", "line 1, column 39: %y is not defined before this use"},
      {"program \"p\" { func f(%x: f32[2], %x: f32[2]) -> () { } }", "line 1, column 34: %x is defined twice"},
      {"program \"p\" { func f(%x: f32[q]) -> () { } }",
       "line 1, column 30: expression \"q\": line 1, column 1: symbol \"q\" is not declared"},
      {"program \"p\" { } x", "program has no function"},
      {"program \"p\" { func f(%9: f32[1]) -> () { } }", "value id 9 is used twice or leaves a gap"},
  };
  for (const Row& row : rows) {
    const auto program = ParseProgram(row.text);
    ASSERT_FALSE(program.has_value()) << row.text;
    EXPECT_NE(program.error().message.find(row.message), std::string::npos) << row.text << "\n"
                                                                            << program.error().message;
  }
}

TEST(ProgramText, TruncatedAndMutatedTextNeverCrashes) {
  const std::string text = kSample;
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(ParseProgram(std::string_view(text).substr(0, size)).has_value()) << size;
    for (char c : {'%', '"', '(', '}', '9', ',', '\0'}) {
      std::string mutated = text;
      mutated[size] = c;
      const auto program = ParseProgram(mutated);
      if (!program) continue;
      const std::string printed = PrintProgram(*program);
      const auto again = ParseProgram(printed);
      ASSERT_TRUE(again.has_value()) << size << c << again.error().message << printed;
      EXPECT_EQ(PrintProgram(*again), printed);
    }
  }
}

TEST(ProgramText, ReferencesResolveInTheWeightFile) {
  auto file = Buffer::Allocate(64);
  auto* values = static_cast<float*>(file->data());
  for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(i);
  constexpr char text[] = R"(program "w" {
  constant w : f32[4] = ref 16
  func f() -> (%w) {
    %w : f32[4] = Constant() {value = @w}
  }
}
)";
  BufferWeights weights(file);
  const auto program = ParseProgram(text, &weights);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  EXPECT_EQ(program->constants[0].tensor.values<float>()[3], 7.0f);
  EXPECT_EQ(program->constants[0].tensor.ref.data, values + 4);
  EXPECT_EQ(PrintProgram(*program, {.placement = [](int32_t) { return std::optional<uint64_t>(16); }}), text);
  std::string outside(text);
  outside.replace(outside.find("ref 16"), 6, "ref 52");
  EXPECT_NE(ParseProgram(outside, &weights).error().message.find("lie outside the 64 bytes"), std::string::npos);
  // A place that is not aligned for the element is copied.
  std::string odd(text);
  odd.replace(odd.find("ref 16"), 6, "ref 17");
  const auto copied = ParseProgram(odd, &weights);
  ASSERT_TRUE(copied.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copied->constants[0].tensor.ref.data) % 4, 0u);
}

TEST(ElementText, EveryFloat16ComesBackBitForBit) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const uint16_t pattern = static_cast<uint16_t>(bits);
      uint16_t back = 0;
      const std::string text = ElementText(dtype, &pattern);
      ASSERT_TRUE(ParseElement(dtype, text, &back).has_value()) << text;
      ASSERT_EQ(back, pattern) << text;
    }
  }
}

}  // namespace
}  // namespace kiln
