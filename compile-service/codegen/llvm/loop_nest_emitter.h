// The emitter of loop nests: its loops are in loop_nest_loops.cc, its stages in loop_nest.cc.
#pragma once

#include <functional>

#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/codegen/llvm/nest_values.h"

namespace kiln::codegen {

// Terms that a float sum adds one after the other before it goes into a sum of such sums: what rounding loses grows
// with the length of a chain, all in one direction where the terms are alike.
inline constexpr int64_t kChainMax = 256;

class LoopNestEmitter {
 public:
  using Values = VectorEmitter::Values;

  LoopNestEmitter(KernelFrame& frame, const ir::LoopNestSpec& spec)
      : frame_(frame),
        e_(frame.emitter()),
        spec_(spec),
        rows_(spec.pairs_rows && frame.emitter().has_avx512() ? 2 : 1, NestValues(frame, spec)),
        values_(rows_.front()) {}

  void Emit();

 private:
  size_t outer_count() const { return spec_.outer.size(); }
  size_t inner_dim() const { return spec_.outer.size() + spec_.reduce.size(); }
  bool is_flat() const { return spec_.outer.empty() && spec_.reduce.empty() && !spec_.reduce_inner; }
  size_t UnrollOf(const std::vector<bool>& needed) const;
  bool IsTransposed() const;

  // Of all rows.
  void InScope(Dependence bound, const std::vector<bool>& needed, const std::function<void()>& body, size_t row = 0);
  void SetCoordinate(size_t dim, llvm::Value* position);
  void SetBlock(const Block& block);
  // Of `active`, what a row may store to.
  Active Stored(size_t row, const Active& active);

  // Loops.
  void ForOuter(const std::function<void()>& body);
  void ForTransposed(const std::function<void(llvm::Value* begin, llvm::Value* end)>& body);
  Values ForReduce(size_t dim, const Values& carried, const std::function<Values(const Values&)>& body);
  using Adder = std::function<Values(const Values&)>;
  Values ForSums(size_t dim, const ir::Stage& stage, const Values& start, const Adder& add);
  Values InChains(llvm::Value* extent, int64_t chain, const ir::Stage& stage, const Values& zeros,
                  const std::function<Values(llvm::Value* begin, llvm::Value* end)>& sum);
  using BlockBody = std::function<Values(const Block&, const Values&)>;
  Values ForInner(llvm::Value* begin, llvm::Value* end, size_t unroll, Values carried, const BlockBody& body);
  Values ForInnerConstant(int64_t extent, size_t unroll, Values carried, const BlockBody& body);
  Block FullBlock(llvm::Value* base, size_t vectors) const { return {base, std::vector<Active>(vectors)}; }

  // Stages.
  void RunRowStage(size_t index);
  Values ReduceRow(const ir::Stage& stage, const std::vector<bool>& needed);  // per row
  void StoreRow(const ir::Stage& stage, const std::vector<bool>& needed);
  void RunColumnBlock();
  Values ReduceColumns(const ir::Stage& stage, const std::vector<bool>& needed);
  void StoreColumns(const ir::Stage& stage, const std::vector<bool>& needed);
  void StoreStage(const ir::Stage& stage);
  void StoreBlock(const ir::Stage& stage, const ir::Store& store, size_t row);
  void Scatter(const ir::Stage& stage);
  void ScanColumns(size_t index, const std::vector<bool>& needed);
  DType TypeOf(const ir::Stage& stage) const { return spec_.body[static_cast<size_t>(stage.node)].type; }
  bool AddsFloats(const ir::Stage& stage) const { return stage.combine == ir::Combine::kSum && IsFloat(TypeOf(stage)); }
  llvm::Value* Identity(ir::Combine combine, DType type) const;
  llvm::Value* Combined(ir::Combine combine, DType type, llvm::Value* a, llvm::Value* b);
  Values Combined(const ir::Stage& stage, const Values& a, const Values& b);

  KernelFrame& frame_;
  VectorEmitter& e_;
  const ir::LoopNestSpec& spec_;
  // Side by side: two where the spec pairs rows and a store that may not take place costs no branch. At the end of an
  // odd range the second row is the first again, and stores nothing.
  std::vector<NestValues> rows_;
  NestValues& values_;                 // of the first row
  llvm::Value* has_second_ = nullptr;  // i1: whether the second row is one of its own
};

}  // namespace kiln::codegen
