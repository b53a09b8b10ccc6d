#include <gmock/gmock.h>

#include "common/bytecode/program_text.h"
#include "vm-worker/explain/explain_model.h"

namespace kiln {
namespace {

ExplainReply Explained(const char* text) {
  static EpochDomain epochs;
  TierController tiers(epochs, nullptr, nullptr, {});
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << (program.has_value() ? "" : ToString(program.error()));
  const auto model = std::make_shared<Model>("m", LoadedProgram::Load(std::move(*program)).value(), epochs);
  tiers.AddModel(model);
  return ExplainModel(*model, tiers, {"m", "", "", false}).value();
}

TEST(Origin, ReshapeKeepsTheSymbolThroughMinusOne) {
  const ExplainReply reply = Explained(R"(program "p" { symbol n
    constant s : i64[2] = [-1, 12]
    func main(%x: f32[n, 3, 4]) -> (%y) {
      %c : i64[2] = Constant() {value = @s}
      %r : f32[n, 12] = Reshape(%x, %c)
      %y : f32[n, 12] = Relu(%r) } })");
  ASSERT_EQ(reply.segments.size(), 1u);
  EXPECT_THAT(reply.segments[0].symbols, ::testing::ElementsAre("n: dim 0 of x"));
}

TEST(Origin, ASizeThatOnlyANodeKnowsIsNamedWithItsNode) {
  const ExplainReply reply = Explained(R"(program "p" { symbol n symbol k
    func main(%x: f32[n, 4]) -> (%y) {
      %i : i64[2, k] = NonZero(%x)
      %f : f32[2, k] = Cast(%i) {to = 1}
      %y : f32[2, k] = Relu(%f) } })");
  ASSERT_EQ(reply.segments.size(), 1u);
  EXPECT_THAT(reply.segments[0].symbols, ::testing::ElementsAre("k: dim 1 of i"))
      << "the node that makes the size is a border";
  ASSERT_EQ(reply.outside.size(), 1u);
  EXPECT_EQ(reply.outside[0].op, "NonZero");
}

}  // namespace
}  // namespace kiln
