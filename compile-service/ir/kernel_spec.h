// KernelSpec: the canonical description of one fused kernel, and all that code generation is given.
//
// Four shapes of kernel cover the CPU backend: LoopNest (element-wise chains, reductions, softmax, normalisations,
// copies), Contraction (matmul, gemm, convolution as implicit gemm, with an epilogue), Window (depthwise convolution,
// pooling), Recurrent (LSTM, GRU, RNN over time) and Attention (two products with a softmax between them). Each has
// ScalarPrograms for its arithmetic and Accesses for its memory. A spec holds no names, addresses or sizes other than
// those the code gains from; every other extent or stride is an argument
// (`dims[i]` of the kernel ABI). Equal specs give equal kernels.
//
// Value types. Everything here takes part in the KernelKey.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/hash.h"
#include "common/base/result.h"
#include "common/tensor/dtype.h"
#include "compile-service/ir/scalar_op.h"

namespace kiln::ir {

// A constant, or the run-time argument dims[value].
struct SpecInt {
  bool is_argument = false;
  int64_t value = 0;
  static SpecInt Const(int64_t v) { return {false, v}; }
  static SpecInt Argument(int64_t index) { return {true, index}; }
  bool operator==(const SpecInt&) const = default;
};

// How a pointer is addressed over the loop dims of its spec: element offset = sum of coordinate[i] * strides[i].
struct Access {
  int32_t pointer = 0;  // index into the kernel's pointers
  DType storage = DType::kF32;
  std::vector<SpecInt> strides;  // one per loop dim, in the spec's documented order
  bool operator==(const Access&) const = default;
};

// One operation; a, b, c are earlier nodes of the same program (-1 when unused).
struct ScalarNode {
  ScalarOp op;
  DType type = DType::kF32;
  int32_t a = -1, b = -1, c = -1;
  int32_t index = 0;    // Load, StageResult, Coordinate, Argument
  double number = 0;    // Constant
  int64_t integer = 0;  // Constant of an integer or bool type
  bool operator==(const ScalarNode&) const = default;
};
using ScalarProgram = std::vector<ScalarNode>;  // in dependency order

struct Store {
  int32_t access = 0;
  int32_t node = 0;  // converted to the access's storage dtype
  bool operator==(const Store&) const = default;
};

enum class Combine : uint8_t { kSum = 1, kMax = 2, kMin = 3, kProduct = 4 };

// One step of a loop nest, run for every point of the outer dims, in order.
struct Stage {
  enum class Kind : uint8_t {
    kReduce = 1,  // combines `node` over the reduce dims, and over inner when reduce_inner; read as StageResult
    kStore = 2,   // stores over `domain`
    // The others are run for every reduce position, one after the other, and every inner one; not where the inner dim
    // is reduced, and with the full domain.
    kScatter = 3,  // one store: to the element that LoadAt `node` reads
    kScan = 4,     // stores, which may read the running value as StageResult: what `node` was at the reduce position
                   // before; at the first one what `combine` begins with
  };
  enum class Domain : uint8_t {
    kRow = 1,    // one element per outer point (needs reduce_inner)
    kInner = 2,  // every inner position (reduce coordinates are 0)
    kFull = 3,   // every reduce and inner position
  };
  Kind kind;
  Combine combine = Combine::kSum;  // kReduce, kScan
  int32_t node = 0;                 // kReduce, kScatter, kScan
  Domain domain = Domain::kInner;   // kStore
  std::vector<Store> stores;        // all but kReduce
  bool operator==(const Stage&) const = default;
};

// for outer…: for each stage: (for reduce…: for inner: …). Access strides are ordered outer…, reduce…, inner.
// Range: the product of the outer extents; with no outer dims and not reduce_inner and no reduce dims, the inner extent
// (so that a flat chain can be split); else 1.
// Memory: different pointers never overlap, but a result may lie where an operand lies that in_place.h names for it; a
// pointer that is stored to may also be loaded, through an access of the same storage and strides only. An element may
// be loaded once where strides say it does not change (a stride of Const(0)). Memory that a scatter stores to is
// touched by its own LoadAt only; points that differ in an outer or the inner dim touch different elements of it.
struct LoopNestSpec {
  std::vector<SpecInt> outer;
  std::vector<SpecInt> reduce;
  SpecInt inner;
  bool reduce_inner = false;
  bool pairs_rows = false;  // two outer points at a time, where reduce_inner; changes no result but its rounding
  std::vector<Access> accesses;
  ScalarProgram body;
  std::vector<Stage> stages;
  bool operator==(const LoopNestSpec&) const = default;
};

// Spatial geometry of convolutions and pools, channels innermost (NHWC); 1-D uses height 1. Input strides in elements;
// channels are contiguous.
struct WindowGeometry {
  SpecInt in_height, in_width, out_height, out_width;
  int32_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int32_t pad_top = 0, pad_left = 0;  // bottom and right padding follow from the output size
  SpecInt image_stride, row_stride, column_stride;
  bool operator==(const WindowGeometry&) const = default;
};

// Rows x vectors of one micro-kernel: mr rows of A, nv target vectors of f32 columns.
struct Tile {
  int32_t mr = 8, nv = 3;
  bool operator==(const Tile&) const = default;
};

// How the second factor lies in memory. kPanels: [n_panels][k][width] with width = nv * lanes, the last panel
// zero-padded. kRows: rows of k, n stride 1. kTransposed: the transpose of that, rows of n, k stride 1.
enum class BLayout : uint8_t { kRows = 0, kPanels = 1, kTransposed = 2 };
// With a transposed B, tiles of at most this many rows of an A whose k stride is 1 are made as dot products along k.
inline constexpr int32_t kDotRowsMax = 4;

// C[batch…, m, n] = epilogue(sum over k of A[batch…, m, k] * B[batch…, k, n]), f32 accumulation for floats.
// A is strided (any strides), or a convolution's implicit matrix: m = (image, out row, out column), k = (kernel row,
// kernel column, channel), read by geometry, with rows outside the image taken from `zeros`. Access strides of A:
// batch…, m, k; of B: batch…, k (rows), batch…, n (transposed, f32 only) or batch… (panels, one matrix after the
// other); of the epilogue: batch…, m, n. Bytes: A in u8 (or i8, taken as its value + 128), B in i8, k constant, sums in
// i32 modulo 2^32. A's k stride is 1; B is in panels [n_panels][runs][ceil(run / 4)][width][4], where a run is the k of
// one convolution position (else all of k), zero-padded; positions outside the image read `zeros`, which then holds one
// value per channel of any size. Range: product(batch) * n_panels * ceil(m / mr); ContractionOrder says which item is
// where.
struct ContractionSpec {
  std::vector<SpecInt> batch;
  SpecInt m, n, k;
  Access a;
  std::optional<WindowGeometry> conv;  // set: A is implicit, a.strides are batch strides only
  int32_t zeros = -1;                  // pointer to at least `channels` zeros of A's storage, for conv with padding
  Access b;
  BLayout b_layout = BLayout::kPanels;
  Tile tile;
  bool few_rows = false;  // m may be small, and gets code of its own then; changes no result but its rounding
  bool winograd = false;  // a convolution by fewer products (kWinogradColumns); changes no result but its rounding
  std::vector<Access> accesses;  // epilogue loads and stores
  ScalarProgram epilogue;        // kAccumulator is the sum
  std::vector<Store> stores;
  bool operator==(const ContractionSpec&) const = default;
};

// Winograd's form of a convolution with a kernel of three columns and strides of 1: four neighbouring columns of a row
// of the result are made from six sums of products instead of twelve. The six, and what they are made of, come from the
// six columns of the image around them alone, so an error is relative to what one row of the result is made of, as it
// is in sums in another order. Which columns go together depends on the image only; where a sum leaves the range in
// which that holds (infinities, NaN, magnitudes beyond 2^100), its columns are made without it. All sizes but m are
// constants, channels a multiple of kWinogradChannels, and a panel's weights in that form at most kWinogradWeightsMax
// numbers.
inline constexpr int32_t kWinogradColumns = 4, kWinogradKernel = 3;
inline constexpr int32_t kWinogradPositions = kWinogradColumns + kWinogradKernel - 1;
inline constexpr int64_t kWinogradChannels = 16, kWinogradWeightsMax = 160 << 10;
inline constexpr int32_t kWinogradRowsMin = 4, kWinogradHeightMax = 7;  // of a tile, of the kernel
inline constexpr int64_t kF32LanesMax = 16;

// out[image, row, column, channel] = epilogue(combine over the window). kSum with `weights`: depthwise convolution,
// weights [kernel_h * kernel_w][channels]. kMax ignores, kSum without weights adds 0 for positions outside the image;
// `average` divides by the number of positions: all (count_include_pad) or those inside (of none: 0). Access strides of
// the epilogue: image, row, column, channel. Range: images * out_height. `out_columns` at a time (0: what the registers
// hold) changes no result.
struct WindowSpec {
  SpecInt images, channels;
  WindowGeometry geometry;
  int32_t out_columns = 0;
  Combine combine = Combine::kSum;
  bool average = false, count_include_pad = false;
  Access input;                   // strides unused: geometry holds them
  std::optional<Access> weights;  // strides: tap, channel
  std::vector<Access> accesses;
  ScalarProgram epilogue;
  std::vector<Store> stores;
  bool operator==(const WindowSpec&) const = default;
};

// One part of a time step: products of a row of state with packed weights, and the arithmetic behind them, for every
// unit. What a stage stores is seen by the next one; it never stores to what its products read.
struct RecurrentStage {
  int32_t gates = 0;    // sums per unit, kAccumulator `index` 0..gates - 1; 0: no product
  int32_t vectors = 1;  // of units in one block
  int32_t input = -1;   // access (f32) whose row, over all units, is multiplied
  int32_t panels = -1;  // pointer: f32 [blocks][units][gates][vectors * lanes], columns beyond the units zero
  ScalarProgram body;
  std::vector<Store> stores;
  bool operator==(const RecurrentStage&) const = default;
};

// for rows in tiles: `before`; for each of the row's steps: `steps`, at its time; for each turn behind: `after`.
// A row has clamp(lengths[row], 0, time) steps, `time` without lengths; step i is at time i, or the row's steps - 1 - i
// when `reversed`; turn i of `after` is at time i. Access strides: time, row, unit; those of `before` do not move over
// time. Range: ceil(rows / tile_rows).
struct RecurrentSpec {
  SpecInt time, rows;
  int32_t units = 1;
  int32_t tile_rows = 1;
  bool reversed = false;
  int32_t lengths = -1;  // pointer to `rows` i32 (tile_rows is 1 then)
  std::vector<Access> accesses;
  std::vector<RecurrentStage> before, steps, after;
  bool operator==(const RecurrentSpec&) const = default;
};

// out[batch…, m, :] = sum over keys n of softmax over n (score[batch…, m, n]) * V[batch…, n, :], where score is node
// `score` of a program over the accumulator (sum over the elements of Q[batch…, m, :] * K[batch…, n, :]), loads and
// coordinates: scales, masks. f32 arithmetic; no keys give 0. Access strides: batch…, then m, element (q, out) or n,
// element (k, v); of `accesses`: batch…, n, m. Range: product(batch) * ceil(m / (tile.nv * lanes)): tile.nv vectors of
// queries at a time; tile.mr keys, or elements of V, at a time.
struct AttentionSpec {
  std::vector<SpecInt> batch;
  SpecInt m, n;                                  // queries, keys
  int32_t key_elements = 0, value_elements = 0;  // of one row of K, of V
  Tile tile;
  Access q, k, v, out;
  std::vector<Access> accesses;
  ScalarProgram scores;
  int32_t score = 0;
  bool operator==(const AttentionSpec&) const = default;
};
inline constexpr int32_t kAttentionElementsMax = 256;
inline constexpr int32_t kWindowColumnsMax = 16;

struct KernelSpec {
  std::variant<LoopNestSpec, ContractionSpec, WindowSpec, RecurrentSpec, AttentionSpec> kernel;
  int32_t pointers = 0;  // number of pointer arguments
  int32_t dims = 0;      // number of dims arguments
  bool operator==(const KernelSpec&) const = default;
};

// Indices, types, arity, limits. Everything codegen relies on; a spec that passes compiles.
Status VerifySpec(const KernelSpec& spec);
// Canonical bytes: what is hashed, sent to compile children, and written to replay files; and back (hostile-safe).
std::vector<uint8_t> EncodeSpec(const KernelSpec& spec);
Result<KernelSpec> DecodeSpec(std::span<const uint8_t> bytes);
std::string PrintSpec(const KernelSpec& spec);  // for people and tests; one line per loop, stage and node
// The KernelKey of artifact/plan.h: hash of canonical bytes, target and code generator.
Digest ComputeKernelKey(const KernelSpec& spec, std::string_view target, const Digest& codegen_id);

// The order of a contraction's items. Row tiles go through a panel one after the other, in blocks of so many that their
// rows of A stay in the second-level cache while all panels pass over them; then the next block does.
struct ContractionOrder {
  // Of so many row tiles at most: 0, all of them go through a panel.
  static int64_t BlockTilesMax(const ContractionSpec& spec);
  struct Item {
    int64_t batch, panel, tile;  // batch: index into the product of the batch extents
  };
  int64_t tiles, panels;
  int64_t block_tiles;  // of a block, the last one may have less

  ContractionOrder(const ContractionSpec& spec, int64_t m, int64_t n, int64_t width);
  Item At(int64_t item) const;
};

// Elements of B's panels per column: k, or for bytes the runs of k rounded up to fours.
int64_t PanelDepth(const ContractionSpec& spec, int64_t k);
// Parallel extent for given dims arguments (the documented Range).
int64_t RangeOf(const KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes);

// Runs [begin, end) of a spec naively, scalar by scalar: the oracle that generated code is compared with in tests and
// validation. Sums accumulate in double.
Status EvaluateSpec(const KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                    int f32_lanes, int64_t begin, int64_t end);

}  // namespace kiln::ir
