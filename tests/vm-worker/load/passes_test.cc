#include "vm-worker/load/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"
#include "common/ops/tensor_op.h"
#include "vm-worker/load/bind_inputs.h"
#include "vm-worker/load/prepare_program.h"

namespace kiln {
namespace {

using testing::HasSubstr;
using testing::Not;

Program Parsed(std::string_view text) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  return program.has_value() ? *std::move(program) : Program{};
}

// The text of a program after a pass, which must leave it valid.
template <class Pass>
std::string After(Pass pass, std::string_view text, bool expect_change = true) {
  Program program = Parsed(text);
  const auto changed = pass(program);
  EXPECT_TRUE(changed.has_value()) << ToString(changed.error());
  EXPECT_EQ(*changed, expect_change);
  EXPECT_TRUE(DropUnused(program).has_value());
  const Status valid = VerifyProgram(program);
  EXPECT_TRUE(valid.has_value()) << ToString(valid.error());
  return PrintProgram(program);
}

TEST(FoldKnownNodes, ComputesNodesOverConstants) {
  const std::string text = After(FoldKnownNodes, R"(program "p" {
    constant a : f32[2] = [1.0, 2.0]
    func main(%x: f32[2]) -> (%y) {
      %c : f32[2] = Constant() {value = @a}
      %d : f32[2] = Add(%c, %c)
      %y : f32[2] = Mul(%x, %d)
    }
  })");
  EXPECT_THAT(text, Not(HasSubstr("Add(")));
  EXPECT_THAT(text, HasSubstr("[2.0, 4.0]"));
  EXPECT_THAT(text, HasSubstr("Mul("));
}

TEST(FoldKnownNodes, TurnsShapeArithmeticIntoAShapeVector) {
  const std::string text = After(FoldKnownNodes, R"(program "p" {
    symbol n in [0, 100] divisor 1
    func main(%x: f32[n, 4]) -> (%y) {
      %s : i64[2] = Shape(%x)
      %t : i64[2] = Add(%s, %s)
      %y : i64[2] = Identity(%t)
    }
  })");
  EXPECT_THAT(text, HasSubstr("ShapeVector() {dims = dims[2*n, 8]}"));
  EXPECT_THAT(text, Not(HasSubstr("Shape(%")));
}

TEST(FoldKnownNodes, LeavesWhatDependsOnData) {
  After(FoldKnownNodes, R"(program "p" {
    func main(%x: f32[2]) -> (%y) {
      %y : f32[2] = Relu(%x)
    }
  })",
        false);
}

TEST(FoldKnownNodes, LeavesASizeThatNoTensorCanHaveToTheRun) {
  After(FoldKnownNodes, R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    constant k : i64[4] = [9223372036854775807, 2, 0, 2]
    func main(%x: f32[n, m]) -> (%y) {
      %k : i64[4] = Constant() {value = @k}
      %y : f32[n, m + 4] = Pad(%x, %k)
    }
  })",
        false);
}

TEST(FoldKnownNodes, MakesNoConstantThatNoTensorCanBe) {
  After(FoldKnownNodes, R"(program "p" {
    constant one : i64[1] = [1]
    func main() -> (%y) {
      %one : i64[1] = Constant() {value = @one}
      %dims : i64[2] = ShapeVector() {dims = dims[0, 9223372036854775807]}
      %y : i64[3, 1] = Expand(%one, %dims)
    }
  })",
        false);
}

TEST(InlineConstantIfs, LeavesTheBranchThatIsTaken) {
  const std::string text = After(InlineConstantIfs, R"(program "p" {
    constant yes : bool[] = [1]
    func main(%x: f32[2]) -> (%y) {
      %c : bool[] = Constant() {value = @yes}
      %y : f32[2] = If(%c) then() -> (%a) {
        %a : f32[2] = Relu(%x)
      } else() -> (%b) {
        %b : f32[2] = Neg(%x)
      }
    }
  })");
  EXPECT_THAT(text, HasSubstr("Relu("));
  EXPECT_THAT(text, Not(HasSubstr("If(")));
}

constexpr std::string_view kAssignedRows = R"(program "p" {
    constant at : i64[2, 1] = [INDICES]
    func main(%x: f32[4, 3], %u: f32[2, 3]) -> (%y) {
      %i : i64[2, 1] = Constant() {value = @at}
      %y : f32[4, 3] = ScatterND(%x, %i, %u)
    }
  })";

std::string AssignedRows(std::string_view indices) {
  std::string text(kAssignedRows);
  return text.replace(text.find("INDICES"), 7, indices);
}

TEST(ConcatBlockScatters, ReplacesRowsInTheMiddle) {
  const std::string text = After(ConcatBlockScatters, AssignedRows("1, 2"));
  EXPECT_THAT(text, Not(HasSubstr("ScatterND")));
  EXPECT_THAT(text, HasSubstr("f32[1, 3] = Slice("));
  EXPECT_THAT(text, HasSubstr("f32[2, 3] = Reshape("));
  EXPECT_THAT(text, HasSubstr("axis = 0"));
}

TEST(ConcatBlockScatters, LeavesOutEmptySlices) {
  const std::string text = After(ConcatBlockScatters, AssignedRows("-2, -1"));
  EXPECT_EQ(text.find("Slice("), text.rfind("Slice("));
  EXPECT_THAT(text, HasSubstr("f32[2, 3] = Slice("));
}

TEST(ConcatBlockScatters, KeepsOtherOrdersAndGaps) {
  for (const std::string_view indices :
       {"2, 1", "0, 2", "1, 1", "3, 4", "-5, -4", "-9223372036854775808, 9223372036854775807"})
    EXPECT_THAT(After(ConcatBlockScatters, AssignedRows(indices), false), HasSubstr("ScatterND")) << indices;
}

TEST(RemoveIdentities, KeepsTheNamesOfOutputs) {
  const std::string text = After(RemoveIdentities, R"(program "p" {
    func main(%x: f32[2]) -> (%y) {
      %a : f32[2] = Relu(%x)
      %b : f32[2] = Identity(%a)
      %y : f32[2] = Identity(%b)
    }
  })");
  EXPECT_THAT(text, Not(HasSubstr("Identity(")));
  EXPECT_THAT(text, HasSubstr("-> (%y)"));
}

TEST(RemoveIdentities, KeepsAnOutputThatIsAnInput) {
  After(RemoveIdentities, R"(program "p" {
    func main(%x: f32[2]) -> (%y) {
      %y : f32[2] = Identity(%x)
    }
  })",
        false);
}

TEST(EliminateCommonNodes, MergesEqualNodesAndEqualImmediates) {
  const std::string text = After(EliminateCommonNodes, R"(program "p" {
    constant a : f32[1] = [1.0]
    constant b : f32[1] = [1.0]
    func main(%x: f32[2]) -> (%y) {
      %c : f32[1] = Constant() {value = @a}
      %d : f32[1] = Constant() {value = @b}
      %e : f32[2] = Add(%x, %c)
      %f : f32[2] = Add(%x, %d)
      %y : f32[2] = Mul(%e, %f)
    }
  })");
  EXPECT_EQ(text.find("Add("), text.rfind("Add("));
}

TEST(EliminateCommonNodes, TellsAttributesApart) {
  After(EliminateCommonNodes, R"(program "p" {
    func main(%x: f32[2, 2]) -> (%y) {
      %e : f32[2, 2] = Softmax(%x) {axis = 0}
      %f : f32[2, 2] = Softmax(%x) {axis = 1}
      %y : f32[2, 2] = Mul(%e, %f)
    }
  })",
        false);
}

TEST(EliminateDeadNodes, DropsWhatNobodyReads) {
  const std::string text = After(
      [](Program& program) -> Result<bool> {
        ASSIGN_OR_RETURN(const bool changed, EliminateDeadNodes(program));
        RETURN_IF_ERROR(DropUnused(program));
        return changed;
      },
      R"(program "p" {
    func main(%x: f32[2]) -> (%y) {
      %a : f32[2] = Exp(%x)
      %b : f32[2] = Log(%a)
      %y : f32[2] = Relu(%x)
    }
  })");
  EXPECT_THAT(text, Not(HasSubstr("Exp(")));
  EXPECT_THAT(text, Not(HasSubstr("Log(")));
}

TEST(DropUnused, DropsSymbolsAndConstantsAndTranslatesTheRest) {
  const std::string text = After(DropUnused, R"(program "p" {
    symbol gone in [0, 9] divisor 1
    symbol n in [1, 100] divisor 4
    constant unused : f32[1] = [1.0]
    func main(%x: f32[n, 2*n]) -> (%y) {
      %y : f32[n, 2*n] = Relu(%x)
    }
  })");
  EXPECT_THAT(text, Not(HasSubstr("gone")));
  EXPECT_THAT(text, Not(HasSubstr("unused")));
  EXPECT_THAT(text, HasSubstr("f32[n, 2*n]"));
  EXPECT_THAT(text, HasSubstr("divisor 4"));
}

TEST(PrepareProgram, IsIdempotent) {
  Program program = Parsed(R"(program "p" {
    symbol n in [0, 100] divisor 1
    constant one : i64[1] = [1]
    func main(%x: f32[n, 4]) -> (%y) {
      %s : i64[2] = Shape(%x)
      %o : i64[1] = Constant() {value = @one}
      %g : i64[1] = Gather(%s, %o)
      %z : f32[n, 4] = Identity(%x)
      %y : f32[*] = Reshape(%z, %g)
    }
  })");
  ASSERT_TRUE(PrepareProgram(program).has_value());
  const std::string once = PrintProgram(program);
  ASSERT_TRUE(PrepareProgram(program).has_value());
  EXPECT_EQ(PrintProgram(program), once);
}

// --- inputs ---

class BindInputsTest : public testing::Test {
 protected:
  Program program_ = Parsed(R"(program "p" {
    symbol n in [0, 100] divisor 1
    func main(%a: f32[n, 2], %rate: i64[]) -> (%y) {
      %y : f32[n, 2] = Relu(%a)
    }
  })");
  Tensor matrix_ = Tensor::Zeros(DType::kF32, Dims{3, 2});
  Tensor scalar_ = Tensor::Zeros(DType::kI64, Dims{});
};

TEST_F(BindInputsTest, BindsByNameElseByPosition) {
  const std::vector<NamedInput> named = {{"rate", scalar_.ref}, {"a", matrix_.ref}};
  auto bound = BindInputs(program_, named);
  ASSERT_TRUE(bound.has_value()) << ToString(bound.error());
  EXPECT_EQ((*bound)[0].data, matrix_.ref.data);
  const std::vector<NamedInput> listed = {{"", matrix_.ref}, {"other", scalar_.ref}};
  bound = BindInputs(program_, listed);
  ASSERT_TRUE(bound.has_value()) << ToString(bound.error());
  EXPECT_EQ((*bound)[1].data, scalar_.ref.data);
}

TEST_F(BindInputsTest, AcceptsOneElementForAScalar) {
  const Tensor one = Tensor::Zeros(DType::kI64, Dims{1});
  const std::vector<NamedInput> given = {{"a", matrix_.ref}, {"rate", one.ref}};
  const auto bound = BindInputs(program_, given);
  ASSERT_TRUE(bound.has_value()) << ToString(bound.error());
  EXPECT_EQ((*bound)[1].rank(), 0);
}

TEST_F(BindInputsTest, NamesTheInputThatDoesNotFit) {
  const Tensor wide = Tensor::Zeros(DType::kF32, Dims{3, 5});
  const Tensor two = Tensor::Zeros(DType::kI64, Dims{2});
  const std::vector<std::vector<NamedInput>> wrong = {{{"a", wide.ref}, {"rate", scalar_.ref}},
                                                      {{"a", matrix_.ref}, {"rate", two.ref}},
                                                      {{"a", scalar_.ref}, {"rate", scalar_.ref}},
                                                      {{"a", matrix_.ref}}};
  const char* named[] = {"dim 1 of input \"a\" is 5; 2 is needed", "input \"rate\" has rank 1",
                         "input \"a\" is i64; f32 is needed", "input \"rate\" is missing"};
  for (size_t i = 0; i < wrong.size(); ++i) {
    const auto bound = BindInputs(program_, wrong[i]);
    ASSERT_FALSE(bound.has_value()) << i;
    EXPECT_THAT(bound.error().message, HasSubstr(named[i]));
  }
}

}  // namespace
}  // namespace kiln
