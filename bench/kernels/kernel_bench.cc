// Speed and compile time of contraction and window kernels beside the multiply-add peak of the same moment.
//
//   kernel_bench [target] [filter] [--tiles | --tile=8x3] [--asm]
//
// One line per case: median and best over the rounds of GF/s, the median of the concurrent peak, the ratio of the
// bests, and compile milliseconds. On a machine with other work the bests compare better. With --tiles every case is
// run with each tile of the target's list, which is how the defaults of lowering were chosen. --asm prints the code
// instead.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/fma_peak.h"
#include "common/artifact/target.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "tests/support/executable_memory.h"

namespace kiln::bench {
namespace {

using ir::Access;
using ir::ContractionSpec;
using ir::ScalarNode;
using ir::ScalarOp;
using ir::SpecInt;
using ir::Tile;

constexpr int kRounds = 15;
constexpr double kRoundSeconds = 0.004;

struct Case {
  std::string name;
  ir::KernelSpec spec;
  std::vector<size_t> floats;  // per pointer
  std::vector<int64_t> dims;
  double flops;
};

ScalarNode Node(ScalarOp op, int32_t a = -1, int32_t b = -1, int32_t index = 0) {
  ScalarNode node{op};
  node.a = a;
  node.b = b;
  node.index = index;
  return node;
}

// sum + bias[n], relu.
ir::ScalarProgram BiasRelu() {
  return {Node(ScalarOp::kAccumulator), Node(ScalarOp::kLoad), Node(ScalarOp::kAdd, 0, 1), Node(ScalarOp::kConstant),
          Node(ScalarOp::kMax, 2, 3)};
}

// Pointers: A, panels, bias, out.
void SetMatrices(ContractionSpec& spec, int64_t m, Tile tile, int lanes, size_t a_floats, Case& result) {
  const int64_t n = spec.n.value, k = spec.k.value, width = int64_t{tile.nv} * lanes;
  // As lowering does: many rows are an argument.
  constexpr int64_t kRowsConstantMax = 8;
  spec.m = m <= kRowsConstantMax ? SpecInt::Const(m) : SpecInt::Argument(static_cast<int64_t>(result.dims.size()));
  if (m > kRowsConstantMax) result.dims.push_back(m);
  spec.tile = tile;
  spec.a.pointer = 0;
  spec.b.pointer = 1;
  spec.accesses = {Access{2, DType::kF32, {SpecInt::Const(0), SpecInt::Const(1)}},
                   Access{3, DType::kF32, {SpecInt::Const(n), SpecInt::Const(1)}}};
  spec.epilogue = BiasRelu();
  spec.stores = {{1, 4}};
  result.floats = {a_floats, static_cast<size_t>((n + width - 1) / width * width * k), static_cast<size_t>(n),
                   static_cast<size_t>(m * n)};
  result.flops = 2.0 * static_cast<double>(m * n * k);
}

Case Matmul(int64_t m, int64_t n, int64_t k, Tile tile, int lanes) {
  Case result;
  ContractionSpec spec;
  spec.n = SpecInt::Const(n);
  spec.k = SpecInt::Const(k);
  spec.a.strides = {SpecInt::Const(k), SpecInt::Const(1)};
  SetMatrices(spec, m, tile, lanes, static_cast<size_t>(m * k), result);
  result.spec = {spec, 4, static_cast<int32_t>(result.dims.size())};
  char name[64];
  std::snprintf(name, sizeof name, "matmul %ldx%ldx%ld", m, n, k);
  result.name = name;
  return result;
}

// Sizes are arguments, as lowering makes them; the kernel's shape and the channels are constants.
ir::WindowGeometry Square(int64_t size, int64_t channels, int kernel, int stride, int pad, Case& result) {
  ir::WindowGeometry g;
  const int64_t out = (size + 2 * pad - kernel) / stride + 1;
  result.dims = {size, out, size * channels, size * size * channels};
  g.in_height = g.in_width = SpecInt::Argument(0);
  g.out_height = g.out_width = SpecInt::Argument(1);
  g.kernel_h = g.kernel_w = kernel;
  g.stride_h = g.stride_w = stride;
  g.pad_top = g.pad_left = pad;
  g.column_stride = SpecInt::Const(channels);
  g.row_stride = SpecInt::Argument(2);
  g.image_stride = SpecInt::Argument(3);
  return g;
}

Case Convolution(int64_t size, int64_t channels, int64_t columns, int kernel, int stride, Tile tile, int lanes) {
  Case result;
  ContractionSpec spec;
  const int pad = kernel / 2;
  spec.conv = Square(size, channels, kernel, stride, pad, result);
  const int64_t out = result.dims[1];
  spec.n = SpecInt::Const(columns);
  spec.k = SpecInt::Const(channels * kernel * kernel);
  if (pad > 0) spec.zeros = 4;
  SetMatrices(spec, out * out, tile, lanes, static_cast<size_t>(size * size * channels), result);
  result.floats.push_back(static_cast<size_t>(channels));
  result.spec = {spec, 5, static_cast<int32_t>(result.dims.size())};
  char name[64];
  std::snprintf(name, sizeof name, "conv %ldx%ld %ld->%ld k%d s%d", size, size, channels, columns, kernel, stride);
  result.name = name;
  return result;
}

// Depthwise with bias and relu. Pointers: input, weights, bias, out.
Case Depthwise(int64_t size, int64_t channels, int kernel, int stride) {
  Case result;
  ir::WindowSpec spec;
  spec.images = SpecInt::Const(1);
  spec.channels = SpecInt::Const(channels);
  spec.geometry = Square(size, channels, kernel, stride, kernel / 2, result);
  const int64_t out = result.dims[1];
  const SpecInt zero = SpecInt::Const(0), one = SpecInt::Const(1);
  spec.input.pointer = 0;
  spec.weights = Access{1, DType::kF32, {SpecInt::Const(channels), one}};
  spec.accesses = {
      Access{2, DType::kF32, {zero, zero, zero, one}},
      Access{3,
             DType::kF32,
             {SpecInt::Const(out * out * channels), SpecInt::Const(out * channels), SpecInt::Const(channels), one}}};
  spec.epilogue = BiasRelu();
  spec.stores = {{1, 4}};
  result.spec = {spec, 4, 4};
  result.floats = {static_cast<size_t>(size * size * channels), static_cast<size_t>(kernel * kernel * channels),
                   static_cast<size_t>(channels), static_cast<size_t>(out * out * channels)};
  result.flops = 2.0 * static_cast<double>(out * out * channels * kernel * kernel);
  char name[64];
  std::snprintf(name, sizeof name, "depthwise %ldx%ld %ld k%d s%d", size, size, channels, kernel, stride);
  result.name = name;
  return result;
}

// Heads side by side, as a projection leaves them; scaled, with a mask over the keys. The tile is lowering's.
Case Attention(int64_t heads, int64_t queries, int64_t keys, int64_t elements, int lanes) {
  Case result;
  result.dims = {heads, queries, keys, heads * elements};
  ir::AttentionSpec spec;
  const SpecInt one = SpecInt::Const(1), zero = SpecInt::Const(0), row = SpecInt::Argument(3);
  spec.batch = {SpecInt::Argument(0)};
  spec.m = queries == 1 ? one : SpecInt::Argument(1);
  spec.n = SpecInt::Argument(2);
  spec.key_elements = spec.value_elements = static_cast<int32_t>(elements);
  spec.tile = {lanes == 16 ? 8 : 4, queries <= lanes ? 1 : 2};
  ir::Access* const accesses[] = {&spec.q, &spec.k, &spec.v, &spec.out};
  for (int32_t i = 0; i < 4; ++i) *accesses[i] = {i, DType::kF32, {SpecInt::Const(elements), row, one}};
  spec.accesses = {{4, DType::kF32, {zero, one, zero}}};
  spec.scores = {Node(ScalarOp::kAccumulator), Node(ScalarOp::kConstant), Node(ScalarOp::kMul, 0, 1),
                 Node(ScalarOp::kLoad), Node(ScalarOp::kAdd, 2, 3)};
  spec.scores[1].number = 0.125;
  spec.score = 4;
  result.spec = {spec, 5, 4};
  const auto rows = [&](int64_t count) { return static_cast<size_t>(count * heads * elements); };
  result.floats = {rows(queries), rows(keys), rows(keys), rows(queries), static_cast<size_t>(keys)};
  result.flops = 4.0 * static_cast<double>(heads * queries * keys * elements);
  char name[64];
  std::snprintf(name, sizeof name, "attention %ldx%ldx%ld heads %ld", queries, keys, elements, heads);
  result.name = name;
  return result;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// On huge pages where the host allows, as workers place packed weights and arenas.
struct AlignedFloats {
  explicit AlignedFloats(size_t count) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t alignment = count * 4 >= kHugePage ? kHugePage : 64;
    const size_t bytes = (count * 4 + 64 + alignment - 1) / alignment * alignment;
    data.reset(static_cast<float*>(std::aligned_alloc(alignment, bytes)));
    if (alignment == kHugePage) (void)madvise(data.get(), bytes, MADV_HUGEPAGE);
    std::minstd_rand random(static_cast<unsigned>(count) + 1);
    for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(random() % 1000) * 1e-3f - 0.5f;
  }
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float[], Free> data;
};

void Run(codegen::KernelCompiler& compiler, Target target, const Case& test, const std::string& suffix, bool assembly) {
  if (assembly) {
    auto text = compiler.EmitAssembly(test.spec);
    std::printf("# %s %s\n%s\n", test.name.c_str(), suffix.c_str(),
                text.has_value() ? text->c_str() : ToString(text.error()).c_str());
    return;
  }
  auto code = compiler.Compile(test.spec);
  if (!code.has_value()) {
    std::printf("%-32s %s\n", test.name.c_str(), ToString(code.error()).c_str());
    return;
  }
  double compile_seconds = 1;  // steady state
  for (int i = 0; i < 3; ++i) {
    const double start = ThreadSeconds();
    (void)compiler.Compile(test.spec);
    compile_seconds = std::min(compile_seconds, ThreadSeconds() - start);
  }
  testing::ExecutableKernel kernel(code->bytes);
  std::vector<AlignedFloats> buffers;
  std::vector<void*> pointers;
  for (size_t count : test.floats) buffers.emplace_back(count);
  for (AlignedFloats& buffer : buffers) pointers.push_back(buffer.data.get());
  const int64_t range = ir::RangeOf(test.spec, test.dims, InfoOf(target).f32_lanes());
  auto time = [&](int repeats) {
    const double start = ThreadSeconds();
    for (int i = 0; i < repeats; ++i) kernel.Run(pointers, test.dims, 0, range);
    return (ThreadSeconds() - start) / repeats;
  };
  time(1);
  const int repeats = std::max(1, static_cast<int>(kRoundSeconds / std::max(time(2), 1e-9)));
  std::vector<double> rates, peaks;
  for (int round = 0; round < kRounds; ++round) {
    peaks.push_back(MeasurePeak(target));
    rates.push_back(test.flops / time(repeats) * 1e-9);
  }
  const double best = *std::max_element(rates.begin(), rates.end()),
               best_peak = *std::max_element(peaks.begin(), peaks.end());
  std::printf("%-32s %-5s %6.1f GF/s, best %6.1f  peak %6.1f  %5.1f %%  %9.1f us  compile %5.2f ms  %zu bytes\n",
              test.name.c_str(), suffix.c_str(), Median(rates), best, Median(peaks), 100 * best / best_peak,
              test.flops / best * 1e-3, 1e3 * compile_seconds, code->bytes.size());
  std::fflush(stdout);
}

struct TiledCase {
  std::function<Case(Tile)> make;
  int64_t rows;
};

std::vector<TiledCase> TiledCases(int lanes) {
  std::vector<TiledCase> cases;
  for (int64_t size : {int64_t{768}, int64_t{3072}})
    for (int64_t m : {1, 8, 64, 256})
      cases.push_back({[=](Tile tile) { return Matmul(m, size, size, tile, lanes); }, m});
  struct Conv {
    int64_t size, channels, columns;
    int kernel, stride;
  };
  // ResNet-50 and PP-OCR detection and recognition.
  for (Conv c : {Conv{224, 3, 64, 7, 2}, Conv{56, 64, 64, 3, 1}, Conv{56, 64, 256, 1, 1}, Conv{28, 128, 128, 3, 1},
                 Conv{56, 256, 512, 1, 2}, Conv{14, 256, 256, 3, 1}, Conv{7, 512, 512, 3, 1}, Conv{320, 3, 16, 3, 2},
                 Conv{80, 56, 96, 1, 1}, Conv{80, 96, 24, 3, 1}})
    cases.push_back(
        {[=](Tile tile) { return Convolution(c.size, c.channels, c.columns, c.kernel, c.stride, tile, lanes); },
         (c.size / c.stride) * (c.size / c.stride)});
  return cases;
}

std::vector<Tile> TilesOf(int lanes, int64_t rows) {
  if (rows == 1)
    return lanes == 16 ? std::vector<Tile>{{1, 8}, {1, 12}, {1, 16}, {1, 24}}
                       : std::vector<Tile>{{1, 4}, {1, 8}, {1, 10}, {1, 12}};
  std::vector<Tile> tiles = lanes == 16
                                ? std::vector<Tile>{{8, 3}, {6, 4}, {7, 3}, {9, 3}, {4, 6}, {12, 2}, {7, 2}, {14, 1}}
                                : std::vector<Tile>{{6, 2}, {4, 3}, {5, 2}, {3, 4}, {2, 6}, {8, 1}, {4, 2}, {12, 1}};
  std::erase_if(tiles, [&](Tile tile) { return tile.mr > rows; });
  return tiles;
}

int Main(int argc, char** argv) {
  std::string filter;
  Tile chosen{0, 0};
  bool tiles = false, assembly = false;
  std::vector<Target> targets = HostTargets();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiles") == 0)
      tiles = true;
    else if (std::sscanf(argv[i], "--tile=%dx%d", &chosen.mr, &chosen.nv) == 2)
      continue;
    else if (std::strcmp(argv[i], "--asm") == 0)
      assembly = true;
    else if (auto target = TargetFromName(argv[i]))
      targets = {*target};
    else
      filter = argv[i];
  }
  for (Target target : targets) {
    const int lanes = InfoOf(target).f32_lanes();
    auto compiler = codegen::KernelCompiler::Create(target);
    if (!compiler.has_value()) return std::fprintf(stderr, "%s\n", ToString(compiler.error()).c_str()), 1;
    std::printf("# target %s\n", std::string(InfoOf(target).name).c_str());
    for (const TiledCase& tiled : TiledCases(lanes)) {
      std::vector<Tile> list = TilesOf(lanes, tiled.rows);
      if (!tiles) list.resize(1);
      if (chosen.mr > 0) list = {chosen};
      for (Tile tile : list) {
        Case test = tiled.make(tile);
        if (test.name.find(filter) == std::string::npos) continue;
        Run(**compiler, target, test, std::to_string(tile.mr) + "x" + std::to_string(tile.nv), assembly);
      }
    }
    for (const Case& test :
         {Depthwise(112, 32, 3, 1), Depthwise(56, 96, 3, 1), Depthwise(28, 192, 5, 1), Depthwise(56, 96, 3, 2),
          Depthwise(7, 960, 3, 1), Depthwise(40, 256, 5, 2), Attention(12, 1, 512, 64, lanes),
          Attention(12, 16, 16, 64, lanes), Attention(12, 128, 128, 64, lanes), Attention(12, 512, 512, 64, lanes),
          Attention(8, 40, 40, 15, lanes)})
      if (test.name.find(filter) != std::string::npos) Run(**compiler, target, test, "", assembly);
  }
  return 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  return kiln::bench::Main(argc, argv);
}
