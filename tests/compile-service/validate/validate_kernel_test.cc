#include "compile-service/validate/validate_kernel.h"

#include <gtest/gtest.h>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/validate/edge_trials.h"
#include "compile-service/validate/pointer_extents.h"

namespace kiln {
namespace {

// y[i] = op(x[i]) over n elements, n and the strides constant or arguments.
ir::KernelSpec Chain(ir::ScalarOp op, int64_t stride = 1) {
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(0);
  nest.accesses = {{0, DType::kF32, {ir::SpecInt::Const(stride)}}, {1, DType::kF32, {ir::SpecInt::Const(1)}}};
  ir::ScalarNode load{ir::ScalarOp::kLoad}, result{op};
  result.a = 0;
  nest.body = {load, result};
  ir::Stage store;
  store.kind = ir::Stage::Kind::kStore;
  store.domain = ir::Stage::Domain::kInner;
  store.stores = {{1, 1}};
  nest.stages = {store};
  return {nest, 2, 1};
}

class ValidateKernelTest : public ::testing::Test {
 protected:
  std::vector<uint8_t> Compile(const ir::KernelSpec& spec) {
    auto compiler = codegen::KernelCompiler::Create(target_).value();
    return compiler->Compile(spec)->bytes;
  }
  const Target target_ = HostTargets().front();
  const std::vector<std::vector<int64_t>> trials_ = {{1000}, {1}, {0}};
};

TEST_F(ValidateKernelTest, ACorrectKernelIsTriedAtEveryTrial) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp);
  const auto compared = ValidateKernel(spec, Compile(spec), target_, trials_, 1);
  ASSERT_TRUE(compared.has_value()) << ToString(compared.error());
  // 1000 and 1, but not 0; the edges 999, 992, 993; those five again in place; the first trial with special values.
  EXPECT_EQ(*compared, 11u);
}

TEST_F(ValidateKernelTest, ACallWithNothingToDoIsNoTrial) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp);
  const std::vector<std::vector<int64_t>> nothing = {{0}};
  EXPECT_EQ(ValidateKernel(spec, Compile(spec), target_, nothing, 1).value(), 0u);
}

TEST_F(ValidateKernelTest, AKernelOfAnotherSpecIsCaughtWithElementAndValues) {
  const auto compared =
      ValidateKernel(Chain(ir::ScalarOp::kExp), Compile(Chain(ir::ScalarOp::kTanh)), target_, trials_, 1);
  ASSERT_FALSE(compared.has_value());
  EXPECT_EQ(compared.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(compared.error().message.find("the reference gives"), std::string::npos) << compared.error().message;
}

TEST_F(ValidateKernelTest, AKernelThatReadsTooFarDiesAtTheGuardPage) {
  const std::vector<uint8_t> reads_every_third = Compile(Chain(ir::ScalarOp::kExp, 3));
  EXPECT_DEATH((void)ValidateKernel(Chain(ir::ScalarOp::kExp), reads_every_third, target_, trials_, 1).has_value(), "");
}

TEST_F(ValidateKernelTest, AKernelThatWritesItsInputDies) {
  ir::KernelSpec swapped = Chain(ir::ScalarOp::kExp);
  for (ir::Access& access : std::get<ir::LoopNestSpec>(swapped.kernel).accesses) access.pointer = 1 - access.pointer;
  EXPECT_DEATH((void)ValidateKernel(Chain(ir::ScalarOp::kExp), Compile(swapped), target_, trials_, 1).has_value(), "");
}

TEST_F(ValidateKernelTest, ForAForeignTargetNothingIsExecuted) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp);
  EXPECT_EQ(ValidateKernel(spec, Compile(spec), Target::kAArch64, trials_, 1).value(), 0u);
}

// Programs with a decision at their end: y[i] = node `last` of `body`.
class Program {
 public:
  int32_t Add(ir::ScalarOp op, DType type, int32_t a = -1, int32_t b = -1, int32_t c = -1) {
    ir::ScalarNode node{op, type};
    node.a = a;
    node.b = b;
    node.c = c;
    body_.push_back(node);
    return static_cast<int32_t>(body_.size()) - 1;
  }
  int32_t Number(double value) {
    const int32_t node = Add(ir::ScalarOp::kConstant, DType::kF32);
    body_.back().number = value;
    return node;
  }
  int32_t Integer(int64_t value, DType type = DType::kI64) {
    const int32_t node = Add(ir::ScalarOp::kConstant, type);
    body_.back().integer = value;
    return node;
  }
  int32_t Load(DType type = DType::kF32, int32_t access = 0) {
    const int32_t node = Add(ir::ScalarOp::kLoad, type);
    body_.back().index = access;
    return node;
  }
  int32_t Argument(int32_t index) {
    const int32_t node = Add(ir::ScalarOp::kArgument, DType::kI64);
    body_.back().index = index;
    return node;
  }
  int32_t Coordinate() { return Add(ir::ScalarOp::kCoordinate, DType::kI64); }
  int32_t Extent() { return Argument(0); }
  // `right` where coordinate < bound, else `wrong`.
  int32_t Below(int32_t bound, int32_t right, int32_t wrong, DType type) {
    const int32_t below = Add(ir::ScalarOp::kLess, DType::kBool, Coordinate(), bound);
    return Add(ir::ScalarOp::kSelect, type, below, right, wrong);
  }
  // The value of `from`, made longer by nodes that change nothing.
  int32_t Longer(int32_t from, int nodes) {
    for (int i = 0; i < nodes; ++i) from = Add(ir::ScalarOp::kMax, DType::kF32, from, from);
    return from;
  }
  ir::KernelSpec Spec(int32_t last, DType in = DType::kF32, DType out = DType::kF32) const {
    ir::LoopNestSpec nest;
    nest.inner = ir::SpecInt::Argument(0);
    nest.accesses = {{0, in, {ir::SpecInt::Const(1)}}, {1, out, {ir::SpecInt::Const(1)}}};
    nest.body = body_;
    ir::Stage store;
    store.kind = ir::Stage::Kind::kStore;
    store.domain = ir::Stage::Domain::kInner;
    store.stores = {{1, last}};
    nest.stages = {store};
    return {nest, 2, 1};
  }

 private:
  ir::ScalarProgram body_;
};

// Round(factor * x), in `nodes` more nodes than that takes.
ir::KernelSpec Rounded(double factor, int nodes = 0, DType out = DType::kI8) {
  Program p;
  const int32_t product = p.Add(ir::ScalarOp::kMul, DType::kF32, p.Load(), p.Number(factor));
  const int32_t rounded = p.Add(ir::ScalarOp::kRound, DType::kF32, p.Longer(product, nodes));
  return p.Spec(p.Add(ir::ScalarOp::kConvert, DType::kI32, rounded), DType::kF32, out);
}

ir::KernelSpec Always(int64_t value, DType out = DType::kI8) {
  Program p;
  p.Load();
  return p.Spec(p.Integer(value, DType::kI32), DType::kF32, out);
}

TEST_F(ValidateKernelTest, ADecisionIsNoExcuseForWrongElements) {
  const std::vector<uint8_t> constant = Compile(Always(7));
  // One element; some; so many that under a hundredth of them is computed.
  for (const auto& [n, nodes] : {std::pair{1, 0}, std::pair{1000, 0}, std::pair{20'000'000, 64}}) {
    const std::vector<std::vector<int64_t>> trials = {{n}};
    const auto compared = ValidateKernel(Rounded(3, nodes), constant, target_, trials, 1);
    ASSERT_FALSE(compared.has_value()) << n << " elements";
    EXPECT_EQ(compared.error().code, ErrorCode::kCompileFailed);
  }
}

TEST_F(ValidateKernelTest, OneWrongElementAmongDecisionsFails) {
  for (const DType out : {DType::kI8, DType::kF32}) {
    Program p;
    const int32_t product = p.Add(ir::ScalarOp::kMul, DType::kF32, p.Load(), p.Number(3));
    const int32_t right = p.Add(ir::ScalarOp::kRound, DType::kF32, product);
    const int32_t wrong = p.Add(ir::ScalarOp::kAdd, DType::kF32, right, p.Number(1));
    const ir::KernelSpec at_the_end = p.Spec(p.Below(p.Integer(999), right, wrong, DType::kF32), DType::kF32, out);
    Program q;
    const int32_t same = q.Add(ir::ScalarOp::kMul, DType::kF32, q.Load(), q.Number(3));
    const ir::KernelSpec spec = q.Spec(q.Add(ir::ScalarOp::kRound, DType::kF32, same), DType::kF32, out);
    EXPECT_TRUE(ValidateKernel(spec, Compile(spec), target_, trials_, 1).has_value());
    EXPECT_FALSE(ValidateKernel(spec, Compile(at_the_end), target_, trials_, 1).has_value());
  }
}

TEST_F(ValidateKernelTest, ARoundingErrorMayDecideEitherWay) {
  const std::vector<std::vector<int64_t>> trials = {{1'000'000}};
  for (const DType out : {DType::kI8, DType::kF32}) {
    const auto compared =
        ValidateKernel(Rounded(3, 0, out), Compile(Rounded(3 * (1 + 4e-5), 0, out)), target_, trials, 1);
    EXPECT_TRUE(compared.has_value()) << ToString(compared.error());
    EXPECT_FALSE(ValidateKernel(Rounded(3, 0, out), Compile(Rounded(3 * (1 + 1e-2), 0, out)), target_, trials, 1));
  }
}

// Comparisons, by how what they compare was made: nearly equal sums may be taken for equal, equal loads may not.
TEST_F(ValidateKernelTest, ADecisionOnExactValuesHasOneAnswer) {
  const auto compares = [](ir::ScalarOp op, double offset, double factor) {
    Program p;
    const int32_t x = p.Load(), one = p.Number(offset);
    const int32_t value = factor == 1 ? x : p.Add(ir::ScalarOp::kMul, DType::kF32, x, p.Number(factor));
    return p.Spec(p.Add(op, DType::kBool, value, one), DType::kF32, DType::kBool);
  };
  const std::vector<std::vector<int64_t>> trials = {{4'093}};
  const auto passes = [&](const ir::KernelSpec& spec, const ir::KernelSpec& code) {
    return ValidateKernel(spec, Compile(code), target_, trials, 1).has_value();
  };
  for (const ir::ScalarOp op : {ir::ScalarOp::kLess, ir::ScalarOp::kLessEqual}) {
    EXPECT_TRUE(passes(compares(op, 0.5, 3), compares(op, 0.5 + 1e-4, 3)));
    EXPECT_FALSE(passes(compares(op, 0.5, 3), compares(op, 0.5 + 1e-2, 3)));
    EXPECT_FALSE(passes(compares(op, 0.5, 1), compares(op, 0.5 + 1e-3, 1))) << "loads are exact";
  }
  EXPECT_FALSE(passes(compares(ir::ScalarOp::kEqual, 0, 1), compares(ir::ScalarOp::kLess, 0, 1)));
}

// y[row] = the rows' 300 elements combined; `y` is one element a row, `x` too where it is `shared` by all of them.
ir::KernelSpec RowsCombined(ir::Combine combine, double factor, bool shared) {
  Program p;
  const int32_t x = p.Load();
  const int32_t total = p.Add(ir::ScalarOp::kStageResult, DType::kF32);
  const int32_t part = p.Add(ir::ScalarOp::kMul, DType::kF32, total, p.Number(shared ? 1.0 / 300 : 1));
  const int32_t rest = shared ? p.Add(ir::ScalarOp::kSub, DType::kF32, x, part) : part;
  const int32_t result = p.Add(ir::ScalarOp::kMul, DType::kF32, rest, p.Number(factor));
  ir::KernelSpec spec = p.Spec(result);
  auto& nest = std::get<ir::LoopNestSpec>(spec.kernel);
  nest.outer = {ir::SpecInt::Argument(0)};
  nest.inner = ir::SpecInt::Const(300);
  nest.reduce_inner = true;
  nest.accesses[0].strides = {ir::SpecInt::Const(shared ? 1 : 300), ir::SpecInt::Const(shared ? 0 : 1)};
  nest.accesses[1].strides = {ir::SpecInt::Const(1), ir::SpecInt::Const(0)};
  ir::Stage reduce{.kind = ir::Stage::Kind::kReduce, .combine = combine, .node = x};
  nest.stages[0].domain = ir::Stage::Domain::kRow;
  nest.stages.insert(nest.stages.begin(), reduce);
  return spec;
}

// Infinities, zeros and what overflows on the way meet in another order than in the reference.
TEST_F(ValidateKernelTest, ProductsOfManyPassWhateverTheirOrder) {
  const ir::KernelSpec spec = RowsCombined(ir::Combine::kProduct, 1, false);
  const std::vector<uint8_t> code = Compile(spec);
  const std::vector<std::vector<int64_t>> trials = {{40}};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto compared = ValidateKernel(spec, code, target_, trials, seed);
    ASSERT_TRUE(compared.has_value()) << "seed " << seed << ": " << ToString(compared.error());
  }
  EXPECT_FALSE(ValidateKernel(spec, Compile(RowsCombined(ir::Combine::kMax, 1, false)), target_, trials, 1));
}

// x - mean(x) of equal values is the rounding of the mean, which the factor shows.
TEST_F(ValidateKernelTest, ASumIsRightToItsRounding) {
  constexpr double kFactor = 2e4;
  const ir::KernelSpec spec = RowsCombined(ir::Combine::kSum, kFactor, true);
  const std::vector<uint8_t> code = Compile(spec);
  const std::vector<std::vector<int64_t>> trials = {{400}};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto compared = ValidateKernel(spec, code, target_, trials, seed);
    ASSERT_TRUE(compared.has_value()) << "seed " << seed << ": " << ToString(compared.error());
  }
  ir::KernelSpec wrong = spec;
  for (ir::ScalarNode& node : std::get<ir::LoopNestSpec>(wrong.kernel).body)
    if (node.number == 1.0 / 300) node.number *= 1 + 1e-5;
  EXPECT_FALSE(ValidateKernel(spec, Compile(wrong), target_, trials, 1).has_value());
}

// A kernel is reused at other extents than those of the exact plan that it was made for.
TEST_F(ValidateKernelTest, AWrongTailIsFoundWhateverTheObservedExtent) {
  Program p;
  const int32_t right = p.Add(ir::ScalarOp::kExp, DType::kF32, p.Load());
  const int32_t step = p.Integer(16);
  const int32_t whole =
      p.Add(ir::ScalarOp::kMul, DType::kI64, p.Add(ir::ScalarOp::kDiv, DType::kI64, p.Extent(), step), step);
  const ir::KernelSpec no_tail = p.Spec(p.Below(whole, right, p.Number(5), DType::kF32));
  const std::vector<std::vector<int64_t>> trials = {{320}};
  EXPECT_TRUE(ValidateKernel(no_tail, Compile(no_tail), target_, trials, 1).has_value());
  const auto compared = ValidateKernel(Chain(ir::ScalarOp::kExp), Compile(no_tail), target_, trials, 1);
  EXPECT_FALSE(compared.has_value());
}

TEST_F(ValidateKernelTest, AStoreBeforeTheFirstElementIsFound) {
  ir::KernelSpec mirrored = Chain(ir::ScalarOp::kExp);
  std::get<ir::LoopNestSpec>(mirrored.kernel).accesses[1].strides = {ir::SpecInt::Const(-1)};
  const std::vector<uint8_t> code = Compile(mirrored);
  const std::vector<std::vector<int64_t>> few = {{2}}, many = {{100'000}};
  const auto compared = ValidateKernel(Chain(ir::ScalarOp::kExp), code, target_, few, 1);
  ASSERT_FALSE(compared.has_value());
  EXPECT_NE(compared.error().message.find("before the first element"), std::string::npos) << compared.error().message;
  EXPECT_DEATH((void)ValidateKernel(Chain(ir::ScalarOp::kExp), code, target_, many, 1).has_value(), "");
}

// y[i] = table[x[i], 0] where the table has dims[1] rows of dims[2] elements.
ir::KernelSpec RowLookup(int64_t beyond = 0) {
  Program p;
  const int32_t index = p.Load(DType::kI64, 2), more = p.Integer(beyond);
  const int32_t position = p.Add(ir::ScalarOp::kAdd, DType::kI64, index, more);
  const int32_t rows = p.Argument(1), step = p.Argument(2);
  ir::KernelSpec spec = p.Spec(p.Add(ir::ScalarOp::kLoadAt, DType::kF32, position, rows, step));
  auto& nest = std::get<ir::LoopNestSpec>(spec.kernel);
  nest.accesses[0].strides = {ir::SpecInt::Const(0)};
  nest.accesses.push_back({2, DType::kI64, {ir::SpecInt::Const(1)}});
  spec.pointers = 3;
  spec.dims = 3;
  return spec;
}

// The table of a vocabulary is larger than what a trial may take: fewer of its rows tell as much.
TEST_F(ValidateKernelTest, ALookupInAHugeTableIsTried) {
  const ir::KernelSpec spec = RowLookup();
  const std::vector<std::vector<int64_t>> trials = {{100, 1 << 20, 4096}};
  const auto compared = ValidateKernel(spec, Compile(spec), target_, trials, 1);
  ASSERT_TRUE(compared.has_value()) << ToString(compared.error());
  EXPECT_GE(*compared, 2u);
}

TEST_F(ValidateKernelTest, ALookupOfTheNextRowIsFound) {
  const std::vector<std::vector<int64_t>> trials = {{100, 50, 3}};
  EXPECT_FALSE(ValidateKernel(RowLookup(), Compile(RowLookup(1)), target_, trials, 1).has_value());
}

// table[x[i], 0] = u[i] for dims[0] updates, where the table has dims[1] rows of dims[2] elements.
ir::KernelSpec RowScatter(int64_t beyond = 0) {
  Program p;
  const int32_t index = p.Load(DType::kI64, 0), more = p.Integer(beyond);
  const int32_t position = p.Add(ir::ScalarOp::kAdd, DType::kI64, index, more);
  const int32_t rows = p.Argument(1), step = p.Argument(2);
  const int32_t place = p.Add(ir::ScalarOp::kLoadAt, DType::kF32, position, rows, step);
  const int32_t value = p.Load(DType::kF32, 1);
  ir::KernelSpec spec = p.Spec(value);
  auto& nest = std::get<ir::LoopNestSpec>(spec.kernel);
  const auto one = ir::SpecInt::Const(1), zero = ir::SpecInt::Const(0);
  nest.body[static_cast<size_t>(place)].index = 2;
  nest.reduce = {ir::SpecInt::Argument(0)};
  nest.inner = one;
  nest.accesses = {{0, DType::kI64, {one, zero}}, {1, DType::kF32, {one, zero}}, {2, DType::kF32, {zero, zero}}};
  nest.stages = {{ir::Stage::Kind::kScatter, ir::Combine::kSum, place, ir::Stage::Domain::kFull, {{2, value}}}};
  spec.pointers = 3;
  spec.dims = 3;
  return spec;
}

TEST_F(ValidateKernelTest, AScatterStaysInsideItsTable) {
  const ir::KernelSpec spec = RowScatter();
  for (const int64_t rows : {50, 1, 0}) {
    const std::vector<std::vector<int64_t>> trials = {{100, rows, 3}};
    const auto compared = ValidateKernel(spec, Compile(spec), target_, trials, 1);
    EXPECT_TRUE(compared.has_value()) << rows << " rows: " << ToString(compared.error());
  }
  const std::vector<std::vector<int64_t>> trials = {{100, 50, 3}};
  EXPECT_FALSE(ValidateKernel(spec, Compile(RowScatter(1)), target_, trials, 1).has_value());
}

// 32 into 24 channels over square images; dims: pixels in all, the side of an image.
ir::KernelSpec WinogradConvolution(int32_t pad_left = 1) {
  ir::ContractionSpec c;
  c.winograd = true;
  c.tile = {6, 2};
  c.m = ir::SpecInt::Argument(0);
  c.n = ir::SpecInt::Const(24);
  c.k = ir::SpecInt::Const(9 * 32);
  ir::WindowGeometry g;
  g.in_height = g.in_width = g.out_height = g.out_width = ir::SpecInt::Argument(1);
  g.kernel_h = g.kernel_w = 3;
  g.pad_top = 1;
  g.pad_left = pad_left;
  g.column_stride = ir::SpecInt::Const(32);
  g.row_stride = ir::SpecInt::Const(70 * 32);
  g.image_stride = ir::SpecInt::Const(70 * 70 * 32);
  c.conv = g;
  c.zeros = 3;
  c.a = {0, DType::kF32, {}};
  c.b = {1, DType::kF32, {}};
  c.accesses = {{2, DType::kF32, {ir::SpecInt::Const(24), ir::SpecInt::Const(1)}}};
  c.epilogue = {{ir::ScalarOp::kAccumulator}};
  c.stores = {{0, 0}};
  return {c, 4, 2};
}

TEST_F(ValidateKernelTest, ConvolutionsByFewerProductsAreRightWhereverTheyAreTried) {
  const ir::KernelSpec spec = WinogradConvolution();
  const std::vector<uint8_t> code = Compile(spec);
  for (const int64_t side : {70, 11, 4, 1})
    for (const uint64_t seed : {1, 2, 3}) {
      const std::vector<std::vector<int64_t>> trials = {{2 * side * side, side}};
      const auto compared = ValidateKernel(spec, code, target_, trials, seed);
      EXPECT_TRUE(compared.has_value()) << side << ": " << ToString(compared.error());
    }
  const std::vector<std::vector<int64_t>> trials = {{2 * 70 * 70, 70}};
  EXPECT_FALSE(ValidateKernel(spec, Compile(WinogradConvolution(0)), target_, trials, 1).has_value());
}

// Lines beside each other are worked on together, which no few pixels of a wide image show.
TEST(EdgeTrials, ANarrowImageHasManyLines) {
  const int64_t dims[] = {2 * 70 * 70, 70};
  const auto trials = EdgeTrials(WinogradConvolution(), dims, 16);
  ASSERT_FALSE(trials.empty());
  EXPECT_EQ(trials[0], (std::vector<int64_t>{25, 5}));
  ir::KernelSpec direct = WinogradConvolution();
  std::get<ir::ContractionSpec>(direct.kernel).winograd = false;
  EXPECT_EQ(EdgeTrials(direct, dims, 16)[0], (std::vector<int64_t>{2 * 70 * 70 - 1, 70}));
}

TEST(EdgeTrials, OnlyExtentsMoveAndNeverUpwards) {
  ir::LoopNestSpec nest;
  nest.outer = {ir::SpecInt::Argument(0), ir::SpecInt::Argument(1)};
  nest.inner = ir::SpecInt::Argument(2);
  // Argument 2 is an extent and a stride; 3 a stride alone.
  nest.accesses = {{0, DType::kF32, {ir::SpecInt::Argument(3), ir::SpecInt::Argument(2), ir::SpecInt::Const(1)}}};
  const int64_t dims[] = {2, 48, 64, 4096};
  const auto trials = EdgeTrials({nest, 1, 4}, dims, 16);
  EXPECT_EQ(trials, (std::vector<std::vector<int64_t>>{
                        {1, 47, 64, 4096}, {1, 40, 64, 4096}, {1, 41, 64, 4096}, {1, 1, 64, 4096}}));
}

TEST(PointerExtents, NegativeStridesReachBelowThePointer) {
  const ir::KernelSpec spec = Chain(ir::ScalarOp::kExp, -2);
  const int64_t dims[] = {5};
  const auto extents = PointerExtents(spec, dims, 16).value();
  EXPECT_EQ(extents[0].before, 8);
  EXPECT_EQ(extents[0].elements, 9);
  EXPECT_EQ(extents[1].before, 0);
  EXPECT_EQ(extents[1].elements, 5);
  EXPECT_TRUE(extents[1].written);
  EXPECT_FALSE(extents[0].written);
}

}  // namespace
}  // namespace kiln
