#include "compile-service/codegen/llvm/window.h"

#include <limits>
#include <utility>
#include <vector>

#include "compile-service/codegen/llvm/contraction_epilogue.h"

namespace kiln::codegen {
namespace {

using llvm::Value;
using Values = VectorEmitter::Values;

// A block is emitted straight-line over its columns and kernel columns: wider kernels run column by column, in a loop.
constexpr int kUnrolledKernel = 16;

class WindowEmitter {
 public:
  WindowEmitter(KernelFrame& frame, const ir::WindowSpec& spec)
      : frame_(frame),
        e_(frame.emitter()),
        b_(frame.emitter().ir()),
        spec_(spec),
        geometry_(spec.geometry),
        epilogue_(frame, spec.accesses, spec.epilogue, spec.stores) {}

  void Emit();

 private:
  // Kernel positions first..last - 1 along one dim lie inside the image.
  struct Inside {
    Value* first;
    Value* last;
  };
  struct Row {
    Inside kernel_rows;
    Value* input;               // kernel position (0, 0) of out column 0; may lie outside the image
    Epilogue::Position origin;  // of out column 0, channel 0
  };

  Row RowOf(Value* image, Value* out_row);
  void EmitRow(const Row& row);
  // Whether all columns of a block exist and see only the image (kInside), or each load and store asks (kEdge).
  enum class Block { kInside, kEdge };
  void EmitBlock(const Row& row, Value* out_column, int columns, Block block);
  Values AddLine(Value* down, Value* channel, const Active& active, const Row& row, Value* out_column, Block block,
                 Values sums);
  void EmitPixel(const Row& row, Value* out_column);
  void Finish(const Row& row, Value* out_column, Value* channel, const Active& active, Value* result);
  Value* Positions(const Row& row, Value* out_column);
  // Calls `body` once or twice with code for a vector of channels.
  void EmitChannels(const std::function<void(Value* channel, const Active& active)>& body);

  Inside InsideOf(Value* start, const ir::SpecInt& extent, int32_t kernel, int32_t dilation);
  Inside KernelColumns(Value* out_column) {
    Value* left = b_.CreateSub(b_.CreateMul(out_column, e_.I64(geometry_.stride_w)), e_.I64(geometry_.pad_left));
    return InsideOf(left, geometry_.in_width, geometry_.kernel_w, geometry_.dilation_w);
  }
  // The out columns [first, last) whose windows lie inside the image.
  Inside InteriorColumns();
  int BlockColumns() const;
  Value* Start() const;
  Value* Combine(Value* sum, Value* input, Value* weight);
  Value* LoadInput(Value* address, const Active& active) {
    return e_.Load(spec_.input.storage, DType::kF32, address, active);
  }
  Value* Weight(Value* tap, Value* channel, const Active& active);
  Value* Input(Value* pointer, Value* elements) { return e_.Address(pointer, spec_.input.storage, elements); }

  Value* Times(Value* a, const ir::SpecInt& b) { return b_.CreateMul(a, frame_.Int(b)); }
  Value* Smaller(Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); }
  Value* Larger(Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b); }
  Value* Ceil(Value* a, int64_t divisor) {
    return divisor == 1 ? a : b_.CreateUDiv(b_.CreateAdd(a, e_.I64(divisor - 1)), e_.I64(divisor));
  }

  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const ir::WindowSpec& spec_;
  const ir::WindowGeometry& geometry_;
  Epilogue epilogue_;
};

void WindowEmitter::Emit() {
  Value* out_height = frame_.Int(geometry_.out_height);
  Values start = {b_.CreateUDiv(frame_.begin(), out_height), b_.CreateURem(frame_.begin(), out_height)};
  e_.Loop(frame_.begin(), frame_.end(), 1, start, [&](Value*, const Values& current) {
    Value* image = current[0];
    Value* out_row = current[1];
    EmitRow(RowOf(image, out_row));
    Value* next = b_.CreateAdd(out_row, e_.I64(1));
    Value* wraps = b_.CreateICmpEQ(next, out_height);
    return Values{b_.CreateAdd(image, b_.CreateZExt(wraps, b_.getInt64Ty())), b_.CreateSelect(wraps, e_.I64(0), next)};
  });
}

WindowEmitter::Row WindowEmitter::RowOf(Value* image, Value* out_row) {
  Row row;
  Value* top = b_.CreateSub(b_.CreateMul(out_row, e_.I64(geometry_.stride_h)), e_.I64(geometry_.pad_top));
  row.kernel_rows = InsideOf(top, geometry_.in_height, geometry_.kernel_h, geometry_.dilation_h);
  Value* offset = b_.CreateAdd(Times(image, geometry_.image_stride), Times(top, geometry_.row_stride));
  offset = b_.CreateSub(offset, Times(e_.I64(geometry_.pad_left), geometry_.column_stride));
  // Frozen, so that loop strength reduction does not take it apart (see MicroKernel::Accumulate).
  row.input = b_.CreateFreeze(Input(frame_.Pointer(spec_.input.pointer), offset));
  row.origin = epilogue_.At({image, out_row, e_.I64(0), e_.I64(0)});
  return row;
}

void WindowEmitter::EmitRow(const Row& row) {
  Value* out_width = frame_.Int(geometry_.out_width);
  const int columns = BlockColumns();
  if (columns == 0) {
    e_.Loop(e_.I64(0), out_width, 1, {}, [&](Value* out_column, const Values&) {
      EmitPixel(row, out_column);
      return Values{};
    });
    return;
  }
  Inside interior = InteriorColumns();
  Value* last_start = b_.CreateSub(interior.last, e_.I64(columns));
  e_.Loop(e_.I64(0), out_width, columns, {}, [&](Value* out_column, const Values&) {
    Value* inside =
        b_.CreateAnd(b_.CreateICmpSGE(out_column, interior.first), b_.CreateICmpSLE(out_column, last_start));
    e_.IfElse(
        inside,
        [&] {
          EmitBlock(row, out_column, columns, Block::kInside);
          return Values{};
        },
        [&] {
          EmitBlock(row, out_column, columns, Block::kEdge);
          return Values{};
        });
    return Values{};
  });
}

void WindowEmitter::EmitBlock(const Row& row, Value* out_column, int columns, Block block) {
  EmitChannels([&](Value* channel, const Active& active) {
    Values sums(static_cast<size_t>(columns), Start());
    sums = e_.Loop(row.kernel_rows.first, row.kernel_rows.last, 1, sums, [&](Value* down, const Values& current) {
      return AddLine(down, channel, active, row, out_column, block, current);
    });
    for (int j = 0; j < columns; ++j) {
      Value* column = b_.CreateAdd(out_column, e_.I64(j));
      auto finish = [&] { Finish(row, column, channel, active, sums[j]); };
      if (block == Block::kInside || j == 0) {
        finish();
      } else {
        e_.If(b_.CreateICmpSLT(column, frame_.Int(geometry_.out_width)), finish);
      }
    }
  });
}

// One kernel row for a block: input columns from left to right, each for every output that its distance allows.
Values WindowEmitter::AddLine(Value* down, Value* channel, const Active& active, const Row& row, Value* out_column,
                              Block block, Values sums) {
  const int kernel = geometry_.kernel_w, columns = static_cast<int>(sums.size());
  Value* in_column = b_.CreateMul(out_column, e_.I64(geometry_.stride_w));  // from the left padding on
  Value* offset = b_.CreateAdd(Times(b_.CreateMul(down, e_.I64(geometry_.dilation_h)), geometry_.row_stride),
                               Times(in_column, geometry_.column_stride));
  Value* line = Input(row.input, b_.CreateAdd(offset, channel));
  Values weights;
  for (int k = 0; spec_.weights && k < kernel; ++k)
    weights.push_back(Weight(b_.CreateAdd(b_.CreateMul(down, e_.I64(kernel)), e_.I64(k)), channel, active));
  const int span = (columns - 1) * geometry_.stride_w + (kernel - 1) * geometry_.dilation_w + 1;
  for (int p = 0; p < span; ++p) {
    std::vector<std::pair<int, int>> uses;  // output column of the block, kernel column
    for (int j = 0; j < columns; ++j) {
      const int distance = p - j * geometry_.stride_w;
      if (distance >= 0 && distance % geometry_.dilation_w == 0 && distance / geometry_.dilation_w < kernel)
        uses.emplace_back(j, distance / geometry_.dilation_w);
    }
    if (uses.empty()) continue;
    auto add = [&] {
      Values next = sums;
      Value* input = LoadInput(Input(line, Times(e_.I64(p), geometry_.column_stride)), active);
      for (auto [j, k] : uses) next[j] = Combine(next[j], input, spec_.weights ? weights[k] : nullptr);
      return next;
    };
    if (block == Block::kInside) {
      sums = add();
      continue;
    }
    // Left of the image is far right of it as an unsigned number.
    Value* place = b_.CreateAdd(in_column, e_.I64(p - geometry_.pad_left));
    sums = e_.IfElse(b_.CreateICmpULT(place, frame_.Int(geometry_.in_width)), add, [&] { return sums; });
  }
  return sums;
}

void WindowEmitter::EmitPixel(const Row& row, Value* out_column) {
  Value* shift = b_.CreateMul(out_column, e_.I64(geometry_.stride_w));
  Inside kernel_columns = KernelColumns(out_column);
  Value* pixel = Input(row.input, Times(shift, geometry_.column_stride));
  EmitChannels([&](Value* channel, const Active& active) {
    Values sum =
        e_.Loop(row.kernel_rows.first, row.kernel_rows.last, 1, {Start()}, [&](Value* down, const Values& outer) {
          Value* offset = Times(b_.CreateMul(down, e_.I64(geometry_.dilation_h)), geometry_.row_stride);
          Value* line = Input(pixel, b_.CreateAdd(offset, channel));
          return e_.Loop(kernel_columns.first, kernel_columns.last, 1, outer, [&](Value* right, const Values& inner) {
            Value* distance = Times(b_.CreateMul(right, e_.I64(geometry_.dilation_w)), geometry_.column_stride);
            Value* input = LoadInput(Input(line, distance), active);
            Value* tap = b_.CreateAdd(b_.CreateMul(down, e_.I64(geometry_.kernel_w)), right);
            return Values{Combine(inner[0], input, spec_.weights ? Weight(tap, channel, active) : nullptr)};
          });
        });
    Finish(row, out_column, channel, active, sum[0]);
  });
}

void WindowEmitter::Finish(const Row& row, Value* out_column, Value* channel, const Active& active, Value* result) {
  if (spec_.average) {
    Value* count = b_.CreateSIToFP(Positions(row, out_column), b_.getFloatTy());
    result = b_.CreateFDiv(result, e_.Splat(count));
  }
  constexpr size_t kColumn = 2, kChannel = 3;
  epilogue_.Emit(epilogue_.Moved(epilogue_.Moved(row.origin, kColumn, out_column), kChannel, channel), result, active);
}

Value* WindowEmitter::Positions(const Row& row, Value* out_column) {
  if (spec_.count_include_pad) return e_.I64(int64_t{geometry_.kernel_h} * geometry_.kernel_w);
  auto count = [&](const Inside& inside) { return Larger(b_.CreateSub(inside.last, inside.first), e_.I64(0)); };
  return Larger(b_.CreateMul(count(row.kernel_rows), count(KernelColumns(out_column))), e_.I64(1));
}

void WindowEmitter::EmitChannels(const std::function<void(Value* channel, const Active& active)>& body) {
  Value* channels = frame_.Int(spec_.channels);
  const int64_t lanes = e_.lanes();
  Value* zero = e_.I64(0);
  bool whole = !spec_.channels.is_argument && spec_.channels.value % lanes == 0;
  if (!whole && e_.has_avx512()) {
    // Masks cost nothing: one copy of the code serves whole and partial vectors.
    e_.Loop(zero, channels, lanes, {}, [&](Value* channel, const Values&) {
      body(channel, e_.First(Smaller(b_.CreateSub(channels, channel), e_.I64(lanes))));
      return Values{};
    });
    return;
  }
  Value* end = whole ? channels : b_.CreateAnd(channels, e_.I64(-lanes));
  e_.Loop(zero, end, lanes, {}, [&](Value* channel, const Values&) {
    body(channel, e_.Full());
    return Values{};
  });
  if (whole) return;
  Value* left = b_.CreateSub(channels, end);
  e_.If(b_.CreateICmpSGT(left, zero), [&] { body(end, e_.First(left)); });
}

WindowEmitter::Inside WindowEmitter::InsideOf(Value* start, const ir::SpecInt& extent, int32_t kernel,
                                              int32_t dilation) {
  Value* zero = e_.I64(0);
  Value* missing = Larger(b_.CreateNeg(start), zero);
  Value* available = Larger(b_.CreateSub(frame_.Int(extent), start), zero);
  return {Ceil(missing, dilation), Smaller(Ceil(available, dilation), e_.I64(kernel))};
}

WindowEmitter::Inside WindowEmitter::InteriorColumns() {
  const int64_t stride = geometry_.stride_w;
  Value* out_width = frame_.Int(geometry_.out_width);
  Value* first = Smaller(e_.I64((geometry_.pad_left + stride - 1) / stride), out_width);
  // Column x is inside while x * stride - pad_left + reach <= in_width.
  const int64_t reach = int64_t{geometry_.kernel_w - 1} * geometry_.dilation_w + 1;
  Value* room = b_.CreateSub(frame_.Int(geometry_.in_width), e_.I64(reach - geometry_.pad_left));
  Value* fitting = b_.CreateAdd(b_.CreateUDiv(Larger(room, e_.I64(0)), e_.I64(stride)), e_.I64(1));
  fitting = b_.CreateSelect(b_.CreateICmpSLT(room, e_.I64(0)), e_.I64(0), fitting);
  return {first, Larger(Smaller(fitting, out_width), first)};
}

// What the registers hold; fewer when a known width then needs no more blocks. 0: the kernel is too wide to unroll.
int WindowEmitter::BlockColumns() const {
  if (geometry_.kernel_w > kUnrolledKernel) return 0;
  const int most = spec_.out_columns > 0 ? spec_.out_columns : e_.has_avx512() ? 8 : 4;
  if (geometry_.out_width.is_argument || geometry_.out_width.value < 1) return most;
  const int64_t width = geometry_.out_width.value, blocks = (width + most - 1) / most;
  return static_cast<int>((width + blocks - 1) / blocks);
}

Value* WindowEmitter::Start() const {
  switch (spec_.combine) {
    case ir::Combine::kSum:
      return e_.Zero(DType::kF32);
    case ir::Combine::kProduct:
      return e_.SplatF32(1);
    case ir::Combine::kMax:
      return e_.SplatF32(-std::numeric_limits<float>::infinity());
    case ir::Combine::kMin:
      return e_.SplatF32(std::numeric_limits<float>::infinity());
  }
  __builtin_unreachable();
}

Value* WindowEmitter::Combine(Value* sum, Value* input, Value* weight) {
  switch (spec_.combine) {
    case ir::Combine::kSum:
      return weight ? e_.MulAdd(input, weight, sum) : b_.CreateFAdd(sum, input);
    case ir::Combine::kProduct:
      return b_.CreateFMul(sum, input);
    case ir::Combine::kMax:
      return e_.Maximum(sum, input, DType::kF32);
    case ir::Combine::kMin:
      return e_.Minimum(sum, input, DType::kF32);
  }
  __builtin_unreachable();
}

Value* WindowEmitter::Weight(Value* tap, Value* channel, const Active& active) {
  const ir::Access& weights = *spec_.weights;
  Value* offset = b_.CreateAdd(Times(tap, weights.strides[0]), Times(channel, weights.strides[1]));
  Value* address = e_.Address(frame_.Pointer(weights.pointer), weights.storage, offset);
  if (weights.strides[1] == ir::SpecInt::Const(1)) return e_.Load(weights.storage, DType::kF32, address, active);
  return e_.LoadStrided(weights.storage, DType::kF32, address, frame_.Int(weights.strides[1]), active);
}

}  // namespace

void EmitWindow(KernelFrame& frame, const ir::WindowSpec& spec) {
  WindowEmitter(frame, spec).Emit();
}

}  // namespace kiln::codegen
