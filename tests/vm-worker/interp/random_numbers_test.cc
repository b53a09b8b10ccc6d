// Nodes that draw random numbers: anew at every run, in every form and in every trip of a loop; where a seed says so
// the same ones in a fresh context and in every node with that seed.
#include <gmock/gmock.h>

#include <array>
#include <bit>

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

TEST(RandomNumbers, EqualNodesDrawApartUnlessTheyHaveASeedInCommon) {
  for (const bool seeded : {false, true}) {
    const auto program = LoadText(WithSeed(kTwoNodes, seeded ? "seed = 3.0" : ""));
    ASSERT_TRUE(program);
    VmContext context(SeededBy(1));
    for (int run = 0; run < 3; ++run) {
      const auto outputs = context.Run(*program, {}, {.static_forms = run > 0});
      ASSERT_TRUE(outputs) << ToString(outputs.error());
      const std::vector<float> first = Values((*outputs)[0].ref), second = Values((*outputs)[1].ref);
      if (seeded) {
        EXPECT_EQ(first, second) << run;
      } else {
        ExpectUnrelated(first, second);
      }
    }
  }
}

// The context's seed is 3.0's bits here: a node without a seed draws apart from those that have one all the same.
TEST(RandomNumbers, ASeededNodeDrawsTheSameWhateverElseIsInTheProgram) {
  const auto alone = LoadText(R"(program "p" {
    constant shape : i64[2] = [40, 50]
    func main() -> (%b) {
      %s : i64[2] = Constant() {value = @shape}
      %b : f32[40, 50] = RandomNormal(%s) {seed = 3.0}
    }
  })");
  const auto among_others = LoadText(R"(program "p" {
    constant shape : i64[2] = [40, 50]
    func main() -> (%b, %a, %c, %d) {
      %s : i64[2] = Constant() {value = @shape}
      %a : f32[40, 50] = RandomNormal(%s)
      %c : f32[40, 50] = RandomNormal(%s) {seed = 4.0}
      %b : f32[40, 50] = RandomNormal(%s) {seed = 3.0}
      %d : f32[40, 50] = RandomNormal(%s)
    }
  })");
  ASSERT_TRUE(alone && among_others);
  VmContext a(SeededBy(1)), b(SeededBy(std::bit_cast<uint64_t>(3.0)));
  for (int run = 0; run < 3; ++run) {
    const auto outputs = b.Run(*among_others, {});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    EXPECT_EQ(Draw(a, *alone), Values((*outputs)[0].ref)) << run;
    for (size_t i = 0; i < 4; ++i)
      for (size_t k = 0; k < i; ++k) ExpectUnrelated(Values((*outputs)[i].ref), Values((*outputs)[k].ref));
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

// A node before a loop and one in it, with one seed.
constexpr std::string_view kLoop = R"(program "p" {
  symbol t in [0, 1048576]
  constant shape : i64[1] = [500]
  func main(%trips: i64[], %x: f32[500]) -> (%last, %all, %before) {
    %s : i64[1] = Constant() {value = @shape}
    %before : f32[500] = RandomNormal(%s) {seed = 1.0}
    %last : f32[500], %all : f32[t, 500] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %state: f32[500]) -> (%go, %next, %drawn) {
      %drawn : f32[500] = RandomNormal(%s) {seed = 1.0}
      %next : f32[500] = Add(%state, %drawn)
    }
  }
})";

// Draws of two runs of kLoop, of 4 trips each: those of the loop, and those of the node before it.
struct LoopDraws {
  std::vector<std::vector<float>> trips, before;
};
LoopDraws DrawInLoop(const std::array<bool, 2>& static_forms) {
  LoopDraws draws;
  auto parsed = ParseProgram(kLoop);
  EXPECT_TRUE(parsed && PrepareProgram(*parsed));
  const auto program = LoadedProgram::Load(std::move(*parsed));
  EXPECT_TRUE(program) << ToString(program.error());
  VmContext context;
  const Tensor trips = Ints({}, {4}), x = Floats({500}, std::vector<float>(500, 0));
  for (const bool form : static_forms) {
    const auto outputs = context.Run(**program, std::vector{trips.ref, x.ref}, {.static_forms = form});
    EXPECT_TRUE(outputs) << ToString(outputs.error());
    if (!outputs) return draws;
    const std::vector<float> all = Values((*outputs)[1].ref);
    EXPECT_EQ(all.size(), 2000u);
    for (auto at = all.begin(); at != all.end(); at += 500) draws.trips.emplace_back(at, at + 500);
    draws.before.push_back(Values((*outputs)[2].ref));
  }
  return draws;
}

TEST(RandomNumbers, EveryTripOfALoopDrawsAnewAndTheNextRunGoesOn) {
  const LoopDraws draws = DrawInLoop({true, true});
  ASSERT_EQ(draws.trips.size(), 8u);
  for (size_t i = 0; i < 8; ++i)
    for (size_t k = 0; k < i; ++k) ExpectUnrelated(draws.trips[i], draws.trips[k]);
  // Call by call, each node along the seed's sequence.
  EXPECT_EQ(draws.before, (std::vector{draws.trips[0], draws.trips[1]}));
}

TEST(RandomNumbers, BothFormsDrawTheSame) {
  const LoopDraws variant = DrawInLoop({false, false});
  for (const std::array<bool, 2>& forms : {std::array{true, true}, {false, true}, {true, false}}) {
    const LoopDraws draws = DrawInLoop(forms);
    EXPECT_EQ(draws.trips, variant.trips);
    EXPECT_EQ(draws.before, variant.before);
  }
  for (const char* seed : {"", "seed = 3.0"}) {
    const auto program = LoadText(WithSeed(kTwoNodes, seed));
    ASSERT_TRUE(program);
    VmContext a(SeededBy(1)), b(SeededBy(1));
    for (int run = 0; run < 3; ++run) EXPECT_EQ(Draw(a, *program, 1, true), Draw(b, *program, 1, false)) << run;
  }
}

// Beyond the programs that a context keeps.
TEST(RandomNumbers, ASeededSequenceBeginsAgainWhereTheContextHadLetGoOfTheProgram) {
  const auto program = LoadText(WithSeed(kTwoNodes, "seed = 3.0")), other = LoadText(WithSeed(kTwoNodes, "seed = 4.0"));
  ASSERT_TRUE(program && other);
  VmOptions options;
  options.programs = 1;
  VmContext context(options);
  const std::vector<float> first = Draw(context, *program), second = Draw(context, *program);
  ExpectUnrelated(first, second);
  Draw(context, *other);
  EXPECT_EQ(Draw(context, *program), first);
  EXPECT_EQ(Draw(context, *program), second);
}

// Equal nodes are not merged, known shapes are not folded into constants, and no segment holds a node that draws.
TEST(RandomNumbers, LoadingLeavesThemAndSegmentsEndAtThem) {
  auto parsed = ParseProgram(R"(program "p" {
    symbol n in [1, 64]
    constant shape : i64[1] = [3]
    func main(%x: f32[n]) -> (%y, %z) {
      %s : i64[1] = Constant() {value = @shape}
      %a : f32[3] = RandomUniform(%s)
      %b : f32[3] = RandomUniform(%s)
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
