#include "vm-worker/load/memory_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"

namespace kiln {
namespace {

MemoryBound BoundOf(std::string_view text) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  return program ? BoundMemory(*program) : MemoryBound{};
}

TEST(MemoryBound, IsWhatLivesAtOnceAtTheLargestSizes) {
  const MemoryBound bound = BoundOf(R"(program "p" {
    symbol n in [1, 100]
    func main(%x: f32[n]) -> (%d) {
      %a : f32[n] = Neg(%x)
      %b : f32[n] = Neg(%a)
      %c : f32[n] = Neg(%b)
      %d : f32[n] = Neg(%c)
    }
  })");
  EXPECT_EQ(bound.bytes, 3 * 400) << bound.reason;  // x, and two of the chain
}

TEST(MemoryBound, AViewKeepsWhatItShows) {
  const MemoryBound bound = BoundOf(R"(program "p" {
    symbol n in [1, 100]
    func main(%x: f32[n, 2]) -> (%d) {
      %a : f32[n, 2] = Neg(%x)
      %b : f32[2, n] = Transpose(%a) {perm = [1, 0]}
      %c : f32[n, 2] = Neg(%x)
      %d : f32[2, n] = Neg(%b)
    }
  })");
  EXPECT_EQ(bound.bytes, 4 * 800) << bound.reason;
}

TEST(MemoryBound, NamesTheSymbolThatHasNone) {
  const MemoryBound bound = BoundOf(R"(program "p" {
    symbol n
    symbol m in [0, 4]
    func main(%x: f32[m, n]) -> (%y) {
      %y : f32[m, n] = Neg(%x)
    }
  })");
  EXPECT_FALSE(bound.bytes.has_value());
  EXPECT_EQ(bound.reason, "value \"x\": symbol n has no upper bound");
}

TEST(MemoryBound, ABodyLivesBesideWhatIsAroundIt) {
  const MemoryBound bound = BoundOf(R"(program "p" {
    symbol n in [0, 10]
    func main(%trips: i64[], %x: f32[n]) -> (%last) {
      %last : f32[n] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %s: f32[n]) -> (%go, %next) {
        %m : f32[n] = Neg(%s)
        %next : f32[n] = Add(%m, %x)
      }
    }
  })");
  // Outside: trips, x, last. Inside: iteration, condition, the state, m, next.
  EXPECT_EQ(bound.bytes, 8 + 40 + 40 + 8 + 1 + 40 + 40 + 40) << bound.reason;
}

}  // namespace
}  // namespace kiln
