// The rows of A that a tile reads: of a strided matrix, or of a convolution's implicit matrix, where a row is one output pixel and
// lies elsewhere for every kernel position.
//
// A tile at the end of m has fewer rows than the code: the missing ones repeat the last row, so nothing beyond A is read.
#pragma once

#include "compile-service/codegen/llvm/contraction_kernel.h"
#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// `first`: pointer to the tile's first row at k = 0; `stride`: elements between rows; `rows`: how many exist, 1..mr.
TileRows StridedRows(VectorEmitter& emitter, DType storage, llvm::Value* first, llvm::Value* stride, llvm::Value* rows, int mr);

// The pixels of one tile of a convolution.
class PixelRows {
 public:
  // `image`: pointer to the first image; `zeros`: null when no kernel position ever lies outside.
  PixelRows(KernelFrame& frame, const ir::WindowGeometry& geometry, DType storage, llvm::Value* image, llvm::Value* zeros);

  // Finds the pixels of the rows first..first + mr - 1 of m; those from `rows` on repeat the last.
  void Locate(llvm::Value* first, llvm::Value* rows, int mr);
  // Their rows at one kernel position.
  TileRows At(llvm::Value* kernel_row, llvm::Value* kernel_column);

 private:
  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const ir::WindowGeometry& geometry_;
  DType storage_;
  llvm::Value* image_;
  llvm::Value* zeros_;
  // One lane per row of the tile. The coordinates are those of kernel position (0, 0) and may lie outside the image; the offset is
  // in elements from the first image. Vectors, because a few instructions then serve all rows.
  int count_ = 0;
  llvm::Value* rows_ = nullptr;
  llvm::Value* columns_ = nullptr;
  llvm::Value* images_ = nullptr;
  llvm::Value* offsets_ = nullptr;
};

}  // namespace kiln::codegen
