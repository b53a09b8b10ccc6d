// Nodes that draw random numbers: anew at every run, in every form and in every trip of a loop; the same ones in a
// fresh context where a seed says so.
#include <gmock/gmock.h>

#include "tests/vm-worker/interp/run_text.h"
#include "vm-worker/load/prepare_program.h"

namespace kiln {
namespace {

using testing::HasSubstr;

// Two nodes alike, one of them with a pure node behind it.
constexpr std::string_view kTwoNodes = R"(program "p" {
  constant shape : i64[2] = [40, 50]
  func main() -> (%a, %b) {
    %s : i64[2] = Constant() {value = @shape}
    %a : f32[40, 50] = RandomNormal(%s) {SEED}
    %d : f32[40, 50] = RandomNormal(%s) {SEED}
    %b : f32[40, 50] = Identity(%d)
  }
})";

std::string WithSeed(std::string_view text, const std::string& seed) {
  std::string result(text);
  for (size_t at; (at = result.find("SEED")) != std::string::npos;) result.replace(at, 4, seed);
  return result;
}

VmOptions SeededBy(uint64_t bits) {
  VmOptions options;
  options.random = [bits] { return bits; };
  return options;
}

std::vector<float> Draw(VmContext& context, const LoadedProgram& program, size_t output = 0, bool static_forms = true) {
  const auto outputs = context.Run(program, {}, {.static_forms = static_forms});
  EXPECT_TRUE(outputs) << ToString(outputs.error());
  return outputs ? Values((*outputs)[output].ref) : std::vector<float>{};
}

// Normal numbers that are not of one another: no element equal, correlation within five standard errors.
void ExpectUnrelated(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  double product = 0;
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    equal += a[i] == b[i];
  }
  const double count = static_cast<double>(a.size());
  EXPECT_EQ(equal, 0u);
  EXPECT_LT(std::abs(product) / count, 5 / std::sqrt(count));
}

TEST(RandomNumbers, EveryRunDrawsAnewInEitherForm) {
  for (const char* seed : {"", "seed = 3.0"}) {
    const auto program = LoadText(WithSeed(kTwoNodes, seed));
    ASSERT_TRUE(program);
    VmContext context(SeededBy(1));
    std::vector<std::vector<float>> draws;
    for (const bool static_forms : {false, true, true}) draws.push_back(Draw(context, *program, 0, static_forms));
    for (size_t i = 0; i < draws.size(); ++i)
      for (size_t k = 0; k < i; ++k) ExpectUnrelated(draws[i], draws[k]);
  }
}

TEST(RandomNumbers, EqualNodesDrawApart) {
  for (const char* seed : {"", "seed = 3.0"}) {
    const auto program = LoadText(WithSeed(kTwoNodes, seed));
    ASSERT_TRUE(program);
    VmContext context(SeededBy(1));
    const auto outputs = context.Run(*program, {});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    ExpectUnrelated(Values((*outputs)[0].ref), Values((*outputs)[1].ref));
  }
}

TEST(RandomNumbers, ASeedGivesEveryFreshContextTheSameSequence) {
  const auto seeded = LoadText(WithSeed(kTwoNodes, "seed = 3.0")), other = LoadText(WithSeed(kTwoNodes, "seed = 4.0"));
  ASSERT_TRUE(seeded && other);
  VmContext a(SeededBy(1)), b(SeededBy(2)), c(SeededBy(1));
  for (int run = 0; run < 3; ++run) {
    const std::vector<float> first = Draw(a, *seeded);
    EXPECT_EQ(first, Draw(b, *seeded)) << run;
    ExpectUnrelated(first, Draw(c, *other));
  }
}

TEST(RandomNumbers, WithoutASeedTheContextsSourceDecides) {
  const auto program = LoadText(WithSeed(kTwoNodes, ""));
  ASSERT_TRUE(program);
  VmContext a(SeededBy(1)), b(SeededBy(1)), c(SeededBy(2));
  const std::vector<float> first = Draw(a, *program);
  EXPECT_EQ(first, Draw(b, *program));
  ExpectUnrelated(first, Draw(c, *program));
  VmContext system, another;
  ExpectUnrelated(Draw(system, *program), Draw(another, *program));
}

// A context that has forgotten a program, and meets it again, does not repeat itself.
TEST(RandomNumbers, AProgramThatComesBackDrawsOn) {
  const auto program = LoadText(WithSeed(kTwoNodes, "")), other = LoadText(WithSeed(kTwoNodes, ""));
  ASSERT_TRUE(program && other);
  VmOptions options;
  options.programs = 1;
  options.random = [next = uint64_t{0}]() mutable { return next++; };
  VmContext context(options);
  const std::vector<float> first = Draw(context, *program);
  Draw(context, *other);
  ExpectUnrelated(first, Draw(context, *program));
}

constexpr std::string_view kLoop = R"(program "p" {
  symbol t in [0, 1048576]
  constant shape : i64[1] = [500]
  func main(%trips: i64[], %x: f32[500]) -> (%last, %all) {
    %s : i64[1] = Constant() {value = @shape}
    %last : f32[500], %all : f32[t, 500] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %state: f32[500]) -> (%go, %next, %drawn) {
      %drawn : f32[500] = RandomNormal(%s) {seed = 1.0}
      %next : f32[500] = Add(%state, %drawn)
    }
  }
})";

TEST(RandomNumbers, EveryTripOfALoopDrawsAnew) {
  auto parsed = ParseProgram(kLoop);
  ASSERT_TRUE(parsed) << ToString(parsed.error());
  ASSERT_TRUE(PrepareProgram(*parsed));
  const auto program = LoadedProgram::Load(std::move(*parsed));
  ASSERT_TRUE(program) << ToString(program.error());
  VmContext context;
  const Tensor trips = Ints({}, {4}), x = Floats({500}, std::vector<float>(500, 0));
  const auto outputs = context.Run(**program, std::vector{trips.ref, x.ref});
  ASSERT_TRUE(outputs) << ToString(outputs.error());
  const std::vector<float> all = Values((*outputs)[1].ref);
  ASSERT_EQ(all.size(), 2000u);
  const auto trip = [&](int i) { return std::vector<float>(all.begin() + i * 500, all.begin() + (i + 1) * 500); };
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < i; ++k) ExpectUnrelated(trip(i), trip(k));
}

// Equal nodes are not merged, known shapes are not folded into constants, and no segment holds a node that draws.
TEST(RandomNumbers, LoadingLeavesThemAndSegmentsEndAtThem) {
  auto parsed = ParseProgram(R"(program "p" {
    symbol n in [1, 64]
    constant shape : i64[1] = [3]
    func main(%x: f32[n]) -> (%y, %z) {
      %s : i64[1] = Constant() {value = @shape}
      %a : f32[3] = RandomUniform(%s) {seed = 1.0}
      %b : f32[3] = RandomUniform(%s) {seed = 1.0}
      %c : f32[3] = Sub(%a, %b)
      %d : f32[3] = Abs(%c)
      %t : i64[1] = Shape(%x)
      %e : f32[n] = RandomUniform(%t) {low = 2.0, high = 3.0}
      %f : f32[n] = Mul(%x, %e)
      %y : f32[3] = Neg(%d)
      %z : f32[n] = Neg(%f)
    }
  })");
  ASSERT_TRUE(parsed) << ToString(parsed.error());
  ASSERT_TRUE(PrepareProgram(*parsed));
  size_t drawing = 0;
  for (const Node& node : parsed->entry().regions[0].nodes) drawing += node.op == TensorOp::kRandomUniform;
  EXPECT_EQ(drawing, 3u);
  EXPECT_NE(parsed->FindRandomNode(), nullptr);
  const auto program = LoadedProgram::Load(std::move(*parsed));
  ASSERT_TRUE(program) << ToString(program.error());
  EXPECT_EQ((*program)->random_nodes(), 3u);
  for (const Segment& segment : (*program)->segments()) EXPECT_EQ(segment.body.FindRandomNode(), nullptr);
  EXPECT_TRUE(std::ranges::any_of((*program)->sites(),
                                  [](const SegmentSite& site) { return site.end_reason == SegmentEnd::kRandom; }));
  VmContext context;
  for (const int64_t size : {1, 5, 5, 64}) {
    const Tensor x = Floats({size}, std::vector<float>(static_cast<size_t>(size), 1));
    const auto outputs = context.Run(**program, std::vector{x.ref});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    for (const float value : Values((*outputs)[0].ref)) EXPECT_LT(value, 0);
    EXPECT_EQ((*outputs)[1].dims(), Dims{size});
    for (const float value : Values((*outputs)[1].ref)) EXPECT_TRUE(value <= -2 && value > -3) << value;
  }
}

// A shape that only a tensor tells: none, huge and impossible ones end in an answer or an error, never in memory that
// is not there.
TEST(RandomNumbers, ShapesOfRunTimeAreHeldToTheLimits) {
  const auto program = LoadText(R"(program "p" {
    symbol a
    symbol b
    func main(%s: i64[2]) -> (%y) {
      %y : f16[a, b] = RandomNormal(%s) {dtype = 10}
    }
  })");
  ASSERT_TRUE(program);
  VmContext context(VmOptions{.arena_limit_bytes = 1 << 20});
  const auto run = [&](int64_t rows, int64_t columns) {
    return context.Run(*program, std::vector{Ints({2}, {rows, columns}).ref});
  };
  for (const int64_t rows : {int64_t{0}, int64_t{3}}) {
    const auto outputs = run(rows, 7);
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    EXPECT_EQ((*outputs)[0].dims(), (Dims{rows, 7}));
    EXPECT_EQ((*outputs)[0].dtype(), DType::kF16);
  }
  EXPECT_TRUE(run(0, int64_t{1} << 39));  // nothing to draw, whatever the other dim
  const auto large = run(1 << 12, 1 << 12);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kResourceExhausted) << ToString(large.error());
  const auto huge = run(int64_t{1} << 40, int64_t{1} << 40);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kLimitExceeded) << ToString(huge.error());
  const auto negative = run(-1, 2);
  ASSERT_FALSE(negative);
  EXPECT_THAT(ToString(negative.error()), HasSubstr("RandomNormal"));
  EXPECT_TRUE(run(2, 2));
}

}  // namespace
}  // namespace kiln
