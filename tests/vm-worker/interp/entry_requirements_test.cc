// What every run asks of its inputs' sizes is found where a program is loaded; what some runs may not come to is not.
#include <gmock/gmock.h>

#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;

// What is asked of a program over x of dims [n, k], as text.
std::vector<std::string> Asked(const std::string& nodes, const std::string& outputs = "%y",
                               const std::string& more = "") {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    symbol k in [0, 64]
    symbol unseen in [0, 64]
    )" + more + R"(
    constant w : f32[4, 3] = splat 1
    constant t : i64[] = [3]
    constant rows : i64[2] = [6, 2]
    func main(%x: f32[n, k], %go: bool[]) -> ()" +
                                outputs + ") { %c : f32[4, 3] = Constant() {value = @w} " + nodes + " } }");
  std::vector<std::string> texts;
  if (!program) return texts;
  const EntryRequirements& found = program->entry_requirements();
  for (const EntryRequirement& row : found.rows)
    texts.push_back(row.node + ": " + found.symbols.ToString(row.constraint));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(EntryRequirements, ComeFromNodesThatEveryRunComesTo) {
  EXPECT_EQ(Asked("%y : f32[n, 3] = MatMul(%x, %c) \"fc\""), Texts{"MatMul \"fc\": k == 4"});
  EXPECT_EQ(Asked("%a : f32[n, k] = Relu(%x) %y : f32[n, 3] = MatMul(%a, %c)"), Texts{"MatMul: k == 4"});
}

TEST(EntryRequirements, AreLeftOutWhereTheyFollowFromWhatIsKnown) {
  EXPECT_EQ(Asked("%y : f32[n, 3] = MatMul(%x, %c)", "%y", "constraint k == 4"), Texts{});
  EXPECT_EQ(Asked("%y : f32[n, 3] = MatMul(%x, %c) %z : f32[n, 3] = MatMul(%x, %c)", "%y, %z"),
            Texts{"MatMul: k == 4"});
  EXPECT_EQ(Asked("%y : f32[n, k] = Add(%x, %x)"), Texts{});
}

TEST(EntryRequirements, DoNotComeFromDeadNodesBranchesAndLoops) {
  EXPECT_EQ(Asked("%dead : f32[n, 3] = MatMul(%x, %c) %y : f32[n, k] = Relu(%x)"), Texts{});
  EXPECT_EQ(Asked("%y : f32[*] = If(%go) then() -> (%a) { %a : f32[n, 3] = MatMul(%x, %c) } "
                  "else() -> (%b) { %b : f32[n, k] = Neg(%x) }"),
            Texts{});
  EXPECT_EQ(Asked("%i : i64[] = Constant() {value = @t} %y : f32[*] = Loop(%i, %go, %x) body(%n: i64[], %on: bool[], "
                  "%s: f32[*]) -> (%on, %m) { %m : f32[n, 3] = MatMul(%x, %c) }"),
            Texts{});
  // A value that only a branch reads is made in every run.
  EXPECT_EQ(Asked("%m : f32[n, 3] = MatMul(%x, %c) %y : f32[*] = If(%go) then() -> (%a) { %a : f32[n, 3] = Neg(%m) } "
                  "else() -> (%b) { %b : f32[n, k] = Neg(%x) }"),
            Texts{"MatMul: k == 4"});
}

TEST(EntryRequirements, OfSymbolsThatNoInputShowsAreLeftToTheNodes) {
  EXPECT_EQ(Asked("%f : i64[2, unseen] = NonZero(%x) %g : f32[2, unseen] = Cast(%f) {to = 1} "
                  "%y : f32[2, 3] = MatMul(%g, %c)"),
            Texts{});
}

// Such a 0 copies a dim, which may be another than it says.
TEST(EntryRequirements, OfAReshapeWhoseSizesMayMeanACopyAreLeftToTheNode) {
  EXPECT_EQ(Asked("%s : i64[2] = ShapeVector() {dims = dims[k, n]} %y : f32[k, n] = Reshape(%x, %s)"), Texts{});
  EXPECT_EQ(Asked("%s : i64[2] = ShapeVector() {dims = dims[n, 12]} %y : f32[n, 12] = Reshape(%x, %s)"),
            Texts{"Reshape: n*k == 12*n"});
}

TEST(EntryRequirements, OfARowThatIsReadOnlyWhereThereAreAnyMindThat) {
  EXPECT_EQ(Asked("%i : i64[2] = Constant() {value = @rows} %y : f32[n, 2] = Gather(%x, %i) {axis = 1}"),
            Texts{"Gather: 7*min(1, n) <= k"});
}

TEST(EntryRequirements, ThatContradictWhatIsDeclaredAreRefusedAtLoad) {
  auto program = ParseProgram(R"(program "p" {
    symbol n in [0, 64]
    symbol k in [5, 64]
    constant w : f32[4, 3] = splat 1
    func main(%x: f32[n, k]) -> (%y) {
      %c : f32[4, 3] = Constant() {value = @w}
      %a : f32[n, k] = Relu(%x)
      %y : f32[n, 3] = MatMul(%a, %c) "fc"
    }
  })");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  const auto loaded = LoadedProgram::Load(std::move(*program));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, ErrorCode::kShapeMismatch);
  EXPECT_THAT(loaded.error().message, HasSubstr("function \"main\": node MatMul \"fc\""));
}

// As many as a program has; beyond the bound the nodes check for themselves.
TEST(EntryRequirements, AreBounded) {
  std::string inputs, nodes, outputs, symbols;
  for (int i = 0; i < 300; ++i) {
    const std::string s = std::to_string(i);
    symbols += "symbol s" + s + " in [0, 64]\n";
    inputs += (i ? ", %x" : "%x") + s + ": f32[2, s" + s + "]";
    outputs += (i ? ", %y" : "%y") + s;
    nodes += "%y" + s + " : f32[2, 3] = MatMul(%x" + s + ", %c)\n";
  }
  const auto program =
      LoadText("program \"p\" {\n" + symbols + "constant w : f32[4, 3] = splat 1\nfunc main(" + inputs + ") -> (" +
               outputs + ") { %c : f32[4, 3] = Constant() {value = @w}\n" + nodes + "} }");
  ASSERT_TRUE(program);
  EXPECT_EQ(program->entry_requirements().rows.size(), limits::kEntryRequirementsMax);
  std::vector<Tensor> tensors(300, Iota({2, 4}));
  tensors.back() = Iota({2, 5});
  std::vector<TensorRef> refs;
  for (const Tensor& tensor : tensors) refs.push_back(tensor.ref);
  VmContext context;
  const auto outputs_of = context.Run(*program, refs);
  ASSERT_FALSE(outputs_of.has_value());
  EXPECT_THAT(outputs_of.error().message, HasSubstr("must equal dim 4 of input 1"));
}

}  // namespace
}  // namespace kiln
