// Shape rules on symbolic dims, as the load and the compile service use them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/ops/infer.h"

namespace kiln {
namespace {

// One call with dims written as text over the symbols n, m (0 or more), b (1 or more).
class Rule {
 public:
  explicit Rule(TensorOp op) : op_(op) {
    symbols_.AddSymbol("n").value();
    symbols_.AddSymbol("m").value();
    symbols_.AddSymbol("b", {1, 4096}).value();
    symbols_.AddSymbol("w", {2, 4096}, 8).value();
  }

  // An input of these dims; "*" has unknown rank.
  Rule& In(DType dtype, const std::string& dims) {
    TensorDesc desc;
    desc.dtype = dtype;
    if (dims != "*") desc.dims = List(dims);
    descs_.push_back(desc);
    known_.emplace_back();
    return *this;
  }
  Rule& In(const std::string& dims) { return In(DType::kF32, dims); }
  // A 1-D integer input of known contents.
  Rule& Known(const std::string& values) {
    const std::vector<Dim> list = List(values);
    descs_.push_back(StaticDesc(DType::kI64, Dims{static_cast<int64_t>(list.size())}));
    known_.emplace_back(list);
    return *this;
  }
  Rule& Scalar(int64_t value) {
    descs_.push_back(StaticDesc(DType::kI64, Dims{}));
    known_.emplace_back(std::vector<Dim>{Dim::Const(value)});
    return *this;
  }
  Rule& Floats(std::vector<double> values) {
    descs_.push_back(StaticDesc(DType::kF32, Dims{static_cast<int64_t>(values.size())}));
    known_.emplace_back();
    floats_[descs_.size() - 1] = std::move(values);
    return *this;
  }
  Rule& Absent() {
    absent_.push_back(descs_.size());
    descs_.emplace_back();
    known_.emplace_back();
    return *this;
  }
  Rule& Set(const std::string& name, AttributeValue value) {
    attributes_.Set(name, std::move(value));
    return *this;
  }
  Rule& Outputs(size_t count) {
    outputs_ = count;
    return *this;
  }
  // kAssume with n = m = 3, b = 2, w = 8.
  Rule& Assume() {
    assume_ = true;
    return *this;
  }

  // Dims of the outputs as text, then the known contents of the first after "=".
  std::string Run() {
    std::vector<const TensorDesc*> inputs;
    for (size_t i = 0; i < descs_.size(); ++i) {
      const bool is_absent = std::find(absent_.begin(), absent_.end(), i) != absent_.end();
      inputs.push_back(is_absent ? nullptr : &descs_[i]);
    }
    InferContext context{.symbols = symbols_, .op = op_, .attributes = attributes_, .inputs = inputs};
    context.known = [this](int i) { return known_[static_cast<size_t>(i)]; };
    context.known_floats = [this](int i) -> std::optional<std::vector<double>> {
      const auto at = floats_.find(static_cast<size_t>(i));
      return at == floats_.end() ? std::nullopt : std::optional(at->second);
    };
    const std::vector<int64_t> hints{3, 3, 2, 8};
    if (assume_) {
      context.policy = UnprovenPolicy::kAssume;
      context.hints = hints;
    }
    context.outputs.resize(outputs_);
    const Status status = InferShapes(context);
    if (!status) return ToString(status.error());
    std::string text;
    for (const TensorDesc& output : context.outputs) text += (text.empty() ? "" : " ") + Text(output);
    if (context.known_outputs[0]) {
      text += " =";
      for (const Dim value : *context.known_outputs[0]) text += " " + symbols_.ToString(value);
    }
    for (const Constraint& constraint : context.assumed) text += " if " + symbols_.ToString(constraint);
    if (context.data_dependent) text += " data";
    return text;
  }

 private:
  std::vector<Dim> List(const std::string& text) {
    std::vector<Dim> dims;
    int depth = 0;
    std::string item;
    for (const char c : text + ",") {
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (c != ',' || depth > 0) {
        item += c;
      } else if (!item.empty()) {
        dims.push_back(symbols_.Parse(item).value());
        item.clear();
      }
    }
    return dims;
  }
  std::string Text(const TensorDesc& desc) { return ToString(desc, symbols_); }

  TensorOp op_;
  SymbolTable symbols_;
  Attributes attributes_;
  std::vector<TensorDesc> descs_;
  std::vector<std::optional<KnownValues>> known_;
  std::map<size_t, std::vector<double>> floats_;
  std::vector<size_t> absent_;
  size_t outputs_ = 1;
  bool assume_ = false;
};

using Ints = std::vector<int64_t>;

TEST(ShapeRule, BroadcastKeepsWhatIsProvenAndMakesAFreshSymbolElse) {
  EXPECT_EQ(Rule(TensorOp::kAdd).In("n,1,4").In("3,1").Run(), "f32[n, 3, 4]");
  EXPECT_EQ(Rule(TensorOp::kAdd).In("n").In("n").Run(), "f32[n]");
  EXPECT_EQ(Rule(TensorOp::kAdd).In("n").In("5").Run(), "f32[5]");
  EXPECT_EQ(Rule(TensorOp::kAdd).In("n").In("w").Run(), "f32[w]") << "w is never 1";
  EXPECT_EQ(Rule(TensorOp::kAdd).In("n").In("m").Run(), "f32[s4]");
  EXPECT_EQ(Rule(TensorOp::kAdd).In("*").In("m").Run(), "f32[*]");
}

TEST(ShapeRule, BroadcastUnderAssumptionRecordsTheConstraint) {
  EXPECT_EQ(Rule(TensorOp::kAdd).In("n").In("m").Assume().Run(), "f32[n] if n != 1 if m != 1 if n == m");
}

TEST(ShapeRule, ContradictionsNameTheDims) {
  EXPECT_EQ(Rule(TensorOp::kAdd).In("2,3").In("2,4").Run(),
            "shape_mismatch: shapes [2, 3] and [2, 4]: cannot broadcast dim 3 with dim 4; they must be equal or one of "
            "them 1");
  EXPECT_NE(
      Rule(TensorOp::kMatMul).In("n,3").In("4,m").Run().find("the last dim of input 0, 3 of [n, 3], must equal dim 4"),
      std::string::npos);
  EXPECT_NE(Rule(TensorOp::kConcat).In("n,3").In("n,4").Run().find("dim 1 of inputs 0 and 1 of Concat along axis 0"),
            std::string::npos);
  EXPECT_NE(Rule(TensorOp::kReshape).In("2,3").Known("-1,-1").Run().find("two -1"), std::string::npos);
  EXPECT_NE(Rule(TensorOp::kReshape).In("2,3").Known("4,2").Run().find("numbers of elements differ, 6 and 8"),
            std::string::npos);
  EXPECT_NE(Rule(TensorOp::kConv).In("1,1,2,2").In("1,1,3,3").Run().find("the kernel spans 3"), std::string::npos);
  EXPECT_NE(Rule(TensorOp::kTopK).In("5").Known("6").Outputs(2).Run().find("k of TopK is 6"), std::string::npos);
  EXPECT_NE(Rule(TensorOp::kAdd).In("3").In(DType::kI64, "3").Run().find("input 1 is i64"), std::string::npos);
}

TEST(ShapeRule, ReshapeDerivesAndCopies) {
  EXPECT_EQ(Rule(TensorOp::kReshape).In("n,4,8").Known("0,-1").Run(), "f32[n, 32]");
  EXPECT_EQ(Rule(TensorOp::kReshape).In("n,4,8").Known("-1,8").Run(), "f32[4*n, 8]");
  EXPECT_EQ(Rule(TensorOp::kReshape).In("n,m,64").Known("n,m,4,16").Run(), "f32[n, m, 4, 16]");
  EXPECT_EQ(Rule(TensorOp::kReshape).In("0,4").Known("0,-1").Run(), "f32[0, 4]");
  EXPECT_EQ(Rule(TensorOp::kReshape).In("n").In(DType::kI64, "3").Run(), "f32[s4, s5, s6] data");
  EXPECT_EQ(Rule(TensorOp::kReshape).In("n").In(DType::kI64, "m").Run(), "f32[*] data");
}

TEST(ShapeRule, SlidingWindowsDivideSymbolicDims) {
  EXPECT_EQ(
      Rule(TensorOp::kConv).In("b,3,n,w").In("8,3,3,3").Set("strides", Ints{2, 2}).Set("pads", Ints{1, 1, 1, 1}).Run(),
      "f32[b, 8, floordiv(n + 1, 2), floordiv(w, 2)]");
  EXPECT_EQ(Rule(TensorOp::kMaxPool)
                .In("b,3,10,10")
                .Set("kernel_shape", Ints{3, 3})
                .Set("strides", Ints{2, 2})
                .Set("ceil_mode", int64_t{1})
                .Run(),
            "f32[b, 3, 5, 5]");
  const auto longer = [](const char* dims, int64_t ceil) {
    return Rule(TensorOp::kMaxPool)
        .In(dims)
        .Set("kernel_shape", Ints{5})
        .Set("strides", Ints{2})
        .Set("ceil_mode", ceil)
        .Run();
  };
  EXPECT_EQ(longer("b,3,4", 1), "f32[b, 3, 1]");
  EXPECT_EQ(longer("b,3,2", 1), "f32[b, 3, 0]");
  EXPECT_EQ(longer("b,3,1", 1), "shape_mismatch: spatial dim 0 has 1 elements with its pads; the kernel spans 5");
  EXPECT_EQ(longer("b,3,4", 0), "shape_mismatch: spatial dim 0 has 4 elements with its pads; the kernel spans 5");
  EXPECT_EQ(Rule(TensorOp::kConv)
                .In("1,1,7")
                .In("1,1,3")
                .Set("auto_pad", std::string("SAME_UPPER"))
                .Set("strides", Ints{2})
                .Run(),
            "f32[1, 1, 4]");
  EXPECT_EQ(Rule(TensorOp::kConvTranspose).In("b,4,n").In("4,2,3").Set("strides", Ints{2}).Run(), "f32[b, 2, 2*n + 1]");
}

TEST(ShapeRule, NormsHaveAPower) {
  const auto pool = [](int64_t p) {
    return Rule(TensorOp::kLpPool).In("b,3,4").Set("kernel_shape", Ints{2}).Set("p", p).Run();
  };
  EXPECT_EQ(pool(1), "f32[b, 3, 3]");
  EXPECT_EQ(pool(0), "invalid_argument: attribute `p` of LpPool is 0; it is at least 1");
  EXPECT_EQ(Rule(TensorOp::kLpNormalization).In("b,3").Set("p", int64_t{1}).Run(), "f32[b, 3]");
  EXPECT_EQ(Rule(TensorOp::kLpNormalization).In("b,3").Set("p", int64_t{3}).Run(),
            "invalid_argument: attribute `p` of LpNormalization is 3, not 1 or 2");
}

TEST(ShapeRule, SlicesOfSymbolicDims) {
  EXPECT_EQ(Rule(TensorOp::kSlice).In("b,8").Known("0").Known("9223372036854775807").Known("0").Run(), "f32[b, 8]");
  EXPECT_EQ(Rule(TensorOp::kSlice).In("b,8").Known("1").Known("9223372036854775807").Known("0").Run(), "f32[b - 1, 8]");
  EXPECT_EQ(Rule(TensorOp::kSlice).In("b,8").Known("0").Known("-1").Known("0").Run(), "f32[b - 1, 8]");
  EXPECT_EQ(Rule(TensorOp::kSlice).In("8,n").Known("-3").Known("-9223372036854775807").Known("0").Known("-2").Run(),
            "f32[3, n]");
  EXPECT_EQ(Rule(TensorOp::kSlice).In("8,n").In(DType::kI64, "1").Known("4").Known("0").Run(), "f32[s4, n] data");
}

TEST(ShapeRule, ShapeArithmeticStaysKnown) {
  EXPECT_EQ(Rule(TensorOp::kShape).In("n,4,m").Run(), "i64[3] = n 4 m");
  EXPECT_EQ(Rule(TensorOp::kShape).In("n,4,m").Set("start", int64_t{-2}).Run(), "i64[2] = 4 m");
  EXPECT_EQ(Rule(TensorOp::kGather).Known("n,4,m").Known("2,-3").Run(), "i64[2] = m n");
  EXPECT_EQ(Rule(TensorOp::kConcat).Known("n").Known("2,m").Set("axis", int64_t{0}).Run(), "i64[3] = n 2 m");
  EXPECT_EQ(Rule(TensorOp::kMul).Known("n,2").Known("3,m").Run(), "i64[2] = 3*n 2*m");
  EXPECT_EQ(Rule(TensorOp::kDiv).Known("n").Known("4").Run(), "i64[1] = floordiv(n, 4)");
  EXPECT_EQ(Rule(TensorOp::kDiv).Known("-7").Known("2").Run(), "i64[1] = -3");
  EXPECT_EQ(Rule(TensorOp::kReduceProd).Known("n,4").Run(), "i64[1] = 4*n");
  EXPECT_EQ(Rule(TensorOp::kRange).Known("0").Known("n").Known("1").Run(), "i64[n]");
  EXPECT_EQ(Rule(TensorOp::kEqual).Known("n,n").Known("n,-1").Run(), "bool[2] = 1 0");
  EXPECT_EQ(Rule(TensorOp::kSlice).Known("n,4,m").Known("1").Known("3").Run(), "i64[2] = 4 m");
  EXPECT_EQ(Rule(TensorOp::kConstantOfShape).Known("n,2").Run(), "f32[n, 2]");
  EXPECT_EQ(Rule(TensorOp::kExpand).In("1,4").Known("n,1").Run(), "f32[n, 4]");
  EXPECT_EQ(Rule(TensorOp::kTile).In("n,4").Known("2,m").Run(), "f32[2*n, 4*m]");
}

TEST(ShapeRule, ContentsDecideSizes) {
  EXPECT_EQ(Rule(TensorOp::kNonZero).In("n,m").Run(), "i64[2, s4] data");
  EXPECT_EQ(Rule(TensorOp::kTopK).In("b,n").In(DType::kI64, "1").Outputs(2).Run(), "f32[b, s4] i64[b, s4] data");
  EXPECT_EQ(Rule(TensorOp::kTopK).In("b,n").Known("5").Outputs(2).Run(), "f32[b, 5] i64[b, 5]");
  EXPECT_EQ(Rule(TensorOp::kSqueeze).In("n,4").Run(), "f32[*]") << "n may be 1";
  EXPECT_EQ(Rule(TensorOp::kSqueeze).In("w,1,4").Run(), "f32[w, 4]");
}

TEST(ShapeRule, ResizeScalesSymbolicDims) {
  EXPECT_EQ(Rule(TensorOp::kResize).In("b,3,n,n").Absent().Floats({1, 1, 2, 0.5}).Run(),
            "f32[b, 3, 2*n, floordiv(n, 2)]");
  EXPECT_EQ(Rule(TensorOp::kResize).In("b,3,n,n").Absent().Absent().Known("b,3,m,7").Run(), "f32[b, 3, m, 7]");
}

TEST(ShapeRule, SplitCoversTheDim) {
  EXPECT_EQ(Rule(TensorOp::kSplit).In("7").Outputs(3).Run(), "f32[3] f32[3] f32[1]");
  EXPECT_EQ(Rule(TensorOp::kSplit).In("5").Outputs(4).Run(), "f32[2] f32[2] f32[1] f32[0]");
  EXPECT_EQ(Rule(TensorOp::kSplit).In("n,6").Set("axis", int64_t{1}).Outputs(2).Run(), "f32[n, 3] f32[n, 3]");
  EXPECT_EQ(Rule(TensorOp::kSplit).In("6").Known("2,4").Outputs(2).Run(), "f32[2] f32[4]");
}

TEST(ShapeRule, RangesReachFromEndToEndOf64Bits) {
  EXPECT_EQ(
      Rule(TensorOp::kRange).Scalar(-9000000000000000000).Scalar(9000000000000000000).Scalar(6000000000000000000).Run(),
      "i64[3] = -9000000000000000000 -3000000000000000000 3000000000000000000");
  EXPECT_EQ(Rule(TensorOp::kRange).Scalar(3).Scalar(-4).Scalar(-2).Run(), "i64[4] = 3 1 -1 -3");
}

TEST(ShapeRule, AnAspectThatLeadsBeyond64BitsIsALargeSize) {
  EXPECT_EQ(Rule(TensorOp::kResize)
                .In("1,4")
                .Absent()
                .Absent()
                .Known("9223372036854775807,1")
                .Set("keep_aspect_ratio_policy", std::string("not_smaller"))
                .Run(),
            "f32[9223372036854775807, 9223372036854775807]");
}

TEST(ShapeRule, SpectraFollowTheLengthOfTheSignal) {
  EXPECT_EQ(Rule(TensorOp::kDFT).In("b,n,1").Run(), "f32[b, n, 2]");
  EXPECT_EQ(Rule(TensorOp::kDFT).In("b,w,1").Set("onesided", int64_t{1}).Run(), "f32[b, floordiv(w, 2) + 1, 2]");
  EXPECT_EQ(Rule(TensorOp::kDFT).In("b,w,2").Set("onesided", int64_t{1}).Set("inverse", int64_t{1}).Run(),
            "f32[b, 2*w - 2, 1]");
  EXPECT_EQ(Rule(TensorOp::kDFT).In("b,n,m,2").Known("w").Scalar(1).Run(), "f32[b, w, m, 2]");
  EXPECT_EQ(Rule(TensorOp::kDFT).In("b,n,2").In(DType::kI64, "").Run(), "f32[b, s4, 2] data");
  EXPECT_EQ(Rule(TensorOp::kDFT).In("b,n,2").Absent().In(DType::kI64, "").Run(), "f32[b, n, 2]");
  EXPECT_EQ(Rule(TensorOp::kDFT).In("*").Run(), "f32[*]");
  EXPECT_EQ(Rule(TensorOp::kSTFT).In("b,n,1").Scalar(4).In("16").Run(), "f32[b, max(0, floordiv(n, 4) - 3), 9, 2]");
  EXPECT_EQ(Rule(TensorOp::kSTFT).In("b,n,1").Known("b").Absent().Known("w").Set("onesided", int64_t{0}).Run(),
            "f32[b, max(0, floordiv(n - w, b) + 1), w, 2]");
  EXPECT_EQ(Rule(TensorOp::kSTFT).In("b,n,1").In(DType::kI64, "").In("8").Run(), "f32[b, s5, 5, 2] data");
}

TEST(ShapeRule, RegionsAreCountedByTheirBoxes) {
  EXPECT_EQ(Rule(TensorOp::kRoiAlign)
                .In("b,m,w,w")
                .In("n,4")
                .In(DType::kI64, "n")
                .Set("output_height", int64_t{7})
                .Set("output_width", int64_t{5})
                .Run(),
            "f32[n, m, 7, 5]");
  EXPECT_EQ(Rule(TensorOp::kMaxRoiPool).In("b,m,w,w").In("n,5").Set("pooled_shape", Ints{7, 5}).Run(),
            "f32[n, m, 7, 5]");
}

TEST(ShapeRule, DepthwiseConvolutionOfUnknownChannels) {
  EXPECT_EQ(Rule(TensorOp::kConv).In("b,n,w").In("n,1,3").Set("depthwise", int64_t{1}).Run(), "f32[b, n, w - 2]");
}

TEST(ShapeRule, ABlockOfNothingIsRefusedWhereTheImageIsUnknown) {
  const std::string text =
      Rule(TensorOp::kCol2Im).In("b,4,6").In(DType::kI64, "2").Known("0,2").Set("strides", Ints{1, 1}).Run();
  EXPECT_NE(text.find("entry 0 of the block shape is 0"), std::string::npos) << text;
}

// n, m >= 0; b in [1, 4096]; w in [2, 4096], a multiple of 8; k == n is known.
TEST(Require, LeavesOutWhatIsProvenAndKeepsWhatCannotHold) {
  enum class Means : uint8_t { kProven, kOpen, kNever };
  using enum ConstraintKind;
  const struct {
    ConstraintKind kind;
    const char *left, *right;
    Means means;
  } cases[] = {
      {kEqual, "n", "n", Means::kProven},         {kEqual, "k", "n", Means::kProven},
      {kEqual, "4", "n", Means::kOpen},           {kEqual, "n", "n + 1", Means::kNever},
      {kEqual, "3", "4", Means::kNever},          {kNotEqual, "n", "n + 1", Means::kProven},
      {kNotEqual, "w", "3", Means::kProven},      {kNotEqual, "3", "4", Means::kProven},
      {kNotEqual, "n", "m", Means::kOpen},        {kNotEqual, "n", "n", Means::kNever},
      {kNotEqual, "2*b", "b + b", Means::kNever}, {kNotEqual, "4", "4", Means::kNever},
      {kLessEqual, "n", "n", Means::kProven},     {kLessEqual, "k", "n", Means::kProven},
      {kLessEqual, "2", "w", Means::kProven},     {kLessEqual, "b", "4096", Means::kProven},
      {kLessEqual, "w", "16", Means::kOpen},      {kLessEqual, "n + 1", "n", Means::kNever},
      {kDivides, "4", "w", Means::kProven},       {kDivides, "b", "b", Means::kProven},
      {kDivides, "3", "0", Means::kProven},       {kDivides, "3", "w", Means::kOpen},
      {kDivides, "n", "n", Means::kOpen},  // 0 divides nothing
      {kDivides, "2", "2*n + 1", Means::kNever},  {kDivides, "0", "n", Means::kNever},
      {kBroadcasts, "n", "n", Means::kProven},    {kBroadcasts, "1", "m", Means::kProven},
      {kBroadcasts, "m", "1", Means::kProven},    {kBroadcasts, "n", "m", Means::kOpen},
      {kBroadcasts, "w", "w + 8", Means::kNever}, {kBroadcasts, "2", "3", Means::kNever},
  };
  std::map<ConstraintKind, std::map<Means, int>> tried;
  for (const auto& [kind, left, right, means] : cases) {
    SymbolTable symbols;
    symbols.AddSymbol("n").value();
    symbols.AddSymbol("m").value();
    symbols.AddSymbol("b", {1, 4096}).value();
    symbols.AddSymbol("w", {2, 4096}, 8).value();
    symbols.AddConstraint({kEqual, symbols.AddSymbol("k").value(), *symbols.FindSymbol("n")});
    const Attributes attributes;
    std::vector<Constraint> required;
    InferContext context{.symbols = symbols, .op = TensorOp::kAdd, .attributes = attributes, .required = &required};
    context.Require(kind, symbols.Parse(left).value(), symbols.Parse(right).value());
    const Constraint asked{kind, symbols.Parse(left).value(), symbols.Parse(right).value()};
    EXPECT_EQ(required.size(), means == Means::kProven ? 0u : 1u) << symbols.ToString(asked);
    ASSERT_FALSE(symbols.FindContradiction().has_value());
    for (const Constraint& constraint : required) symbols.AddConstraint(constraint);
    EXPECT_EQ(symbols.FindContradiction().has_value(), means == Means::kNever) << symbols.ToString(asked);
    ++tried[kind][means];
  }
#define KILN_CONSTRAINT(value, name, text, doc) EXPECT_EQ(tried[k##name].size(), 3u) << text;
#include "common/shape/constraints.def"
#undef KILN_CONSTRAINT
}

}  // namespace
}  // namespace kiln
