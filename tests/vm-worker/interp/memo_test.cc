#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

constexpr std::string_view kTwoNodes = R"(program "p" {
  symbol n in [0, 1048576]
  func main(%x: f32[n]) -> (%z) {
    %y : f32[n] = Neg(%x)
    %z : f32[n] = Relu(%y)
  }
})";

TEST(Memo, KnowsASignatureAgain) {
  const auto program = LoadText(kTwoNodes);
  VmContext context;
  for (int64_t n : {3, 5, 3, 5, 3}) ASSERT_TRUE(context.Run(*program, std::vector{Iota({n}).ref}));
  EXPECT_EQ(context.stats().memo_misses, 2u);
  EXPECT_EQ(context.stats().memo_hits, 3u);
  EXPECT_EQ(context.stats().memo_entries, 2u);
}

TEST(Memo, TellsAViewFromAContiguousTensor) {
  const auto program = LoadText(R"(program "p" {
    func main(%x: f32[2, 2]) -> (%y) {
      %y : f32[2, 2] = Neg(%x)
    }
  })");
  VmContext context;
  const Tensor whole = Iota({2, 4});
  const TensorRef part{DType::kF32, {2, 2}, {4, 1}, whole.ref.as<float>() + 1};  // x[:, 1:3]
  const Tensor flat = MakeContiguous(part);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Values((*context.Run(*program, std::vector{flat.ref}))[0].ref), (std::vector<float>{-1, -2, -5, -6}));
    EXPECT_EQ(Values((*context.Run(*program, std::vector{part}))[0].ref), (std::vector<float>{-1, -2, -5, -6}));
  }
  EXPECT_EQ(context.stats().memo_misses, 2u);
}

// The tensor before the segment takes the memory that its output needs; the segment's input has moved by then.
TEST(Memo, ACallThatEndedForWantOfMemoryLeavesNoAddressesBehind) {
  const auto program = LoadText(R"(program "p" {
    symbol m in [0, 1099511627776]
    func main(%x: f32[1], %shape: i64[1], %b: f32[262144]) -> (%big, %y) {
      %big : f32[m] = Tile(%x, %shape)
      %y : f32[262144] = Neg(%b)
    }
  })");
  VmContext context({.arena_limit_bytes = size_t{2} << 20});
  const Tensor one = Floats({1}, {1}), small = Ints({1}, {16}), large = Ints({1}, {225'000});
  const Tensor first = Iota({262144}), second = Iota({262144}, 2);
  const auto run = [&](const Tensor& shape, const Tensor& b) {
    return context.Run(*program, std::vector{one.ref, shape.ref, b.ref});
  };
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(run(small, first).has_value());
  const auto refused = run(large, second);
  ASSERT_FALSE(refused.has_value());
  ASSERT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  const auto outputs = run(small, second);
  ASSERT_TRUE(outputs.has_value());
  EXPECT_EQ((*outputs)[1].ref.as<float>()[100], -200.0f);
}

TEST(Memo, DropsTheLeastRecentlyUsedByCount) {
  const auto program = LoadText(kTwoNodes);
  VmContext context(VmOptions{.memo_entries = 2});
  auto run = [&](int64_t n) { ASSERT_TRUE(context.Run(*program, std::vector{Iota({n}).ref})); };
  run(1);
  run(2);
  run(1);
  run(3);  // drops 2
  run(1);
  EXPECT_EQ(context.stats().memo_misses, 3u);
  run(2);
  EXPECT_EQ(context.stats().memo_misses, 4u);
  EXPECT_EQ(context.stats().memo_entries, 2u);
  EXPECT_EQ(context.stats().memo_evictions, 2u);
}

TEST(Memo, StaysWithinItsBytes) {
  const auto program = LoadText(kTwoNodes);
  VmContext context(VmOptions{.memo_bytes = 20000});
  for (int64_t n = 0; n < 200; ++n) {
    const auto outputs = context.Run(*program, std::vector{Iota({n}, -1).ref});
    ASSERT_TRUE(outputs);
    ASSERT_EQ((*outputs)[0].dims(), Dims{n});
    ASSERT_LE(context.stats().memo_bytes, 20000u);
  }
  EXPECT_GT(context.stats().memo_evictions, 100u);
  EXPECT_GT(context.stats().memo_entries, 1u);
}

TEST(Memo, SharesTheBoundsOverPrograms) {
  VmContext context(VmOptions{.memo_entries = 4, .programs = 2});
  std::vector<std::shared_ptr<const LoadedProgram>> programs;
  for (int i = 0; i < 5; ++i) programs.push_back(LoadText(kTwoNodes));
  for (int round = 0; round < 3; ++round)
    for (const auto& program : programs)
      for (int64_t n = 1; n < 4; ++n) {
        const auto outputs = context.Run(*program, std::vector{Iota({n}, -1).ref});
        ASSERT_TRUE(outputs);
        EXPECT_EQ((*outputs)[0].values<float>().back(), static_cast<float>(n - 1));
        EXPECT_LE(context.stats().memo_entries, 4u);
      }
}

TEST(Memo, ManyShapesLeaveTheArenaFlat) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 1048576]
    symbol m in [0, 1048576]
    func main(%x: f32[n, m]) -> (%z) {
      %a : f32[n, m] = Neg(%x)
      %b : f32[m, n] = Transpose(%a)
      %c : f32[m, n] = Softmax(%b)
      %d : f32[n, m] = Transpose(%c)
      %z : f32[n, m] = Add(%d, %a)
    }
  })");
  VmContext context;
  const Tensor memory = Iota({200 * 50}, 1e-3f);
  auto run = [&](int64_t n, int64_t m) {
    ASSERT_TRUE(context.RunBorrowed(*program, std::vector{MakeRef(DType::kF32, {n, m}, memory.ref.data)}));
  };
  run(200, 50);
  run(200, 50);
  const VmStats before = context.stats();
  for (int64_t n = 0; n < 200; ++n)
    for (int64_t m = 1; m <= 50; m += 5) run(n, m);
  const VmStats after = context.stats();
  EXPECT_EQ(after.arena.reserved_bytes, before.arena.reserved_bytes);
  EXPECT_EQ(after.arena.mappings, before.arena.mappings);
  EXPECT_LE(after.memo_bytes, VmOptions{}.memo_bytes);
  EXPECT_GE(after.memo_misses, 2000u);
}

}  // namespace
}  // namespace kiln
