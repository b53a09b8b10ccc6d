// Winograd's form of a convolution: four columns of a row at a time, from six sums of products instead of twelve.
//
// With the polynomials g (three weights) and d, four outputs are a product of polynomials taken at six points: 0, +-p,
// +-q and infinity. Weights, columns of the image, and sums change between coefficients and points by small linear maps
// (WeightsAt, ColumnsAt, FromPoints); between the maps each point is a matrix product over kernel rows and channels.
// The rows of the kernel stay as they are, so that rounding errors never pass from one row of the image to another.
#include <algorithm>
#include <array>

#include "compile-service/codegen/llvm/contraction_emitter.h"

namespace kiln::codegen {

using llvm::Value;

namespace {

constexpr int kColumns = ir::kWinogradColumns, kPositions = ir::kWinogradPositions, kKernel = ir::kWinogradKernel;
// Of the points tried, with these errors are smallest: 0.5 to 2.3 times those of direct sums (1 and 2: twice as large).
constexpr double kP = 0.75, kQ = 1.5;
constexpr double kP2 = kP * kP, kQ2 = kQ * kQ;

// Beyond this, what is made of the sums may leave the range of f32.
constexpr float kLargestSum = 0x1p100f;
// A block of the image in this form, beside the weights: the second-level cache holds both.
constexpr int64_t kImageBytes = 192 << 10;
constexpr int64_t kTilesMin = 2, kTilesMax = 16;
constexpr int64_t kLinesMax = 8;

// The linear maps. Vectors are added up in one order whatever is around them.
class Maps {
 public:
  explicit Maps(VectorEmitter& e) : e_(e), b_(e.ir()) {}

  // The polynomial of three weights at the points, over the product of the distances to the other points.
  Values WeightsAt(const Values& g) {
    const auto pair = [&](double x, double distances) {
      Value* even = e_.MulAdd(g[2], Number(x * x / distances), Times(g[0], 1 / distances));
      Value* odd = Times(g[1], x / distances);
      return std::array{b_.CreateFAdd(even, odd), b_.CreateFSub(even, odd)};
    };
    const auto p = pair(kP, 2 * kP2 * (kP2 - kQ2)), q = pair(kQ, 2 * kQ2 * (kQ2 - kP2));
    return {Times(g[0], 1 / (kP2 * kQ2)), p[0], p[1], q[0], q[1], g[2]};
  }

  // The transpose of the map from values at the points to the coefficients of a polynomial of degree five.
  Values ColumnsAt(const Values& d) {
    const auto pair = [&](double x, double other2) {
      Value* even = e_.MulAdd(d[2], Number(-other2), d[4]);
      Value* odd = e_.MulAdd(d[1], Number(-other2), d[3]);
      return std::array{e_.MulAdd(odd, Number(x), even), e_.MulAdd(odd, Number(-x), even)};
    };
    const auto end = [&](int first) {
      Value* sum = e_.MulAdd(d[first + 2], Number(-(kP2 + kQ2)), d[first + 4]);
      return e_.MulAdd(d[first], Number(kP2 * kQ2), sum);
    };
    const auto p = pair(kP, kQ2), q = pair(kQ, kP2);
    return {end(0), p[0], p[1], q[0], q[1], end(1)};
  }

  // Four columns from the six sums.
  Values FromPoints(const Values& m) {
    Value* p_even = b_.CreateFAdd(m[1], m[2]);
    Value* p_odd = b_.CreateFSub(m[1], m[2]);
    Value* q_even = b_.CreateFAdd(m[3], m[4]);
    Value* q_odd = b_.CreateFSub(m[3], m[4]);
    const auto both = [&](Value* p, double p_times, Value* q, double q_times) {
      return e_.MulAdd(q, Number(q_times), Times(p, p_times));
    };
    return {b_.CreateFAdd(m[0], both(p_even, 1, q_even, 1)), both(p_odd, kP, q_odd, kQ), both(p_even, kP2, q_even, kQ2),
            b_.CreateFAdd(m[5], both(p_odd, kP * kP2, q_odd, kQ * kQ2))};
  }

 private:
  Value* Number(double value) { return e_.SplatF32(static_cast<float>(value)); }
  Value* Times(Value* value, double factor) { return factor == 1 ? value : b_.CreateFMul(value, Number(factor)); }

  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

// Lines and tiles of a block make a multiple of the rows of a micro-kernel, where the image is as large.
int64_t ContractionEmitter::WinogradLines() const {
  int64_t lines = spec_.tile.mr;
  while (lines > kLinesMax) lines = (lines + 1) / 2;
  return lines;
}

int64_t ContractionEmitter::WinogradTiles() const {
  const int64_t line = (WinogradLines() + spec_.conv->kernel_h - 1) * kPositions * channels() * 4;
  return std::clamp(kImageBytes / line, kTilesMin, kTilesMax);
}

void ContractionEmitter::EmitWinograd() {
  const int64_t lanes = e_.lanes(), kernel_h = spec_.conv->kernel_h;
  const int64_t image_rows = WinogradRows() + (kernel_h - 1) * WinogradTiles();
  weights_ = NewVectors(e_, kPositions * kernel_h * channels() * spec_.tile.nv);
  image_ = NewVectors(e_, kPositions * image_rows * channels() / lanes);
  sums_ = NewVectors(e_, kPositions * WinogradRows() * spec_.tile.nv);
  finished_ = NewVectors(e_, kColumns);
  e_.LoopFrom(frame_.begin(), frame_.end(), [&](Value* at) {
    const Item first = Decode(at);
    Value* count = TilesTogether(first, at, tiles_);
    Strip strip{PlaceOf(first), nullptr, nullptr};
    strip.begin = strip.place.row;
    Value* end = b_.CreateAdd(strip.begin, b_.CreateMul(count, e_.I64(spec_.tile.mr)));
    Value* m = frame_.Int(spec_.m);
    strip.end = b_.CreateSelect(b_.CreateICmpSLT(end, m), end, m);
    TransformWeights(strip.place);
    EmitStrip(strip);
    return b_.CreateAdd(at, count);
  });
}

void ContractionEmitter::TransformWeights(const Place& place) {
  const int64_t row = channels() * width_, lanes = e_.lanes(), kernel_h = spec_.conv->kernel_h;
  Value* panel = b_.CreateFreeze(
      e_.Address(Base(spec_.b, place.batch), spec_.b.storage, b_.CreateMul(place.column, e_.I64(spec_.k.value))));
  Maps maps(e_);
  e_.Loop(e_.I64(0), e_.I64(kernel_h), 1, {}, [&](Value* down, const Values&) {
    Value* from = e_.Address(panel, DType::kF32, b_.CreateMul(down, e_.I64(kKernel * row)));
    Value* to = e_.Address(weights_, DType::kF32, b_.CreateMul(down, e_.I64(row)));
    e_.Loop(e_.I64(0), e_.I64(row), lanes, {}, [&](Value* i, const Values&) {
      Values weights;
      for (int j = 0; j < kKernel; ++j)
        weights.push_back(e_.Load(DType::kF32, DType::kF32,
                                  e_.Address(from, DType::kF32, b_.CreateAdd(i, e_.I64(j * row))), e_.Full()));
      const Values points = maps.WeightsAt(weights);
      for (int p = 0; p < kPositions; ++p)
        e_.Store(points[p], DType::kF32, DType::kF32,
                 e_.Address(to, DType::kF32, b_.CreateAdd(i, e_.I64(p * kernel_h * row))), e_.Full());
      return Values{};
    });
    return Values{};
  });
}

// Block by block; of a strip within one line only the columns that it has.
void ContractionEmitter::EmitStrip(const Strip& strip) {
  Value* width = frame_.Int(spec_.conv->out_width);
  Value* height = frame_.Int(spec_.conv->out_height);
  Value* image = Base(spec_.a, strip.place.batch);
  Value* first_line = b_.CreateUDiv(strip.begin, width);
  Value* last_line = b_.CreateUDiv(b_.CreateSub(strip.end, e_.I64(1)), width);
  Value* in_one = b_.CreateICmpEQ(first_line, last_line);
  Value* line_begin = b_.CreateMul(first_line, width);
  Value* begin = b_.CreateSelect(in_one, b_.CreateSub(strip.begin, line_begin), e_.I64(0));
  Value* end = b_.CreateSelect(in_one, b_.CreateSub(strip.end, line_begin), width);
  Value* first_tile = b_.CreateUDiv(begin, e_.I64(kColumns));
  Value* end_tile = Ceil(end, kColumns);
  Value* tiles = b_.CreateSub(end_tile, first_tile);
  // In even parts.
  Value* parts = Ceil(tiles, WinogradTiles());
  Value* part = b_.CreateUDiv(b_.CreateAdd(tiles, b_.CreateSub(parts, e_.I64(1))), parts);
  auto smaller = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); };
  e_.LoopFrom(first_line, b_.CreateAdd(last_line, e_.I64(1)), [&](Value* line) {
    WinogradBlock block{};
    block.line = line;
    block.row = b_.CreateURem(line, height);
    block.image = e_.Address(image, spec_.a.storage,
                             b_.CreateMul(b_.CreateUDiv(line, height), frame_.Int(spec_.conv->image_stride)));
    Value* left = smaller(b_.CreateSub(height, block.row), b_.CreateSub(b_.CreateAdd(last_line, e_.I64(1)), line));
    block.lines = Smaller(left, WinogradLines());
    e_.LoopFrom(first_tile, end_tile, [&](Value* tile) {
      block.tile = tile;
      block.tiles = smaller(b_.CreateSub(end_tile, tile), part);
      TransformImage(block);
      MultiplyPositions(block);
      StoreColumns(strip, block);
      return b_.CreateAdd(tile, part);
    });
    return b_.CreateAdd(line, block.lines);
  });
}

// What lies outside the image is 0.
void ContractionEmitter::TransformImage(const WinogradBlock& block) {
  const ir::WindowGeometry& geometry = *spec_.conv;
  const int64_t rows = WinogradRows() + (geometry.kernel_h - 1) * WinogradTiles();
  Value* zeros = frame_.Pointer(spec_.zeros);
  Maps maps(e_);
  auto at = [&](Value* pointer, Value* elements) { return e_.Address(pointer, DType::kF32, elements); };
  Value* lines = b_.CreateAdd(block.lines, e_.I64(geometry.kernel_h - 1));
  e_.Loop(e_.I64(0), lines, 1, {}, [&](Value* line, const Values&) {
    Value* row = b_.CreateSub(b_.CreateAdd(block.row, line), e_.I64(geometry.pad_top));
    // Below 0 is far above any size as an unsigned number.
    Value* row_inside = b_.CreateICmpULT(row, frame_.Int(geometry.in_height));
    Value* from = at(block.image, b_.CreateMul(row, frame_.Int(geometry.row_stride)));
    e_.Loop(e_.I64(0), block.tiles, 1, {}, [&](Value* tile, const Values&) {
      Value* left =
          b_.CreateSub(b_.CreateMul(b_.CreateAdd(block.tile, tile), e_.I64(kColumns)), e_.I64(geometry.pad_left));
      Values columns;
      for (int i = 0; i < kPositions; ++i) {
        Value* column = b_.CreateAdd(left, e_.I64(i));
        Value* inside = b_.CreateAnd(row_inside, b_.CreateICmpULT(column, frame_.Int(geometry.in_width)));
        Value* pointer = at(from, b_.CreateMul(column, frame_.Int(geometry.column_stride)));
        columns.push_back(b_.CreateFreeze(b_.CreateSelect(inside, pointer, zeros)));
      }
      Value* place = b_.CreateAdd(b_.CreateMul(line, block.tiles), tile);
      Value* to = b_.CreateFreeze(at(image_, b_.CreateMul(place, e_.I64(channels()))));
      e_.Loop(e_.I64(0), e_.I64(channels()), e_.lanes(), {}, [&](Value* channel, const Values&) {
        Values values;
        for (Value* column : columns)
          values.push_back(e_.Load(DType::kF32, DType::kF32, at(column, channel), e_.Full()));
        const Values points = maps.ColumnsAt(values);
        for (int p = 0; p < kPositions; ++p)
          e_.Store(points[p], DType::kF32, DType::kF32, at(to, b_.CreateAdd(channel, e_.I64(p * rows * channels()))),
                   e_.Full());
        return Values{};
      });
      return Values{};
    });
    return Values{};
  });
}

// The last micro-kernel of a position may read rows beyond the block: memory of this call, whose sums nobody reads.
void ContractionEmitter::MultiplyPositions(const WinogradBlock& block) {
  const int64_t mr = spec_.tile.mr, kernel_h = spec_.conv->kernel_h;
  const int64_t image_rows = WinogradRows() + (kernel_h - 1) * WinogradTiles();
  MicroKernel kernel = KernelWith({});
  const std::vector<Active> columns(static_cast<size_t>(spec_.tile.nv), e_.Full());
  Value* count = Ceil(b_.CreateMul(block.lines, block.tiles), mr);
  Value* line = b_.CreateMul(block.tiles, e_.I64(channels()));
  e_.Loop(e_.I64(0), e_.I64(kPositions), 1, {}, [&](Value* position, const Values&) {
    Value* image = e_.Address(image_, DType::kF32, b_.CreateMul(position, e_.I64(image_rows * channels())));
    Value* weights = e_.Address(weights_, DType::kF32, b_.CreateMul(position, e_.I64(kernel_h * channels() * width_)));
    Value* to = VectorAt(e_, sums_, b_.CreateMul(position, e_.I64(WinogradRows() * spec_.tile.nv)));
    e_.Loop(e_.I64(0), count, 1, {}, [&](Value* tile, const Values&) {
      Value* rows = e_.Address(image, DType::kF32, b_.CreateMul(tile, e_.I64(mr * channels())));
      Values state = kernel.Zero();
      state.push_back(weights);
      state = e_.Loop(e_.I64(0), e_.I64(kernel_h), 1, state, [&](Value* down, const Values& current) {
        const TileRows a{{e_.Address(rows, DType::kF32, b_.CreateMul(down, line))}, channels()};
        return Accumulated(kernel, a, e_.I64(channels()), columns, current);
      });
      state.pop_back();
      StoreVectors(e_, kernel.Finish(state), VectorAt(e_, to, b_.CreateMul(tile, e_.I64(tile_vectors()))));
      return Values{};
    });
    return Values{};
  });
}

// A vector of the sums of one position; `row`: the first vector of position 0.
Value* ContractionEmitter::PositionSums(Value* row, int position) {
  Value* address = VectorAt(e_, row, e_.I64(position * WinogradRows() * spec_.tile.nv));
  return b_.CreateLoad(e_.VectorType(DType::kF32), address);
}

// Whether any of a tile's sums is no number of a size that FromPoints can work with, as an i1.
Value* ContractionEmitter::LeavesRange(Value* sums) {
  Value* any = nullptr;
  for (int j = 0; j < spec_.tile.nv; ++j)
    for (int p = 0; p < kPositions; ++p) {
      Value* size = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, PositionSums(VectorAt(e_, sums, e_.I64(j)), p));
      Value* leaves = b_.CreateFCmpUGT(size, e_.SplatF32(kLargestSum));
      any = any == nullptr ? leaves : b_.CreateOr(any, leaves);
    }
  return b_.CreateOrReduce(any);
}

// The columns of every tile that are in the strip.
void ContractionEmitter::StoreColumns(const Strip& strip, const WinogradBlock& block) {
  Value* width = frame_.Int(spec_.conv->out_width);
  auto smaller = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); };
  e_.Loop(e_.I64(0), block.lines, 1, {}, [&](Value* line, const Values&) {
    Value* line_begin = b_.CreateMul(b_.CreateAdd(block.line, line), width);
    e_.Loop(e_.I64(0), block.tiles, 1, {}, [&](Value* tile, const Values&) {
      Value* column = b_.CreateMul(b_.CreateAdd(block.tile, tile), e_.I64(kColumns));
      Value* pixel = b_.CreateAdd(line_begin, column);
      Value* before = Larger(b_.CreateSub(strip.begin, pixel), 0);
      Value* end = smaller(Smaller(b_.CreateSub(width, column), kColumns), b_.CreateSub(strip.end, pixel));
      e_.If(b_.CreateICmpSLT(before, end), [&] {
        Value* place = b_.CreateAdd(b_.CreateMul(line, block.tiles), tile);
        Value* sums = b_.CreateFreeze(VectorAt(e_, sums_, b_.CreateMul(place, e_.I64(spec_.tile.nv))));
        Place pixels = strip.place;
        pixels.row = b_.CreateAdd(pixel, before);
        pixels.rows = b_.CreateSub(end, before);
        e_.IfElse(
            LeavesRange(sums),
            [&] {
              StoreFromBuffer(pixels, KnownPanel(), Sums(pixels, KnownPanel()));
              return Values{};
            },
            [&] {
              StoreFinite(pixels, before, sums);
              return Values{};
            });
      });
      return Values{};
    });
    return Values{};
  });
}

// `before`: columns of the tile in front of the first pixel.
void ContractionEmitter::StoreFinite(const Place& pixels, Value* before, Value* sums) {
  Maps maps(e_);
  const Epilogue::Position origin = Origin(pixels);
  Value* whole = b_.CreateICmpEQ(pixels.rows, e_.I64(kColumns));
  EmitColumns(pixels, KnownPanel(), [&](Value* j, const Active& active) {
    Values points;
    for (int p = 0; p < kPositions; ++p) points.push_back(PositionSums(VectorAt(e_, sums, j), p));
    const Values finished = maps.FromPoints(points);
    const Epilogue::Position column = epilogue_.Moved(origin, column_dim(), b_.CreateMul(j, Lanes(1)));
    auto one_by_one = [&] {
      StoreVectors(e_, finished, finished_);
      e_.Loop(e_.I64(0), pixels.rows, 1, {}, [&](Value* i, const Values&) {
        Value* sum = b_.CreateLoad(e_.VectorType(DType::kF32), VectorAt(e_, finished_, b_.CreateAdd(before, i)));
        epilogue_.Emit(epilogue_.Moved(column, row_dim(), i), sum, active);
        return Values{};
      });
      return Values{};
    };
    if (!epilogue_.is_short(kColumns)) {
      one_by_one();
      return;
    }
    e_.IfElse(
        whole,
        [&] {
          Epilogue::SharedLoads shared(spec_.epilogue.size(), nullptr);
          for (int i = 0; i < kColumns; ++i)
            epilogue_.Emit(epilogue_.Moved(column, row_dim(), e_.I64(i)), finished[static_cast<size_t>(i)], active,
                           &shared, row_dim());
          return Values{};
        },
        one_by_one);
  });
}

}  // namespace kiln::codegen
