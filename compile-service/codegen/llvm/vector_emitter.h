// VectorEmitter: typed vectors over LLVM's IRBuilder, for every emitter of this folder.
//
// Every value is a vector of `lanes()` elements (the target's f32 lanes, whatever the element type; LLVM splits wider
// ones), of a *compute* type: f32, f64, i32, i64 or bool (i1). Memory holds *storage* dtypes and is converted on the
// way. A tail is an `Active`: the first `count` lanes take part, the others are neither read nor written; in what is
// loaded they are 0. Loops and branches are emitted through callbacks; after them the builder stands behind the loop.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/artifact/target.h"
#include "common/tensor/dtype.h"

namespace kiln::codegen {

// Which lanes take part: all (count is null), or the first `count` (an i64 value).
struct Active {
  llvm::Value* count = nullptr;
  llvm::Value* mask = nullptr;  // <lanes x i1>, set whenever count is
  bool all() const { return count == nullptr; }
};

class VectorEmitter {
 public:
  // `builder` stands in `function`; both outlive the emitter.
  VectorEmitter(llvm::IRBuilder<>& builder, const TargetInfo& target, llvm::Function* function);

  llvm::IRBuilder<>& ir() { return builder_; }
  const TargetInfo& target() const { return target_; }
  int lanes() const { return target_.f32_lanes(); }
  bool has_fma() const;
  bool has_avx512() const;

  // --- types and constants ---
  llvm::Type* ScalarType(DType compute) const;   // float, double, i32, i64, i1
  llvm::Type* StorageType(DType storage) const;  // float, double, i8…i64 (f16 and bf16 as i16)
  llvm::Type* VectorType(DType compute) const;
  llvm::Value* I64(int64_t value) const;
  llvm::Value* Splat(llvm::Value* scalar);
  llvm::Value* SplatF32(float value);
  llvm::Value* SplatI32(int32_t value);
  llvm::Value* SplatF64(double value);
  llvm::Value* SplatI64(int64_t value);
  llvm::Value* Zero(DType compute) const;
  llvm::Value* LaneIndices();  // <0, 1, 2…> as i64

  Active Full() const { return {}; }
  Active First(llvm::Value* count);  // count: i64 in [0, lanes]

  // --- memory; `address` is a pointer to the first lane's element ---
  llvm::Value* Address(llvm::Value* pointer, DType storage, llvm::Value* elements);  // pointer + elements
  llvm::Value* Load(DType storage, DType compute, llvm::Value* address, const Active& active);
  llvm::Value* LoadBroadcast(DType storage, DType compute, llvm::Value* address);
  llvm::Value* LoadStrided(DType storage, DType compute, llvm::Value* address, llvm::Value* stride,
                           const Active& active);
  // Every lane from its own `offsets` (i64 elements behind `pointer`).
  llvm::Value* LoadIndexed(DType storage, DType compute, llvm::Value* pointer, llvm::Value* offsets,
                           const Active& active);
  void Store(llvm::Value* value, DType compute, DType storage, llvm::Value* address, const Active& active);
  void StoreStrided(llvm::Value* value, DType compute, DType storage, llvm::Value* address, llvm::Value* stride,
                    const Active& active);
  // Every lane to its own of `offsets` (i64 elements behind `pointer`); no two are equal.
  void StoreIndexed(llvm::Value* value, DType compute, DType storage, llvm::Value* pointer, llvm::Value* offsets,
                    const Active& active);
  void StoreFirstLane(llvm::Value* value, DType compute, DType storage, llvm::Value* address);
  // `lanes()` elements of the stack, 64-byte aligned, allocated once at function entry.
  llvm::Value* StackSlot(llvm::Type* element);

  // --- conversions: float to integer truncates and saturates, NaN gives 0; integers wrap; to bool is != 0 ---
  llvm::Value* Convert(llvm::Value* value, DType from, DType to);  // compute types
  llvm::Value* FromStorage(llvm::Value* raw, DType storage, DType compute);
  llvm::Value* ToStorage(llvm::Value* value, DType compute, DType storage);

  // --- arithmetic shared by emitters ---
  llvm::Value* MulAdd(llvm::Value* a, llvm::Value* b, llvm::Value* c);  // floats; fused where the target fuses
  llvm::Value* Minimum(llvm::Value* a, llvm::Value* b, DType type);     // a NaN wins; of two zeros, a
  llvm::Value* Maximum(llvm::Value* a, llvm::Value* b, DType type);
  // The value of all lanes combined pairwise by `combine`, in every lane.
  llvm::Value* ReduceLanes(llvm::Value* value, const std::function<llvm::Value*(llvm::Value*, llvm::Value*)>& combine);

  // --- control ---
  // for (i = begin; i < end; i += step): runs zero times when begin >= end. `body` gets i and the carried values and
  // returns their next ones; the result is what is carried out. When end - begin is not a multiple of step the last i
  // still is below end.
  using Values = std::vector<llvm::Value*>;
  using LoopBody = std::function<Values(llvm::Value* i, const Values& carried)>;
  Values Loop(llvm::Value* begin, llvm::Value* end, int64_t step, const Values& carried, const LoopBody& body);
  // for (i = begin; i < end; i = body(i)), where begin < end.
  void LoopFrom(llvm::Value* begin, llvm::Value* end, const std::function<llvm::Value*(llvm::Value* i)>& body);
  void If(llvm::Value* condition, const std::function<void()>& then);
  // Both callbacks return the same number of values.
  Values IfElse(llvm::Value* condition, const std::function<Values()>& then, const std::function<Values()>& otherwise);

 private:
  bool HasNativeMask(DType storage) const;
  bool HasNativeGather(DType storage) const;
  bool HasNativeScatter(DType storage) const;
  llvm::Value* LoadRaw(DType storage, llvm::Value* address, const Active& active);
  void StoreRaw(llvm::Value* raw, DType storage, llvm::Value* address, const Active& active);
  llvm::Value* StrideIndices(llvm::Value* stride);
  llvm::Value* Gather(DType storage, DType compute, llvm::Value* pointer, llvm::Value* offsets, const Active& active);
  // Lane by lane, `offset_of(lane)` elements behind `pointer`.
  llvm::Value* LoadLanes(DType storage, DType compute, llvm::Value* pointer, const Active& active,
                         const std::function<llvm::Value*(llvm::Value* lane)>& offset_of);
  // The same for stores.
  void StoreLanes(llvm::Value* raw, DType storage, llvm::Value* pointer, const Active& active,
                  const std::function<llvm::Value*(llvm::Value* lane)>& offset_of);
  void Scatter(llvm::Value* raw, DType storage, llvm::Value* pointer, llvm::Value* offsets, const Active& active);
  // The lane's element of a vector of offsets, for a lane that is a constant or, with partial vectors, any.
  std::function<llvm::Value*(llvm::Value* lane)> LaneOf(llvm::Value* offsets, const Active& active);
  llvm::Value* HalfToFloat(llvm::Value* raw);
  llvm::Value* FloatToHalf(llvm::Value* value);
  llvm::Value* FloatToBFloat(llvm::Value* value);
  llvm::Value* FloatToInteger(llvm::Value* value, DType integer);

  llvm::IRBuilder<>& builder_;
  const TargetInfo& target_;
  llvm::Function* function_;
};

}  // namespace kiln::codegen
