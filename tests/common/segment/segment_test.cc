#include "common/segment/segment.h"

#include <gmock/gmock.h>

#include <random>

#include "common/base/limits.h"
#include "common/bytecode/program_text.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;

Program Parse(const std::string& text) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  return program ? *std::move(program) : Program{};
}

std::vector<Segment> SegmentsOf(const Program& program) {
  std::vector<Segment> segments;
  for (const SegmentSite& site : FindSegments(program)) {
    auto segment = CanonicalSegment(program, site);
    EXPECT_TRUE(segment.has_value());
    const Status status = VerifyProgram(segment->body);
    EXPECT_TRUE(status.has_value()) << ToString(status.error());
    segments.push_back(*std::move(segment));
  }
  return segments;
}

// One layer; `$` stands for a prefix of every name, `N` for its symbol.
std::string Layer(const std::string& prefix, const std::string& from = "", const std::string& to = "") {
  std::string text = R"(program "$" {
    symbol $n in [1, 64] divisor 2
    constant $w : f32[4, 8] = splat 0.5
    constant $a : i64[1] = [1]
    func $main(%$x: f32[$n, 4]) -> (%$z) {
      %$c : f32[4, 8] = Constant() {value = @$w}
      %$y : f32[$n, 8] = MatMul(%$x, %$c) "name of $"
      %$b : i64[1] = Constant() {value = @$a}
      %$z : f32[$n, 8] = CumSum(%$y, %$b) {reverse = 1}
    }
  })";
  for (size_t at; (at = text.find('$')) != std::string::npos;) text.replace(at, 1, prefix);
  if (!from.empty()) {
    EXPECT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
  }
  return text;
}

TEST(SegmentId, IgnoresNamesAndWeightValues) {
  const SegmentId id = SegmentsOf(Parse(Layer("p")))[0].id;
  EXPECT_EQ(SegmentsOf(Parse(Layer("other")))[0].id, id);
  EXPECT_EQ(SegmentsOf(Parse(Layer("p", "splat 0.5", "splat 0.25")))[0].id, id);
}

TEST(SegmentId, KeepsImmediatesAttributesAndFacts) {
  const SegmentId id = SegmentsOf(Parse(Layer("p")))[0].id;
  EXPECT_NE(SegmentsOf(Parse(Layer("p", "i64[1] = [1]", "i64[1] = [0]")))[0].id, id);
  EXPECT_NE(SegmentsOf(Parse(Layer("p", "divisor 2", "divisor 4")))[0].id, id);
  EXPECT_NE(SegmentsOf(Parse(Layer("p", "[1, 64]", "[1, 63]")))[0].id, id);
  EXPECT_NE(SegmentsOf(Parse(Layer("p", "reverse = 1", "reverse = 0")))[0].id, id);
  EXPECT_NE(SegmentsOf(Parse(Layer("p", "divisor 2", "divisor 2\n constraint pn <= 32")))[0].id, id);
}

TEST(SegmentId, EqualLayersOfOneModelAreEqual) {
  const Program program = Parse(R"(program "p" {
    symbol n in [0, 64]
    symbol k in [0, 64]
    symbol j in [0, 64]
    constant w0 : f32[4, 8] = splat 0.5
    constant w1 : f32[4, 8] = splat 0.25
    func main(%x: f32[n, 4]) -> (%a1, %cut, %b1) {
      %c0 : f32[4, 8] = Constant() {value = @w0}
      %c1 : f32[4, 8] = Constant() {value = @w1}
      %a0 : f32[n, 8] = MatMul(%x, %c0)
      %a1 : f32[n, 8] = Relu(%a0)
      %cut : i64[2, k] = NonZero(%a1)
      %b0 : f32[n, 8] = MatMul(%x, %c1)
      %b1 : f32[n, 8] = Relu(%b0)
    }
  })");
  const std::vector<SegmentSite> sites = FindSegments(program);
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].end_reason, SegmentEnd::kDataDependentShape);
  EXPECT_EQ(sites[1].end_reason, SegmentEnd::kRegionEnd);
  EXPECT_EQ(sites[0].weights, std::vector<ConstantId>{0});
  EXPECT_EQ(sites[1].weights, std::vector<ConstantId>{1});
  const std::vector<Segment> segments = SegmentsOf(program);
  EXPECT_EQ(segments[0].id, segments[1].id);
  EXPECT_EQ(segments[0].runtime_inputs, 1);
  EXPECT_EQ(segments[0].weight_count(), 1);
}

TEST(Segments, ASymbolThatNoInputShowsIsAParameter) {
  const Program program = Parse(R"(program "p" {
    symbol b in [1, 64]
    symbol t in [1, 64]
    symbol k in [0, 64]
    func main(%x: f32[b, t], %y: f32[4]) -> (%cut, %w) {
      %cut : i64[2, k] = NonZero(%x)
      %s : i64[2] = ShapeVector() {dims = dims[t, 4]}
      %v : f32[t, 4] = Expand(%y, %s)
      %w : f32[t, 4] = Neg(%v)
    }
  })");
  const std::vector<SegmentSite> sites = FindSegments(program);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].parameters, std::vector<Dim>{*program.symbols.FindSymbol("t")});
  const Segment segment = SegmentsOf(program)[0];
  ASSERT_EQ(segment.symbols.size(), 1u);
  EXPECT_EQ(segment.symbols[0].kind, SymbolSource::Kind::kParameter);
  std::vector<int64_t> values(1);
  const Tensor y = Tensor::Zeros(DType::kF32, {4});
  ASSERT_TRUE(BindSymbols(segment, std::vector{y.ref}, std::vector<int64_t>{7}, values));
  EXPECT_EQ(values[0], 7);
  EXPECT_FALSE(BindSymbols(segment, std::vector{y.ref}, std::vector<int64_t>{0}, values));
}

TEST(Segments, ASymbolNeededLaterLeavesWithItsTensor) {
  // n and m broadcast to k, which only the sum shows; it would otherwise stay inside.
  const Program program = Parse(R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    symbol k in [0, 64]
    symbol j in [0, 64]
    func main(%x: f32[n], %y: f32[m]) -> (%cut, %v) {
      %sum : f32[k] = Add(%x, %y)
      %r : f32[1] = ReduceSum(%sum)
      %cut : i64[1, j] = NonZero(%r)
      %v : i64[1] = ShapeVector() {dims = dims[k]}
    }
  })");
  const std::vector<SegmentSite> sites = FindSegments(program);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].outputs.size(), 2u);
  const Segment segment = SegmentsOf(program)[0];
  ASSERT_EQ(segment.symbols.size(), 3u);
  EXPECT_EQ(segment.symbols[2].kind, SymbolSource::Kind::kValueDim);
}

TEST(Segments, ASymbolInTheSizeOfWhatIsReadLaterLeavesWithItsTensor) {
  const auto outputs = [](const std::string& reader) {
    const std::vector<SegmentSite> sites = FindSegments(Parse(R"(program "p" {
      symbol n in [0, 64]
      symbol m in [0, 64]
      symbol k in [0, 64]
      symbol j in [0, 64]
      func main(%x: f32[n], %y: f32[m], %z: f32[3]) -> (%cut, %joined, %end) {
        %sum : f32[k] = Add(%x, %y)
        %joined : f32[k + 3] = Concat(%sum, %z) {axis = 0}
        %cut : i64[1, j] = NonZero(%z)
        %end : f32[*] = )" + reader + "\n} }"));
    return sites.at(0).outputs.size();
  };
  EXPECT_EQ(outputs("ReduceSum(%joined)"), 2u);
  EXPECT_EQ(outputs("ReduceSum(%z)"), 1u);
}

TEST(Segments, ASymbolThatARegionsOutputIsMadeOfLeavesWithItsTensor) {
  // The shape is among the segment's nodes and is made again behind it.
  const Program program = Parse(R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    symbol k in [0, 64]
    func main(%x: f32[n], %y: f32[m]) -> (%v, %r) {
      %sum : f32[k] = Add(%x, %y)
      %v : i64[1] = ShapeVector() {dims = dims[k]}
      %r : f32[1] = ReduceSum(%sum)
    }
  })");
  const std::vector<SegmentSite> sites = FindSegments(program);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].outputs.size(), 2u);
}

TEST(Segments, AreCutAtTheNarrowestLiveSetWhenTooLong) {
  // Two values live across every border but one.
  const size_t nodes = limits::kSegmentNodesMax + 100, narrow = limits::kSegmentNodesMax - 1001;
  std::string text = "program \"p\" { func main(%x: f32[4]) -> (%y) {\n";
  std::string a = "x", b = "x";
  for (size_t i = 0; i < nodes; ++i) {
    const std::string name = i + 1 == nodes ? "y" : "v" + std::to_string(i);
    text += "%" + name + " : f32[4] = Add(%" + a + ", %" + b + ")\n";
    b = i == narrow ? name : a;
    a = name;
  }
  const std::vector<SegmentSite> sites = FindSegments(Parse(text + "} }"));
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].end_reason, SegmentEnd::kSizeLimit);
  EXPECT_EQ(sites[0].end_node, static_cast<int>(narrow) + 1);
  EXPECT_EQ(sites[0].outputs.size(), 1u);
  EXPECT_EQ(sites[1].first_node, sites[0].end_node);
  EXPECT_EQ(sites[1].end_reason, SegmentEnd::kRegionEnd);
}

TEST(SegmentCodec, RoundTripsAndSurvivesDamage) {
  const Segment segment = SegmentsOf(Parse(Layer("p")))[0];
  const std::vector<uint8_t> bytes = EncodeSegment(segment).value();
  const auto decoded = DecodeSegment(bytes);
  ASSERT_TRUE(decoded.has_value()) << ToString(decoded.error());
  EXPECT_EQ(decoded->id, segment.id);
  EXPECT_EQ(decoded->symbols, segment.symbols);
  for (size_t size = 0; size < bytes.size(); size += 7)
    EXPECT_FALSE(DecodeSegment(std::span(bytes).first(size)).has_value());
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint8_t> damaged = bytes;
    for (int k = 0; k <= i % 3; ++k) damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1u << random() % 8);
    const auto result = DecodeSegment(damaged);
    if (result.has_value()) {
      EXPECT_EQ(result->id, ComputeSegmentId(*result));
    }
  }
}

TEST(BindSymbols, NamesInputDimAndConstraint) {
  const Segment segment = SegmentsOf(Parse(R"(program "p" {
    symbol n in [2, 64] divisor 2
    func main(%a: f32[n, 3], %b: f32[n, n]) -> (%y) {
      %t : f32[3, n] = Transpose(%a)
      %y : f32[3, n] = MatMul(%t, %b)
    }
  })"))[0];
  std::vector<int64_t> values(1);
  auto bind = [&](Dims a, Dims b) -> std::string {
    const Tensor ta = Tensor::Zeros(DType::kF32, a), tb = Tensor::Zeros(DType::kF32, b);
    const Status status = BindSymbols(segment, std::vector{ta.ref, tb.ref}, {}, values);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(bind({4, 3}, {4, 4}), "");
  EXPECT_EQ(values[0], 4);
  EXPECT_THAT(bind({4, 2}, {4, 4}), HasSubstr("dim 1 of segment input 0 is 2"));
  EXPECT_THAT(bind({4, 3}, {4, 6}), HasSubstr("dim 1 of segment input 1 is 6"));
  EXPECT_THAT(bind({3, 3}, {3, 3}), HasSubstr("multiples of 2"));
  EXPECT_THAT(bind({66, 3}, {66, 66}), HasSubstr("2..64"));
  EXPECT_THAT(bind({4, 3, 1}, {4, 4}), HasSubstr("segment input 0 is f32[4, 3, 1]"));
}

TEST(SegmentEnd, EveryReasonHasAText) {
  for (SegmentEnd reason : {
#define KILN_SEGMENT_END(value, name, text) SegmentEnd::k##name,
#include "common/segment/end_reasons.def"
#undef KILN_SEGMENT_END
       })
    EXPECT_FALSE(SegmentEndText(reason).empty());
}

}  // namespace
}  // namespace kiln
