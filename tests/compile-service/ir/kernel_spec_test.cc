#include "compile-service/ir/kernel_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/support/random_loop_nest.h"

namespace kiln {
namespace {

using ir::Access;
using ir::KernelSpec;
using ir::ScalarOp;
using ir::SpecInt;
using testing::Consts;
using testing::ProgramBuilder;

// relu(A * B + bias): A [m, 3] rows, B in panels.
KernelSpec MatMul() {
  ir::ContractionSpec c;
  c.m = SpecInt::Argument(0);
  c.n = SpecInt::Const(5);
  c.k = SpecInt::Const(3);
  c.a = {0, DType::kF32, Consts({3, 1})};
  c.b = {1, DType::kF32, {}};
  c.tile = {2, 1};
  c.accesses = {{2, DType::kF32, Consts({0, 1})}, {3, DType::kF32, Consts({5, 1})}};
  ProgramBuilder p;
  const int32_t accumulator = p.Accumulator();
  const int32_t sum = p.Op(ScalarOp::kAdd, accumulator, p.Load(0));
  const int32_t relu = p.Op(ScalarOp::kMax, sum, p.Number(0));
  c.epilogue = p.Take();
  c.stores = {{1, relu}};
  return {c, 4, 1};
}

// 3x3 average pooling of a 4x4 image with 2 channels and padding 1.
KernelSpec AveragePool(bool count_padding) {
  ir::WindowSpec w;
  w.images = SpecInt::Const(1);
  w.channels = SpecInt::Const(2);
  w.geometry.in_height = w.geometry.in_width = w.geometry.out_height = w.geometry.out_width = SpecInt::Const(4);
  w.geometry.kernel_h = w.geometry.kernel_w = 3;
  w.geometry.pad_top = w.geometry.pad_left = 1;
  w.geometry.image_stride = SpecInt::Const(32);
  w.geometry.row_stride = SpecInt::Const(8);
  w.geometry.column_stride = SpecInt::Const(2);
  w.average = true;
  w.count_include_pad = count_padding;
  w.input = {0, DType::kF32, {}};
  w.accesses = {{1, DType::kF32, Consts({32, 8, 2, 1})}};
  ProgramBuilder p;
  const int32_t result = p.Accumulator();
  w.epilogue = p.Take();
  w.stores = {{0, result}};
  return {w, 2, 0};
}

KernelSpec Convolution() {
  KernelSpec spec = MatMul();
  auto& c = std::get<ir::ContractionSpec>(spec.kernel);
  c.conv.emplace();
  c.conv->in_height = c.conv->in_width = c.conv->out_height = c.conv->out_width = SpecInt::Const(4);
  c.conv->kernel_h = 3;
  c.conv->pad_top = 1;
  c.conv->image_stride = SpecInt::Const(16);
  c.conv->row_stride = SpecInt::Const(4);
  c.conv->column_stride = SpecInt::Const(1);
  c.a.strides.clear();
  c.zeros = 4;
  spec.pointers = 5;
  return spec;
}

// 16 channels into 5, one image of 4 x 4 pixels.
KernelSpec WinogradConvolution() {
  KernelSpec spec = Convolution();
  auto& c = std::get<ir::ContractionSpec>(spec.kernel);
  c.conv->kernel_w = c.conv->kernel_h = 3;
  c.k = SpecInt::Const(16 * 9);
  c.tile.mr = ir::kWinogradRowsMin;
  c.winograd = true;
  return spec;
}

KernelSpec MatMulOfFewRows() {
  KernelSpec spec = MatMul();
  std::get<ir::ContractionSpec>(spec.kernel).few_rows = true;
  return spec;
}

// A * B of bytes, i8 [m, 6] by panels of i8, into i32.
KernelSpec ByteMatMul() {
  KernelSpec spec = MatMul();
  auto& c = std::get<ir::ContractionSpec>(spec.kernel);
  c.k = SpecInt::Const(6);
  c.a = {0, DType::kI8, Consts({6, 1})};
  c.b = {1, DType::kI8, {}};
  c.accesses = {{2, DType::kI32, Consts({5, 1})}};
  c.epilogue = {{ScalarOp::kAccumulator, DType::kI32}};
  c.stores = {{0, 0}};
  spec.pointers = 3;
  return spec;
}

// h' = tanh(h R + x) over 5 units, rows of different lengths, the last step first.
KernelSpec Rnn() {
  ir::RecurrentSpec r;
  r.time = SpecInt::Argument(0);
  r.rows = SpecInt::Argument(1);
  r.units = 5;
  r.reversed = true;
  r.lengths = 4;
  r.accesses = {
      {0, DType::kF32, Consts({10, 5, 1})}, {1, DType::kF32, Consts({0, 5, 1})}, {2, DType::kF32, Consts({0, 5, 1})}};
  ProgramBuilder p;
  ir::RecurrentStage start;
  const int32_t zero = p.Number(0);
  start.body = p.Take();
  start.stores = {{1, zero}};
  p = {};
  ir::RecurrentStage product;
  product.gates = 1;
  product.input = 1;
  product.panels = 3;
  const int32_t accumulator = p.Accumulator();
  const int32_t h = p.Op(ScalarOp::kTanh, p.Op(ScalarOp::kAdd, accumulator, p.Load(0)));
  product.body = p.Take();
  product.stores = {{2, h}};
  p = {};
  ir::RecurrentStage copy;
  const int32_t work = p.Load(2);
  copy.body = p.Take();
  copy.stores = {{1, work}};
  r.before = {start};
  r.steps = {product, copy};
  return {r, 5, 2};
}

// Two heads of 3 queries and $0 keys, scaled.
KernelSpec Attention() {
  ir::AttentionSpec a;
  a.batch = {SpecInt::Const(2)};
  a.m = SpecInt::Const(3);
  a.n = SpecInt::Argument(0);
  a.key_elements = 4;
  a.value_elements = 2;
  a.tile = {4, 1};
  a.q = {0, DType::kF32, Consts({12, 4, 1})};
  a.k = {1, DType::kF32, Consts({0, 4, 1})};
  a.v = {2, DType::kF32, Consts({0, 2, 1})};
  a.out = {3, DType::kF32, Consts({6, 2, 1})};
  ProgramBuilder p;
  a.score = p.Op(ScalarOp::kMul, p.Accumulator(), p.Number(0.5));
  a.scores = p.Take();
  return {a, 4, 1};
}

std::vector<KernelSpec> Examples() {
  std::vector<KernelSpec> specs = {Attention(),           MatMul(),           MatMulOfFewRows(),
                                   WinogradConvolution(), AveragePool(false), AveragePool(true),
                                   Convolution(),         ByteMatMul(),       Rnn()};
  for (uint64_t seed = 0; seed < 40; ++seed) specs.push_back(testing::RandomLoopNest(seed, 8).Make().spec);
  return specs;
}

TEST(KernelSpec, RecurrentSpecsThatWouldReadWhatTheyStoreAreRefused) {
  const KernelSpec good = Rnn();
  EXPECT_TRUE(ir::VerifySpec(good).has_value());
  const auto refused = [&](const std::function<void(ir::RecurrentSpec&)>& change) {
    KernelSpec spec = good;
    change(std::get<ir::RecurrentSpec>(spec.kernel));
    return !ir::VerifySpec(spec).has_value();
  };
  EXPECT_TRUE(refused([](auto& r) { r.steps[0].stores[0].access = 1; }));  // the row that is multiplied
  EXPECT_TRUE(refused([](auto& r) { r.steps[0].panels = 7; }));
  EXPECT_TRUE(refused([](auto& r) { r.steps[0].input = 3; }));
  EXPECT_TRUE(refused([](auto& r) { r.steps[0].body[0].index = 1; }));  // a gate that is not summed
  EXPECT_TRUE(refused([](auto& r) { r.tile_rows = 4; }));               // with lengths
  EXPECT_TRUE(refused([](auto& r) { r.units = 0; }));
  EXPECT_TRUE(refused([](auto& r) { r.before[0] = r.steps[0]; }));
}

TEST(KernelSpec, BytesComeBackAsTheSameSpec) {
  for (const KernelSpec& spec : Examples()) {
    const auto bytes = ir::EncodeSpec(spec);
    auto decoded = ir::DecodeSpec(bytes);
    ASSERT_TRUE(decoded.has_value()) << ToString(decoded.error()) << "\n" << ir::PrintSpec(spec);
    EXPECT_TRUE(*decoded == spec) << ir::PrintSpec(spec);
    EXPECT_EQ(ir::EncodeSpec(*decoded), bytes);
  }
}

TEST(KernelSpec, MutatedBytesAreRefusedOrMeanWhatTheySay) {
  std::mt19937 random(5);
  for (const KernelSpec& spec : Examples()) {
    const auto bytes = ir::EncodeSpec(spec);
    for (int i = 0; i < 300; ++i) {
      auto mutated = bytes;
      for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
        mutated[random() % mutated.size()] = static_cast<uint8_t>(random());
      if (random() % 4 == 0) mutated.resize(random() % mutated.size());
      auto decoded = ir::DecodeSpec(mutated);
      if (decoded) {
        EXPECT_EQ(ir::EncodeSpec(*decoded), mutated);
      }
    }
  }
}

TEST(KernelSpec, ATruncatedSpecIsMalformed) {
  const auto bytes = ir::EncodeSpec(MatMul());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(ir::DecodeSpec(std::span(bytes).first(size)).has_value()) << size;
  auto longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(ir::DecodeSpec(longer).has_value());
}

TEST(KernelSpec, KeyDependsOnSpecTargetAndGenerator) {
  const Digest generator = HashBytes({});
  const Digest key = ir::ComputeKernelKey(MatMul(), "x86-64-v3", generator);
  EXPECT_EQ(key, ir::ComputeKernelKey(MatMul(), "x86-64-v3", generator));
  EXPECT_NE(key, ir::ComputeKernelKey(MatMul(), "x86-64-v4", generator));
  EXPECT_NE(key, ir::ComputeKernelKey(MatMul(), "x86-64-v3", Digest{}));
  KernelSpec other = MatMul();
  std::get<ir::ContractionSpec>(other.kernel).tile.mr = 3;
  EXPECT_NE(key, ir::ComputeKernelKey(other, "x86-64-v3", generator));
}

TEST(KernelSpec, PrintsOneLinePerLoopAccessNodeAndStore) {
  EXPECT_EQ(ir::PrintSpec(MatMul()),
            "kernel pointers 4 dims 1\n"
            "contraction batch [] m $0 n 5 k 3 tile 2x1\n"
            "  a: pointer 0 f32 strides [3, 1]\n"
            "  b (panels): pointer 1 f32 strides []\n"
            "  access #0: pointer 2 f32 strides [0, 1]\n"
            "  access #1: pointer 3 f32 strides [5, 1]\n"
            "  %0 = Accumulator f32\n"
            "  %1 = Load f32 #0\n"
            "  %2 = Add f32 %0 %1\n"
            "  %3 = Constant f32 0\n"
            "  %4 = Max f32 %2 %3\n"
            "  store %4 to #1\n");
}

TEST(KernelSpec, RangeCountsPanelsAndRowTiles) {
  const int64_t dims[] = {7};
  EXPECT_EQ(ir::RangeOf(MatMul(), dims, 4), 2 * 4);  // 5 columns in panels of 4, 7 rows in tiles of 2
  EXPECT_EQ(ir::RangeOf(MatMul(), dims, 16), 1 * 4);
  EXPECT_EQ(ir::RangeOf(AveragePool(true), {}, 4), 4);
}

TEST(EvaluateSpec, MatMulAddsBiasAndClampsAtZero) {
  const float a[] = {1, 2, 3, -1, 0, 1};  // 2 x 3
  float panels[2 * 3 * 4] = {};           // two panels of 4 columns
  for (int k = 0; k < 3; ++k)
    for (int n = 0; n < 5; ++n) panels[(n / 4 * 3 + k) * 4 + n % 4] = static_cast<float>(k * 10 + n);
  const float bias[] = {0, 0, -1000, 0, 1};
  float out[10];
  void* pointers[] = {const_cast<float*>(a), panels, const_cast<float*>(bias), out};
  const int64_t dims[] = {2};
  ASSERT_TRUE(ir::EvaluateSpec(MatMul(), pointers, dims, 4, 0, 2).has_value());
  EXPECT_EQ(out[0], 1 * 0 + 2 * 10 + 3 * 20);
  EXPECT_EQ(out[1], 1 * 1 + 2 * 11 + 3 * 21);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[4], 1 * 4 + 2 * 14 + 3 * 24 + 1);
  EXPECT_EQ(out[5], 20);
  EXPECT_EQ(out[9], -4 + 24 + 1);
}

TEST(EvaluateSpec, AveragePoolDividesByWhatItCounts) {
  float in[32], out[32];
  for (int i = 0; i < 32; ++i) in[i] = i % 2 == 0 ? 1.0f : static_cast<float>(i);
  void* pointers[] = {in, out};
  ASSERT_TRUE(ir::EvaluateSpec(AveragePool(false), pointers, {}, 4, 0, 4).has_value());
  EXPECT_FLOAT_EQ(out[0], 1.0f);
  EXPECT_FLOAT_EQ(out[1], (1 + 3 + 9 + 11) / 4.0f);
  ASSERT_TRUE(ir::EvaluateSpec(AveragePool(true), pointers, {}, 4, 0, 4).has_value());
  EXPECT_FLOAT_EQ(out[0], 4.0f / 9.0f);
}

// What must be refused, as changes to a good loop nest: out = load + 1 over two outer dims.
struct BadCase {
  const char* name;
  void (*spoil)(ir::LoopNestSpec& nest, KernelSpec& spec);
};
const BadCase kBadCases[] = {
    {"pointer", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[0].pointer = 2; }},
    {"negative pointer", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[0].pointer = -1; }},
    {"stride count", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[0].strides.pop_back(); }},
    {"argument stride", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[0].strides[0] = SpecInt::Argument(1); }},
    {"argument extent", [](ir::LoopNestSpec& n, KernelSpec&) { n.outer[0] = SpecInt::Argument(-1); }},
    {"pairs of rows that are not reduced", [](ir::LoopNestSpec& n, KernelSpec&) { n.pairs_rows = true; }},
    {"negative extent", [](ir::LoopNestSpec& n, KernelSpec&) { n.inner = SpecInt::Const(-1); }},
    {"storage", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[0].storage = static_cast<DType>(99); }},
    {"operation", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[2].op = static_cast<ScalarOp>(99); }},
    {"later operand", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[2].a = 2; }},
    {"missing operand", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[2].b = -1; }},
    {"extra operand", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[2].c = 0; }},
    {"mixed types", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[1].type = DType::kI32; }},
    {"storage type in arithmetic", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[1].type = DType::kF16; }},
    {"load", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[0].index = 2; }},
    {"accumulator", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[0].op = ScalarOp::kAccumulator; }},
    {"stage result", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[0].op = ScalarOp::kStageResult; }},
    {"coordinate type", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[0].op = ScalarOp::kCoordinate; }},
    {"store access", [](ir::LoopNestSpec& n, KernelSpec&) { n.stages[0].stores[0].access = 2; }},
    {"store node", [](ir::LoopNestSpec& n, KernelSpec&) { n.stages[0].stores[0].node = 3; }},
    {"row store", [](ir::LoopNestSpec& n, KernelSpec&) { n.stages[0].domain = ir::Stage::Domain::kRow; }},
    {"store to one element", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[1].strides[1] = SpecInt::Const(0); }},
    {"two ways to a stored pointer", [](ir::LoopNestSpec& n, KernelSpec&) { n.accesses[1].pointer = 0; }},
    {"no stage", [](ir::LoopNestSpec& n, KernelSpec&) { n.stages.clear(); }},
    {"stage kind", [](ir::LoopNestSpec& n, KernelSpec&) { n.stages[0].kind = static_cast<ir::Stage::Kind>(7); }},
    {"pointer count", [](ir::LoopNestSpec&, KernelSpec& s) { s.pointers = -1; }},
};

TEST(VerifySpec, RefusesEveryKindOfMistake) {
  ir::LoopNestSpec good;
  good.outer = Consts({4});
  good.inner = SpecInt::Const(8);
  good.accesses = {{0, DType::kF32, Consts({16, 1})}, {1, DType::kF32, Consts({8, 1})}};
  ProgramBuilder p;
  const int32_t load = p.Load(0);
  const int32_t sum = p.Op(ScalarOp::kAdd, load, p.Number(1));
  good.body = p.Take();
  good.stages = {testing::StoreStage(ir::Stage::Domain::kInner, {{1, sum}})};
  ASSERT_TRUE(ir::VerifySpec({good, 2, 1}).has_value());
  for (const BadCase& bad : kBadCases) {
    ir::LoopNestSpec nest = good;
    KernelSpec spec{{}, 2, 1};
    bad.spoil(nest, spec);
    spec.kernel = nest;
    EXPECT_FALSE(ir::VerifySpec(spec).has_value()) << bad.name;
  }
}

// The same of a load at a position: body is position, extent, stride, LoadAt.
const BadCase kBadLoadsAt[] = {
    {"access", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[3].index = 3; }},
    {"stored memory", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[3].index = 1; }},
    {"position type", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[0] = {ScalarOp::kConstant, DType::kI32}; }},
    {"loaded extent", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[3].b = 0; }},
    {"computed stride", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[2].op = ScalarOp::kCoordinate; }},
    {"negative stride", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[2].integer = -1; }},
    {"huge extent", [](ir::LoopNestSpec& n, KernelSpec&) { n.body[1].integer = int64_t{1} << 41; }},
};

TEST(VerifySpec, RefusesLoadsAtPositionsThatNobodyBounds) {
  ir::LoopNestSpec good;
  good.inner = SpecInt::Const(8);
  good.accesses = {{0, DType::kF32, Consts({1})}, {1, DType::kF32, Consts({1})}, {2, DType::kI64, Consts({0})}};
  ProgramBuilder p;
  const int32_t position = p.Load(2, DType::kI64), extent = p.Integer(5), stride = p.Integer(8);
  const int32_t load = p.LoadAt(0, position, extent, stride);
  good.body = p.Take();
  good.stages = {testing::StoreStage(ir::Stage::Domain::kInner, {{1, load}})};
  ASSERT_TRUE(ir::VerifySpec({good, 3, 0}).has_value());
  for (const BadCase& bad : kBadLoadsAt) {
    ir::LoopNestSpec nest = good;
    KernelSpec spec{{}, 3, 0};
    bad.spoil(nest, spec);
    spec.kernel = nest;
    EXPECT_FALSE(ir::VerifySpec(spec).has_value()) << bad.name;
  }
}

TEST(EvaluateSpec, APositionIsBroughtIntoItsExtent) {
  ir::LoopNestSpec nest;
  nest.inner = SpecInt::Const(4);
  nest.accesses = {{0, DType::kF32, Consts({0})}, {1, DType::kF32, Consts({1})}, {2, DType::kI64, Consts({1})}};
  ProgramBuilder p;
  const int32_t position = p.Load(2, DType::kI64), extent = p.Argument(0), stride = p.Integer(2);
  const int32_t load = p.LoadAt(0, position, extent, stride);
  nest.body = p.Take();
  nest.stages = {testing::StoreStage(ir::Stage::Domain::kInner, {{1, load}})};
  float table[] = {10, 0, 11, 0, 12}, out[4] = {};
  int64_t positions[] = {1, -7, INT64_MAX, 2};
  void* pointers[] = {table, out, positions};
  const int64_t dims[] = {3}, none[] = {0};
  ASSERT_TRUE(ir::EvaluateSpec({nest, 3, 1}, pointers, dims, 4, 0, 4).has_value());
  EXPECT_THAT(out, ::testing::ElementsAre(11, 10, 12, 12));
  ASSERT_TRUE(ir::EvaluateSpec({nest, 3, 1}, pointers, none, 4, 0, 4).has_value());
  EXPECT_THAT(out, ::testing::ElementsAre(10, 10, 10, 10));
}

TEST(VerifySpec, ContractionsOfBytesAreConstantAndPacked) {
  ASSERT_TRUE(ir::VerifySpec(ByteMatMul()).has_value());
  const auto refused = [](void (*spoil)(ir::ContractionSpec&)) {
    KernelSpec spec = ByteMatMul();
    spoil(std::get<ir::ContractionSpec>(spec.kernel));
    return !ir::VerifySpec(spec).has_value();
  };
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.k = SpecInt::Argument(0); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.b.storage = DType::kU8; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.a.storage = DType::kI16; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.a.storage = DType::kF32; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.a.strides[1] = SpecInt::Const(2); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.epilogue[0].type = DType::kF32; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) {
    c.b_layout = ir::BLayout::kRows;
    c.b.strides = Consts({5});
  }));
}

TEST(VerifySpec, FewRowsAreANumberAtRunTime) {
  const KernelSpec good = MatMulOfFewRows();
  ASSERT_TRUE(ir::VerifySpec(good).has_value());
  EXPECT_NE(ir::ComputeKernelKey(good, "x86-64-v3", {}), [&] {
    KernelSpec many = good;
    std::get<ir::ContractionSpec>(many.kernel).few_rows = false;
    return ir::ComputeKernelKey(many, "x86-64-v3", {});
  }());
  const auto refused = [&](void (*spoil)(ir::ContractionSpec&)) {
    KernelSpec spec = good;
    spoil(std::get<ir::ContractionSpec>(spec.kernel));
    return !ir::VerifySpec(spec).has_value();
  };
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.m = SpecInt::Const(3); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) {
    c.b_layout = ir::BLayout::kTransposed;
    c.b.strides = Consts({5});
  }));
  KernelSpec convolution = Convolution();
  ASSERT_TRUE(ir::VerifySpec(convolution).has_value());
  std::get<ir::ContractionSpec>(convolution.kernel).few_rows = true;
  EXPECT_FALSE(ir::VerifySpec(convolution).has_value());
}

TEST(VerifySpec, WinogradsFormIsForSmallStepsAndKnownSizes) {
  const KernelSpec good = WinogradConvolution();
  ASSERT_TRUE(ir::VerifySpec(good).has_value()) << ToString(ir::VerifySpec(good).error());
  EXPECT_NE(ir::ComputeKernelKey(good, "x86-64-v3", {}), [&] {
    KernelSpec direct = good;
    std::get<ir::ContractionSpec>(direct.kernel).winograd = false;
    return ir::ComputeKernelKey(direct, "x86-64-v3", {});
  }());
  const auto refused = [&](void (*spoil)(ir::ContractionSpec&)) {
    KernelSpec spec = good;
    spoil(std::get<ir::ContractionSpec>(spec.kernel));
    return !ir::VerifySpec(spec).has_value();
  };
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv.reset(); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv->kernel_w = 1; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv->kernel_h = 9; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv->stride_h = 2; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv->stride_w = 2; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv->dilation_h = 2; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.conv->dilation_w = 2; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) {
    c.zeros = -1;
    c.conv->pad_top = 0;
  }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.tile.mr = 3; }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.k = SpecInt::Const(8 * 9); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.k = SpecInt::Const(9 << 20); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.k = SpecInt::Argument(0); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.n = SpecInt::Argument(0); }));
  EXPECT_TRUE(refused([](ir::ContractionSpec& c) { c.a.storage = DType::kF16; }));
}

TEST(EvaluateSpec, BytesCountFromTheLowestAndGoInFours) {
  // k = 6: the second group of four has two bytes.
  const int8_t a[12] = {-128, -127, 0, 1, 127, 2, -128, -128, -128, -128, -128, -128};
  std::vector<int8_t> b(size_t{2} * 8 * 4, 100);  // two steps of panels 8 wide
  for (int k = 0; k < 6; ++k) b[static_cast<size_t>(k / 4 * 32 + k % 4)] = static_cast<int8_t>(k + 1);  // column 0
  std::vector<int32_t> out(10, -1);
  const int64_t rows = 2;
  void* pointers[] = {const_cast<int8_t*>(a), b.data(), out.data()};
  ASSERT_TRUE(ir::EvaluateSpec(ByteMatMul(), pointers, {&rows, 1}, 8, 0, 1).has_value());
  EXPECT_EQ(out[0], 0 * 1 + 1 * 2 + 128 * 3 + 129 * 4 + 255 * 5 + 130 * 6);
  EXPECT_EQ(out[5], 0);
}

TEST(VerifySpec, ElementaryFunctionsOfF64AreUnsupported) {
  ir::LoopNestSpec nest;
  nest.inner = SpecInt::Const(8);
  nest.accesses = {{0, DType::kF64, Consts({1})}, {1, DType::kF64, Consts({1})}};
  ProgramBuilder p;
  const int32_t result = p.Op(ScalarOp::kExp, p.Load(0, DType::kF64), -1, -1, DType::kF64);
  nest.body = p.Take();
  nest.stages = {testing::StoreStage(ir::Stage::Domain::kInner, {{1, result}})};
  auto status = ir::VerifySpec({nest, 2, 0});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace kiln
