// MicroKernel: the sums of one tile, mr rows x nv vectors, kept in registers over a range of k.
//
// One step of k loads nv vectors of B, broadcasts mr scalars of A and does mr * nv multiply-adds. Small tiles keep
// several sets of sums, so that consecutive steps do not wait for each other's result. With `streams`, k is cut into
// that many equal stretches which are read side by side, a set of sums each: one stream from memory does not keep it
// busy.
//
// With bytes, four neighbouring k are one step, as one i32 lane; sums are i32 (see ContractionSpec).
#pragma once

#include <cstdint>
#include <vector>

#include "compile-service/codegen/llvm/vector_emitter.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

using Values = VectorEmitter::Values;

// Vectors in memory that is private to the call: `count` of them on the stack, allocated once at function entry.
llvm::Value* NewVectors(VectorEmitter& emitter, int64_t count, DType type = DType::kF32);
// The address of one f32 vector; several in a row.
llvm::Value* VectorAt(VectorEmitter& emitter, llvm::Value* vectors, llvm::Value* index);
Values LoadVectors(VectorEmitter& emitter, llvm::Value* address, size_t count);
void StoreVectors(VectorEmitter& emitter, const Values& values, llvm::Value* address);

// Where the rows of A of one tile lie, at k = 0: a pointer per row, or one pointer and rows a constant number of
// elements apart.
struct TileRows {
  Values pointers;
  int64_t row_stride = 0;
};

class MicroKernel {
 public:
  // A cache line that each step of k asks for: `distance` elements from its place in B.
  struct Prefetch {
    llvm::Value* distance;
    enum class Into { kL1, kL2 } into;
  };
  // `a_step`: elements between consecutive k of A. `b_step`: the same of B when B is in rows, null when it is in
  // panels.
  struct Config {
    ir::Tile tile;
    DType a_storage, b_storage;
    llvm::Value* a_step;
    llvm::Value* b_step;
    std::vector<Prefetch> prefetches;
    int streams = 1;  // with B in panels only, not of bytes
  };
  MicroKernel(VectorEmitter& emitter, const Config& config);

  Values Zero() const;
  // Adds the products of `count` consecutive k (a constant for bytes) to `sums`; `b` is the panel's or first row's
  // pointer and is moved past them. `columns`: per vector of B, the lanes that exist.
  void Accumulate(const TileRows& rows, llvm::Value* count, const std::vector<Active>& columns, llvm::Value*& b,
                  Values& sums);
  // The finished sums, row-major.
  Values Finish(const Values& sums) const;

 private:
  bool is_bytes() const { return !IsFloat(config_.a_storage); }
  int64_t UnrollOf(llvm::Value* count) const;
  llvm::Value* ASplat(const TileRows& a, int row, llvm::Value* offset);
  llvm::Value* BVector(llvm::Value* address, const Active& active);
  llvm::Value* Product(llvm::Value* a, llvm::Value* b, llvm::Value* sum);
  void AccumulateBytes(const TileRows& rows, int64_t count, const std::vector<Active>& columns, llvm::Value*& b,
                       Values& sums);
  void AccumulateSteps(const TileRows& rows, llvm::Value* count, const std::vector<Active>& columns, llvm::Value*& b,
                       Values& sums);
  void EmitPrefetch(llvm::Value* address, Prefetch::Into into);
  llvm::Value* BOffset(int64_t step, int vector);
  // Steps over all streams, `length` steps each; moves `b` behind the last stream.
  void AccumulateStreams(const TileRows& a, llvm::Value* length, const std::vector<Active>& columns, llvm::Value*& b,
                         Values& sums);
  // One step of k, added to one set of sums; `ahead`: constant distance from the current position.
  void Step(const TileRows& a, llvm::Value* a_offset, llvm::Value* b, int64_t ahead, int64_t set,
            const std::vector<Active>& columns, Values& sums);

  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  Config config_;
  int sets_;
  int few_ = 0;  // bytes of the step being built, when they are not four
};

}  // namespace kiln::codegen
