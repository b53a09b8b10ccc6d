#include "tests/compile-service/codegen/cuda/mutation_cases.h"

#include <cmath>
#include <limits>

#include "tests/compile-service/codegen/spec_cases.h"

namespace kiln::testing {
namespace {

using ir::Access;
using ir::LoopNestSpec;
using ir::ScalarOp;
using ir::SpecInt;
using ir::Stage;

// Of a few operations in f32, and of sums of hundreds.
constexpr double kFewOperations = 5e-7, kTolerance = 1e-5;

// A case of f32 buffers, one per access.
class NestCase {
 public:
  explicit NestCase(LoopNestSpec nest) : nest_(std::move(nest)) {}
  // An access with memory of its own.
  int32_t Add(int64_t elements, std::vector<SpecInt> strides) {
    nest_.accesses.push_back({static_cast<int32_t>(buffers_.size()), DType::kF32, std::move(strides)});
    buffers_.push_back({DType::kF32, RandomValues(random_, elements)});
    return static_cast<int32_t>(nest_.accesses.size()) - 1;
  }
  ProgramBuilder program;
  ShimCase Finish(std::vector<Stage> stages, std::vector<int64_t> dims, std::string name,
                  double tolerance = kTolerance) {
    nest_.body = program.Take();
    nest_.stages = std::move(stages);
    SpecCase test;
    test.spec = {nest_, static_cast<int32_t>(buffers_.size()), static_cast<int32_t>(dims.size())};
    test.buffers = std::move(buffers_);
    test.dims = std::move(dims);
    test.tolerance = tolerance;
    test.name = std::move(name);
    return ShimCaseOf(test);
  }

 private:
  std::mt19937_64 random_{7};
  LoopNestSpec nest_;
  std::vector<SpecBuffer> buffers_;
};

// The first case of a generator for which `suits` holds.
template <class Suits>
ShimCase First(MakeCase make, Suits suits) {
  for (uint64_t seed = 1;; ++seed) {
    std::mt19937_64 random(seed);
    const SpecCase test = make(random, kShimTarget);
    if (suits(test)) return ShimCaseOf(test);
  }
}

int64_t ValueOf(const SpecInt& value, const std::vector<int64_t>& dims) {
  return value.is_argument ? dims[static_cast<size_t>(value.value)] : value.value;
}

constexpr SpecInt kOne{false, 1};

bool ReachesBeyondTheRight(const ir::WindowGeometry& g, const std::vector<int64_t>& dims) {
  return (ValueOf(g.out_width, dims) - 1) * g.stride_w - g.pad_left + (g.kernel_w - 1) * g.dilation_w >=
         ValueOf(g.in_width, dims);
}

}  // namespace

ShimCase FlatChain() {
  LoopNestSpec nest;
  nest.inner = SpecInt::Argument(0);
  NestCase test(nest);
  const int64_t n = 2500;
  const int32_t x = test.Add(n, Consts({1})), y = test.Add(n, Consts({1}));
  const int32_t old = test.program.Load(y), added = test.program.Load(x);
  const int32_t difference = test.program.Op(ScalarOp::kSub, old, added);
  const int32_t sum = test.program.Op(ScalarOp::kAdd, difference, test.program.Number(0.044715));
  return test.Finish({StoreStage(Stage::Domain::kInner, {{y, sum}})}, {n}, "flat chain", kFewOperations);
}

ShimCase BlockSoftmax() {
  LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0)};
  nest.inner = SpecInt::Argument(1);
  nest.reduce_inner = true;
  NestCase test(nest);
  const int64_t rows = 3, length = 777;
  const std::vector<SpecInt> strides = {SpecInt::Argument(1), kOne};
  const int32_t x = test.Add(rows * length, strides), y = test.Add(rows * length, strides);
  ProgramBuilder& p = test.program;
  const int32_t loaded = p.Load(x), scaled = p.Op(ScalarOp::kMul, loaded, p.Number(3));
  const int32_t power = p.Op(ScalarOp::kExp, p.Op(ScalarOp::kSub, scaled, p.StageResult(0)));
  const int32_t kept = p.Load(y), share = p.Op(ScalarOp::kDiv, kept, p.StageResult(2));
  const int32_t quotient = p.Op(ScalarOp::kMul, share, p.Number(length));  // large enough to be looked at
  return test.Finish({ReduceStage(ir::Combine::kMax, scaled), StoreStage(Stage::Domain::kInner, {{y, power}}),
                      ReduceStage(ir::Combine::kSum, kept), StoreStage(Stage::Domain::kInner, {{y, quotient}})},
                     {rows, length}, "softmax");
}

namespace {

ShimCase Normalisation(SpecInt length) {
  LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0)};
  nest.inner = length;
  nest.reduce_inner = true;
  NestCase test(nest);
  const int64_t rows = 19;
  const std::vector<SpecInt> strides = {SpecInt::Const(77), kOne};
  const int32_t x = test.Add(rows * 77, strides), y = test.Add(rows * 77, strides);
  ProgramBuilder& p = test.program;
  const int32_t loaded = p.Load(x);
  const int32_t mean = p.Op(ScalarOp::kMul, p.StageResult(0), p.Number(1.0 / 77));
  const int32_t centred = p.Op(ScalarOp::kSub, loaded, mean), square = p.Op(ScalarOp::kMul, centred, centred);
  const int32_t variance = p.Op(ScalarOp::kMul, p.StageResult(1), p.Number(1.0 / 77));
  const int32_t deviation = p.Op(ScalarOp::kSqrt, p.Op(ScalarOp::kAdd, variance, p.Number(1e-3)));
  const int32_t result = p.Op(ScalarOp::kDiv, centred, deviation);
  return test.Finish({ReduceStage(ir::Combine::kSum, loaded), ReduceStage(ir::Combine::kSum, square),
                      StoreStage(Stage::Domain::kInner, {{y, result}})},
                     {rows, 77}, "normalisation");
}

}  // namespace

ShimCase WarpNormalisation() {
  return Normalisation(SpecInt::Const(77));
}
ShimCase BlockNormalisation() {
  return Normalisation(SpecInt::Argument(1));
}

ShimCase RowBroadcast() {
  LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0)};
  nest.inner = SpecInt::Argument(1);
  nest.reduce_inner = true;
  NestCase test(nest);
  const int64_t rows = 3, length = 300;
  const std::vector<SpecInt> strides = {SpecInt::Argument(1), kOne};
  const int32_t x = test.Add(rows * length, strides), row = test.Add(rows, Consts({1, 0}));
  const int32_t y = test.Add(rows * length, strides);
  ProgramBuilder& p = test.program;
  const int32_t loaded = p.Load(x), largest = p.StageResult(0), kept = p.Load(row);
  const int32_t twice = p.Op(ScalarOp::kAdd, largest, largest), difference = p.Op(ScalarOp::kSub, loaded, kept);
  return test.Finish({ReduceStage(ir::Combine::kMax, loaded), StoreStage(Stage::Domain::kRow, {{row, twice}}),
                      StoreStage(Stage::Domain::kInner, {{y, difference}})},
                     {rows, length}, "row that is read again");
}

ShimCase ColumnSums() {
  LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0)};
  nest.reduce = {SpecInt::Argument(1), SpecInt::Const(5)};
  nest.inner = SpecInt::Const(37);
  NestCase test(nest);
  const int64_t outer = 23, rows = 41;
  const int32_t x =
      test.Add(outer * rows * 5 * 37, {SpecInt::Argument(2), SpecInt::Const(185), SpecInt::Const(37), kOne});
  const int32_t y = test.Add(outer * 37, {SpecInt::Const(37), SpecInt::Const(0), SpecInt::Const(0), kOne});
  const int32_t loaded = test.program.Load(x), sum = test.program.StageResult(0);
  return test.Finish({ReduceStage(ir::Combine::kSum, loaded), StoreStage(Stage::Domain::kInner, {{y, sum}})},
                     {outer, rows, rows * 185}, "column sums");
}

ShimCase Product() {
  return First(RandomMatmul, [](const SpecCase& test) {
    const auto& c = std::get<ir::ContractionSpec>(test.spec.kernel);
    const int64_t m = ValueOf(c.m, test.dims), n = ValueOf(c.n, test.dims), k = ValueOf(c.k, test.dims);
    return c.b_layout == ir::BLayout::kRows && c.tile == ir::Tile{64, 2} && m > 64 && m % 64 != 0 && n > 64 &&
           n % 64 != 0 && k > 32 && k % 16 != 0 && c.batch.empty() && c.a.strides[1] == kOne;
  });
}

ShimCase PackedProduct() {
  return First(RandomMatmul, [](const SpecCase& test) {
    const auto& c = std::get<ir::ContractionSpec>(test.spec.kernel);
    const int64_t m = ValueOf(c.m, test.dims), n = ValueOf(c.n, test.dims), k = ValueOf(c.k, test.dims);
    return c.b_layout == ir::BLayout::kPanels && c.tile == ir::Tile{64, 2} && m > 64 && m % 64 != 0 && n > 64 &&
           n % 64 != 0 && k > 32 && k % 16 != 0 && !c.batch.empty() && ValueOf(c.batch[0], test.dims) > 1 &&
           ValueOf(c.b.strides[0], test.dims) != 0 && c.a.strides[1] == kOne && c.a.strides[2] != kOne;
  });
}

ShimCase ByteConvolution() {
  return First(RandomByteConvolution, [](const SpecCase& test) {
    const auto& c = std::get<ir::ContractionSpec>(test.spec.kernel);
    const int64_t taps = int64_t{c.conv->kernel_h} * c.conv->kernel_w, run = c.k.value / taps;
    return c.tile == ir::Tile{64, 2} && run % 4 != 0 && run > 4 && c.conv->pad_top > 0 && c.conv->pad_left > 0 &&
           c.a.storage == DType::kI8 && taps > 4 && ValueOf(c.m, test.dims) % 64 != 0;
  });
}

ShimCase Convolution() {
  return First(RandomConvolution, [](const SpecCase& test) {
    const auto& c = std::get<ir::ContractionSpec>(test.spec.kernel);
    const ir::WindowGeometry& g = *c.conv;
    return c.tile == ir::Tile{64, 2} && g.pad_top > 0 && g.pad_left > 0 && g.stride_w > 1 && g.dilation_h > 1 &&
           g.kernel_h > 1 && g.kernel_w > 2 && c.batch.empty() && ValueOf(c.m, test.dims) > 70 &&
           ValueOf(g.out_width, test.dims) > 2 && ValueOf(c.k, test.dims) > 20 &&
           ValueOf(c.m, test.dims) == 2 * ValueOf(g.out_height, test.dims) * ValueOf(g.out_width, test.dims) &&
           ReachesBeyondTheRight(g, test.dims);
  });
}

namespace {

ShimCase WindowCase(const std::string& name) {
  return First(RandomWindow, [&](const SpecCase& test) {
    const auto& w = std::get<ir::WindowSpec>(test.spec.kernel);
    const ir::WindowGeometry& g = w.geometry;
    return test.name == name && g.pad_top > 0 && g.pad_left > 0 && g.kernel_h > 2 && g.kernel_w > 2 && g.stride_w > 1 &&
           ValueOf(w.channels, test.dims) > 30 && ValueOf(g.out_height, test.dims) > 2 &&
           ValueOf(g.out_width, test.dims) > 3 && w.input.storage == DType::kF32 && !w.count_include_pad &&
           ValueOf(w.images, test.dims) == 2 && ReachesBeyondTheRight(g, test.dims);
  });
}

}  // namespace

ShimCase DepthwiseWindow() {
  return WindowCase("depthwise");
}
ShimCase AverageWindow() {
  return WindowCase("average");
}
ShimCase MaximumWindow() {
  return WindowCase("maximum");
}

ShimCase MaskedAttention() {
  return First(RandomAttention, [](const SpecCase& test) {
    const auto& a = std::get<ir::AttentionSpec>(test.spec.kernel);
    const bool masked = !a.accesses.empty() &&
                        !test.buffers[static_cast<size_t>(a.accesses[0].pointer)].values.empty() &&
                        std::isinf(test.buffers[static_cast<size_t>(a.accesses[0].pointer)].values[0]);
    return masked && a.tile.nv == 2 && ValueOf(a.m, test.dims) > 34 && ValueOf(a.m, test.dims) % 32 != 0 &&
           ValueOf(a.n, test.dims) > 110 && ValueOf(a.n, test.dims) % 32 != 0 && a.key_elements % 8 != 0 &&
           a.value_elements > 8 && a.value_elements % 8 != 0 && a.out.storage == DType::kF32;
  });
}

ShimCase Recurrence() {
  return First(RandomRecurrence, [](const SpecCase& test) {
    const auto& r = std::get<ir::RecurrentSpec>(test.spec.kernel);
    if (r.lengths < 0) return false;
    bool negative = false, shorter = false;
    for (float length : test.buffers[static_cast<size_t>(r.lengths)].values) {
      negative = negative || length < 0;
      shorter = shorter || (length > 1 && length < static_cast<float>(ValueOf(r.time, test.dims)));
    }
    return negative && shorter && r.reversed && ValueOf(r.time, test.dims) > 4 && ValueOf(r.rows, test.dims) > 3 &&
           r.units > 40 && r.steps[0].gates == 2 && r.steps[0].vectors == 1;
  });
}

}  // namespace kiln::testing
