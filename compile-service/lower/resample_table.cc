#include "compile-service/lower/resample_table.h"

#include "common/ops/resize_rules.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::ScalarOp;
using ir::SpecInt;

namespace {

constexpr Dim kOne = Dim::Const(1);

// The table's kernel as a program over the positions of the output, step by step what the reference kernel does:
// positions in f32, for whole results jump with the last bit of a position, and weights in f64.
class TableProgram {
 public:
  TableProgram(PlanBuilder& builder, const GraphNode& node, const ResizeRules& rules, Dim in, Dim out)
      : b_(builder), node_(node), rules_(rules), in_dim_(in), out_dim_(out) {
    const std::span<const double> roi = node.attributes.Floats("roi");
    if (roi.size() == 2) {
      roi_begin_ = roi[0];
      roi_end_ = roi[1];
    }
  }

  Result<ResampleTable> Emit() {
    table_.taps = rules_.mode == ResizeMode::kNearest ? 1 : rules_.mode == ResizeMode::kLinear ? 2 : 4;
    in_ = s_.Integer(arguments_.Argument(in_dim_));
    out_ = s_.Integer(arguments_.Argument(out_dim_));
    ASSIGN_OR_RETURN(scale_, Scale());
    AddTaps(Position());
    ir::LoopNestSpec spec;
    spec.inner = arguments_.Argument(out_dim_);
    spec.accesses = std::move(accesses_);
    spec.body = s_.Take();
    spec.stages.push_back({ir::Stage::Kind::kStore, ir::Combine::kSum, 0, ir::Stage::Domain::kFull, stores_});
    const Dim cost = b_.symbols().Mul(out_dim_, Dim::Const(static_cast<int64_t>(spec.body.size())));
    RETURN_IF_ERROR(b_.AddKernel({std::move(spec)}, std::move(pointers_), std::move(arguments_), out_dim_, cost,
                                 {"resize: positions", node_.sources}));
    return table_;
  }

 private:
  static constexpr DType kF = DType::kF32, kD = DType::kF64, kI = DType::kI64, kB = DType::kBool;

  int32_t Add(int32_t a, int32_t b) { return s_.Op(ScalarOp::kAdd, TypeOf(a), a, b); }
  int32_t Sub(int32_t a, int32_t b) { return s_.Op(ScalarOp::kSub, TypeOf(a), a, b); }
  int32_t Mul(int32_t a, int32_t b) { return s_.Op(ScalarOp::kMul, TypeOf(a), a, b); }
  int32_t Div(int32_t a, int32_t b) { return s_.Op(ScalarOp::kDiv, TypeOf(a), a, b); }
  int32_t Less(int32_t a, int32_t b) { return s_.Op(ScalarOp::kLess, kB, a, b); }
  int32_t Select(int32_t c, int32_t a, int32_t b) { return s_.Op(ScalarOp::kSelect, TypeOf(a), c, a, b); }
  int32_t F(double value) { return s_.Number(kF, value); }
  int32_t D(double value) { return s_.Number(kD, value); }
  DType TypeOf(int32_t scalar) const { return s_.TypeOf(scalar); }

  int32_t Pointer(const Place& place, DType dtype, std::vector<Dim> dims) {
    pointers_.push_back(b_.AddPlanValue(place, dtype, dims));
    return static_cast<int32_t>(pointers_.size()) - 1;
  }

  // Read from memory where it is given, so that all scales share a kernel.
  Result<int32_t> Scale() {
    if (!node_.attributes.Has("scale")) return Div(s_.As(kF, out_), s_.As(kF, in_));
    const auto scale = static_cast<float>(node_.attributes.Float("scale", 1));
    ASSIGN_OR_RETURN(const Place place, b_.Recipe(b_.graph().AddScalar(scale)));
    accesses_.push_back({Pointer(place, kF, {}), kF, {SpecInt::Const(0)}});
    return s_.Load(kF, static_cast<int32_t>(accesses_.size()) - 1);
  }

  // A position of the output as one of the input.
  int32_t Position() {
    using Coordinates = ResizeCoordinates;
    const int32_t x = s_.As(kF, s_.Add({ScalarOp::kCoordinate, kI}));
    const int32_t in = s_.As(kF, in_), out = s_.As(kF, out_);
    const int32_t several = Less(s_.Integer(1), out_);
    const auto middle = [&] { return Div(Add(x, F(0.5)), scale_); };
    int32_t position = x;
    switch (rules_.coordinates) {
      case Coordinates::kHalfPixel:
        position = Sub(middle(), F(0.5));
        break;
      case Coordinates::kHalfPixelSymmetric: {
        const int32_t adjustment = Div(out, Mul(scale_, in));
        const int32_t offset = Mul(Div(in, F(2)), Sub(F(1), adjustment));
        position = Sub(Add(offset, middle()), F(0.5));
        break;
      }
      case Coordinates::kPytorchHalfPixel:
        position = Select(several, Sub(middle(), F(0.5)), F(0));
        break;
      case Coordinates::kAlignCorners:
        position = Select(several, Div(Mul(x, Sub(in, F(1))), Sub(out, F(1))), F(0));
        break;
      case Coordinates::kAsymmetric:
        position = Div(x, scale_);
        break;
      case Coordinates::kCropAndResize: {
        const auto begin = static_cast<float>(roi_begin_), end = static_cast<float>(roi_end_);
        const int32_t last = Sub(in, F(1));
        const int32_t moved = Div(Mul(Mul(x, F(end - begin)), last), Sub(out, F(1)));
        position = Select(several, Add(Mul(F(begin), last), moved), Mul(F(0.5f * (begin + end)), last));
        break;
      }
      case Coordinates::kTfHalfPixelForNn:
        return middle();
    }
    if (roi_begin_ != 0 || roi_end_ != 1) return position;
    // An axis that stays as it is shows itself.
    const int32_t same =
        s_.Op(ScalarOp::kAnd, kB, s_.Op(ScalarOp::kEqual, kB, in_, out_), s_.Op(ScalarOp::kEqual, kB, scale_, F(1)));
    return Select(same, x, position);
  }

  int32_t Nearest(int32_t position) {
    using Rounding = ResizeRounding;
    const auto floor = [&](int32_t a) { return s_.Op(ScalarOp::kFloor, kD, a); };
    const auto ceil = [&](int32_t a) { return s_.Op(ScalarOp::kCeil, kD, a); };
    switch (rules_.rounding) {
      case Rounding::kRoundPreferFloor:
        return ceil(Sub(position, D(0.5)));
      case Rounding::kRoundPreferCeil:
        return floor(Add(position, D(0.5)));
      case Rounding::kFloor:
        return floor(position);
      case Rounding::kCeil:
        return ceil(position);
      case Rounding::kCeilWhenShrinking:
        return Select(Less(scale_, F(1)), ceil(position), floor(position));
    }
    return position;
  }

  int32_t Weight(int32_t distance) {
    const int32_t d = s_.Op(ScalarOp::kAbs, kD, distance);
    if (rules_.mode == ResizeMode::kLinear) return s_.Op(ScalarOp::kMax, kD, D(0), Sub(D(1), d));
    const double a = rules_.cubic;
    const int32_t near = Add(Mul(Mul(Sub(Mul(D(a + 2), d), D(a + 3)), d), d), D(1));
    const int32_t far = Sub(Mul(Add(Mul(Sub(Mul(D(a), d), D(5 * a)), d), D(8 * a)), d), D(4 * a));
    const int32_t is_near = s_.Op(ScalarOp::kLessEqual, kB, d, D(1));
    return Select(is_near, near, Select(Less(d, D(2)), far, D(0)));
  }

  void AddTaps(int32_t position_f32) {
    const int32_t position = s_.As(kD, position_f32);
    const bool crops = rules_.coordinates == ResizeCoordinates::kCropAndResize;
    std::vector<int32_t> indices, weights;
    if (rules_.mode == ResizeMode::kNearest) {
      indices = {s_.As(kI, Nearest(position))};
      if (crops) weights = {D(1)};
    } else {
      const int32_t floor = s_.Op(ScalarOp::kFloor, kD, position), whole = s_.As(kI, floor);
      for (int32_t tap = 0; tap < table_.taps; ++tap) {
        const int32_t from_floor = tap - (table_.taps / 2 - 1);
        indices.push_back(Add(whole, s_.Integer(from_floor)));
        weights.push_back(Weight(Sub(Add(floor, D(from_floor)), position)));
      }
      if (rules_.exclude_outside) LeaveOutside(indices, weights);
    }
    Store(indices, kI, table_.positions);
    int32_t outside = -1;
    if (crops) {
      const int32_t last = s_.As(kD, Sub(in_, s_.Integer(1)));
      outside = s_.Op(ScalarOp::kOr, kB, Less(position, D(0)), Less(last, position));
      Store({Select(outside, F(rules_.extrapolation), F(0))}, kF, table_.shown_outside.emplace());
      for (int32_t& weight : weights) weight = Select(outside, D(0), weight);
    }
    if (weights.empty()) return;
    for (int32_t& weight : weights) weight = s_.As(kF, weight);
    Store(weights, kF, table_.weights.emplace());
  }

  // Taps outside of the input have no weight, the others share all of it.
  void LeaveOutside(const std::vector<int32_t>& indices, std::vector<int32_t>& weights) {
    int32_t sum = D(0);
    for (size_t i = 0; i < weights.size(); ++i) {
      const int32_t outside =
          s_.Op(ScalarOp::kOr, kB, Less(indices[i], s_.Integer(0)), s_.Op(ScalarOp::kLessEqual, kB, in_, indices[i]));
      weights[i] = Select(outside, D(0), weights[i]);
      sum = Add(sum, weights[i]);
    }
    const int32_t none = s_.Op(ScalarOp::kEqual, kB, sum, D(0));
    for (int32_t& weight : weights) weight = Select(none, weight, Div(weight, sum));
  }

  // Row after row of a place of its own.
  void Store(const std::vector<int32_t>& rows, DType dtype, Place& place) {
    const Dim count = Dim::Const(static_cast<int64_t>(rows.size()));
    place = b_.AllocateBuffer(dtype, {count, out_dim_}, RowMajor(2));
    for (size_t i = 0; i < rows.size(); ++i) {
      Place row = place;
      row.offset = b_.symbols().Mul(out_dim_, Dim::Const(static_cast<int64_t>(i)));
      row.strides = {kOne};
      stores_.push_back({static_cast<int32_t>(accesses_.size()), rows[i]});
      accesses_.push_back({Pointer(row, dtype, {out_dim_}), dtype, {SpecInt::Const(1)}});
    }
  }

  PlanBuilder& b_;
  const GraphNode& node_;
  const ResizeRules rules_;
  const Dim in_dim_, out_dim_;
  double roi_begin_ = 0, roi_end_ = 1;
  ScalarBuilder s_;
  KernelArguments arguments_;
  std::vector<ir::Access> accesses_;
  std::vector<ir::Store> stores_;
  std::vector<int32_t> pointers_;
  int32_t in_ = -1, out_ = -1, scale_ = -1;
  ResampleTable table_;
};

}  // namespace

Result<ResampleTable> TableOf(PlanBuilder& b, const GraphNode& resample) {
  const auto axis = static_cast<size_t>(resample.attributes.Ints("axes")[0]);
  const Dim in = b.graph().value(resample.inputs[0]).dims[axis], out = b.graph().value(resample.outputs[0]).dims[axis];
  Attributes rule;
  for (const Attribute& attribute : resample.attributes.all())
    if (attribute.name != "axes") rule.Set(attribute.name, attribute.value);
  for (const ResampleTable& table : b.resample_tables())
    if (table.rule == rule && b.symbols().ProvenEqual(table.in, in) && b.symbols().ProvenEqual(table.out, out))
      return table;
  ASSIGN_OR_RETURN(const ResizeRules rules, ReadResizeRules(resample.attributes));
  ASSIGN_OR_RETURN(ResampleTable table, TableProgram(b, resample, rules, in, out).Emit());
  table.rule = std::move(rule);
  table.in = in;
  table.out = out;
  b.resample_tables().push_back(table);
  return table;
}

}  // namespace kiln::lower
