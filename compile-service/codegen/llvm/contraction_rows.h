// The rows of A that a tile reads: of a strided matrix, or of a convolution's implicit matrix, where a row is one
// output pixel and lies elsewhere for every kernel position.
//
// A tile at the end of m has fewer rows than the code: the missing ones repeat the last row, so nothing beyond A is
// read.
#pragma once

#include "compile-service/codegen/llvm/contraction_kernel.h"
#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// `first`: pointer to the tile's first row at k = 0; `stride`: elements between rows; `rows`: how many exist, 1..mr.
TileRows StridedRows(VectorEmitter& emitter, DType storage, llvm::Value* first, llvm::Value* stride, llvm::Value* rows,
                     int mr);

// The pixels of one tile of a convolution. All rows are worked on at once, as vectors: of doubles where there is
// something to divide or multiply (whole numbers below 2^50 are exact in them), of i64 afterwards.
class PixelRows {
 public:
  // Built before the loop over tiles, for what all of them share. `m`: pixels in all, >= 1; `zeros`: null when no
  // kernel position ever lies outside.
  PixelRows(KernelFrame& frame, const ir::WindowGeometry& geometry, DType storage, int mr, llvm::Value* m,
            llvm::Value* zeros);

  // Finds the pixels of the rows first..first + mr - 1; `image`: pointer to the first image.
  void Locate(llvm::Value* first, llvm::Value* image);
  // Whether every kernel position of every row lies inside the image, as an i1.
  llvm::Value* AllInside();
  // Their rows at one kernel position: in the image without asking, or zeros where it lies outside.
  TileRows Inside(llvm::Value* kernel_row, llvm::Value* kernel_column) { return At(kernel_row, kernel_column, false); }
  TileRows InsideOrZeros(llvm::Value* kernel_row, llvm::Value* kernel_column) {
    return At(kernel_row, kernel_column, zeros_ != nullptr);
  }

 private:
  llvm::Value* All(llvm::Value* scalar) { return b_.CreateVectorSplat(lanes_, scalar); }
  llvm::Value* Number(double value) { return llvm::ConstantFP::get(b_.getDoubleTy(), value); }
  llvm::Value* Number(llvm::Value* integer) { return b_.CreateSIToFP(integer, b_.getDoubleTy()); }
  TileRows At(llvm::Value* kernel_row, llvm::Value* kernel_column, bool ask);
  llvm::Value* Quotient(llvm::Value* a, llvm::Value* inverse);
  llvm::Value* Whole(llvm::Value* doubles);

  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const ir::WindowGeometry& geometry_;
  DType storage_;
  int mr_;
  bool in_line_;  // the pixels of a tile lie side by side, always
  unsigned
      lanes_;  // mr or more: a power of two, as LLVM takes other vectors apart; 1 where the first pixel says it all
  llvm::Value* zeros_;
  // Doubles: the last pixel; sizes and their inverses; strides.
  llvm::Value* last_;
  llvm::Value* out_width_;
  llvm::Value* out_height_;
  llvm::Value* width_inverse_;
  llvm::Value* height_inverse_;
  llvm::Value* image_stride_;
  llvm::Value* row_stride_;
  llvm::Value* column_stride_;
  // Per pixel: coordinates of kernel position (0, 0), which may lie outside the image, and its offset in elements.
  llvm::Value* image_ = nullptr;
  llvm::Value* rows_ = nullptr;
  llvm::Value* columns_ = nullptr;
  llvm::Value* offsets_ = nullptr;
};

}  // namespace kiln::codegen
