// Random contractions: sizes around the tiles, layouts, epilogues and geometries.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/compile-service/codegen/spec_cases.h"

namespace kiln::testing {
namespace {

using ir::Access;
using ir::ContractionSpec;
using ir::ScalarNode;
using ir::ScalarOp;
using ir::SpecInt;

// Batched when `batch` > 1 or by chance shared (stride 0).
void SetB(SpecBuilder& builder, ContractionSpec& spec, int64_t batch, int64_t n, int64_t k) {
  const int64_t width = int64_t{spec.tile.nv} * builder.lanes();
  const int64_t panels = (n + width - 1) / width;
  const bool shared = spec.batch.empty() || builder.Coin();
  const int64_t copies = shared ? 1 : batch;
  spec.b_layout = static_cast<ir::BLayout>(Pick(builder.random(), 0, spec.conv ? 1 : 2));
  const bool in_panels = spec.b_layout == ir::BLayout::kPanels, transposed = spec.b_layout == ir::BLayout::kTransposed;
  const DType storage = !transposed && Pick(builder.random(), 0, 5) == 0 ? DType::kBF16 : DType::kF32;
  const int64_t gap = in_panels ? 0 : Pick(builder.random(), 0, 2);
  const int64_t rows = transposed ? n : k, row = (transposed ? k : n) + gap;
  const int64_t size = in_panels ? panels * k * width : std::max<int64_t>(rows * row - gap, 0);
  std::vector<float> values = RandomValues(builder.random(), copies * size);
  for (int64_t c = 0; in_panels && c < copies; ++c)
    for (int64_t i = 0; i < panels * k * width; ++i)
      if (i / (k * width) * width + i % width >= n) values[static_cast<size_t>(c * size + i)] = 0;
  spec.b.storage = storage;
  spec.b.pointer = builder.Buffer(storage, std::move(values));
  for (size_t i = 0; i < spec.batch.size(); ++i) spec.b.strides.push_back(builder.Size(shared ? 0 : size));
  if (!in_panels) spec.b.strides.push_back(builder.Size(row));
}

// One of: plain store; bias and relu; residual in place behind a tanh; two outputs, one of them f16, with a scale per
// row.
void SetEpilogue(SpecBuilder& builder, ContractionSpec& spec, int64_t batch, int64_t m, int64_t n) {
  const bool transposed = Pick(builder.random(), 0, 3) == 0;
  auto strides = [&](int64_t batch_stride, int64_t row, int64_t column) {
    std::vector<SpecInt> result;
    if (!spec.batch.empty()) result.push_back(builder.Size(batch_stride));
    result.push_back(row == 0 ? SpecInt::Const(0) : builder.Size(row));
    result.push_back(column <= 1 ? SpecInt::Const(column) : builder.Size(column));
    return result;
  };
  auto output = [&](DType dtype) {
    return Access{builder.RandomBuffer(batch * m * n, dtype), dtype,
                  transposed ? strides(m * n, 1, std::max<int64_t>(m, 2)) : strides(m * n, n, 1)};
  };
  if (transposed && m < 2) return SetEpilogue(builder, spec, batch, m, n);
  const Access out = output(DType::kF32);
  switch (Pick(builder.random(), 0, 3)) {
    case 0:
      spec.accesses = {out};
      spec.epilogue = {Node(ScalarOp::kAccumulator)};
      spec.stores = {{0, 0}};
      break;
    case 1:
      spec.accesses = {out, Access{builder.RandomBuffer(n), DType::kF32, strides(0, 0, 1)}};
      spec.epilogue = {Node(ScalarOp::kAccumulator), Node(ScalarOp::kLoad, -1, -1, 1), Node(ScalarOp::kAdd, 0, 1),
                       Node(ScalarOp::kConstant), Node(ScalarOp::kMax, 2, 3)};
      spec.stores = {{0, 4}};
      break;
    case 2:
      spec.accesses = {out, out};
      spec.epilogue = {Node(ScalarOp::kAccumulator), Node(ScalarOp::kTanh, 0), Node(ScalarOp::kLoad, -1, -1, 1),
                       Node(ScalarOp::kAdd, 1, 2)};
      spec.stores = {{0, 3}};
      break;
    case 3:
      spec.accesses = {out, Access{builder.RandomBuffer(m), DType::kF32, strides(0, 1, 0)}, output(DType::kF16)};
      spec.epilogue = {Node(ScalarOp::kAccumulator), Node(ScalarOp::kLoad, -1, -1, 1), Node(ScalarOp::kMul, 0, 1)};
      spec.stores = {{0, 0}, {2, 2}};
      break;
  }
}

ir::Tile RandomTile(std::mt19937_64& random, int lanes) {
  if (lanes == 32) {  // a block of a device: what its threads hold, or more, or no multiple of a warp
    constexpr int32_t kRows[] = {64, 64, 32, 16, 8, 1};
    const int32_t rows =
        Pick(random, 0, 2) == 0 ? static_cast<int32_t>(Pick(random, 1, 64)) : kRows[Pick(random, 0, 5)];
    return {rows, static_cast<int32_t>(Pick(random, 0, 2) == 0 ? Pick(random, 1, 5) : 2)};
  }
  const int64_t registers = lanes == 16 ? 28 : 12;
  ir::Tile tile;
  tile.mr = static_cast<int32_t>(Pick(random, 1, std::min<int64_t>(14, registers)));
  tile.nv = static_cast<int32_t>(Pick(random, 1, std::min<int64_t>(24, registers / tile.mr)));
  return tile;
}

// Around multiples of the tile, and the smallest sizes.
int64_t NearMultiple(std::mt19937_64& random, int64_t step, int64_t least) {
  return std::max(least, Pick(random, 0, 2) * step + Pick(random, -1, 1));
}

struct Sizes {
  int64_t m, n, k;
};

SpecCase Matmul(SpecBuilder& builder, ContractionSpec spec, const Sizes& sizes) {
  const auto [m, n, k] = sizes;
  std::mt19937_64& random = builder.random();
  const int64_t batch = Pick(random, 0, 2) == 0 ? Pick(random, 1, 3) : 1;
  if (batch > 1 || builder.Coin()) spec.batch = {builder.Size(batch)};
  if (spec.m.value == 0) spec.m = builder.Size(m);
  if (spec.n.value == 0) spec.n = builder.Size(n);
  if (spec.k.value == 0) spec.k = builder.Size(k);
  const bool transposed = builder.Coin();
  spec.a.storage = Pick(random, 0, 5) == 0 ? DType::kF16 : DType::kF32;
  spec.a.pointer = builder.RandomBuffer(batch * m * k, spec.a.storage);
  if (!spec.batch.empty()) spec.a.strides.push_back(builder.Size(m * k));
  spec.a.strides.push_back(builder.Size(transposed ? 1 : k));
  spec.a.strides.push_back(builder.Size(transposed ? m : 1));
  SetB(builder, spec, batch, n, k);
  spec.few_rows = spec.m.is_argument && spec.b_layout != ir::BLayout::kTransposed && builder.Coin();
  SetEpilogue(builder, spec, batch, m, n);
  return builder.Finish(spec, spec.few_rows ? "matmul, maybe of few rows" : "matmul");
}

}  // namespace

SpecCase RandomMatmul(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile = RandomTile(random, builder.lanes());
  const int64_t m = Pick(random, 0, 5) == 0 ? 1 : NearMultiple(random, spec.tile.mr, 0);
  const int64_t n = NearMultiple(random, int64_t{spec.tile.nv} * builder.lanes(), 0);
  return Matmul(builder, spec, {m, n, Pick(random, 0, 3) == 0 ? Pick(random, 0, 3) : Pick(random, 4, 70)});
}

namespace {

// What sums of k products of numbers in [-1, 1] may differ by. A product deviates by 1/3, so a sum of j by sqrt(j)/3,
// and each rounding of it errs by at most 2^-24/sqrt(3) of that: together k 2^-24/sqrt(54). There are some ten thousand
// elements: six deviations.
double LongSumTolerance(int64_t k) {
  return 6 * static_cast<double>(k) * 0x1p-24 / std::sqrt(54.0);
}

}  // namespace

// So long, of so many tiles, that they are made block by block of k, of panels so wide that this is soon.
SpecCase LongMatmul(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile.mr = static_cast<int32_t>(Pick(random, 1, 3));
  spec.tile.nv = static_cast<int32_t>(Pick(random, 4, builder.lanes() == 16 ? 8 : 4));
  constexpr int64_t kBlockBytes = 192 << 10;
  const int64_t width = int64_t{spec.tile.nv} * builder.lanes(), block = kBlockBytes / (width * 4);
  const int64_t k = Pick(random, block, 2 * block + block / 2);
  spec.k = SpecInt::Const(k);
  const int64_t m = builder.Coin() ? Pick(random, 1, 9) : Pick(random, 63, 66) * spec.tile.mr + Pick(random, -1, 1);
  SpecCase test = Matmul(builder, spec, {m, std::max<int64_t>(1, width * Pick(random, 0, 1) + Pick(random, -1, 2)), k});
  test.tolerance = std::max(test.tolerance, LongSumTolerance(k));
  return test;
}

// Few rows beside weights that come from memory, which are read in several streams.
SpecCase StreamedMatmul(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile.mr = static_cast<int32_t>(Pick(random, 1, 4));
  spec.tile.nv = static_cast<int32_t>(Pick(random, 1, 4));
  constexpr int64_t kElements = int64_t{9} << 18;  // 4.5 MiB of halves
  const int64_t k = Pick(random, 2000, 2007), n = kElements / k + Pick(random, 0, 70);
  const int64_t m = builder.Coin() ? spec.tile.mr : Pick(random, 1, 8);
  spec.m = SpecInt::Const(m);
  spec.n = SpecInt::Const(n);
  spec.k = SpecInt::Const(k);
  SpecCase test = Matmul(builder, spec, {m, n, k});
  test.tolerance = std::max(test.tolerance, LongSumTolerance(k));
  return test;
}

namespace {

// Rows of several blocks that panels pass over one after the other. Sums may be so long that they are made block by
// block of k, too.
SpecCase MatmulOfManyRows(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile.mr = static_cast<int32_t>(Pick(random, 2, 6));
  spec.tile.nv = static_cast<int32_t>(Pick(random, 1, 4));
  const int64_t width = int64_t{spec.tile.nv} * builder.lanes(), k = Pick(random, 700, 1500);
  const int64_t block = (384 << 10) / (k * 4);
  spec.k = SpecInt::Const(k);
  SpecCase test =
      Matmul(builder, spec, {block * Pick(random, 1, 2) + Pick(random, 1, 9), width + Pick(random, 1, 3), k});
  test.tolerance = std::max(test.tolerance, LongSumTolerance(k));
  return test;
}

// The same until its rows are taken in blocks.
SpecCase InRowBlocks(std::mt19937_64& random, Target target, MakeCase make) {
  for (;;) {
    SpecCase test = make(random, target);
    if (ir::ContractionOrder::BlockTilesMax(std::get<ContractionSpec>(test.spec.kernel)) > 0) return test;
  }
}

// With `many_rows`, more pixels than a block of rows has.
SpecCase Convolution(std::mt19937_64& random, Target target, bool many_rows) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile = RandomTile(random, builder.lanes());
  const int64_t groups = Pick(random, 0, 3) == 0 ? 2 : 1;
  const int64_t channels = Pick(random, 1, 6),
                columns = NearMultiple(random, int64_t{spec.tile.nv} * builder.lanes(), 1);
  SpecBuilder::Image image;
  const ir::WindowGeometry geometry = builder.Geometry(groups * channels, &image);
  spec.conv = geometry;
  if (groups > 1) spec.batch = {builder.Size(groups)};
  const int64_t pixels = image.out_height * image.out_width;
  const int64_t images = many_rows && pixels > 0 ? Pick(random, 4096, 9000) / pixels + 1 : Pick(random, 1, 2);
  const int64_t m = images * pixels, k = channels * geometry.kernel_h * geometry.kernel_w;
  spec.m = builder.Size(m);
  spec.n = builder.Size(columns);
  spec.k = builder.Size(k);
  spec.a.pointer = builder.RandomBuffer(images * image.in_height * image.in_width * groups * channels);
  if (groups > 1) spec.a.strides = {builder.Size(channels)};
  spec.zeros = builder.Buffer(DType::kF32, std::vector<float>(static_cast<size_t>(channels), 0));
  SetB(builder, spec, groups, columns, k);
  SetEpilogue(builder, spec, groups, m, columns);
  return builder.Finish(spec, "convolution");
}

SpecCase ConvolutionOfManyRows(std::mt19937_64& random, Target target) {
  return Convolution(random, target, true);
}

}  // namespace

SpecCase RandomConvolution(std::mt19937_64& random, Target target) {
  return Convolution(random, target, false);
}

SpecCase ConvolutionInRowBlocks(std::mt19937_64& random, Target target) {
  return InRowBlocks(random, target, ConvolutionOfManyRows);
}

SpecCase MatmulInRowBlocks(std::mt19937_64& random, Target target) {
  return InRowBlocks(random, target, MatmulOfManyRows);
}

namespace {

// A convolution in Winograd's form: images around its tiles of four columns and its blocks of lines and tiles. `values`
// makes the image.
SpecCase WinogradConvolution(std::mt19937_64& random, Target target, float (*value)(std::mt19937_64&)) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.winograd = true;
  spec.tile = RandomTile(random, builder.lanes());
  spec.tile.mr = static_cast<int32_t>(Pick(random, ir::kWinogradRowsMin, builder.lanes() == 16 ? 14 : 6));
  spec.tile.nv = static_cast<int32_t>(Pick(random, 1, (builder.lanes() == 16 ? 28 : 12) / spec.tile.mr));
  const int64_t width = int64_t{spec.tile.nv} * builder.lanes();
  const int64_t images = Pick(random, 1, 2), groups = Pick(random, 0, 3) == 0 ? 2 : 1;
  const int64_t channels = ir::kWinogradChannels * Pick(random, 1, 2), columns = NearMultiple(random, width, 1);
  ir::WindowGeometry g;
  g.kernel_h = static_cast<int32_t>(Pick(random, 1, 4));
  g.kernel_w = ir::kWinogradKernel;
  g.pad_top = static_cast<int32_t>(Pick(random, 0, 2));
  g.pad_left = static_cast<int32_t>(Pick(random, 0, 2));
  // More lines and tiles than a block has, or few.
  const int64_t in_height = g.kernel_h + Pick(random, 0, 12),
                in_width = 3 + (builder.Coin() ? Pick(random, 0, 9) : Pick(random, 60, 75));
  const int64_t out_height = in_height + g.pad_top + Pick(random, 0, 1) - g.kernel_h + 1;
  const int64_t out_width = in_width + g.pad_left + Pick(random, 0, 1) - 2;
  g.in_height = builder.Size(in_height);
  g.in_width = builder.Size(in_width);
  g.out_height = builder.Size(out_height);
  g.out_width = builder.Size(out_width);
  g.column_stride = builder.Size(groups * channels);
  g.row_stride = builder.Size(in_width * groups * channels);
  g.image_stride = builder.Size(in_height * in_width * groups * channels);
  spec.conv = g;
  if (groups > 1) spec.batch = {builder.Size(groups)};
  const int64_t m = images * out_height * out_width, k = channels * g.kernel_h * g.kernel_w;
  spec.m = builder.Size(m);
  spec.n = SpecInt::Const(columns);
  spec.k = SpecInt::Const(k);
  std::vector<float> image(static_cast<size_t>(images * in_height * in_width * groups * channels));
  for (float& element : image) element = value(random);
  spec.a.pointer = builder.Buffer(DType::kF32, std::move(image));
  if (groups > 1) spec.a.strides = {builder.Size(channels)};
  spec.zeros = builder.Buffer(DType::kF32, std::vector<float>(static_cast<size_t>(channels), 0));
  const int64_t size = (columns + width - 1) / width * width * k;
  std::vector<float> weights = RandomValues(random, groups * size);
  for (int64_t i = 0; i < groups * size; ++i)
    if (i % size / (k * width) * width + i % width >= columns) weights[static_cast<size_t>(i)] = 0;
  spec.b_layout = ir::BLayout::kPanels;
  spec.b.pointer = builder.Buffer(DType::kF32, std::move(weights));
  if (groups > 1) spec.b.strides = {builder.Size(size)};
  SetEpilogue(builder, spec, groups, m, columns);
  SpecCase test = builder.Finish(spec, "convolution in Winograd's form");
  test.tolerance = 4e-5;  // sums of up to 384 products, of which errors grow fivefold on the way
  return test;
}

}  // namespace

SpecCase FiniteWinogradConvolution(std::mt19937_64& random, Target target) {
  return WinogradConvolution(random, target,
                             [](std::mt19937_64& r) { return std::uniform_real_distribution<float>(-1, 1)(r); });
}

// What is not finite stays in the pixels whose windows see it, and numbers that are too large for the form do not show.
SpecCase WinogradConvolutionOfSpecialValues(std::mt19937_64& random, Target target) {
  return WinogradConvolution(random, target, [](std::mt19937_64& r) {
    constexpr float kSpecial[] = {INFINITY, -INFINITY, NAN, 1e36F, -1e35F, 1e-40F};
    const bool special = Pick(r, 0, 2000) == 0;
    return special ? kSpecial[Pick(r, 0, 5)] : std::uniform_real_distribution<float>(-1, 1)(r);
  });
}

namespace {

// Bytes of a storage: all of them, so that sums of signed ones wrap nowhere else than the evaluator's.
std::vector<float> RandomBytes(std::mt19937_64& random, DType storage, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const int64_t low = storage == DType::kI8 ? -128 : 0;
  for (float& value : values) value = static_cast<float>(Pick(random, low, low + 255));
  return values;
}

// B in panels of fours of k, run by run, and an epilogue that stores the sums, or a number made of them.
void SetBytes(SpecBuilder& builder, ContractionSpec& spec, int64_t copies, int64_t m, int64_t n, int64_t k) {
  std::mt19937_64& random = builder.random();
  const int64_t width = int64_t{spec.tile.nv} * builder.lanes(), panels = (n + width - 1) / width;
  const int64_t depth = ir::PanelDepth(spec, k), runs = spec.conv ? spec.conv->kernel_h * spec.conv->kernel_w : 1;
  const int64_t run = k / runs, steps = (run + 3) / 4, size = panels * depth * width;
  std::vector<float> values = RandomBytes(random, DType::kI8, copies * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % size, byte = at % 4, column = at / 4 % width;
    const int64_t step = at / 4 / width % (runs * steps), panel = at / 4 / width / (runs * steps);
    if (panel * width + column >= n || step % steps * 4 + byte >= run) values[i] = 0;
  }
  spec.b = {builder.Buffer(DType::kI8, std::move(values)), DType::kI8, {}};
  if (!spec.batch.empty()) spec.b.strides.push_back(builder.Size(size));
  spec.b_layout = ir::BLayout::kPanels;
  const bool as_is = builder.Coin();
  const DType stored = as_is ? DType::kI32 : DType::kF32;
  Access out{builder.RandomBuffer(copies * m * n, stored), stored, {}};
  if (!spec.batch.empty()) out.strides.push_back(builder.Size(m * n));
  out.strides.push_back(builder.Size(n));
  out.strides.push_back(SpecInt::Const(1));
  spec.accesses = {out};
  ScalarNode sum = Node(ScalarOp::kAccumulator);
  sum.type = DType::kI32;
  spec.epilogue = {sum};
  spec.stores = {{0, 0}};
  if (as_is) return;
  spec.epilogue.insert(spec.epilogue.end(), {Node(ScalarOp::kConvert, 0), Node(ScalarOp::kConstant, -1, -1, 0, 0x1p-12),
                                             Node(ScalarOp::kMul, 1, 2)});
  spec.stores = {{0, 3}};
}

}  // namespace

SpecCase RandomByteProduct(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile = RandomTile(random, builder.lanes());
  const int64_t m = NearMultiple(random, spec.tile.mr, 1);
  const int64_t n = NearMultiple(random, int64_t{spec.tile.nv} * builder.lanes(), 1);
  const int64_t k = Pick(random, 1, 70), batch = Pick(random, 0, 2) == 0 ? 2 : 1;
  if (batch > 1) spec.batch = {builder.Size(batch)};
  spec.m = builder.Size(m);
  spec.n = builder.Size(n);
  spec.k = SpecInt::Const(k);
  spec.a.storage = builder.Coin() ? DType::kU8 : DType::kI8;
  spec.a.pointer = builder.Buffer(spec.a.storage, RandomBytes(random, spec.a.storage, batch * m * k));
  if (batch > 1) spec.a.strides.push_back(builder.Size(m * k));
  spec.a.strides.push_back(builder.Size(k));
  spec.a.strides.push_back(SpecInt::Const(1));
  SetBytes(builder, spec, batch, m, n, k);
  return builder.Finish(spec, "product of bytes");
}

SpecCase RandomByteConvolution(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  ContractionSpec spec;
  spec.tile = RandomTile(random, builder.lanes());
  const int64_t channels = Pick(random, 1, 9), images = Pick(random, 1, 2);
  const int64_t columns = NearMultiple(random, int64_t{spec.tile.nv} * builder.lanes(), 1);
  SpecBuilder::Image image;
  spec.conv = builder.Geometry(channels, &image);
  const int64_t m = images * image.out_height * image.out_width,
                k = channels * spec.conv->kernel_h * spec.conv->kernel_w;
  spec.m = builder.Size(m);
  spec.n = builder.Size(columns);
  spec.k = SpecInt::Const(k);
  spec.a.storage = builder.Coin() ? DType::kU8 : DType::kI8;
  const auto bytes = [&](int64_t count) {
    return builder.Buffer(spec.a.storage, RandomBytes(random, spec.a.storage, count));
  };
  spec.a.pointer = bytes(images * image.in_height * image.in_width * channels);
  spec.zeros = bytes(channels);
  SetBytes(builder, spec, 1, m, columns, k);
  return builder.Finish(spec, "convolution of bytes");
}

}  // namespace kiln::testing
