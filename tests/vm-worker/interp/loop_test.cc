#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

constexpr std::string_view kLoop = R"(program "p" {
  symbol n in [0, 64]
  symbol t in [0, 1048576]
  constant one : f32[] = [1.0]
  func main(%trips: i64[], %x: f32[n]) -> (%last, %all) {
    %last : f32[n], %all : f32[t, n] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %s: f32[n]) -> (%go, %next, %next) {
      %c : f32[] = Constant() {value = @one}
      %m : f32[n] = Add(%s, %c)
      %next : f32[n] = Add(%m, %x)
    }
  }
})";

TEST(Loop, EachTripEntersItsSegmentAgain) {
  const auto program = LoadText(kLoop);
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor x = Iota({3}), trips = Ints({}, {1000});
  const auto outputs = RunEveryWay(context, *program, std::vector{trips.ref, x.ref});
  ASSERT_TRUE(outputs) << ToString(outputs.error());
  EXPECT_EQ(Values((*outputs)[0].ref), (std::vector<float>{1000, 2001, 3002}));
  EXPECT_EQ((*outputs)[1].dims(), (Dims{1000, 3}));
  EXPECT_EQ(context.stats().memo_misses, 1u);
  EXPECT_EQ(context.stats().memo_hits, 1999u);
}

TEST(Loop, ZeroTripsGiveAnEmptyScan) {
  const auto program = LoadText(kLoop);
  ASSERT_TRUE(program);
  VmContext context;
  for (int64_t trips : {0, -4}) {
    const auto outputs = RunEveryWay(context, *program, std::vector{Ints({}, {trips}).ref, Iota({3}).ref});
    ASSERT_TRUE(outputs) << ToString(outputs.error());
    EXPECT_EQ(Values((*outputs)[0].ref), (std::vector<float>{0, 1, 2}));
    EXPECT_EQ((*outputs)[1].dims(), (Dims{0, 3}));
  }
}

// Sizes that no symbol of the program around the loop has: of a broadcast in the body, of what follows from it, of what
// both branches of an If give, with a constant from around the loop.
TEST(Loop, ZeroTripsGiveTheSizesThatTheBodyWouldGive) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    symbol t
    symbol last
    symbol w
    symbol a
    symbol b
    constant pair : i64[2] = [1, -1]
    constant axis : i64[1] = [0]
    func main(%trips: i64[], %x: f32[n], %y: f32[m]) -> (%last, %sums, %rows, %columns) {
      %axis : i64[1] = Constant() {value = @axis}
      %last : f32[n], %sums : f32[t, w], %rows : f32[t, 1, 2*w], %columns : f32[t, b] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %s: f32[n]) -> (%go, %s, %sum, %row, %column) {
        %pair : i64[2] = Constant() {value = @pair}
        %sum : f32[w] = Add(%s, %y)
        %both : f32[2*w] = Concat(%sum, %sum) {axis = 0}
        %row : f32[1, 2*w] = Reshape(%both, %pair)
        %part : f32[a, b] = If(%go) then() -> (%row) { } else() -> (%two) {
          %two : f32[2, 2*w] = Concat(%row, %row) {axis = 0}
        }
        %column : f32[b] = ReduceSum(%part, %axis) {keepdims = 0}
      }
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  for (const auto& [n, m, both] : {std::tuple{4, 4, 4}, {1, 5, 5}, {7, 1, 7}, {0, 1, 0}}) {
    for (const int64_t trips : {0, 2, 0}) {
      const std::vector<Tensor> in = {Ints({}, {trips}), Iota({n}), Iota({m})};
      const auto outputs = RunEveryWay(context, *program, std::vector{in[0].ref, in[1].ref, in[2].ref});
      ASSERT_TRUE(outputs) << ToString(outputs.error());
      EXPECT_EQ((*outputs)[1].dims(), (Dims{trips, both})) << n << " and " << m;
      EXPECT_EQ((*outputs)[2].dims(), (Dims{trips, 1, 2 * both})) << n << " and " << m;
      EXPECT_EQ((*outputs)[3].dims(), (Dims{trips, 2 * both})) << n << " and " << m;
    }
  }
}

// The body's segment shows s0 inside and s1 outside. Where a memoised form answers, s0 has the value of some earlier
// trip.
TEST(Loop, SizesInsideASegmentSayNothingBehindItsMemoisedForm) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    symbol k in [0, 64]
    symbol lengths
    symbol s0
    symbol s1
    symbol next
    symbol last
    symbol trips
    constant zero : i64[1] = [0]
    constant one : i64[1] = [1]
    func main(%trips: i64[], %lengths: i64[lengths], %x: f32[n], %row: f32[m]) -> (%sums) {
      %last : f32[last], %sums : f32[trips] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %s: f32[k]) -> (%go, %next, %sum) {
        %zero : i64[1] = Constant() {value = @zero}
        %one : i64[1] = Constant() {value = @one}
        %u : f32[s0] = Concat(%s, %s) {axis = 0}
        %c : f32[2*s0] = Concat(%u, %u) {axis = 0}
        %column : f32[2*s0, 1] = Unsqueeze(%c, %one)
        %v : f32[2*s0, s1] = Mul(%column, %row)
        %length : i64[] = Gather(%lengths, %i) {axis = 0}
        %end : i64[1] = Unsqueeze(%length, %zero)
        %next : f32[next] = Slice(%x, %zero, %end)
        %sum : f32[] = ReduceSum(%v) {keepdims = 0}
      }
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const Tensor lengths = Ints({5}, {4, 8, 4, 8, 1}), x = Iota({8}), row = Iota({3});
  const auto outputs = context.Run(*program, std::vector{Ints({}, {5}).ref, lengths.ref, x.ref, row.ref});
  ASSERT_TRUE(outputs) << ToString(outputs.error());
  EXPECT_EQ(Values((*outputs)[0].ref), (std::vector<float>{336, 72, 336, 72, 336}));
  EXPECT_GT(context.stats().memo_hits, 0u);
}

TEST(Loop, EndsAtTheDeadline) {
  const auto program = LoadText(R"(program "p" {
    func main(%x: f32[4]) -> (%last) {
      %last : f32[4] = Loop(_, _, %x) body(%i: i64[], %go: bool[], %s: f32[4]) -> (%go, %next) {
        %next : f32[4] = Neg(%s)
      }
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const auto outputs =
      context.Run(*program, std::vector{Iota({4}).ref}, {.deadline_ns = SystemClock().NowNs() + 1'000'000});
  ASSERT_FALSE(outputs.has_value());
  EXPECT_EQ(outputs.error().code, ErrorCode::kDeadlineExceeded);
}

TEST(Loop, TripsDoNotPileUpMemory) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 65536]
    func main(%trips: i64[], %x: f32[n]) -> (%last) {
      %last : f32[n] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %s: f32[n]) -> (%go, %next) {
        %m : f32[n] = Neg(%s)
        %next : f32[n] = Add(%m, %x)
      }
    }
  })");
  ASSERT_TRUE(program);
  for (bool static_forms : {true, false}) {
    VmContext context;
    const Tensor x = Iota({10000});
    ASSERT_TRUE(context.Run(*program, std::vector{Ints({}, {1000}).ref, x.ref}, {.static_forms = static_forms}));
    EXPECT_LT(context.stats().arena.peak_bytes, 5u * 40064u);
  }
}

}  // namespace
}  // namespace kiln
