#include "compile-service/codegen/llvm/contraction_rows.h"

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

PixelRows::PixelRows(KernelFrame& frame, const ir::WindowGeometry& geometry, DType storage, Value* image, Value* zeros)
    : frame_(frame), e_(frame.emitter()), b_(frame.emitter().ir()), geometry_(geometry), storage_(storage), image_(image), zeros_(zeros) {}

void PixelRows::Locate(Value* first, Value* rows, int mr) {
  Value* zero = e_.I64(0);
  Value* out_height = frame_.Int(geometry_.out_height);
  Value* out_width = frame_.Int(geometry_.out_width);
  Value* column = b_.CreateURem(first, out_width);
  Value* line = b_.CreateUDiv(first, out_width);
  Value* row = b_.CreateURem(line, out_height);
  Value* image = b_.CreateUDiv(line, out_height);
  llvm::Type* numbers = llvm::FixedVectorType::get(b_.getInt64Ty(), static_cast<unsigned>(mr));
  rows_ = columns_ = images_ = llvm::PoisonValue::get(numbers);
  for (int i = 0; i < mr; ++i) {
    if (i > 0) {
      // The next pixel, unless the rows of the tile have ended.
      Value* step = b_.CreateZExt(b_.CreateICmpSLT(e_.I64(i), rows), b_.getInt64Ty());
      Value* next_column = b_.CreateAdd(column, step);
      Value* line_end = b_.CreateICmpEQ(next_column, out_width);
      column = b_.CreateSelect(line_end, zero, next_column);
      Value* next_row = b_.CreateAdd(row, b_.CreateZExt(line_end, b_.getInt64Ty()));
      Value* image_end = b_.CreateICmpEQ(next_row, out_height);
      row = b_.CreateSelect(image_end, zero, next_row);
      image = b_.CreateAdd(image, b_.CreateZExt(image_end, b_.getInt64Ty()));
    }
    rows_ = b_.CreateInsertElement(rows_, row, static_cast<uint64_t>(i));
    columns_ = b_.CreateInsertElement(columns_, column, static_cast<uint64_t>(i));
    images_ = b_.CreateInsertElement(images_, image, static_cast<uint64_t>(i));
  }
  auto all = [&](Value* scalar) { return b_.CreateVectorSplat(static_cast<unsigned>(mr), scalar); };
  rows_ = b_.CreateSub(b_.CreateMul(rows_, all(e_.I64(geometry_.stride_h))), all(e_.I64(geometry_.pad_top)));
  columns_ = b_.CreateSub(b_.CreateMul(columns_, all(e_.I64(geometry_.stride_w))), all(e_.I64(geometry_.pad_left)));
  offsets_ = b_.CreateMul(images_, all(frame_.Int(geometry_.image_stride)));
  offsets_ = b_.CreateAdd(offsets_, b_.CreateMul(rows_, all(frame_.Int(geometry_.row_stride))));
  offsets_ = b_.CreateAdd(offsets_, b_.CreateMul(columns_, all(frame_.Int(geometry_.column_stride))));
  count_ = mr;
}

TileRows PixelRows::At(Value* kernel_row, Value* kernel_column) {
  auto all = [&](Value* scalar) { return b_.CreateVectorSplat(static_cast<unsigned>(count_), scalar); };
  Value* down = b_.CreateMul(kernel_row, e_.I64(geometry_.dilation_h));
  Value* right = b_.CreateMul(kernel_column, e_.I64(geometry_.dilation_w));
  Value* move = b_.CreateAdd(b_.CreateMul(down, frame_.Int(geometry_.row_stride)),
                             b_.CreateMul(right, frame_.Int(geometry_.column_stride)));
  Value* pointers = e_.Address(e_.Address(image_, storage_, move), storage_, offsets_);
  if (zeros_) {
    // Below 0 is far above any size as an unsigned number.
    Value* row_inside = b_.CreateICmpULT(b_.CreateAdd(rows_, all(down)), all(frame_.Int(geometry_.in_height)));
    Value* column_inside = b_.CreateICmpULT(b_.CreateAdd(columns_, all(right)), all(frame_.Int(geometry_.in_width)));
    pointers = b_.CreateSelect(b_.CreateAnd(row_inside, column_inside), pointers, all(zeros_));
  }
  TileRows result;
  for (int i = 0; i < count_; ++i) result.pointers.push_back(b_.CreateExtractElement(pointers, static_cast<uint64_t>(i)));
  return result;
}

}  // namespace kiln::codegen
