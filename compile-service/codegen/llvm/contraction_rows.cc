#include "compile-service/codegen/llvm/contraction_rows.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace kiln::codegen {

using llvm::ConstantInt;
using llvm::Value;

TileRows StridedRows(VectorEmitter& emitter, DType storage, Value* first, Value* stride, Value* rows, int mr) {
  llvm::IRBuilder<>& b = emitter.ir();
  auto* known_rows = llvm::dyn_cast<ConstantInt>(rows);
  auto* known_stride = llvm::dyn_cast<ConstantInt>(stride);
  if (known_stride && known_rows && known_rows->getSExtValue() >= mr) return {{first}, known_stride->getSExtValue()};
  TileRows result;
  Value* last = b.CreateSub(rows, emitter.I64(1));
  for (int i = 0; i < mr; ++i) {
    Value* row = emitter.I64(i);
    if (!known_rows && i > 0) row = b.CreateSelect(b.CreateICmpSLT(row, last), row, last);
    if (known_rows) row = emitter.I64(std::min<int64_t>(i, known_rows->getSExtValue() - 1));
    result.pointers.push_back(emitter.Address(first, storage, b.CreateMul(row, stride)));
  }
  // One pointer means rows at `row_stride` from it, which is right for a single row too.
  return result;
}

namespace {

// Doubles of this size have a spacing of 1: adding it to a whole number of at most 51 bits leaves the number in the low
// bits.
constexpr double kWholeNumberBias = 0x1.8p52;

}  // namespace

PixelRows::PixelRows(KernelFrame& frame, const ir::WindowGeometry& geometry, DType storage, int mr, Value* m,
                     Value* zeros)
    : frame_(frame),
      e_(frame.emitter()),
      b_(frame.emitter().ir()),
      geometry_(geometry),
      storage_(storage),
      mr_(mr),
      in_line_(!geometry.out_width.is_argument && geometry.out_width.value > 0 && geometry.out_width.value % mr == 0 &&
               !geometry.column_stride.is_argument),
      lanes_(in_line_ && !zeros ? 1 : static_cast<unsigned>(llvm::PowerOf2Ceil(static_cast<uint64_t>(mr)))),
      zeros_(zeros),
      last_(Number(b_.CreateSub(m, e_.I64(1)))),
      out_width_(Number(frame.Int(geometry.out_width))),
      out_height_(Number(frame.Int(geometry.out_height))),
      width_inverse_(b_.CreateFDiv(Number(1.0), out_width_)),
      height_inverse_(b_.CreateFDiv(Number(1.0), out_height_)),
      image_stride_(Number(frame.Int(geometry.image_stride))),
      row_stride_(Number(frame.Int(geometry.row_stride))),
      column_stride_(Number(frame.Int(geometry.column_stride))) {}

// For whole a >= 0 below 2^50 the middle of [a, a + 1) keeps clear of every multiple of the divisor by more than the
// rounding.
Value* PixelRows::Quotient(Value* a, Value* inverse) {
  Value* middle = b_.CreateFAdd(a, All(Number(0.5)));
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, b_.CreateFMul(middle, All(inverse)));
}

Value* PixelRows::Whole(Value* doubles) {
  llvm::Type* integers = llvm::FixedVectorType::get(b_.getInt64Ty(), lanes_);
  Value* bias = All(Number(kWholeNumberBias));
  return b_.CreateSub(b_.CreateBitCast(b_.CreateFAdd(doubles, bias), integers), b_.CreateBitCast(bias, integers));
}

void PixelRows::Locate(Value* first, Value* image) {
  image_ = image;
  std::vector<llvm::Constant*> counts;
  for (unsigned i = 0; i < lanes_; ++i) counts.push_back(llvm::ConstantFP::get(b_.getDoubleTy(), i));
  Value* pixel = b_.CreateFAdd(All(Number(first)), llvm::ConstantVector::get(counts));
  pixel = b_.CreateSelect(b_.CreateFCmpOLT(pixel, All(last_)), pixel, All(last_));

  auto scaled = [&](Value* value, double factor, double less) {
    return b_.CreateFSub(b_.CreateFMul(value, All(Number(factor))), All(Number(less)));
  };
  Value* line = Quotient(pixel, width_inverse_);
  Value* number = Quotient(line, height_inverse_);
  Value* column = b_.CreateFSub(pixel, b_.CreateFMul(line, All(out_width_)));
  Value* row = b_.CreateFSub(line, b_.CreateFMul(number, All(out_height_)));
  row = scaled(row, geometry_.stride_h, geometry_.pad_top);
  column = scaled(column, geometry_.stride_w, geometry_.pad_left);
  Value* offset = b_.CreateFMul(number, All(image_stride_));
  offset = b_.CreateFAdd(offset, b_.CreateFMul(row, All(row_stride_)));
  offset = b_.CreateFAdd(offset, b_.CreateFMul(column, All(column_stride_)));
  offsets_ = Whole(offset);
  if (!zeros_) return;
  rows_ = Whole(row);
  columns_ = Whole(column);
}

Value* PixelRows::AllInside() {
  if (!zeros_) return b_.getTrue();
  Value* inside = b_.getTrue();
  auto restrict = [&](Value* coordinates, const ir::SpecInt& size, int32_t kernel, int32_t dilation) {
    Value* limit = b_.CreateSub(frame_.Int(size), e_.I64(int64_t{kernel - 1} * dilation));
    Value* lanes =
        b_.CreateAnd(b_.CreateICmpSGE(coordinates, All(e_.I64(0))), b_.CreateICmpSLT(coordinates, All(limit)));
    inside = b_.CreateAnd(inside, b_.CreateAndReduce(lanes));
  };
  restrict(rows_, geometry_.in_height, geometry_.kernel_h, geometry_.dilation_h);
  restrict(columns_, geometry_.in_width, geometry_.kernel_w, geometry_.dilation_w);
  return inside;
}

TileRows PixelRows::At(Value* kernel_row, Value* kernel_column, bool ask) {
  Value* down = b_.CreateMul(kernel_row, e_.I64(geometry_.dilation_h));
  Value* right = b_.CreateMul(kernel_column, e_.I64(geometry_.dilation_w));
  Value* move = b_.CreateAdd(b_.CreateMul(down, frame_.Int(geometry_.row_stride)),
                             b_.CreateMul(right, frame_.Int(geometry_.column_stride)));
  Value* pointers = e_.Address(e_.Address(image_, storage_, move), storage_, offsets_);
  if (ask) {
    // Below 0 is far above any size as an unsigned number.
    Value* row_inside = b_.CreateICmpULT(b_.CreateAdd(rows_, All(down)), All(frame_.Int(geometry_.in_height)));
    Value* column_inside = b_.CreateICmpULT(b_.CreateAdd(columns_, All(right)), All(frame_.Int(geometry_.in_width)));
    pointers = b_.CreateSelect(b_.CreateAnd(row_inside, column_inside), pointers, All(zeros_));
  }
  TileRows result;
  if (in_line_ && !ask) {
    // At the end of m the pixels of the line that are beyond it are read all the same.
    result.pointers = {b_.CreateExtractElement(pointers, uint64_t{0})};
    result.row_stride = geometry_.stride_w * geometry_.column_stride.value;
    return result;
  }
  for (int i = 0; i < mr_; ++i) result.pointers.push_back(b_.CreateExtractElement(pointers, static_cast<uint64_t>(i)));
  return result;
}

}  // namespace kiln::codegen
