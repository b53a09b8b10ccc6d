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

// Doubles of this size have a spacing of 1: adding it to a whole number of at most 51 bits leaves the number in the low bits.
constexpr double kWholeNumberBias = 0x1.8p52;

}  // namespace

PixelRows::PixelRows(KernelFrame& frame, const ir::WindowGeometry& geometry, DType storage, int mr, Value* m, Value* image,
                     Value* zeros)
    : frame_(frame),
      e_(frame.emitter()),
      b_(frame.emitter().ir()),
      geometry_(geometry),
      storage_(storage),
      mr_(mr),
      lanes_(static_cast<unsigned>(llvm::PowerOf2Ceil(static_cast<uint64_t>(mr)))),
      m_(m),
      image_(image),
      zeros_(zeros) {}

Value* PixelRows::Double(Value* integer) { return All(b_.CreateSIToFP(integer, b_.getDoubleTy())); }
Value* PixelRows::Double(double value) { return All(llvm::ConstantFP::get(b_.getDoubleTy(), value)); }

// For whole a >= 0 below 2^50 the middle of [a, a + 1) keeps clear of every multiple of b by more than the product's rounding.
Value* PixelRows::Quotient(Value* a, Value* b) {
  Value* inverse = b_.CreateFDiv(Double(1), b);
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, b_.CreateFMul(b_.CreateFAdd(a, Double(0.5)), inverse));
}

Value* PixelRows::Whole(Value* doubles) {
  llvm::Type* integers = llvm::FixedVectorType::get(b_.getInt64Ty(), lanes_);
  Value* biased = b_.CreateBitCast(b_.CreateFAdd(doubles, Double(kWholeNumberBias)), integers);
  return b_.CreateSub(biased, b_.CreateBitCast(Double(kWholeNumberBias), integers));
}

void PixelRows::Locate(Value* first) {
  std::vector<llvm::Constant*> counts;
  for (unsigned i = 0; i < lanes_; ++i) counts.push_back(llvm::ConstantFP::get(b_.getDoubleTy(), i));
  Value* pixel = b_.CreateFAdd(Double(first), llvm::ConstantVector::get(counts));
  Value* last = Double(b_.CreateSub(m_, e_.I64(1)));
  pixel = b_.CreateSelect(b_.CreateFCmpOLT(pixel, last), pixel, last);

  Value* out_width = Double(frame_.Int(geometry_.out_width));
  Value* out_height = Double(frame_.Int(geometry_.out_height));
  Value* line = Quotient(pixel, out_width);
  Value* image = Quotient(line, out_height);
  Value* column = b_.CreateFSub(pixel, b_.CreateFMul(line, out_width));
  Value* row = b_.CreateFSub(line, b_.CreateFMul(image, out_height));
  row = b_.CreateFSub(b_.CreateFMul(row, Double(geometry_.stride_h)), Double(geometry_.pad_top));
  column = b_.CreateFSub(b_.CreateFMul(column, Double(geometry_.stride_w)), Double(geometry_.pad_left));
  Value* offset = b_.CreateFMul(image, Double(frame_.Int(geometry_.image_stride)));
  offset = b_.CreateFAdd(offset, b_.CreateFMul(row, Double(frame_.Int(geometry_.row_stride))));
  offset = b_.CreateFAdd(offset, b_.CreateFMul(column, Double(frame_.Int(geometry_.column_stride))));
  offsets_ = Whole(offset);
  if (!zeros_) return;
  rows_ = Whole(row);
  columns_ = Whole(column);
}

TileRows PixelRows::At(Value* kernel_row, Value* kernel_column) {
  Value* down = b_.CreateMul(kernel_row, e_.I64(geometry_.dilation_h));
  Value* right = b_.CreateMul(kernel_column, e_.I64(geometry_.dilation_w));
  Value* move = b_.CreateAdd(b_.CreateMul(down, frame_.Int(geometry_.row_stride)),
                             b_.CreateMul(right, frame_.Int(geometry_.column_stride)));
  Value* pointers = e_.Address(e_.Address(image_, storage_, move), storage_, offsets_);
  if (zeros_) {
    // Below 0 is far above any size as an unsigned number.
    Value* row_inside = b_.CreateICmpULT(b_.CreateAdd(rows_, All(down)), All(frame_.Int(geometry_.in_height)));
    Value* column_inside = b_.CreateICmpULT(b_.CreateAdd(columns_, All(right)), All(frame_.Int(geometry_.in_width)));
    pointers = b_.CreateSelect(b_.CreateAnd(row_inside, column_inside), pointers, All(zeros_));
  }
  TileRows result;
  for (int i = 0; i < mr_; ++i) result.pointers.push_back(b_.CreateExtractElement(pointers, static_cast<uint64_t>(i)));
  return result;
}

}  // namespace kiln::codegen
